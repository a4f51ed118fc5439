"""Cases in files that hold their images: WebDataset shards, and Parquet tables of image bytes.

A sample is an image with `caption`, and may have `positives`, `negatives`, `group`, `id` and
`cluster`. In a shard it is `KEY.jpg` (or .png, .webp ...) with `KEY.json`, or `KEY.txt` with the
caption alone; in a table, a row with a column of images, `{bytes, path}` or bytes. Samples with
negatives are a case each. If none has any, all of them together are a gallery: retrieval.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

import polars as pl

from counterpoint._util.errors import DataError, ImageError
from counterpoint._util.tables import parquet_columns, parquet_frames, parquet_schema
from counterpoint._util.untrusted import parse_json, shortened
from counterpoint.benchmarks.reading import malformed, text
from counterpoint.benchmarks.retrieval import gallery
from counterpoint.cases import CHUNK, Case, Cases, ImageRef, caption_case, read_cases
from counterpoint.images import (
    cell_reference,
    expand_braces,
    member_reference,
    read_member,
    tar_samples,
)

TAR: Final = ".tar"
_PARQUET: Final = ".parquet"
_MOST_PAIRS: Final = 2**31  # of a gallery, whose true cells are 32-bit numbers
_FIELDS: Final = ("caption", "positives", "negatives", "group", "id", "cluster")


class _Sample(NamedTuple):
    """An image and what is said of it; `where` names it in messages."""

    id: str
    image: ImageRef
    values: dict[str, Any]
    where: str


def holds_shards(name: str) -> bool:
    """Whether a benchmark's name is a folder of shards."""
    folder = Path(name)
    return folder.is_dir() and any(folder.glob(f"*{TAR}"))


def own_file(name: str) -> Cases:
    """The cases of a case file, of shards or of tables with images, by path, pattern or folder."""
    path = Path(name)
    if path.is_dir():
        files = sorted(path.glob(f"*{TAR}"))
    elif path.suffix not in (TAR, _PARQUET) or (
        path.suffix == _PARQUET and path.is_file() and _image_column(path) is None
    ):
        return read_cases(path)  # which says what is wrong with other files
    else:
        files = [path] if path.is_file() else [*map(Path, expand_braces(name))]
    for file in files:
        if not file.is_file():
            raise DataError("E-FILE-MISSING", f"{file}: no such file.")
    root = Path(os.path.commonpath([file.absolute().parent for file in files]))
    samples = (
        sample
        for number, file in enumerate(files)
        for sample in _samples(file, root, f"{number}/" if len(files) > 1 else "")
    )
    first = next(samples, None)
    everything = samples if first is None else chain([first], samples)
    if first is None or _texts(first, "negatives"):
        return Cases.build(map(_case, everything), root=root, source=name)
    return Cases.checked(iter([_gallery(everything, name)]), root, name)


def _case(sample: _Sample) -> Case:
    caption, positives = text(sample.values, "caption", sample.where), _texts(sample, "positives")
    negatives = _texts(sample, "negatives")
    if not negatives:
        raise DataError(
            "E-CASE-NO-NEGATIVE",
            f"{sample.where}: has no negatives, and others have; give it some, or remove them all "
            "for retrieval.",
        )
    return caption_case(
        _label(sample, "id") or sample.id,
        sample.image,
        [caption, *positives],
        negatives,
        tuple(filter(None, [_label(sample, "group")])),
        _label(sample, "cluster"),
    )


def _gallery(samples: Iterable[_Sample], source: str) -> pl.DataFrame:
    """All images and all captions; a caption is true of every image that has the same."""
    images: list[str] = []
    captions: list[str] = []
    owners: dict[str, list[int]] = {}
    for sample in samples:
        if _texts(sample, "negatives"):
            raise DataError(
                "E-CASE-NO-NEGATIVE",
                f"{sample.where}: has negatives, and samples before it have none; give all some, "
                "or remove them for retrieval.",
            )
        own = [text(sample.values, "caption", sample.where), *_texts(sample, "positives")]
        for caption in dict.fromkeys(own):
            captions.append(caption)
            owners.setdefault(caption, []).append(len(images))
        images.append(sample.image.path)
    width = len(captions)
    if len(images) * width >= _MOST_PAIRS:
        raise DataError(
            "E-BENCHMARK-TOO-LARGE",
            f"{source}: {len(images):,} images and {width:,} captions are too many for retrieval; "
            "name fewer files, or give the samples negatives.",
        )
    true = ((image, n) for n, caption in enumerate(captions) for image in owners[caption])
    return gallery(images, captions, true, cluster=source)


def _texts(sample: _Sample, field: str) -> list[str]:
    """A list of texts, or one text."""
    value = sample.values.get(field)
    found = [value] if isinstance(value, str) else value or []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise malformed(sample.where, f"{field!r} should hold a list of texts")
    return found


def _label(sample: _Sample, field: str) -> str:
    value = sample.values.get(field)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return "" if value is None else text(sample.values, field, sample.where)


# --- the files -----------------------------------------------------------------------------------


def _samples(file: Path, root: Path, before: str) -> Iterator[_Sample]:
    """`before` makes ids unique over several files."""
    name = PurePosixPath(file.absolute().relative_to(root)).as_posix()
    read = _tar_samples if file.suffix == TAR else _table_samples
    return read(file, name, before)


def _tar_samples(file: Path, name: str, before: str) -> Iterator[_Sample]:
    """In the order of the file; members without a partner are not samples."""
    try:
        samples = tar_samples(file)
    except ImageError as error:
        raise DataError("E-FILE-MALFORMED", str(error).removeprefix("image ")) from None
    for key, parts in samples.items():
        if "image" in parts and parts.keys() & {"json", "txt"}:
            image = ImageRef(member_reference(name, parts["image"]))
            where = f"{file}: sample {shortened(key)}"
            yield _Sample(f"{before}{key}", image, _fields(file, parts, where), where)


def _fields(file: Path, parts: dict[str, str], where: str) -> dict[str, Any]:
    found = {}
    if "json" in parts:
        found = parse_json(read_member(file, parts["json"]), where)
        if not isinstance(found, dict):
            raise malformed(where, "its JSON is not an object")
    if "txt" in parts and "caption" not in found:
        caption = read_member(file, parts["txt"]).decode("utf-8-sig", errors="replace").strip()
        found = {**found, "caption": caption}
    return found


def _table_samples(file: Path, name: str, before: str) -> Iterator[_Sample]:
    column, names = _image_column(file), parquet_columns(file)
    if column is None:
        raise DataError(
            "E-COLUMN-MISSING", f"{file}: has no column of images, {{bytes, path}} or bytes."
        )
    row = 0
    for frame in parquet_frames(file, rows=CHUNK, columns=[n for n in _FIELDS if n in names]):
        for values in frame.iter_rows(named=True):
            image = ImageRef(cell_reference(name, column, row))
            yield _Sample(f"{before}{row}", image, values, f"{file}: row {row + 1}")
            row += 1


def _image_column(file: Path) -> str | None:
    """The column `image`, else the first one that holds images; a case table has none."""
    import pyarrow as pa  # slow to import

    def holds(kind: Any) -> bool:
        if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
            kind = kind.field("bytes").type
        return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))

    found = [field.name for field in parquet_schema(file) if holds(field.type)]
    return "image" if "image" in found else next(iter(found), None)
