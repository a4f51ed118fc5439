"""WebDataset shards: tar files with `KEY.jpg` and `KEY.json` side by side.

The JSON object holds `caption`, and may hold `positives`, `negatives`, `dense`, `dense_negatives`,
`positive_types` and `negative_types` as a training file does. The caption may be in `KEY.txt`.

Shards are indexed when they are opened: the position of each member and a digest of each sample's
texts, kept in the cache. So any sample can be read at once, and a run continues at any step without
reading what came before. To read mostly in sequence, an epoch visits the shards in random order,
and shuffles the samples of sixteen shards at a time.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import platformdirs
from PIL import Image

from counterpoint._util.errors import DataError, reason
from counterpoint._util.progress import Progress
from counterpoint._util.untrusted import parse_json, shortened
from counterpoint._util.writing import whole_file
from counterpoint.cases import offsets
from counterpoint.images import expand_braces
from counterpoint.training.data.loading import Setting
from counterpoint.training.data.samples import Record, Samples, SampleSource, decode
from counterpoint.training.recipe import DataConfig

_NAME: Final = re.compile(r"((?:.*/)?[^./][^.]*)\.([^/]*)")  # of a sample, and what ends its member
# Which part of a sample a member is, by its ending. An index has where each starts and how long it
# is.
_PICTURES: Final = ("jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff")
_PARTS: Final = {**dict.fromkeys(_PICTURES, 0), "json": 1, "txt": 2}
_WINDOW: Final = 16  # shards whose samples are shuffled together
_VERSION: Final = 2  # of the index
_PROBES: Final = 256
_LISTS: Final = ("positives", "negatives", "dense", "dense_negatives")
_COLUMNS: Final = 2 * 3 + 1


def open_shards(setting: Setting) -> Samples:
    """Index the shards; samples without an image or a caption are left out and counted."""
    config = setting.config
    shards = [shard for path in config.paths for shard in _expand(path)]
    problems = Counter[str]()
    index = _index_all(shards, setting.progress)
    source = _Shards(shards, index, config, problems)
    data = Samples(setting, source)
    data.problems.counts.update(problems)
    return data


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


def _index_all(shards: list[Path], progress: Progress) -> np.ndarray:
    """Rows of (shard, where each part starts and how long it is, digest of the texts), in the order
    of the files."""
    advance = progress.start("shards", len(shards))
    parts = []
    for number, shard in enumerate(shards):
        found = _index(shard)
        parts.append(np.column_stack([np.full(len(found), number), found]))
        advance(1)
    return np.concatenate(parts)


def _index(shard: Path) -> np.ndarray:
    """The index of one shard, from the cache as long as the file stays as it was."""
    stat = shard.stat()
    identity = f"{_VERSION} {shard.absolute()} {stat.st_size} {stat.st_mtime_ns}"
    name = hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
    kept = Path(platformdirs.user_cache_dir("counterpoint")) / "shards" / f"{name}.npy"
    try:
        found: np.ndarray = np.load(kept)
        return found
    except (OSError, ValueError, EOFError):
        found = _scan(shard, stat.st_size)
    with suppress(DataError), whole_file(kept) as draft:  # or the next run scans again
        np.save(draft, found)
    return found


def _scan(shard: Path, size: int) -> np.ndarray:
    """Read the headers of a tar file, and the texts. Members of one sample follow each other."""
    rows: list[list[int]] = []
    last = None
    try:
        with tarfile.open(shard, "r:") as tar:
            for member in tar:
                named = _NAME.fullmatch(member.name)
                if named is None or not member.isfile():
                    continue
                sample, ending = named.groups()
                if sample != last:
                    rows.append([0] * _COLUMNS)
                    last = sample
                part = _PARTS.get(ending.lower())
                if part is not None:
                    if not 0 <= member.size <= size - member.offset_data:
                        raise tarfile.ReadError("a member is longer than the file")
                    rows[-1][2 * part : 2 * part + 2] = member.offset_data, member.size
                    if part:
                        rows[-1][-1] = _text_digest(tar, member, rows[-1][-1])
                tar.members = []  # type: ignore[attr-defined]  # or it remembers every header
    except Exception as error:  # of damaged headers the library raises anything
        why = reason(error) if isinstance(error, OSError) else shortened(error)
        raise DataError(
            "E-FILE-MALFORMED", f"{shard}: not a readable, uncompressed tar file: {why}."
        ) from None
    return np.array(rows, dtype=np.int64).reshape(-1, _COLUMNS)


def _text_digest(tar: tarfile.TarFile, member: tarfile.TarInfo, before: int) -> int:
    """A whole number of 63 bits, of a text and what stood before it."""
    state = hashlib.blake2b(before.to_bytes(8), digest_size=8)
    if (file := tar.extractfile(member)) is not None:
        while piece := file.read(2**20):
            state.update(piece)
    return int.from_bytes(state.digest()) >> 1


class _Shards(SampleSource):
    """Samples of shards, by number."""

    def __init__(
        self, shards: list[Path], index: np.ndarray, config: DataConfig, problems: Counter[str]
    ) -> None:
        self.shards, self.only = shards, config.only
        self.name = str(config.paths[0])
        whole = (index[:, 2] > 0) & ((index[:, 4] > 0) | (index[:, 6] > 0))
        if not whole.all():
            problems["samples without an image or a caption: left out"] += int((~whole).sum())
        if not whole.any():
            raise DataError(
                "E-DATA-EMPTY", f"{self.name}: no sample there has an image and a .json or .txt."
            )
        self.index = index[whole]
        self.size = len(self.index)
        self._refuse_empty(config)

    def contents(self) -> dict[str, str]:
        rows = self.index.astype("<i8").tobytes()
        return {"samples": hashlib.blake2b(rows, digest_size=16).hexdigest()}

    def all_texts(self) -> Iterator[list[str]]:
        for number in range(self.size):
            with suppress(DataError):  # training says which cannot be read
                found = self.record(number)
                lists = found.positives, found.negatives, found.dense, found.dense_negatives
                yield [found.caption, *(t for texts in lists for t in texts if t is not None)]

    def order(self, seed: int, epoch: int) -> np.ndarray:
        return _order(seed, epoch, tuple(np.bincount(self.index[:, 0]).tolist()))

    def record(self, number: int) -> Record:
        found = self._json(number)
        caption = found.get("caption")
        if caption is None and self.index[number, 6]:
            caption = self._read(number, 2).decode("utf-8", errors="replace").strip()
        if not isinstance(caption, str):
            raise DataError("E-SAMPLE-MALFORMED", f"{self._where(number)}: has no caption.")
        lists = {name: found.get(name) or [] for name in _LISTS}
        texts = [texts for texts in lists.values() if isinstance(texts, list)]
        if len(texts) < len(lists) or not all(isinstance(t, str | None) for t in chain(*texts)):
            raise DataError(
                "E-SAMPLE-MALFORMED", f"{self._where(number)}: its texts are not lists of strings."
            )
        if lists["dense_negatives"] and len(lists["dense_negatives"]) != len(lists["dense"]):
            raise DataError(
                "E-SAMPLE-MALFORMED",
                f"{self._where(number)}: dense and dense_negatives are not as many.",
            )
        return Record(
            caption,
            self._of_type(lists["positives"], found.get("positive_types"), number),
            self._of_type(lists["negatives"], found.get("negative_types"), number),
            dense=lists["dense"],
            dense_negatives=lists["dense_negatives"],
        )

    def image(self, number: int, side: int) -> Image.Image:
        return decode(self._read(number, 0), self._where(number), side)

    def _of_type(self, texts: list[str], types: object, number: int) -> list[str]:
        if self.only is None or not texts:
            return texts
        if not isinstance(types, list) or len(types) != len(texts):
            raise DataError(
                "E-DATA-UNTYPED",
                f"{self._where(number)}: only={self.only} needs the type of each text "
                "(positive_types, negative_types).",
            )
        return [text for text, type_ in zip(texts, types, strict=True) if type_ == self.only]

    def _json(self, number: int) -> dict[str, Any]:
        if not self.index[number, 4]:
            return {}
        found = parse_json(self._read(number, 1), self._where(number))
        if not isinstance(found, dict):
            raise DataError("E-SAMPLE-MALFORMED", f"{self._where(number)}: its JSON is no object.")
        return found

    def _read(self, number: int, part: int) -> bytes:
        start, size = self.index[number, 1 + 2 * part : 3 + 2 * part].tolist()
        try:
            with self._shard(number).open("rb") as file:  # one kept would be shared with workers
                file.seek(start)
                return file.read(size)
        except OSError as error:
            raise DataError(
                "E-FILE-UNREADABLE", f"{self._where(number)}: cannot be read: {reason(error)}."
            ) from None

    def _shard(self, number: int) -> Path:
        return self.shards[self.index[number, 0]]

    def _where(self, number: int) -> str:
        return f"{self._shard(number)}, sample at byte {self.index[number, 1]}"

    def _refuse_empty(self, config: DataConfig) -> None:
        """A term of the loss that no sample takes part in would be trained in silence."""
        records, broken = [], None
        # from all shards: some may be plain
        for number in np.linspace(0, self.size - 1, min(self.size, _PROBES)).astype(int).tolist():
            try:
                records.append(self.record(number))
            except DataError as error:
                broken = error
        asked = {
            "positives": config.positives,
            "negatives": config.negatives,
            "dense": config.dense,
        }
        for name in (name for name, wanted in asked.items() if wanted):
            if not any(getattr(record, name) for record in records):
                raise broken or DataError(
                    "E-DATA-EMPTY",
                    f"{self.name}: none of {len(records):,} samples looked at has {name}; "
                    f"turn {name} off or add them.",
                )


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
