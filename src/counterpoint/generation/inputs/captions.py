"""The input of `generate`: captions of a file, of a benchmark or of drawn scenes, as a stream.

open_captions("captions_val2017.json")              a file
open_captions("sugarcrepe", Path("data"))           a benchmark's original captions
open_captions("world:size=1000,seed=1")             captions of drawn scenes

| file              | form |
|-------------------|------|
| .csv, .tsv        | a table with a header |
| .jsonl, .ndjson   | one object per line |
| .parquet          | a table; a column of images (`{bytes, path}`) is referred to, not read |
| .json             | one JSON document (json_files.py) |
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from counterpoint._util.errors import DataError, reason
from counterpoint._util.registry import Option, read_options
from counterpoint._util.tables import parquet_columns
from counterpoint._util.untrusted import shortened, shown
from counterpoint.cases import PROMPTS, SCHEMA as CASE_SCHEMA, Cases, ImageRef
from counterpoint.generation.inputs.json_files import CaptionRow, invalid, json_object, json_rows
from counterpoint.generation.pairs import UniqueIds, is_pairs_file, root_of
from counterpoint.images import cell_reference

CAPTION_NAMES: Final = ("caption", "captions", "text", "title", "sentence", "raw")
IMAGE_NAMES: Final = ("image", "filepath", "filename", "image_path", "file_name")
ID_NAMES: Final = ("id", "caption_id", "sentid")
WORLD: Final = "world"
_WORLD_OPTIONS: Final = {"size": Option(2000), "seed": Option(1)}
_WORLD_STREAM: Final = 2  # beside the seed: not the scenes of the world's benchmarks
_WITH_POSITIVES: Final = "+hp"
BOX: Final = "box"
SPLIT: Final = "split"
_FIELD: Final = 1 << 24  # characters; Python's default is too low for lists of negatives
_BATCH: Final = 4096


class SourceCaption(NamedTuple):
    """A caption to make texts from. An empty `caption` is missing in the input; it is rejected.

    `others` are the image's other true captions, if the input has them in the same row.
    """

    id: str
    image: ImageRef | None
    caption: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CaptionOptions:
    """How to read a file: the names of columns that are not found by themselves, and what to read.

    `split` is one name, or several with commas between.
    """

    caption: str | None = None
    image: str | None = None
    id: str | None = None
    split: str | None = None


@dataclass(frozen=True, slots=True)
class Captions:
    """Captions that can be read several times, each time in the same order.

    `total` is their number if it is known without reading them all. Relative image paths start at
    `root`. `fingerprint` changes with the captions and with how they are read.
    """

    name: str
    root: Path | None
    total: int | None
    fingerprint: str
    stream: Callable[[], Iterator[SourceCaption]]

    def __iter__(self) -> Iterator[SourceCaption]:
        """Ids are made unique: a repeated one becomes `ID~2`."""
        unique = UniqueIds()
        for source in self.stream():
            yield source._replace(id=unique(source.id))


def open_captions(
    name: str,
    data: Path | None = None,
    *,
    images: Path | None = None,
    options: CaptionOptions | None = None,
    limit: int = 0,
) -> Captions:
    """Captions by the path of a file, by a benchmark's id, or `world`.

    `data` is the folder of the benchmarks' data sets. `images` is the folder that image paths start
    from; by default that of the file, or the one that a pairs file names. With `limit`, only so
    many are read. Errors at the start of the file are raised here, others while it is read.
    """
    captions = _open(name, data, options or CaptionOptions())
    if images is not None:
        captions = replace(captions, root=images)
    return first_of(captions, limit) if limit else captions


def _open(name: str, data: Path | None, options: CaptionOptions) -> Captions:
    if name.partition(":")[0] == WORLD:
        return _of_world(name)
    path = Path(name)
    if path.is_file() and path.suffix in READERS and not is_case_file(path):
        return _of_file(path, options)
    if path.suffix in READERS and not path.is_file() and _WITH_POSITIVES not in name:
        raise DataError("E-FILE-MISSING", f"{path}: no such file.")
    if path.is_file() and path.suffix not in READERS:
        raise DataError(
            "E-FILE-FORMAT", f"{path}: the name of a caption file ends in {', '.join(READERS)}."
        )
    return _of_benchmark(name, data, options)


def first_of(captions: Captions, count: int) -> Captions:
    """The first `count` captions."""
    total = None if captions.total is None else min(count, captions.total)
    fingerprint = _digest(captions.fingerprint, count)
    return replace(
        captions,
        total=total,
        fingerprint=fingerprint,
        stream=lambda: islice(captions.stream(), count),
    )


def _of_file(path: Path, options: CaptionOptions) -> Captions:
    read = READERS[path.suffix]

    def stream() -> Iterator[SourceCaption]:
        for number, row in enumerate(read(path, options)):
            yield from sources_of(row, number, options)

    try:
        if next(read(path, options), None) is None:  # wrong columns are reported now
            raise DataError("E-CAPTIONS-MISSING", f"{path}: has no captions.")
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError("E-FILE-UNREADABLE", f"{path}: cannot be read: {reason(error)}.") from None
    total = _parquet_rows(path, options) if path.suffix == ".parquet" else None
    root = root_of(path) if is_pairs_file(path) else path.parent
    return Captions(str(path), root, total, _digest(content, asdict(options)), stream)


def _parquet_rows(path: Path, options: CaptionOptions) -> int | None:
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    schema = pq.read_schema(path)
    caption = schema.field(check_columns(path, schema.names, options)[0]).type
    if pa.types.is_nested(caption) or options.split is not None:
        return None  # a row may hold several captions, or none of the split
    return int(pq.read_metadata(path).num_rows)


def is_case_file(path: Path) -> bool:
    """Whether a .parquet or .jsonl holds cases: images x captions x truth."""
    if path.suffix == ".parquet":
        return set(CASE_SCHEMA) <= set(parquet_columns(path))
    if path.suffix != ".jsonl":
        return False
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"")
    try:
        row = json.loads(first.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and {"images", "captions", "truth"} <= set(row)


def _of_benchmark(name: str, data: Path | None, options: CaptionOptions) -> Captions:
    """The original caption of every image of a case: the first that is true of it."""
    from counterpoint.benchmarks import load_benchmark

    if options != CaptionOptions():
        raise DataError("E-OPTION-INVALID", f"{name}: columns and splits are for files, not cases.")
    _, cases = load_benchmark(name, data)
    total = int(cases.image_counts.sum())
    fingerprint = _digest(name, cases.content_hash())
    return Captions(name, cases.root, total, fingerprint, lambda: _originals(cases))


def _originals(cases: Cases) -> Iterator[SourceCaption]:
    for case in cases.frame.iter_rows(named=True):
        width = len(case["captions"])
        true: list[list[str]] = [[] for _ in case["images"]]
        for cell in case["truth"]:
            caption = case["captions"][cell % width]
            true[cell // width].append(caption.split(PROMPTS)[0])
        for place, (image, captions) in enumerate(zip(case["images"], true, strict=True)):
            id = case["id"] if len(true) == 1 else f"{case['id']}#{place}"
            original, *others = captions or [""]
            yield SourceCaption(id, _reference(image), original, tuple(others))


def _reference(image: dict[str, Any]) -> ImageRef | None:
    box = image["box"]
    reference = ImageRef(image["path"], None if box is None else (box[0], box[1], box[2], box[3]))
    return reference if reference.text is None else None


def _of_world(name: str) -> Captions:
    asked = read_options(WORLD, name.partition(":")[2], _WORLD_OPTIONS, ",")
    size, seed = int(asked["size"]), int(asked["seed"])
    return Captions(name, None, size, _digest(WORLD, size, seed), lambda: _scenes(size, seed))


def _scenes(size: int, seed: int) -> Iterator[SourceCaption]:
    import numpy as np

    from counterpoint.images import world_reference
    from counterpoint.world import sample_caption, sample_scene

    rng = np.random.default_rng((seed, _WORLD_STREAM))
    for number in range(size):
        scene = sample_scene(rng)
        image = ImageRef(world_reference(scene))
        yield SourceCaption(str(number), image, sample_caption(scene, rng))


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


# --- rows of files -----------------------------------------------------------------------------


def name_of(given: str | None, known: Iterable[str], names: Container[str]) -> str | None:
    """The name of a field: as given, or the first known name that exists."""
    return given or next((name for name in known if name in names), None)


Rows = Callable[[Path, CaptionOptions], Iterator[CaptionRow]]


def _delimited(separator: str, path: Path, options: CaptionOptions) -> Iterator[CaptionRow]:
    csv.field_size_limit(_FIELD)
    line = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=separator)
            header = next(reader, [])
            check_columns(path, header, options)
            for values in reader:
                line = reader.line_num
                if not values:
                    continue  # an empty line
                if len(values) != len(header):
                    raise DataError(
                        "E-FILE-MALFORMED",
                        f"{path}: line {line}: has {len(values)} fields, "
                        f"the header has {len(header)}.",
                    )
                yield CaptionRow(f"{path}: line {line}", dict(zip(header, values, strict=True)))
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(
            "E-FILE-MALFORMED",
            f"{path}: after line {line}: not a readable table: {shortened(error)}.",
        ) from None


def _jsonl(path: Path, options: CaptionOptions) -> Iterator[CaptionRow]:
    first = True
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}: line {number}"
            try:
                row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except RecursionError:
                raise DataError("E-JSON-INVALID", f"{where}: it is nested too deeply.") from None
            except ValueError as error:
                raise DataError(
                    "E-JSON-INVALID", f"{where}: not valid JSON: {shortened(error)}."
                ) from None
            fields = json_object(row, where)
            if first:
                check_columns(path, list(fields), options)
                first = False
            yield CaptionRow(where, fields)


def _json(path: Path, options: CaptionOptions) -> Iterator[CaptionRow]:
    for number, row in enumerate(json_rows(path)):
        if number == 0:
            check_columns(path, list(row.fields), options)
        yield row


def _parquet(path: Path, options: CaptionOptions) -> Iterator[CaptionRow]:
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            names = check_columns(path, file.schema_arrow.names, options)
            images = [name for name in names if _holds_images(file.schema_arrow.field(name).type)]
            wanted = [name for name in names if name not in images]
            for batch in file.iter_batches(_BATCH, columns=wanted):
                for row in batch.to_pylist():
                    cells = {name: cell_reference(path.name, name, number) for name in images}
                    yield CaptionRow(f"{path}: row {number + 1}", {**row, **cells})
                    number += 1
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        why = shortened(str(error).partition("\n")[0]).rstrip(".") or type(error).__name__
        raise DataError(
            "E-FILE-MALFORMED", f"{path}: row {number + 1}: not a readable Parquet file: {why}."
        ) from None


def _holds_images(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return bool(kind.get_field_index("bytes") >= 0)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def check_columns(path: Path, names: list[str], options: CaptionOptions) -> list[str]:
    """The columns to read. Raises if there are no captions, or if a named column is missing."""
    if not names:
        raise DataError("E-FILE-EMPTY", f"{path}: is empty; it needs a row of column names.")
    listed = shortened(", ".join(names))
    asked = {"caption": options.caption, "image": options.image, "id": options.id}
    for kind, name in asked.items():
        if name is not None and name not in names:
            raise DataError(
                "E-COLUMN-MISSING",
                f"{path}: there is no column {shown(name)} for the {kind}, only {listed}.",
            )
    caption = name_of(options.caption, CAPTION_NAMES, names)
    image = name_of(options.image, IMAGE_NAMES, names)
    id = name_of(options.id, ID_NAMES, names)
    if caption is None:
        raise DataError(
            "E-COLUMN-MISSING",
            f"{path}: which column holds the captions? None is called "
            f"{', '.join(CAPTION_NAMES[:-1])} or {CAPTION_NAMES[-1]}, but {listed}; "
            "name it with --caption-column.",
        )
    if options.split is not None and SPLIT not in names:
        raise DataError("E-COLUMN-MISSING", f"{path}: has no {SPLIT!r}; do not choose a split.")
    return [name for name in (caption, image, id, BOX, SPLIT) if name in names]


READERS: Final[dict[str, Rows]] = {
    ".csv": partial(_delimited, ","),
    ".tsv": partial(_delimited, "\t"),
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".json": _json,
    ".parquet": _parquet,
}


# --- the captions of a row ----------------------------------------------------------------------


def sources_of(row: CaptionRow, number: int, options: CaptionOptions) -> Iterator[SourceCaption]:
    """The captions of a row. Several in one row get the ids `ID#0`, `ID#1` and so on."""
    if options.split is not None and _split(row) not in options.split.split(","):
        return
    fields = row.fields
    caption = name_of(options.caption, CAPTION_NAMES, fields)
    captions = [_text(value, row.where) for value in _listed(fields.get(caption or ""))]
    image = _image(row, options)
    ids = _ids(row, number, len(captions), options)
    for place, (id, text) in enumerate(zip(ids, captions, strict=True)):
        rest = dict.fromkeys(captions[:place] + captions[place + 1 :])
        yield SourceCaption(
            id, image, text, tuple(other for other in rest if other not in ("", text))
        )


def _listed(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value or [None]
    return [value]


def _text(value: Any, where: str) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):  # pandas' null
        return ""
    if not isinstance(value, str):
        raise invalid(where, "a caption should be a text", value)
    return encodable(value).strip()


def encodable(text: str) -> str:
    """The text without halves of surrogate pairs, which JSON can write and UTF-8 cannot."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _split(row: CaptionRow) -> str:
    value = row.fields.get(SPLIT)
    if not isinstance(value, str):
        raise DataError(
            "E-COLUMN-MISSING", f"{row.where}: has no {SPLIT!r}; do not choose a split."
        )
    return value


