"""Noun phrases of captions, words that two captions exchange, and what a text replaces."""

from __future__ import annotations

import pytest

from counterpoint.generation import exchanged, phrases_of
from counterpoint.generation.drafts import replaced

DOG, MAN = "A black dog on a red bench.", "An old man reads under the tree"


def test_phrases_are_found_from_left_to_right_and_once():
    found = list(phrases_of([DOG, "Pizza", "a dog and a dog near two cats"]))
    assert found == [["A black dog", "a red bench"], [], ["a dog", "two cats"]]


@pytest.mark.parametrize("place", range(12))
def test_a_word_is_exchanged_for_one_of_its_kind(place):
    draws = [(place % 4) / 4, (place % 3) / 3, (place % 2) / 2]
    ((first, second),) = exchanged([(DOG, MAN)], [draws])

    def words(text: str) -> list[str]:
        plain = text.lower().replace(".", "").split()
        return sorted("a" if word == "an" else word for word in plain)

    assert sorted(words(first) + words(second)) == sorted(words(DOG) + words(MAN))
    assert first != DOG and second != MAN
    assert first[0].isupper() and second[0].isupper() and first.endswith(".")
    assert "a old" not in f"{first} {second}".lower()
    assert "an black" not in f"{first} {second}".lower()


def test_what_cannot_be_exchanged_is_none():
    pairs = [("Pizza", "Pizza"), ("a red dog", "a red cat"), ("a dog", "a dog and a cat")]
    assert exchanged(pairs, [[0.0, 0.0, 0.0]] * 3) == [None, None, None]


def test_a_pair_does_not_depend_on_the_others():
    pairs, draws = [(DOG, MAN), (MAN, DOG), ("a dog", "a cat runs")], [[0.3, 0.6, 0.9]] * 3
    together = exchanged(pairs, draws)
    assert together == [exchanged([pair], draws[:1])[0] for pair in pairs]


# The first three are of the paper's own sample (Hard Positives, C.3).
REPLACED = [
    ("Two baby goats stand together on worn stones", "goats -> kids, stones -> rocks", "obj"),
    ("a field that ha a bunch of sheep in it", "field -> meadow, ha -> has, bunch -> flock", "obj"),
    ("an eaten sandwich on a plate", "eaten -> devoured", "att"),
    ("A red bus", "red -> crimson", "att"),
    ("A red bus", "red -> crimson, bus -> coach", ""),
    ("a man wearing a hat", "wearing -> clothed in", "rel"),
    ("a cat next to a dog", "next to -> beside", "rel"),
    ("a cat on top of a box", "on top of -> above", "rel"),
    ("two dogs", "two -> a pair of", "count"),
    ("a dog", "a dog -> a dog", ""),
]


@pytest.mark.parametrize(("caption", "edits", "subtype"), REPLACED)
def test_what_a_text_replaces(caption, edits, subtype):
    text = caption
    for edit in edits.split(", "):
        text = text.replace(*edit.split(" -> "))
    assert replaced(caption, text) == subtype
