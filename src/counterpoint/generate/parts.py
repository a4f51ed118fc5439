"""Work in pieces that survive a kill: a finished piece is a file, and is not done again."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from counterpoint.errors import DataError
from counterpoint.generate.pairs import Pair, read_pairs, tabulate, write_pairs

_ENDING: Final = ".parts"
_SETTINGS: Final = "settings.json"


class Parts:
    """The folder `OUT.parts` beside a file that is being made. `about` says how it is made."""

    def __init__(self, out: Path, about: Mapping[str, Any]) -> None:
        self.folder = out.with_name(out.name + _ENDING)
        self.about = json.loads(json.dumps(about, sort_keys=True))
        path = self.folder / _SETTINGS
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not path.is_file():
                _write(path, json.dumps(self.about, indent=1))
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be used: {error}; remove {self.folder}.") from None
        if found != self.about:
            other = next(k for k in {**found, **self.about} if found.get(k) != self.about.get(k))
            raise DataError(
                f"{self.folder} holds work begun with another {other}; "
                "finish that first, name another -o, or remove the folder."
            )

    def path(self, name: str, number: int) -> Path:
        return self.folder / f"{number:06d}-{name.replace('/', '-')}.parquet"

    def done(self, name: str, number: int) -> bool:
        return self.path(name, number).is_file()

    def frames(self, names: list[str], count: int) -> Iterator[pl.DataFrame]:
        """The rows of all parts, a piece of the input after another."""
        for number in range(count):
            for name in names:
                yield from read_pairs(self.path(name, number), refused=True)

    def counts(self, names: list[str], count: int) -> Counter[tuple[str, str]]:
        """What all parts together have counted. Captions are counted once, not once a name."""
        total: Counter[tuple[str, str]] = Counter()
        for name in names:
            for number in range(count):
                total += read_counts(self.path(name, number))
        return total

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def write_part(path: Path, pairs: list[Pair], counts: Counter[tuple[str, str]]) -> None:
    """A part with its counts in one file, so that one is never there without the other."""
    rows = [[what, reason, number] for (what, reason), number in sorted(counts.items())]
    write_pairs(path, [tabulate(pairs)], {"counts": rows})


def read_counts(path: Path) -> Counter[tuple[str, str]]:
    from counterpoint.generate.pairs import read_about

    return Counter({(what, reason): n for what, reason, n in read_about(path)["counts"]})


def _write(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
