"""Runs as they may be shown to others: without the folders of the machine that made them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from counterpoint.comparison import Difference
from counterpoint.runs import Part, Run

# From where an absolute path begins to its last separator. An address with a host, a relative path
# and a slash between words are none.
_PATH: Final = re.compile(
    r"""(?<![\w./…~<)\]])
    (?: (?:file://)? / (?=[\w.~-]) (?: [^/,;:"'<>\n]* / (?=[^/,;:"'<>\s]) )*
    |   [A-Za-z]:[\\/] (?: [^\\/,;:"'<>\n]* [\\/] (?=[^\\/,;:"'<>\s]) )* )""",
    re.VERBOSE,
)


def without_folders(text: str) -> str:
    """The text with the last part only of every absolute path in it."""
    return _PATH.sub("…/", text)


@dataclass(frozen=True, slots=True)
class Shared:
    """Runs without folders, and what their models and benchmarks are called in them."""

    runs: list[Run]
    models: dict[str, str]
    benchmarks: dict[str, str]

    def differences(self, found: Sequence[Difference]) -> list[Difference]:
        return [replace(d, benchmark=self.benchmarks[d.benchmark]) for d in found]


def shared(runs: Sequence[Run]) -> Shared:
    """What is called alike without its folder gets a number, so that it stays apart."""
    models = _names(run.model for run in runs)
    benchmarks = _names(name for run in runs for name in run.parts)
    made = [
        Run(
            models[run.model],
            {benchmarks[name]: _part(benchmarks[name], part) for name, part in run.parts.items()},
            _cleaned(run.manifest),
            run.folder,
        )
        for run in runs
    ]
    return Shared(made, models, benchmarks)


def _names(names: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        short, number = without_folders(name), 1
        while short in found.values():
            number += 1
            short = f"{without_folders(name)} ({number})"
        found[name] = short
    return found


def _part(name: str, part: Part) -> Part:
    lost = [
        tuple((without_folders(id), without_folders(why)) for id, why in reasons)
        for reasons in (part.left_out, part.lost_images)
    ]
    return replace(part, benchmark=name, left_out=lost[0], lost_images=lost[1])


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return without_folders(value)
    if isinstance(value, dict):
        return {key: _cleaned(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(inner) for inner in value]
    return value
