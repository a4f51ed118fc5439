"""Work in pieces that survive a kill: a finished piece is a file, and is not done again."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from counterpoint.errors import DataError, reason
from counterpoint.generate.making import CAPTIONS, MADE
from counterpoint.generate.pairs import Pair, read_about, read_pairs, tabulate, write_pairs
from counterpoint.untrusted import shortened
from counterpoint.writing import whole_file

Counts = Counter[tuple[str, str]]  # by (what, `made` or why not)
REPEATED: Final = "duplicate: made before"

_ENDING: Final = ".parts"
_SETTINGS: Final = "settings.json"


class Parts:
    """The folder `OUT.parts` beside a file that is being made. `about` says how it is made."""

    def __init__(self, out: Path, about: Mapping[str, Any]) -> None:
        self.folder = out.with_name(out.name + _ENDING)
        self.about = json.loads(json.dumps(about, sort_keys=True))
        path = self.folder / _SETTINGS
        try:
            if not path.is_file():
                with whole_file(path) as draft:
                    draft.write_text(json.dumps(self.about, indent=1), encoding="utf-8")
            found = json.loads(path.read_bytes())
            same = {k: found.get(k) == self.about.get(k) for k in {**found, **self.about}}
        except OSError as error:
            raise DataError(f"{path}: cannot be used: {reason(error)}.") from None
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise DataError(f"{path}: cannot be used; remove {self.folder}.") from None
        if not all(same.values()):
            other = next(key for key, value in same.items() if not value)
            raise DataError(
                f"{self.folder} holds work begun with another {shortened(other)}; "
                "finish that first, name another -o, or remove the folder."
            )

    def path(self, name: str, number: int) -> Path:
        return self.folder / f"{number:06d}-{name.replace('/', '-')}.parquet"

    def done(self, name: str, number: int) -> bool:
        return self.path(name, number).is_file()

    def frames(self, names: list[str], count: int, counts: Counts) -> Iterator[pl.DataFrame]:
        """The rows of all parts, a piece of the input after another.

        What two makers made of one caption alike is kept once; `counts` is put right.
        """
        for number in range(count):
            paths = [self.path(name, number) for name in names]
            piece = pl.concat(
                [tabulate([]), *(f for path in paths for f in read_pairs(path, refused=True))]
            )
            first = pl.struct("source", "text", "refused").is_first_distinct()
            again = piece.select(~first & (pl.col("refused") == "")).to_series()
            for method in piece.filter(again)["method"]:
                counts[method, MADE] -= 1
                counts[method, REPEATED] += 1
            yield piece.filter(~again)

    def counts(self, names: list[str], count: int) -> Counts:
        """What all parts together have counted; captions, which every maker sees, only once."""
        total: Counts = Counter()
        for name in names:
            for number in range(count):
                found = read_counts(read_about(self.path(name, number)))
                total += Counter(
                    {k: n for k, n in found.items() if k[0] != CAPTIONS or name == names[0]}
                )
        return total

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def write_part(path: Path, pairs: list[Pair], counts: Counts) -> None:
    """A part with its counts in one file, so that one is never there without the other."""
    write_pairs(path, [tabulate(pairs)], with_counts({}, counts))


def with_counts(about: Mapping[str, Any], counts: Counts) -> dict[str, Any]:
    """What a file says of itself, with the counts in a form that JSON has."""
    rows = [[what, reason, number] for (what, reason), number in sorted(counts.items()) if number]
    return {**about, "counts": rows}


def read_counts(about: Mapping[str, Any]) -> Counts:
    return Counter({(what, reason): number for what, reason, number in about.get("counts", [])})
