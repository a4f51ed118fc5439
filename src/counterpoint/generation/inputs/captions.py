"""The input of `generate`: captions of a file, of a benchmark or of drawn scenes, as a stream.

open_captions("captions_val2017.json")              a file: see files.py
open_captions("sugarcrepe", Path("data"))           a benchmark's original captions
open_captions("world:size=1000,seed=1")             captions of drawn scenes
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from counterpoint._util.errors import DataError, reason
from counterpoint._util.registry import Option, read_options
from counterpoint._util.tables import parquet_columns
from counterpoint.cases import PROMPTS, SCHEMA as CASE_SCHEMA, Cases, ImageRef
from counterpoint.generation.inputs.files import (
    READERS,
    CaptionOptions,
    SourceCaption,
    check_columns,
    sources_of,
)
from counterpoint.generation.pairs import UniqueIds, is_pairs_file, root_of

WORLD: Final = "world"
_WORLD_OPTIONS: Final = {"size": Option(2000), "seed": Option(1)}
_WORLD_STREAM: Final = 2  # beside the seed: not the scenes of the world's benchmarks
_WITH_POSITIVES: Final = "+hp"


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
) -> Captions:
    """Captions by the path of a file, by a benchmark's id, or `world`.

    `data` is the folder of the benchmarks' data sets. `images` is the folder that image paths start
    from; by default that of the file, or the one that a pairs file names. Errors at the start of
    the file are raised here, others while it is read.
    """
    captions = _open(name, data, options or CaptionOptions())
    return captions if images is None else replace(captions, root=images)


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
