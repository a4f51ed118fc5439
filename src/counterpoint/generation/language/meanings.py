"""The word lists `words/*.toml`: meanings of words.

A file holds fields; a field holds meanings; a meaning is one line (or only its word):

    [size]
    subtype = "att"            # att, obj or rel: the kind of slot
    pos = "ADJ"
    contrast = "exclusive"     # exclusive: two meanings of the field contradict each other
                               # rival: another one is false in practice, though both might be true
                               # none: only the opposites named contradict
    kinds = ["thing"]          # objects: what each meaning is a kind of, unless it says otherwise
    meanings = [
      { words = ["large", "big"],        # mean the same; the first one is the head
        doubtful = { sizable = "why" },  # near enough to use, with the reason why it may be false
        narrower = { hulking = ["person"] },  # a narrower word; the nouns that it fits
        sure = { sizable = ["box"] },    # doubtful words that are true in its place, with these
                                         # nouns ([]: with any); the way back stays doubtful
        also = ["oversized"],            # may be true of the same thing; never offered
        near = ["huge"],                 # heads of meanings that are too close to be false
        opposites = ["small"], kinds = [...], scale = "...",
        instead = ["..."],               # heads of other fields that are false in the same slot
        symmetric = true, mutual = true, converse = "...",
        only_with = ["person"],          # nouns, or their kinds, with which it has this meaning
        not_with = ["@kin"], note = "..." },
    ]
    [size.nouns]                         # lists of nouns that several meanings use
    kin = ["brother", "sister"]

(TOML needs a meaning on one line.) Meanings on different scales of a field do not contradict. The
tests check that the lists are well-formed and that the heads they name exist.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any, Literal

Subtype = Literal["att", "obj", "rel"]
Pos = Literal["ADJ", "NOUN", "VERB", "ADP", "NUM", "ADV"]
Contrast = Literal["exclusive", "rival", "none"]


@dataclass(frozen=True, slots=True, eq=False)
class Meaning:
    """One sense of one or more words. Names in `near`, `opposites`, `kinds` are heads of others."""

    field: str
    subtype: Subtype
    pos: Pos
    contrast: Contrast
    words: tuple[str, ...]
    doubtful: Mapping[str, str]
    narrower: Mapping[str, frozenset[str]]
    sure: Mapping[str, frozenset[str]]
    also: frozenset[str]
    near: frozenset[str]
    opposites: tuple[str, ...]
    instead: tuple[str, ...]
    kinds: tuple[str, ...]
    scale: str
    symmetric: bool
    mutual: bool
    converse: str
    only_with: frozenset[str]
    not_with: frozenset[str]
    note: str

    @property
    def head(self) -> str:
        return self.words[0]

    def offered(self) -> tuple[str, ...]:
        """The words that stand for it, those that need not be true last."""
        return (*self.words, *self.narrower, *self.doubtful)


def read_files() -> tuple[tuple[Meaning, ...], str]:
    """All meanings in the order of the files' names, and a digest of what was read."""
    folder = resources.files(__package__) / "words"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    digest = hashlib.sha256("\0".join(part for pair in texts.items() for part in pair).encode())
    return read_texts(texts.values()), digest.hexdigest()[:12]


def read_texts(texts: Iterable[str]) -> tuple[Meaning, ...]:
    """The meanings of word lists."""
    return tuple(
        _read(field, table, row if isinstance(row, dict) else {"words": [row]})
        for text in texts
        for field, table in tomllib.loads(text).items()
        for row in table["meanings"]
    )


def _read(field: str, table: Mapping[str, Any], row: Mapping[str, Any]) -> Meaning:
    def nouns(names: Iterable[str]) -> frozenset[str]:
        """With the field's own lists ("@name") written out."""
        lists = (table["nouns"][n[1:]] if n.startswith("@") else [n] for n in names)
        return frozenset(noun for some in lists for noun in some)

    def by_word(key: str) -> Mapping[str, frozenset[str]]:
        return MappingProxyType({word: nouns(names) for word, names in row.get(key, {}).items()})

    kinds = row.get("kinds", table.get("kinds", ()))
    return Meaning(
        field=field,
        subtype=table["subtype"],
        pos=table["pos"],
        contrast=table["contrast"],
        words=tuple(row["words"]),
        doubtful=MappingProxyType(row.get("doubtful", {})),
        narrower=by_word("narrower"),
        sure=by_word("sure"),
        also=frozenset(row.get("also", ())),
        near=frozenset(row.get("near", ())),
        opposites=tuple(row.get("opposites", ())),
        instead=tuple(row.get("instead", ())),
        kinds=tuple(kind for kind in kinds if kind not in row["words"]),
        scale=row.get("scale", ""),
        symmetric=row.get("symmetric", False),
        mutual=row.get("mutual", False),
        converse=row.get("converse", ""),
        only_with=nouns(row.get("only_with", ())),
        not_with=nouns(row.get("not_with", ())),
        note=row.get("note", ""),
    )
