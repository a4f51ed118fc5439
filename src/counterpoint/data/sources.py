"""The kinds of sources that a data set can come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class File:
    """One file of a source; `url` is an address of its own, tried before the mirrors."""

    name: str
    size: int | None = None
    sha256: str | None = None
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Something that lies in one folder. `target` is that folder, under the data root.

    `by_hand` says what to do where it cannot be fetched, `size` is in bytes, where known.
    """

    id: str
    what: str
    target: str
    size: int | None = None
    by_hand: str = ""

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()

    def sums(self) -> str:
        """Whether the catalogue has checksums: yes, no, or of how many files."""
        return "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Files(Source):
    """Single files; a mirror is an address with {name}.

    `or_else` is a source of files that will do as well.
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
class Images(Source):
    """Images that can be had one by one; a mirror is an address with {name}.

    `names` is a pattern of those it has. What it turns out not to have, `or_else` may: a source
    whose images lie in another folder, where a name does not say in which.
    """

    mirrors: tuple[str, ...]
    names: str = "*"
    or_else: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive(Source):
    """A zip or tar file, called `name`, extracted into the target; it brings what it `holds`."""

    name: str
    mirrors: tuple[str, ...]
    holds: tuple[str, ...]
    sha256: str | None = None

    def sums(self) -> str:
        return "yes" if self.sha256 else "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub(Source):
    """A data set of the Hugging Face hub; archives in it that match `unpack` are extracted."""

    repo: str
    patterns: tuple[str, ...]
    holds: tuple[str, ...]
    unpack: tuple[str, ...] = ()
    gated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Manual(Source):
    """What only a person can get."""

    by_hand: str
    holds: tuple[str, ...]


KINDS: Final[Mapping[str, type[Source]]] = {
    kind.__name__.lower(): kind for kind in (Files, Images, Archive, Hub, Manual)
}


def addresses(mirrors: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(mirror.replace("{name}", quote(name)) for mirror in mirrors)
