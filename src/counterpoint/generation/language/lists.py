"""Word lists and tables of the rules and the checks: `lists/*.toml`, read once.

A list is a text of words; "_" stands for the blank of a phrase ("next_to"), "@name" for the words
of another list. An array has its items as they stand. A table has a row for each noun or kind of
its keys ("cat, dog"); the first row of a name counts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

Table = Mapping[str, frozenset[str]]


class WordLists:
    """The lists by name, as attributes: `WORDS.copulas`."""

    def __init__(self, texts: Mapping[str, str | list[str]]) -> None:
        self._texts = texts
        for name, text in texts.items():
            setattr(self, name, self.words(text))

    def words(self, text: str | list[str]) -> frozenset[str]:
        """The words of a list as it is written."""
        found = set[str]()
        for item in text if isinstance(text, list) else text.split():
            if item.startswith("@"):
                found |= self.words(self._texts[item[1:]])
            else:
                found.add(item if isinstance(text, list) else item.replace("_", " "))
        return frozenset(found)

    def __getattr__(self, name: str) -> frozenset[str]:
        raise AttributeError(f"no word list is called {name!r}")


def _read() -> dict[str, Any]:
    folder = resources.files(__package__) / "lists"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return {
        name: entry
        for file in files
        for name, entry in tomllib.loads(file.read_text(encoding="utf-8")).items()
    }


TABLES: Final[dict[str, Any]] = _read()
WORDS: Final = WordLists({n: text for n, text in TABLES.items() if not isinstance(text, dict)})


def rows(name: str) -> Table:
    """A table of words by nouns and their kinds."""
    found: dict[str, frozenset[str]] = {}
    for names, words in TABLES[name].items():
        for key in names.split(", "):
            found.setdefault(key, WORDS.words(words))
    return found


def keys_of(name: str) -> dict[str, str]:
    """The key of each word of a table."""
    return {word: key for key, words in TABLES[name].items() for word in WORDS.words(words)}
