"""Captions: written and read back, refused when malformed, and judged as a slow judge would."""

from __future__ import annotations

import re

import numpy as np
import pytest
from errors import raises
from hypothesis import given, settings, strategies as st
from world_judge import judge

from counterpoint._util.errors import CounterpointError
from counterpoint.world.grammar import (
    Phrase,
    Statement,
    holds,
    read,
    sample_caption,
    write,
)
from counterpoint.world.scenes import (
    COLOURS,
    KINDS,
    RELATIONS,
    SHAPES,
    SIZES,
    SYNONYMS,
    TEXTURES,
    Scene,
    sample_scene,
)

pytestmark = pytest.mark.slow

FEW = settings(derandomize=True, deadline=None, max_examples=80)
SEEDS = st.integers(0, 2**32 - 1)
PHRASES = st.builds(
    Phrase,
    shape=st.sampled_from(SHAPES),
    size=st.none() | st.sampled_from(tuple(SIZES)),
    colour=st.none() | st.sampled_from(tuple(COLOURS)),
    texture=st.none() | st.sampled_from(TEXTURES),
)
STATEMENTS = st.builds(Statement, PHRASES, PHRASES, st.none() | st.sampled_from(RELATIONS))
SAY = st.sets(st.sampled_from(tuple(SYNONYMS))).map(lambda words: {w: SYNONYMS[w] for w in words})


@st.composite
def near_misses(draw: st.DrawFn) -> tuple[Statement, Scene]:
    """Statements about objects of the scene, some words changed: true and false ones alike."""
    scene = sample_scene(np.random.default_rng(draw(SEEDS)))
    phrases = []
    for thing in (draw(st.sampled_from(scene.things)), draw(st.sampled_from(scene.things))):
        kept = {k: thing.value(k) for k in KINDS if draw(st.booleans())}
        phrase = Phrase(thing.shape, **kept)
        phrases.append(draw(PHRASES) if draw(st.integers(0, 3)) == 0 else phrase)
    return Statement(*phrases, draw(st.none() | st.sampled_from(RELATIONS))), scene


@settings(FEW, max_examples=250)
@given(near_misses())
def test_holds_agrees_with_the_judge(case: tuple[Statement, Scene]) -> None:
    assert holds(*case) == judge(*case)


# --- write and read ----------------------------------------------------------------------------


@FEW
@given(STATEMENTS)
def test_a_caption_reads_back(statement: Statement) -> None:
    assert read(write(statement)) == statement


@FEW
@given(STATEMENTS, SAY)
def test_a_caption_with_synonyms_reads_back(statement: Statement, say: dict[str, str]) -> None:
    text = write(statement, say)
    assert read(text) == statement
    for word, synonym in say.items():
        if f" {word} " in write(statement):
            assert f" {synonym} " in text


def test_the_words_of_a_caption() -> None:
    star, heart = Phrase("star", "large", "white", "dotted"), Phrase("heart", colour="orange")
    assert write(Statement(heart, star)) == "the orange heart and the large white dotted star"
    assert write(Statement(heart, star, "above")) == (
        "an orange heart above a large white dotted star"
    )
    said = {"white": "ivory", "large": "big", "above": "on top of", "orange": "tangerine"}
    assert write(Statement(heart, star, "above"), said) == (
        "a tangerine heart on top of a big ivory dotted star"
    )


@FEW
@given(STATEMENTS, SAY)
def test_articles(statement: Statement, say: dict[str, str]) -> None:
    text = write(statement, say)
    if statement.relation is None:
        assert re.fullmatch(r"the .+ and the .+", text)
        assert not re.search(r"\ban?\b", text)
        return
    found = re.findall(r"\b(a|an) (\w)", text)
    assert len(found) == 2
    assert all((article == "an") == (letter in "aeiou") for article, letter in found)


MALFORMED = [
    *("", " ", "and", " and ", "a circle", "the circle and", "and the circle", "a circle above"),
    *("above a circle", "a circle beside a heart", "a circle to the above a heart"),
    *("a circle and a heart", "the circle and a heart"),  # "and" takes "the"
    *("the circle above the heart", "the circle above a heart"),  # relations take "a"
    *("circle above heart", "a orange circle above a heart", "an circle above a heart"),
    *("an red circle above a heart", "a emerald ring below an emerald ring"),
    *("a circle above a red", "a red above a heart", "a red blue circle above a heart"),
    *("a red crimson circle above a heart", "a red red circle above a heart"),
    *("a circle red above a heart", "a pink circle above a heart"),
    *("a circle star above a heart", "a circle above a heart above a star"),
    *("the circle and the heart and the star", "the circle and the heart above a star"),
    *("the  circle and the heart", "a  circle above a heart", "a circle above an  red heart"),
    *("A circle above a heart", "a circle above a heart.", " a circle above a heart"),
    *("a circle above a heart ", "a circle above a heart\n", "a circle\nabove a heart"),
]


def test_malformed_captions_are_refused_in_one_line() -> None:
    for text in MALFORMED:
        with raises("E-CAPTION-NOT-WORLD") as caught:
            read(text)
        assert isinstance(caught.value, CounterpointError)
        assert len(str(caught.value).splitlines()) == 1


# --- captions of scenes ------------------------------------------------------------------------


@FEW
@given(SEEDS, st.floats(0, 1))
def test_captions_are_true(seed: int, synonym: float) -> None:
    rng = np.random.default_rng(seed)
    scene = sample_scene(rng)
    for _ in range(5):
        caption = sample_caption(scene, rng, synonym)
        assert judge(read(caption), scene), (scene.code(), caption)


def test_captions_say_every_relation_and_rare_words_as_often_as_asked() -> None:
    rng = np.random.default_rng(4)
    for synonym in (0.0, 1.0):
        captions = [sample_caption(sample_scene(rng), rng, synonym) for _ in range(300)]
        assert {read(caption).relation for caption in captions} == {None, *RELATIONS}
        words = {word for caption in captions for word in caption.split(" ")}
        attributes = [word for word in SYNONYMS if word not in RELATIONS]
        assert words >= {SYNONYMS[word] if synonym else word for word in attributes}
