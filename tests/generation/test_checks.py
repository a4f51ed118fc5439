"""Checks of form (what changed, how much, articles, format) and of what other captions say."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from caption_grammar import ADJECTIVES, THINGS, captions
from hypothesis import example, given, settings, strategies as st
from rule_support import read_examples

from counterpoint.cases.captions import read_words
from counterpoint.generation.checks.change import distance, is_within
from counterpoint.generation.checks.checking import (
    CHECKS,
    CheckResult,
    Claim,
    TextChange,
    check,
    like,
    normal,
    reasons,
    uniform,
)
from counterpoint.generation.pairs import KINDS, TYPES, Kind, Type

EXAMPLES = read_examples("check")
FEW = settings(derandomize=True, deadline=None, max_examples=80)


def batch_of(seed: int) -> list[tuple[str, Random]]:
    """Captions as people write them, with odd capitals and ends; each with its own chance."""
    found = []
    for number, text in enumerate(captions(30, seed)):
        chance = Random(f"{seed}/{number}")
        text = text.lower().rstrip(".")
        text = text[0].upper() + text[1:] if chance.random() < 0.5 else text
        text = text.upper() if chance.random() < 0.05 else text
        found.append((text + chance.choice(("", ".", " ", ". ", "!")), chance))
    return found


# Hypothesis draws a seed and the seed draws 30 captions: thousands of them in a second.
BATCHES = st.integers(0, 2**32 - 1).map(batch_of)
Batch = list[tuple[str, Random]]


def plain(text: str) -> list[str]:
    """The words of a text, found another way than the checks do."""
    for mark in ".,;:!?":
        text = text.replace(mark, " ")
    return ["a" if word == "an" else word for word in text.lower().split()]


def bag(text: str) -> Counter[str]:
    return Counter(plain(text))


# --- properties --------------------------------------------------------------------------------


@pytest.mark.slow
@FEW
@given(BATCHES, st.sampled_from(KINDS), st.sampled_from(TYPES))
def test_the_caption_itself_is_always_refused(batch: Batch, kind: Kind, type_: Type) -> None:
    for caption, _ in batch:
        for text in (caption, caption.upper(), f"  {caption.lower()} .", caption + "."):
            assert check(caption, text, kind, type_).rejected == "changed: the caption itself"


@pytest.mark.slow
@FEW
@given(BATCHES)
def test_two_words_exchanged_are_a_minimal_swap(batch: Batch) -> None:
    for caption, chance in batch:
        words = caption.split()
        i, j = chance.sample(range(len(words)), 2)
        words[i], words[j] = words[j], words[i]
        text = " ".join(words)
        faults = reasons(caption, text, Claim("negative", "swap"))
        assert "minimal" not in faults
        assert ("changed" in faults) == (plain(text) == plain(caption))


@pytest.mark.slow
@FEW
@given(BATCHES, st.sampled_from(("swap", "shuffle")))
def test_a_swap_that_passes_has_the_caption_s_words(batch: Batch, type_: Type) -> None:
    for (caption, chance), (other, _) in pairwise(batch):
        words = caption.split()
        shuffled = " ".join(chance.sample(words, len(words)))
        for text in (other, shuffled, " ".join(words[1:]), f"{shuffled} dog"):
            fault = CHECKS["minimal"](TextChange(caption, text), Claim("negative", type_))
            assert (fault == "") == (bag(text) == bag(caption))
            if check(caption, text, "negative", type_).rejected == "":
                assert bag(text) == bag(caption)


@pytest.mark.slow
@FEW
@given(BATCHES)
def test_a_replaced_slot_is_the_only_difference(batch: Batch) -> None:
    for caption, chance in batch:
        words = caption.split()
        i, j = chance.sample(range(len(words)), 2)
        one = [*words[:i], chance.choice(THINGS + ADJECTIVES), *words[i + 1 :]]
        found = CHECKS["minimal"](TextChange(caption, " ".join(one)), Claim("negative", "replace"))
        assert found in ("", "words moved")  # moved: it is the caption itself
        if abs(i - j) > 4:
            words[i] = words[j] = "walrus"
            two = CHECKS["minimal"](
                TextChange(caption, " ".join(words)), Claim("negative", "replace")
            )
            assert two == "slot too long"


@pytest.mark.slow
@settings(FEW, max_examples=400)
@given(st.text(), st.text(), st.sampled_from(KINDS), st.sampled_from(TYPES))
@example("ß", "SS", "negative", "swap")
@example("İ a", "a İ", "positive", "paraphrase")
@example("’", "'", "negative", "replace")
@example("٣ dogs", "² dogs", "positive", "replace")
def test_no_text_crashes_a_check(caption: str, text: str, kind: Kind, type_: Type) -> None:
    verdict = check(caption, text, kind, type_)
    assert verdict.passed == tuple(CHECKS)[: len(verdict.passed)]
    assert (verdict.rejected == "") == (len(verdict.passed) == len(CHECKS))
    reasons(caption, text, Claim(kind, type_))
    like(caption, text)
    uniform(text)


@pytest.mark.slow
@FEW
@given(BATCHES)
def test_like_and_uniform_settle(batch: Batch) -> None:
    for (caption, _), (text, _) in pairwise(batch):
        assert like(caption, caption) == caption
        assert like(caption, like(caption, text)) == like(caption, text)
        assert uniform(uniform(text)) == uniform(text)
        assert uniform(caption) == uniform(f"  {caption} ")
        for one, two in ((caption, like(caption, text)), (uniform(caption), uniform(text))):
            assert not CHECKS["format"](TextChange(one, two), Claim("negative", "swap"))


@FEW
@given(st.lists(st.sampled_from("abc"), max_size=8), st.lists(st.sampled_from("abc"), max_size=8))
def test_a_limited_distance_and_a_part(old: list[str], new: list[str]) -> None:
    assert (distance(old, new, 2) > 2) == (distance(old, new, 10) > 2)
    assert is_within(new[::2], new) and is_within([], old)
    assert is_within(old, new) == (
        re.fullmatch(".*".join(["", *old, ""]), "".join(new)) is not None
    )


def test_checks_name_what_was_passed() -> None:
    assert check("a red dog", "a blue dog", "negative", "replace") == CheckResult(tuple(CHECKS), "")
    rejected = check("A red dog", "a blue dog", "negative", "replace")
    assert rejected.rejected == "format: initial capital"
    assert rejected.passed == ("changed", "duplicate", "minimal", "whole-words", "articles")


# --- each check --------------------------------------------------------------------------------


def test_words() -> None:
    found = read_words("A dog's black-and-white ball, an “Apple”.")
    assert found.words == ("a", "dog's", "black-and-white", "ball", "a", "apple")
    assert found.raw[-2:] == ("an", "Apple")
    assert found.gaps == ("", " ", " ", " ", ", ", " “", "”.")


def test_duplicates_and_other_captions() -> None:
    caption, text = "a dog on a bed", "a cat on a bed"
    seen = check(caption, text, "negative", "replace", seen={normal("A cat on a bed.")})
    assert seen.rejected == "duplicate: made before"
    other = check(caption, text, "negative", "replace", others=[normal("A cat on a bed. ")])
    assert other.rejected == "meaning: another caption"
    # Another caption of the image is a fine positive.
    assert not check(
        caption, "a dog upon a bed", "positive", "replace", ["a dog upon a bed"]
    ).rejected
    assert not check(
        caption, text, "negative", "replace", others=[normal("a cow")], seen={normal("x")}
    ).rejected


def test_minimal() -> None:
    for type_, caption, text, fault in EXAMPLES["minimal"]:
        assert CHECKS["minimal"](TextChange(caption, text), Claim("negative", type_)) == fault


# The damaged words of the hard-positives data, and replacements that are none.
def test_whole_words() -> None:
    for caption, text, broken in EXAMPLES["whole_words"]:
        fault = CHECKS["whole-words"](TextChange(caption, text), Claim("positive", "replace"))
        assert fault == ("a word is broken" if broken else "")


def test_articles() -> None:
    for caption, text, fault in EXAMPLES["articles"]:
        assert CHECKS["articles"](TextChange(caption, text), Claim("negative", "replace")) == fault
        assert not CHECKS["articles"](TextChange(caption, text), Claim("negative", "shuffle"))


def test_format() -> None:
    for caption, text, fault in EXAMPLES["format"]:
        assert CHECKS["format"](TextChange(caption, text), Claim("negative", "replace")) == fault


def test_uniform() -> None:
    for given_text, expected in EXAMPLES["uniform"]:
        assert uniform(given_text) == expected


def test_like() -> None:
    for caption, text, expected in EXAMPLES["like"]:
        assert like(caption, text) == expected


# --- other captions of the image ---------------------------------------------------------------


def test_what_another_caption_says() -> None:
    for caption, text, other, said in EXAMPLES["what_another_caption_says"]:
        type_: Type = "add" if len(text.split()) > len(caption.split()) + 1 else "replace"
        others = [normal("an unrelated view"), normal(other)]
        for known in (others, others[::-1], frozenset(others)):
            reason = CHECKS["meaning"](TextChange(caption, text), Claim("negative", type_, known))
            assert reason == ("said by another caption" if said else "")
        assert CHECKS["meaning"](TextChange(caption, text), Claim("negative", type_)) == ""
