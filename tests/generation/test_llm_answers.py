"""Reading what a language model says: pure functions, the papers' examples, every refusal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache

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

CAPTION = "A cat resting on a laptop next to a person."
WORDS = st.lists(st.sampled_from(["a", "b", "c", "dog", "cat"]), max_size=7)


def told(read: Callable[..., object], *given: object) -> object:
    """What was read, or the reason why nothing was."""
    try:
        return read(*given)
    except UnusableAnswerError as error:
        return str(error)


# --- one line ----------------------------------------------------------------------------------

LINES = {
    "New sentence: A dog.": "A dog.",
    "\n  new sentence:   A   dog. \n": "A dog.",
    "<think>New sentence: no</think>\nNew sentence: A dog.": "A dog.",
    "": answers.EMPTY,
    " \n ": answers.EMPTY,
    "<think>I wonder": answers.EMPTY,
    "No": answers.ANSWERED_NO,
    "No.": answers.ANSWERED_NO,
    "Possible: No\nSwapped: none": answers.ANSWERED_NO,
    "A dog.": answers.no_line("New sentence"),
    "Sure! Here it is: New sentence": answers.no_line("New sentence"),
    "New sentences: A dog.": answers.no_line("New sentence"),
    "Sure!\nNew sentence: A dog.": answers.EXTRA_LINES,
    "New sentence: A dog.\nI hope this helps.": answers.EXTRA_LINES,
    "New sentence: A dog.\nNew sentence: A cat.": answers.EXTRA_LINES,
}


def test_an_answer_is_one_line() -> None:
    assert {text: told(answered, text, "New sentence") for text in LINES} == LINES


def test_without_a_label_an_answer_is_its_only_line() -> None:
    assert answered(" A dog. ", "") == "A dog."
    assert told(answered, "Sure:\nA dog.", "") == answers.EXTRA_LINES
    assert answered("Nothing on a table", "") == "Nothing on a table"


SWAP = "Possible: Yes\nSwapped: {}\nNew sentence: {}"
SWAPPED = {
    SWAP.format("laptop, person", "A cat."): answers.NOT_SWAPPED,
    SWAP.format("laptop, person", CAPTION): answers.NOT_SWAPPED,
    SWAP.format("laptop", "A cat."): answers.NOT_IN_CAPTION,
    SWAP.format("laptop, dog", "A cat."): answers.NOT_IN_CAPTION,
    SWAP.format("laptop, person, cat", "A cat."): answers.NOT_IN_CAPTION,
    "Possible: No": answers.ANSWERED_NO,
    "No, it is not.": answers.no_line("New sentence"),
    "Possible: Yes\nSwapped: laptop, person": answers.no_line("New sentence"),
    "Swapped: laptop, person\nNew sentence: A cat.": answers.EXTRA_LINES,
    "Possible: Yes\nNew sentence: A cat.": answers.EXTRA_LINES,
    SWAP.format("laptop, person", "A cat.\nDone."): answers.EXTRA_LINES,
    "": answers.EMPTY,
}


def test_a_swap_is_three_lines() -> None:
    step = read_template("llm/swap-obj").steps[0]
    assert {text: told(swapped, text, CAPTION, step) for text in SWAPPED} == SWAPPED


# --- concepts ----------------------------------------------------------------------------------


def test_what_is_located_must_be_in_the_caption() -> None:
    assert located("Things: cat, Laptop, dog, cat", CAPTION, "Things") == ["cat", "Laptop"]
    assert located('Things: ["cat", "person"].', CAPTION, "Things") == ["cat", "person"]
    assert told(located, "Things: lap", CAPTION, "Things") == answers.NOT_IN_CAPTION
    assert told(located, "Things: none", CAPTION, "Things") == answers.NOTHING_LOCATED
    assert told(located, "Things: ", CAPTION, "Things") == answers.NOTHING_LOCATED
    assert told(located, "Things: []", CAPTION, "Things") == answers.NOTHING_LOCATED
    assert listed("next to, on") == ["next to", "on"]


PROPOSED = {
    "dog": "dog",
    '"a dog".': "a dog",
    "": answers.NEW_EMPTY,
    "none": answers.NEW_EMPTY,
    "!!!": answers.NEW_EMPTY,
    "a very big and hairy dog": answers.NEW_TOO_LONG,
    "dog, cow": answers.NEW_TOO_LONG,
    "laptop": answers.NEW_SAME,
    "Laptops": answers.NEW_SAME,
    "the laptop": answers.NEW_SAME,
    "cat": answers.NEW_KNOWN,
    "two cats": "two cats",
    "a person": answers.NEW_KNOWN,
    "persons": answers.NEW_KNOWN,
}


def test_a_new_concept_is_new() -> None:
    step = read_template("llm/replace-obj").steps[1]
    for said, expected in PROPOSED.items():
        assert told(proposed, f"New thing: {said}", CAPTION, "laptop", step) == expected, said


# --- sentences ---------------------------------------------------------------------------------

JUDGED = {
    "A dog resting on a laptop next to a person.": None,
    "A dog resting on a laptop next to a person!": None,
    CAPTION: answers.UNCHANGED,
    "a cat, resting on a laptop next to a person.": answers.UNCHANGED,
    "The cat resting on a laptop next to a person.": answers.NOTHING_NEW,
    "A cat on a laptop next to a person.": answers.NOTHING_NEW,
    "A cat resting on a laptop-person.": answers.NOTHING_NEW,
    "Is a dog resting on a laptop next to a person?": answers.QUESTION,
    "A dog resting on a laptop next to a person": answers.NO_PUNCTUATION,
    "A dog resting on a laptop next to": answers.NO_PUNCTUATION,
    "Two men ride a wild horse over the hills.": answers.CHANGED_TOO_MUCH,
    "...": answers.EMPTY,
}


def test_a_sentence_is_a_small_change() -> None:
    limit = ChangeLimit("words", 4, 0.4)
    assert {text: told(judge, CAPTION, text, limit) for text in JUDGED} == JUDGED


def test_how_much_may_change_grows_with_the_caption() -> None:
    long = " ".join(f"word{n}" for n in range(20))
    other = long.replace("word1 ", "x ").replace("word3 ", "x ").replace("word5 ", "x ")
    assert judge(long, other, ChangeLimit("words", 2, 0.15)) is None
    assert told(judge, long, other, ChangeLimit("words", 2, 0.14)) == answers.CHANGED_TOO_MUCH
    backwards = " ".join(reversed(long.split()))
    assert judge(long, backwards, ChangeLimit("bag", 0, 0.0)) is None
    assert told(judge, long, backwards + " x", ChangeLimit("bag", 0, 0.0)) is not None


FORMATS = [
    ("a dog runs", "A cat runs.", "a cat runs"),
    ("A dog runs.", "a cat runs.", "A cat runs."),
    ("A dog runs.", '"A cat runs."', "A cat runs."),
    ("A dog runs. ", "**A cat runs.**", "A cat runs."),
    ("A dog runs", "A cat  runs...", "A cat runs"),
    ("dog ON table", "TV on table", "TV on table"),
    ("a dog and me", "I and a dog", "I and a dog"),
    ("2 dogs.", "Two dogs.", "Two dogs."),
    ('A sign that says "stop".', "A sign that reads 'stop'.", 'A sign that reads "stop".'),
    ("A dog's bone.", "A cat's bone.", "A cat's bone."),
    ("'90s car", "'80s car", "'80s car"),
    ("a dog", "", ""),
]


def test_the_captions_format_is_kept() -> None:
    for caption, said, text in FORMATS:
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
