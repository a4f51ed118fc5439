"""Options in ids: one grammar for models, benchmarks and captions."""

from __future__ import annotations

import pytest
from errors import raises

from counterpoint._util.registry import Option, read_options

KNOWN = {"text": Option(""), "side": Option(8, least=2), "mode": Option("a", ("a", "b"))}


@pytest.mark.parametrize("apart", ["&", ","])
def test_values_are_read_and_others_have_their_default(apart: str) -> None:
    assert read_options("x", "", KNOWN, apart) == {"text": "", "side": 8, "mode": "a"}
    found = read_options("x", f"side=12{apart}mode=b{apart}", KNOWN, apart)
    assert found == {"text": "", "side": 12, "mode": "b"}


def test_a_value_may_hold_the_marks() -> None:
    """As a question of a model or the name of a file does."""
    found = read_options("x", "text=Is it = or & or ?, yes&side=3", KNOWN)
    assert found["text"] == "Is it = or & or ?, yes" and found["side"] == 3


def test_what_is_wrong_is_told() -> None:
    for text, code, words in (
        ("sode=3", "E-OPTION-UNKNOWN", "Did you mean 'side'?"),
        ("side", "E-OPTION-INVALID", "side must be a whole number from 2 on, not ''"),
        ("side=1", "E-OPTION-INVALID", "not '1'"),
        (f"side={'9' * 19}", "E-OPTION-INVALID", "whole number"),
        ("mode=c", "E-OPTION-INVALID", "Known: a, b."),
    ):
        with raises(code, words):
            read_options("x", text, KNOWN)
