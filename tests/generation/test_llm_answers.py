"""Reading what a language model says: pure functions, the papers' examples, every refusal."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from counterpoint.generation.checks.change import distance
from counterpoint.generation.llm import answers
from counterpoint.generation.llm.answers import (
    UnusableAnswerError,
    answered,
    bag_distance,
    holds,
    in_format_of,
    judge,
    listed,
    located,
    proposed,
    swapped,
    words,
)
from counterpoint.generation.llm.templates import ChangeLimit, read_template

TABLES = tomllib.loads(Path(__file__).with_name("llm_answers.toml").read_text())
CAPTION = "A cat resting on a laptop next to a person."
WORDS = st.lists(st.sampled_from(["a", "b", "c", "dog", "cat"]), max_size=7)


def told(read: Callable[..., object], *given: object) -> object:
    """What was read, or the reason why nothing was."""
    try:
        return read(*given)
    except UnusableAnswerError as error:
        return str(error)


# --- one line ----------------------------------------------------------------------------------


def test_an_answer_is_one_line() -> None:
    for answer, expected in TABLES["lines"]:
        assert told(answered, answer, "New sentence") == expected, answer


def test_without_a_label_an_answer_is_its_only_line() -> None:
    assert answered(" A dog. ", "") == "A dog."
    assert told(answered, "Sure:\nA dog.", "") == answers.EXTRA_LINES
    assert answered("Nothing on a table", "") == "Nothing on a table"


def test_a_swap_is_three_lines() -> None:
    step = read_template("llm/swap-obj").steps[0]
    for answer, reason in TABLES["swaps"]:
        assert told(swapped, answer, CAPTION, step) == reason, answer


# --- concepts ----------------------------------------------------------------------------------


def test_what_is_located_must_be_in_the_caption() -> None:
    assert located("Things: cat, Laptop, dog, cat", CAPTION, "Things") == ["cat", "Laptop"]
    assert located('Things: ["cat", "person"].', CAPTION, "Things") == ["cat", "person"]
    assert told(located, "Things: lap", CAPTION, "Things") == answers.NOT_IN_CAPTION
    assert told(located, "Things: none", CAPTION, "Things") == answers.NOTHING_LOCATED
    assert told(located, "Things: ", CAPTION, "Things") == answers.NOTHING_LOCATED
    assert told(located, "Things: []", CAPTION, "Things") == answers.NOTHING_LOCATED
    assert listed("next to, on") == ["next to", "on"]


def test_a_new_concept_is_new() -> None:
    step = read_template("llm/replace-obj").steps[1]
    for said, expected in TABLES["concepts"]:
        assert told(proposed, f"New thing: {said}", CAPTION, "laptop", step) == expected, said


# --- sentences ---------------------------------------------------------------------------------


def test_a_sentence_is_a_small_change() -> None:
    limit = ChangeLimit("words", 4, 0.4)
    for text, reason in TABLES["sentences"]:
        assert (told(judge, CAPTION, text, limit) or "") == reason, text


def test_how_much_may_change_grows_with_the_caption() -> None:
    long = " ".join(f"word{n}" for n in range(20))
    other = long.replace("word1 ", "x ").replace("word3 ", "x ").replace("word5 ", "x ")
    assert judge(long, other, ChangeLimit("words", 2, 0.15)) is None
    assert (
        told(judge, long, other, ChangeLimit("words", 2, 0.14))
        == "the new sentence changes too much"
    )
    backwards = " ".join(reversed(long.split()))
    assert judge(long, backwards, ChangeLimit("bag", 0, 0.0)) is None
    assert told(judge, long, backwards + " x", ChangeLimit("bag", 0, 0.0)) is not None


def test_the_captions_format_is_kept() -> None:
    for caption, said, text in TABLES["formats"]:
        assert in_format_of(caption, said) == text


@pytest.mark.slow
@given(st.text(), st.text())
def test_any_two_texts_can_be_judged(caption: str, said: str) -> None:
    text = in_format_of(caption, said)
    assert in_format_of(caption, text) == text or '"' in caption or said.startswith(("'", '"'))
    if caption.strip():
        found = told(judge, caption, text, ChangeLimit("words", 1, 0.2))
        assert (found is None) <= (words(text) != words(caption) and words(text) != [])


@given(WORDS, WORDS)
def test_distances_are_what_they_are_called(first: list[str], second: list[str]) -> None:
    @cache
    def slow(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        if first[i - 1] == second[j - 1]:
            return slow(i - 1, j - 1)
        return 1 + min(slow(i - 1, j), slow(i, j - 1), slow(i - 1, j - 1))

    assert distance(first, second, 99) == slow(len(first), len(second))
    kinds = {*first, *second}
    more = [Counter(first)[kind] - Counter(second)[kind] for kind in kinds]
    expected = max(sum(n for n in more if n > 0), -sum(n for n in more if n < 0))
    assert bag_distance(first, second) == expected <= distance(first, second, 99)


@given(WORDS, st.lists(st.sampled_from(["a", "b", "c", "dog", "cat"]), min_size=1, max_size=3))
def test_holding_is_whole_words_in_a_row(text: list[str], part: list[str]) -> None:
    pattern = rf"(?:^|\s){re.escape(' '.join(part))}(?:\s|$)"
    assert holds(" ".join(text), " ".join(part)) == bool(re.search(pattern, " ".join(text)))
