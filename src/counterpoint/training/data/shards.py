"""WebDataset shards: tar files with `KEY.jpg` and `KEY.json` side by side.

The JSON object holds `caption`, and may hold `positives`, `negatives`, `dense`, `dense_negatives`,
`positive_types` and `negative_types` as a training file does. The caption may be in `KEY.txt`.

Shards are read when they are opened: their texts, and where each image starts, are kept in the
cache. So any sample can be read at once, and a run continues at any step without reading what came
before. To read mostly in sequence, an epoch visits the shards in random order, and shuffles the
samples of sixteen shards at a time.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import platformdirs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from PIL import Image

from counterpoint._util.errors import DataError, ImageError, reason
from counterpoint._util.untrusted import parse_json
from counterpoint._util.writing import whole_file
from counterpoint.cases import offsets
from counterpoint.images import TarMember, expand_braces, read_member, tar_members, tar_samples
from counterpoint.training.data.loading import Setting
from counterpoint.training.data.table import (
    SCHEMA,
    TEXT_LISTS,
    TYPES,
    Record,
    SampleTable,
    decode,
    refuse_empty,
    refuse_uneven,
)
from counterpoint.training.recipe import DataConfig

_TEXTS: Final = frozenset(("json", "txt"))  # endings of members with texts
_WINDOW: Final = 16  # shards whose samples are shuffled together
_VERSION: Final = 3  # of what is kept
# Of an image in its shard; and why the texts of a sample cannot be read, if they cannot.
_SCHEMA: Final = pa.schema(
    [*SCHEMA, ("start", pa.int64()), ("size", pa.int64()), ("problem", pa.string())]
)


def read_shards(setting: Setting, problems: Counter[str]) -> SampleTable:
    """The table of the shards; samples without an image or a caption are left out and counted."""
    config = setting.config
    shards = [shard for path in config.paths for shard in _expand(path)]
    advance = setting.progress.start("shards", len(shards))
    parts, left_out = [], 0
    for shard in shards:
        whole = _read(shard)
        parts.append(whole.filter(pc.is_valid(whole["image"])))
        left_out += len(whole) - len(parts[-1])
        advance(1)
    if left_out:
        problems["samples without an image or a caption: left out"] += left_out
    table, path = pa.concat_tables(parts).combine_chunks(), config.paths[0]
    if not len(table):
        raise DataError(
            "E-DATA-EMPTY", f"{path}: no sample there has an image and a .json or .txt."
        )
    refuse_uneven(table, config, path)
    try:
        refuse_empty(table, config, path)
    except DataError:
        for problem in table["problem"].drop_null()[:1]:
            raise DataError("E-SAMPLE-MALFORMED", problem.as_py()) from None
        raise
    return _Shards(table, path, config, tuple(np.trim_zeros([*map(len, parts)], "b")))


def _expand(path: Path) -> list[Path]:
    """A folder is all its .tar files; `a-{000..099}.tar` is a hundred files."""
    if path.is_dir():
        found = sorted(path.glob("*.tar"))
    else:
        found = [Path(name) for name in expand_braces(str(path))]
    if not found:
        raise DataError("E-FILE-MISSING", f"{path}: no .tar files there.")
    missing = [shard for shard in found if not shard.is_file()]
    if missing:
        raise DataError(
            "E-FILE-MISSING", f"{missing[0]}: no such file; shards must lie on this machine."
        )
    return found


def _read(shard: Path) -> pa.Table:
    """The table of one shard, from the cache as long as the file stays as it was."""
    stat = shard.stat()
    identity = f"{_VERSION} {shard.absolute()} {stat.st_size} {stat.st_mtime_ns}"
    name = hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
    kept = Path(platformdirs.user_cache_dir("counterpoint")) / "shards" / f"{name}.parquet"
    try:
        return pq.read_table(kept, schema=_SCHEMA)
    except (OSError, pa.ArrowException):
        table = pa.Table.from_pylist(_rows(shard), schema=_SCHEMA)
    with suppress(DataError), whole_file(kept) as draft:  # or the next run reads it again
        pq.write_table(table, draft)
    return table


def _rows(shard: Path) -> list[dict[str, Any]]:
    """A row per sample; one without an image or a text is empty."""
    try:
        members = tar_members(shard)
        return [_row(shard, sample, members) for sample in tar_samples(shard).values()]
    except ImageError as error:
        raise DataError("E-FILE-MALFORMED", str(error).removeprefix("image ")) from None


def _row(shard: Path, sample: dict[str, str], members: Mapping[str, TarMember]) -> dict[str, Any]:
    parts = {part: name for part, name in sample.items() if members[name].size}
    if "image" not in parts or not parts.keys() & _TEXTS:
        return {}
    start, size = members[parts["image"]]
    place = {"image": str(shard), "start": start, "size": size}
    texts = {part: read_member(shard, parts[part]) for part in parts if part in _TEXTS}
    try:
        return place | _texts(texts, _where(place))
    except DataError as error:
        return place | {"problem": str(error)}


def _texts(sample: dict[str, bytes], where: str) -> dict[str, Any]:
    values: Any = parse_json(sample["json"], where) if "json" in sample else {}
    if not isinstance(values, dict):
        raise _malformed(where, "its JSON is no object")
    caption = values.get("caption")
    if caption is None and "txt" in sample:
        caption = sample["txt"].decode("utf-8", errors="replace").strip()
    if not isinstance(caption, str):
        raise _malformed(where, "has no caption")
    lists = {name: values.get(name) or [] for name in TEXT_LISTS}
    texts = [texts for texts in lists.values() if isinstance(texts, list)]
    if len(texts) < len(lists) or not all(isinstance(t, str | None) for t in chain(*texts)):
        raise _malformed(where, "its texts are not lists of strings")
    if lists["dense_negatives"] and len(lists["dense_negatives"]) != len(lists["dense"]):
        raise _malformed(where, "dense and dense_negatives are not as many")
    types = {name: values.get(name) for name in TYPES.values()}
    lists |= {name: [*map(str, t)] for name, t in types.items() if isinstance(t, list)}
    return {"caption": caption, **lists}


def _where(place: dict[str, Any]) -> str:
    return f"{place['image']}, sample at byte {place['start']}"


def _malformed(where: str, what: str) -> DataError:
    return DataError("E-SAMPLE-MALFORMED", f"{where}: {what}.")


class _Shards(SampleTable):
    """Samples whose images lie in shards, of `counts` samples each."""

    lists_pictures = False

    def __init__(
        self, table: pa.Table, path: Path, config: DataConfig, counts: tuple[int, ...]
    ) -> None:
        super().__init__(table, path.parent, str(path), config)
        self.counts = counts

    def contents(self) -> dict[str, str]:
        return {name: digest for name, digest in super().contents().items() if name != "image"}

    def order(self, seed: int, epoch: int) -> np.ndarray:
        return _order(seed, epoch, self.counts)

    def record(self, number: int) -> Record:
        if problem := self._get("problem", number):
            raise DataError("E-SAMPLE-MALFORMED", problem)
        return super().record(number)

    def image(self, number: int, side: int) -> Image.Image:
        place = {name: self._get(name, number) for name in ("image", "start", "size")}
        try:
            with Path(place["image"]).open("rb") as file:  # one kept would be shared with workers
                file.seek(place["start"])
                content = file.read(place["size"])
        except OSError as error:
            raise DataError(
                "E-FILE-UNREADABLE", f"{_where(place)}: cannot be read: {reason(error)}."
            ) from None
        return decode(content, _where(place), side)


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, counts: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng((seed, epoch))
    starts = offsets(np.array(counts))
    shards = rng.permutation(len(counts))
    windows = (shards[start : start + _WINDOW] for start in range(0, len(shards), _WINDOW))
    return np.concatenate(
        [
            rng.permutation(np.concatenate([np.arange(starts[s], starts[s + 1]) for s in window]))
            for window in windows
        ]
    )
