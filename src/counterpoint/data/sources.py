"""The catalogue: where each data set comes from, and what each benchmark needs.

First the kinds of sources, then what a benchmark needs, then reading `catalogue.toml`. Last the
data root, a folder with one sub-folder per data set, and which files of a source it has.
"""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import platformdirs

from counterpoint._util.errors import NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint._util.untrusted import inside
from counterpoint.data.download import sha256


@dataclass(frozen=True, slots=True)
class File:
    """One file of a source; `url` is an address of its own, tried before the mirrors."""

    name: str
    size: int | None = None
    sha256: str | None = None
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Files of a data set in one folder: `target`, below the data root.

    `by_hand` says what to do if it cannot be fetched; `size` is in bytes, if known.
    """

    id: str
    what: str
    target: str
    size: int | None = None
    by_hand: str = ""

    @property
    def kind(self) -> str:
        return next(name for name, kind in KINDS.items() if type(self) is kind)

    def sums(self) -> str:
        """Whether the catalogue has checksums: yes, no, or of how many files."""
        return "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource(Source):
    """Single files; a mirror is an address with {name}.

    `or_else` is a source of files that can be used instead.
    """

    files: tuple[File, ...]
    mirrors: tuple[str, ...] = ()
    or_else: str = ""

    def urls(self, file: File) -> tuple[str, ...]:
        return (*filter(None, [file.url]), *addresses(self.mirrors, file.name))

    def sums(self) -> str:
        known = sum(file.sha256 is not None for file in self.files)
        partly = f"{known} of {len(self.files)}" if known else "no"
        return "yes" if known == len(self.files) else partly


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSource(Source):
    """Images that are fetched one by one; a mirror is an address with {name}.

    `names` is a pattern of their names. Images that turn out to be missing are asked for at
    `or_else`, a source in another folder: a name does not always show its folder.
    """

    mirrors: tuple[str, ...]
    names: str = "*"
    or_else: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSource(Source):
    """A zip or tar file, called `name`, extracted into the target; it brings what it `holds`."""

    name: str
    mirrors: tuple[str, ...]
    holds: tuple[str, ...]
    sha256: str | None = None

    def sums(self) -> str:
        return "yes" if self.sha256 else "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSource(Source):
    """A data set of the Hugging Face hub; archives in it that match `unpack` are extracted."""

    repo: str
    patterns: tuple[str, ...]
    holds: tuple[str, ...]
    unpack: tuple[str, ...] = ()
    gated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualSource(Source):
    """Files that only a person can get."""

    by_hand: str
    holds: tuple[str, ...]


KINDS: Final[Mapping[str, type[Source]]] = {
    "files": FileSource,
    "images": ImageSource,
    "archive": ArchiveSource,
    "hub": HubSource,
    "manual": ManualSource,
}


def addresses(mirrors: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(mirror.replace("{name}", quote(name)) for mirror in mirrors)


@dataclass(frozen=True, slots=True)
class Needs:
    """The sources of a benchmark. Without the `optional` ones it is complete."""

    annotations: tuple[Source, ...]
    images: tuple[Source, ...] = ()
    optional: tuple[Source, ...] = ()

    def all(self) -> tuple[Source, ...]:
        return tuple(dict.fromkeys((*self.annotations, *self.images, *self.optional)))


@dataclass(frozen=True, slots=True)
class Catalogue:
    sources: Mapping[str, Source]
    benchmarks: Mapping[str, Needs]


@functools.cache
def catalogue() -> Catalogue:
    """The catalogue of the package."""
    file = resources.files("counterpoint.data") / "catalogue.toml"
    return read_catalogue(file.read_text(encoding="utf-8"))


def get_source(id: str) -> Source:
    sources = catalogue().sources
    if id not in sources:
        raise NotFoundError("E-SOURCE-UNKNOWN", did_you_mean("source", id, sources))
    return sources[id]


def needs(benchmark: str) -> Needs:
    """What a benchmark needs, by its id without options."""
    known = catalogue().benchmarks
    if benchmark not in known:
        raise NotFoundError(
            "E-BENCHMARK-UNKNOWN", did_you_mean("benchmark with files to get", benchmark, known)
        )
    return known[benchmark]


# --- Reading the catalogue ----------------------------------------------------------------------


def read_catalogue(text: str) -> Catalogue:
    """A catalogue from TOML."""
    document = tomllib.loads(text)
    sources = {id: _source(id, row) for id, row in document["sources"].items()}
    benchmarks = {
        id: Needs(**{part: tuple(sources[one] for one in ids) for part, ids in row.items()})
        for id, row in document["benchmarks"].items()
    }
    return Catalogue(sources, benchmarks)


def _source(id: str, row: Mapping[str, Any]) -> Source:
    values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in row.items()}
    kind = KINDS[values.pop("kind")]
    if kind is FileSource:
        files = [File(one) if isinstance(one, str) else File(**one) for one in values["files"]]
        values["files"] = tuple(files)
        sizes = [file.size for file in files]
        if None not in sizes:
            values["size"] = sum(sizes)
    return kind(id=id, **values)


# --- The data root ------------------------------------------------------------------------------


def data_root(given: str | Path | None = None) -> Path:
    """`given`, else `$COUNTERPOINT_DATA`, else a folder in the user's cache."""
    chosen = given or os.environ.get("COUNTERPOINT_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return Path(platformdirs.user_cache_dir("counterpoint")) / "data"


@dataclass(frozen=True, slots=True)
class Presence:
    """`files` of `of` files are there (None: unknown); `complete` if none is missing."""

    files: int
    of: int | None
    complete: bool


def presence(source: Source, root: Path) -> Presence:
    """What of a source is in the data root. Only names are looked at; nothing is read."""
    folder = inside(root, source.target)
    if isinstance(source, FileSource):
        there = sum(inside(folder, file.name).exists() for file in source.files)
        return Presence(there, len(source.files), there == len(source.files))
    if isinstance(source, ImageSource):
        there = _count(folder)
        return Presence(there, None, there > 0)
    assert isinstance(source, ArchiveSource | HubSource | ManualSource)
    whole = all(_holds(folder, pattern) for pattern in source.holds)
    whole = whole and not begun(source, root).exists()
    return Presence(int(whole), 1, whole)


def begun(source: Source, root: Path) -> Path:
    """A marker file: an archive or a data set of the hub has been fetched only in part."""
    return inside(root, source.target) / f".{source.id}.partial"


def done(source: Source, root: Path) -> Path:
    """A marker file: such a source has been fetched completely. Missing images are not in it."""
    return inside(root, source.target) / f".{source.id}.done"


def _holds(folder: Path, pattern: str) -> bool:
    """Whether something in the folder fits the pattern, or one of its alternatives."""
    return any(any(folder.glob(one.strip())) for one in pattern.split("|"))


def _count(folder: Path) -> int:
    if not folder.is_dir():
        return 0
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    return sum(name[0] != "." and not name.endswith((".part", ".from")) for name in names)


class Damage(NamedTuple):
    """A file and what is wrong with it."""

    file: str
    what: str


def damaged_files(benchmark: str, root: Path) -> tuple[Damage, ...]:
    """The benchmark's files whose size or sha256 is known and differs."""
    known = catalogue().benchmarks.get(benchmark)
    found = []
    for source in known.all() if known else ():
        for file in source.files if isinstance(source, FileSource) else ():
            path = inside(inside(root, source.target), file.name)
            if path.is_file() and file.sha256 and sha256(path) != file.sha256:
                where = path.relative_to(root).as_posix()
                found.append(Damage(where, "not the published file: its sha256 differs"))
    return tuple(found)
