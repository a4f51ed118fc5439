"""Lazy registries: a name maps to `module:attribute`, imported when first asked for.

Third parties add to them by entry points in the groups `counterpoint.models`,
`counterpoint.benchmarks`, `counterpoint.rules` and `counterpoint.losses`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from counterpoint.errors import CounterpointError, NotFoundError, PluginError
from counterpoint.untrusted import shortened

_LISTED: Final = 12


def did_you_mean(kind: str, name: str, known: Iterable[str]) -> str:
    """One sentence: what was not found, what may have been meant, what there is."""
    names = sorted(known)
    listed = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    plain = {known_name.lower(): known_name for known_name in names}
    close = get_close_matches(name.lower(), plain, n=1, cutoff=0.5)
    hint = f" Did you mean {plain[close[0]]!r}?" if close else ""
    return f"no {kind} is called {name!r}.{hint} Known: {listed}."


class Registry:
    """Names of one kind of thing."""

    def __init__(self, kind: str, group: str, builtin: Mapping[str, str]) -> None:
        self.kind, self.group, self.builtin = kind, group, builtin

    def names(self) -> list[str]:
        return sorted({*self.builtin, *(point.name for point in entry_points(group=self.group))})

    def get(self, name: str) -> Any:
        if name in self.builtin:
            module, _, attribute = self.builtin[name].partition(":")
            return getattr(importlib.import_module(module), attribute)
        points = entry_points(group=self.group, name=name)
        if not points:
            raise NotFoundError(did_you_mean(self.kind, name, self.names()))
        return self._load(next(iter(points)))

    def broken(self) -> dict[str, str]:
        """The plug-ins that cannot be imported, and why: all of them are tried."""
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
        except CounterpointError:  # it says itself what it lacks
            raise
        except Exception as error:  # whatever another's module does when it is imported
            raise PluginError(
                f"the plug-in {point.value!r} of the {self.kind} {point.name!r} cannot be imported "
                f"({type(error).__name__}: {shortened(error)}); mend or uninstall its package."
            ) from error