def _ids(row: CaptionRow, number: int, count: int, options: CaptionOptions) -> list[str]:
    name = name_of(options.id, ID_NAMES, row.fields)
    value = row.fields.get(name) if name else None
    if isinstance(value, list) and len(value) == count:
        return [encodable(str(id)) for id in value]
    if isinstance(value, list | dict):
        raise invalid(row.where, "an id should be a text or a number", value)
    id = str(number) if value in (None, "") else encodable(str(value))
    return [id] if count == 1 else [f"{id}#{place}" for place in range(count)]


def _image(row: CaptionRow, options: CaptionOptions) -> ImageRef | None:
    name = name_of(options.image, IMAGE_NAMES, row.fields)
    value: Any = row.fields.get(name) if name else None
    box = row.fields.get(BOX)
    if isinstance(value, Mapping):  # as case files write it
        value, box = value.get("path"), value.get(BOX, box)
    if value in (None, ""):
        return None
    if not isinstance(value, str):
        raise invalid(row.where, "an image should be a path", value)
    return ImageRef(encodable(value), _box(box, row.where))


def _box(value: Any, where: str) -> tuple[int, int, int, int] | None:
    if value is None:
        return None
    whole = isinstance(value, list) and all(type(side) is int for side in value)
    if whole and len(value) == 4 and all(abs(side) < 2**31 for side in value):
        return (value[0], value[1], value[2], value[3])
    raise DataError(
        "E-FIELD-INVALID",
        f"{where}: the box {shown(value)} is not [x, y, width, height] in pixels.",
    )
