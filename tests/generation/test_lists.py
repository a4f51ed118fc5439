"""Word lists of the rules and the checks: every name that is used exists, and each is used."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import counterpoint.generation
from counterpoint.generation.language.lists import TABLES, WORDS

ROOM = Path(counterpoint.generation.__file__).parent
LISTS = ROOM / "language" / "lists"


def test_the_code_uses_every_list_and_table_that_there_is_and_no_other() -> None:
    files = ROOM.rglob("*.py"), LISTS.glob("*.toml")
    code, lists = ("\n".join(path.read_text("utf-8") for path in some) for some in files)
    asked = re.findall(r"\bWORDS\.(?!words\()(\w+)", code)
    asked += re.findall(r"(?:TABLES\[|\b(?:rows|keys_of)\()\"(\w+)\"", code)
    assert set(asked) <= set(TABLES)
    assert set(TABLES) <= {*asked, *re.findall(r"@(\w+)", lists)}
    with pytest.raises(AttributeError, match="no word list is called 'no_such_list'"):
        WORDS.no_such_list  # noqa: B018


def test_words_of_a_list() -> None:
    assert WORDS.words("cat polar_bear @copulas") == {"cat", "polar bear", "is", "are"}
    assert WORDS.words(["", "field_name", "@copulas"]) == {"", "field_name", "is", "are"}
    assert not any(re.search(r"[@_]", word) for word in WORDS.prepositions | WORDS.places)


def test_no_name_stands_in_two_files() -> None:
    files = [tomllib.loads(path.read_text("utf-8")) for path in LISTS.glob("*.toml")]
    assert sum(map(len, files)) == len(TABLES)
