"""The word lists `words/*.toml`: meanings of words, read and checked.

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

(TOML needs a meaning on one line.) Meanings on different scales of a field do not contradict.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

Subtype = Literal["att", "obj", "rel"]
Pos = Literal["ADJ", "NOUN", "VERB", "ADP", "NUM", "ADV"]
Contrast = Literal["exclusive", "rival", "none"]

_TEXTS: Final = (
    *("words", "also", "near", "opposites", "instead", "kinds"),
    *("only_with", "not_with"),
)
_FLAGS: Final = ("symmetric", "mutual")
_STRINGS: Final = ("scale", "converse", "note")
_FIELD: Final = {"subtype": get_args(Subtype), "pos": get_args(Pos), "contrast": get_args(Contrast)}


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


class LexiconError(ValueError):
    """A word list is malformed: a bug in this package, not a mistake of the user."""


def read_files() -> tuple[tuple[Meaning, ...], str]:
    """All meanings in the order of the files' names, and a digest of what was read."""
    folder = resources.files("counterpoint.generation.language") / "words"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    digest = hashlib.sha256("\0".join(part for pair in texts.items() for part in pair).encode())
    return read_texts(texts), digest.hexdigest()[:12]


def read_texts(texts: Mapping[str, str]) -> tuple[Meaning, ...]:
    """The meanings of word lists by name; LexiconError says what is wrong, and where."""
    found: list[Meaning] = []
    fields: set[str] = set()
    for name, text in texts.items():
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise LexiconError(f"{name}: {error}") from None
        for field, table in tables.items():
            _expect(field not in fields, f"{name}: the field {field!r} is there twice")
            fields.add(field)
            found += _read_field(field, table, f"{name}: [{field}]")
    _check_names(found)
    return tuple(found)


def _read_field(field: str, table: Any, where: str) -> Iterator[Meaning]:
    _expect(isinstance(table, dict), f"{where}: is not a table")
    known = {*_FIELD, "kinds", "meanings", "nouns"}
    _expect(set(table) <= known, f"{where}: unknown: {sorted(set(table) - known)}")
    for key, choices in _FIELD.items():
        _expect(table.get(key) in choices, f"{where}: {key} should be one of {choices}")
    rows = table.get("meanings")
    _expect(isinstance(rows, list) and bool(rows), f"{where}: has no meanings")
    for row in rows:
        entry = row if isinstance(row, dict) else {"words": [row]}
        yield _read_meaning(field, table, entry, f"{where}: {entry.get('words')}")


def _read_meaning(field: str, table: Mapping[str, Any], row: dict[str, Any], at: str) -> Meaning:
    known = {*_TEXTS, *_FLAGS, *_STRINGS, "doubtful", "narrower", "sure"}
    _expect(set(row) <= known, f"{at}: unknown: {sorted(set(row) - known)}")
    texts = {key: _texts(row.get(key, []), f"{at}: {key}") for key in _TEXTS}
    flags = {key: row.get(key, False) for key in _FLAGS}
    strings = {key: row.get(key, "") for key in _STRINGS}
    doubtful, narrower, sure = (row.get(key, {}) for key in ("doubtful", "narrower", "sure"))
    _expect(bool(texts["words"]), f"{at}: no words")
    _expect(all(isinstance(flag, bool) for flag in flags.values()), f"{at}: a flag is true or not")
    _expect(all(isinstance(s, str) for s in strings.values()), f"{at}: a text is expected")
    _expect(isinstance(doubtful, dict), f"{at}: doubtful should say why, word by word")
    _expect(all(isinstance(why, str) and why for why in doubtful.values()), f"{at}: doubtful: why?")
    for key, nouns in (("narrower", narrower), ("sure", sure)):
        _expect(isinstance(nouns, dict), f"{at}: {key} should name nouns, word by word")
    _expect(set(sure) <= set(doubtful), f"{at}: sure: not among the doubtful words")
    rest = _texts([*doubtful, *narrower], f"{at}: doubtful or narrower")
    once = [*texts["words"], *rest, *texts["also"]]
    _expect(len(set(once)) == len(once), f"{at}: a word is there twice: {_repeated(once)}")
    kinds = texts["kinds"] or (_texts(table["kinds"], at) if "kinds" in table else ())
    return Meaning(
        field=field,
        subtype=table["subtype"],
        pos=table["pos"],
        contrast=table["contrast"],
        words=texts["words"],
        doubtful=MappingProxyType(dict(doubtful)),
        narrower=_by_word(narrower, table.get("nouns", {}), at),
        sure=_by_word(sure, table.get("nouns", {}), at),
        also=frozenset(texts["also"]),
        near=frozenset(texts["near"]),
        opposites=texts["opposites"],
        instead=texts["instead"],
        kinds=tuple(kind for kind in kinds if kind not in texts["words"]),
        only_with=_nouns(texts["only_with"], table.get("nouns", {}), at),
        not_with=_nouns(texts["not_with"], table.get("nouns", {}), at),
        **flags,
        **strings,
    )


def _by_word(
    rows: Mapping[str, Any], lists: Mapping[str, Any], at: str
) -> Mapping[str, frozenset[str]]:
    """The nouns of each word."""
    return MappingProxyType(
        {word: _nouns(_texts(names, f"{at}: {word}"), lists, at) for word, names in rows.items()}
    )


def _nouns(names: Iterable[str], lists: Mapping[str, Any], where: str) -> frozenset[str]:
    """Nouns, with the field's own lists ("@name") written out."""
    found: set[str] = set()
    for name in names:
        if name.startswith("@"):
            _expect(name[1:] in lists, f"{where}: there is no list {name!r}")
            found |= set(_texts(lists[name[1:]], f"{where}: {name}"))
        else:
            found.add(name)
    return frozenset(found)


def _texts(values: Any, where: str) -> tuple[str, ...]:
    _expect(isinstance(values, list), f"{where}: a list is expected")
    for value in values:
        _expect(isinstance(value, str), f"{where}: {value!r} is not a text")
        _expect(
            bool(value) and value == " ".join(value.lower().split()),
            f"{where}: {value!r} should be lower-case, with single blanks",
        )
    _expect(len(set(values)) == len(values), f"{where}: twice: {_repeated(values)}")
    return tuple(values)


def _check_names(meanings: Sequence[Meaning]) -> None:
    """Every head that a meaning names exists, and relations fit together."""
    heads = {(meaning.subtype, meaning.head): meaning for meaning in meanings}
    for meaning in meanings:
        at = f"[{meaning.field}]: {meaning.head!r}"
        named = (*sorted(meaning.near), *meaning.opposites, *meaning.instead, *meaning.kinds)
        missing = [name for name in named if (meaning.subtype, name) not in heads]
        _expect(not missing, f"{at}: names heads that are not there: {missing}")
        itself = {meaning.head} & {*meaning.near, *meaning.opposites}
        _expect(not itself, f"{at}: is said to be near or opposite to itself")
        both = meaning.near.intersection(meaning.opposites)
        _expect(not both, f"{at}: near and opposite: {sorted(both)}")
        _expect(not (meaning.symmetric and meaning.converse), f"{at}: symmetric, with a converse")
        if meaning.converse:
            other = heads.get((meaning.subtype, meaning.converse))
            _expect(
                other is not None and other.converse == meaning.head,
                f"{at}: the converse of its converse should be itself",
            )


def _repeated(words: Sequence[str]) -> list[str]:
    return [word for word, count in Counter(words).items() if count > 1]


def _expect(good: bool, otherwise: str) -> None:
    if not good:
        raise LexiconError(otherwise)
