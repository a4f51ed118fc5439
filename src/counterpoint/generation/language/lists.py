"""The word files, read once: `lists/*.toml` for the rules and the checks, `words/*.toml` for the
lexicon.

In `lists/`, a list is a text of words; "_" stands for the blank of a phrase ("next_to"), "@name"
for the words of another list. An array has its items as they stand. A table has a row for each noun
or kind of its keys ("cat, dog"); the first row of a name counts.

A file of `words/` holds fields; a field holds meanings; a meaning is one line (or only its word):

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
tests check that the files are well-formed and that the heads they name exist.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

Table = Mapping[str, frozenset[str]]


def read_folder(name: str) -> dict[str, str]:
    """The texts of the TOML files of a folder, by their names in order."""
    folder = resources.files(__package__) / name
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return {file.name: file.read_text(encoding="utf-8") for file in files}


class WordLists:
    """The lists by name, as attributes: `WORDS.copulas`."""

    def __init__(self, texts: Mapping[str, str | list[str]]) -> None:
        self._texts = texts
        for name, text in texts.items():
            setattr(self, name, self.words(text))

    def words(self, text: str | list[str]) -> frozenset[str]:
        """The words of a list as it is written."""
        words = set[str]()
        for item in text if isinstance(text, list) else text.split():
            if item.startswith("@"):
                words |= self.words(self._texts[item[1:]])
            else:
                words.add(item if isinstance(text, list) else item.replace("_", " "))
        return frozenset(words)

    def __getattr__(self, name: str) -> frozenset[str]:
        raise AttributeError(f"no word list is called {name!r}")


TABLES: Final[dict[str, Any]] = {
    name: entry
    for text in read_folder("lists").values()
    for name, entry in tomllib.loads(text).items()
}
WORDS: Final = WordLists({n: text for n, text in TABLES.items() if not isinstance(text, dict)})


def rows(name: str) -> Table:
    """A table of words by nouns and their kinds."""
    table: dict[str, frozenset[str]] = {}
    for names, words in TABLES[name].items():
        for key in names.split(", "):
            table.setdefault(key, WORDS.words(words))
    return table


def keys_of(name: str) -> dict[str, str]:
    """The key of each word of a table."""
    return {word: key for key, words in TABLES[name].items() for word in WORDS.words(words)}


@dataclass(frozen=True, slots=True, eq=False)
class Meaning:
    """One sense of one or more words. Names in `near`, `opposites`, `kinds` are heads of others."""

    field: str
    subtype: str
    pos: str
    contrast: str
    head: str
    words: tuple[str, ...]
    offered: tuple[str, ...]  # the words that stand for it, those that need not be true last
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


def read_meanings(texts: Iterable[str]) -> tuple[Meaning, ...]:
    """The meanings of files of `words/`."""
    return tuple(
        _meaning(field, table, row if isinstance(row, dict) else {"words": [row]})
        for text in texts
        for field, table in tomllib.loads(text).items()
        for row in table["meanings"]
    )


def _meaning(field: str, table: Mapping[str, Any], row: Mapping[str, Any]) -> Meaning:
    def nouns(names: Iterable[str]) -> frozenset[str]:
        """With the field's own lists ("@name") written out."""
        lists = (table["nouns"][n[1:]] if n.startswith("@") else [n] for n in names)
        return frozenset(noun for some in lists for noun in some)

    words, doubtful = tuple(row["words"]), row.get("doubtful", {})
    narrower, sure = (
        {word: nouns(names) for word, names in row.get(key, {}).items()}
        for key in ("narrower", "sure")
    )
    kinds = row.get("kinds", table.get("kinds", ()))
    values: dict[str, Any] = {
        **{name: table[name] for name in ("subtype", "pos", "contrast")},
        **{name: row.get(name, "") for name in ("scale", "converse")},
        **{name: row.get(name, False) for name in ("symmetric", "mutual")},
        **{name: frozenset(row.get(name, ())) for name in ("also", "near")},
        **{name: tuple(row.get(name, ())) for name in ("opposites", "instead")},
        **{name: nouns(row.get(name, ())) for name in ("only_with", "not_with")},
        "words": words,
        "offered": (*words, *narrower, *doubtful),
        "kinds": tuple(kind for kind in kinds if kind not in words),
    }
    return Meaning(
        field=field, head=words[0], doubtful=doubtful, narrower=narrower, sure=sure, **values
    )
