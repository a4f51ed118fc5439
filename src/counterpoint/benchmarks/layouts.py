"""Published layouts: the files of a benchmark in the form that its authors gave them.

A file or folder of another form is one error that says what was expected and what was found. Most
loaders that use this module were written without the files in hand, so that message matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from counterpoint._util.errors import DataError, NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint._util.untrusted import shortened, shown
from counterpoint.benchmarks.annotations import (
    files_below,
    jsonl_rows,
    parquet_image,
    parquet_rows,
    read_json,
    require,
    table_rows,
    text,
    whole,
)
from counterpoint.benchmarks.benchmark import Options
from counterpoint.cases import Case, ImageRef

IDENTITY: Final = ((True, False), (False, True))  # the first image has the first caption
_NAMES: Final = 8  # of a folder or a row, in a message


def unexpected(path: Path | str, expected: str, found: Any) -> DataError:
    """The error for another layout than the published one."""
    return DataError(
        "E-LAYOUT-UNEXPECTED",
        f"{path}: expected {expected}, found {described(found)}; get the published files again, or "
        "tell us if the authors changed them.",
    )


def described(value: Any) -> str:
    """The form of a value in a few words: what keys, how many, what is in a folder."""
    if isinstance(value, Path):
        names = sorted(one.name for one in value.iterdir()) if value.is_dir() else []
        return f"{_listed(names)} in {value}" if names else f"nothing in {value}"
    if isinstance(value, dict):
        return f"an object with {_listed(list(map(str, value)))}" if value else "an empty object"
    if isinstance(value, list):
        inner = f" of {described(value[0])}" if value and isinstance(value[0], dict | list) else ""
        return f"a list of length {len(value)}{inner and ', the first ' + inner[4:]}"
    return shown(value)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else ""
    return shortened(", ".join(names[:_NAMES])) + more


def published_file(folder: Path, names: Sequence[str], benchmark: str) -> Path:
    """The first file of one of these names in a folder, at any depth."""
    for name in names:
        if found := files_below(folder, name):
            return found[0]
    if not folder.is_dir() or not any(folder.iterdir()):
        require(folder / names[0], benchmark)  # says how to get it
    raise unexpected(folder, f"a file {' or '.join(names)}", folder)


def object_rows(path: Path, fields: Sequence[str], benchmark: str) -> Iterator[dict[str, Any]]:
    """The rows of a JSON list, of JSON lines or of a CSV table; each has all the fields."""
    form = f"rows with {', '.join(fields)}"
    rows: Iterable[Any]
    if path.suffix == ".csv":
        rows = table_rows(path, benchmark)
    elif path.suffix == ".jsonl":
        rows = jsonl_rows(path, benchmark)
    else:
        rows = read_json(path, benchmark)
        if not isinstance(rows, list):
            raise unexpected(path, f"a list of {form}", rows)
    for number, row in enumerate(rows):
        where = f"{path}: row {number + 1}"
        if not isinstance(row, dict) or any(field not in row for field in fields):
            raise unexpected(where, form, row)
        yield whole(row, where) if path.suffix == ".csv" else row


def file_below(folder: Path, name: str, root: Path) -> str:
    """The path of a file in a folder, under the data root.

    The name comes from a file, so it is not followed here: what opens images refuses `..`.
    """
    return f"{folder.relative_to(root).as_posix()}/{name}"


class PairColumns(NamedTuple):
    """The names of two images and of the two captions that describe them, in this order."""

    images: tuple[str, str]
    captions: tuple[str, str]
    id: str = ""  # its own id; the row number if it has none

    @property
    def fields(self) -> tuple[str, ...]:
        return (*filter(None, [self.id]), *self.images, *self.captions)


def pair_cases(
    files: list[Path],
    columns: PairColumns,
    options: Options,
    benchmark: str,
    *,
    image: Callable[[Path, str], str],
    groups: Callable[[dict[str, Any]], Iterable[str]],
    more: Sequence[str] = (),
) -> Iterator[Case]:
    """The cases of tables of two images and two captions: Parquet of the hub, JSON, JSON lines.

    `image` says where the image of this name is, as a path under the data root; images of Parquet
    tables are inside. `more` are columns that `groups` reads.
    """
    number = 0
    for path in files:
        if path.suffix == ".parquet":
            file = path.relative_to(options.data).as_posix()
            texts = [name for name in columns.fields if name not in columns.images]
            rows = parquet_rows(path, texts, columns.images, more)
        else:
            file, rows = "", object_rows(path, columns.fields, benchmark)
        for row, values in enumerate(rows):
            where = f"{path}: row {row + 1}"
            references = (
                parquet_image(file, name, row)
                if file
                else ImageRef(image(path, text(values, name, where)))
                for name in columns.images
            )
            own = values[columns.id] if columns.id else number
            yield Case(
                str(own) if isinstance(own, int) else text(values, columns.id, where),
                tuple(references),
                tuple(text(values, name, where) for name in columns.captions),
                IDENTITY,
                tuple(groups(values)),
            )
            number += 1


def chosen_option(options: Options, name: str, known: Sequence[str], benchmark: str) -> str:
    """The value of an option that has to be one of a few words."""
    value = options.text(name)
    if value not in known:
        raise NotFoundError("E-OPTION-INVALID", did_you_mean(name, value, known))
    return value
