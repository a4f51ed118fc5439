"""Lazy registries: a name maps to `module:attribute`, imported when first asked for.

Third parties add to them by entry points in the groups `counterpoint.models`,
`counterpoint.benchmarks`, `counterpoint.rules` and `counterpoint.losses`.

Options in an id are `?side=512&image=png` behind a model, `:size=100,seed=1` behind a benchmark: an
option is `key=value`, and the next one begins where `&` (or a comma) is followed by another `key=`,
so a value may hold any of these marks. A value is a whole number where the default is one, one of a
few words where these are listed, and else any text.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import metadata
from importlib.metadata import EntryPoint
from typing import Any, Final

from counterpoint._util.errors import CounterpointError, NotFoundError, PluginError, missing_extra
from counterpoint._util.untrusted import shortened, shown

_LISTED: Final = 12


@cache
def _entry_points(path: tuple[str, ...], **wanted: str) -> Any:
    """Reads a file of every package that is installed on the path."""
    return metadata.entry_points(**wanted)


def entry_points(**wanted: str) -> Any:
    return _entry_points(tuple(sys.path), **wanted)


def did_you_mean(kind: str, name: str, known: Iterable[str]) -> str:
    """One sentence: what was not found, the nearest known name, and all known names.

    Of names that are equally near, the first is suggested.
    """
    names = sorted(known) if isinstance(known, set | frozenset) else list(known)
    ordered = sorted(names)
    listed = ", ".join(ordered[:_LISTED]) + (" and more" if len(ordered) > _LISTED else "")
    hint = "".join(f" Did you mean {found!r}?" for found in near(name, names)[:1])
    return f"no {kind} is called {shown(name)}.{hint} Known: {listed}."


def near(name: str, known: Iterable[str]) -> list[str]:
    """The known names that are near, best first.

    Names with every word of `name`, fewest other words first; if there are none, the name that is
    nearest letter by letter.
    """
    names = list(known)
    words = _words(name)
    holding = [one for one in names if words and words <= _words(one)]
    if holding:
        return sorted(holding, key=lambda one: len(_words(one)))
    plain = {one.lower(): one for one in reversed(names)}
    return [plain[close] for close in get_close_matches(name.lower(), plain, n=1, cutoff=0.5)]


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+|[0-9]+", name.lower()))


class Registry:
    """The names of one kind of object."""

    def __init__(self, kind: str, group: str, builtin: Mapping[str, str]) -> None:
        self.kind, self.group, self.builtin = kind, group, builtin

    def names(self) -> list[str]:
        return sorted({*self.builtin, *(point.name for point in entry_points(group=self.group))})

    def get(self, name: str) -> Any:
        if name in self.builtin:
            module, _, attribute = self.builtin[name].partition(":")
            try:
                return getattr(importlib.import_module(module), attribute)
            except ModuleNotFoundError as error:
                raise missing_extra(error) or error from None
        points = entry_points(group=self.group, name=name)
        if not points:
            code = f"E-{self.kind.upper().replace(' ', '-')}-UNKNOWN"
            raise NotFoundError(code, did_you_mean(self.kind, name, self.names()))
        return self._load(next(iter(points)))

    def broken(self) -> dict[str, str]:
        """The plug-ins that cannot be imported, and why. All of them are tried."""
        found = {}
        for name in set(self.names()) - set(self.builtin):
            try:
                self.get(name)
            except CounterpointError as error:
                found[name] = str(error)
        return found

    def _load(self, point: EntryPoint) -> Any:
        try:
            return point.load()
        except CounterpointError:  # its message says what is missing
            raise
        except Exception as error:  # importing other code may raise anything
            raise PluginError(
                "E-PLUGIN-BROKEN",
                f"the plug-in {point.value!r} of the {self.kind} {point.name!r} cannot be imported "
                f"({type(error).__name__}: {shortened(error)}); repair or uninstall its package.",
            ) from error


# --- options in ids ------------------------------------------------------------------------------

Value = str | int
_NUMBER: Final = re.compile("[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Option:
    """What an option may be. A number is at least `least`."""

    default: Value
    among: tuple[str, ...] = ()
    least: int = 0


def read_options(
    of: str, text: str, known: Mapping[str, Option], apart: str = "&"
) -> dict[str, Value]:
    """The values of all known options, of which `text` gives some. Errors name what they are of."""
    values = {key: option.default for key, option in known.items()}
    for part in filter(None, re.split(rf"{apart}(?=\w+=|$)", text)):
        key, _, value = part.partition("=")
        if key not in known:
            raise NotFoundError("E-OPTION-UNKNOWN", did_you_mean(f"option of {of}", key, known))
        values[key] = _value(of, key, value, known[key])
    return values


def _value(of: str, key: str, value: str, option: Option) -> Value:
    if isinstance(option.default, int):
        if _NUMBER.fullmatch(value) and int(value) >= option.least:
            return int(value)
        what = f"{of}: {key} must be a whole number from {option.least} on"
        raise NotFoundError("E-OPTION-INVALID", f"{what}, not {shown(value)}.")
    if option.among and value not in option.among:
        raise NotFoundError("E-OPTION-INVALID", did_you_mean(f"{key} of {of}", value, option.among))
    return value
