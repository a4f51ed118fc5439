"""Captions like COCO's and Visual Genome's, of our own making, as many as a test asks for."""

from __future__ import annotations

import tomllib
from pathlib import Path
from random import Random

_WORDS = tomllib.loads(Path(__file__).with_name("caption_words.toml").read_text("utf-8"))
THINGS, PLACES, ADJECTIVES = (_WORDS[name].split() for name in ("things", "places", "adjectives"))
NUMBERS = ["two", "three", "four", "five", "several"]
RELATIONS = ["on", "under", "near", "behind", "above", "beside"]
RELATIONS += ["next to", "in front of", "on top of"]
VERBS = ["holding", "riding", "watching", "wearing", "carrying", "eating", "pulling"]
POSTURES = ["sitting", "standing", "walking", "lying", "running", "waiting"]


def captions(count: int, seed: int = 0) -> list[str]:
    """Captions by a dozen templates; half start with a capital and end with a full stop."""
    rng = Random(seed)
    return [_caption(rng) for _ in range(count)]


def _caption(rng: Random) -> str:
    def noun() -> str:
        return rng.choice(THINGS)

    def phrase(article: str = "") -> str:
        thing, adjective = noun(), rng.choice(ADJECTIVES)
        words = f"{adjective} {thing}" if rng.random() < 0.6 else thing
        first = article or rng.choice(["a", "the", "a"])
        if first == "a" and words[0] in "aeiou":
            first = "an"
        return f"{first} {words}"

    place = rng.choice(PLACES)
    templates = (
        lambda: f"{phrase()} {rng.choice(RELATIONS)} {phrase()}",
        lambda: f"{phrase()} and {phrase()}",
        lambda: f"{phrase()} and {phrase()} in the {place}",
        lambda: f"{phrase()} {rng.choice(POSTURES)} {rng.choice(RELATIONS)} {phrase()}",
        lambda: f"a {rng.choice(['man', 'woman'])} {rng.choice(VERBS)} {phrase()}",
        lambda: f"{phrase()} is {rng.choice(POSTURES)} in the {place}",
        lambda: f"{rng.choice(NUMBERS)} {noun()}s {rng.choice(POSTURES)} on the {place}",
        lambda: f"a {place} with {phrase()}, {phrase()} and {phrase()}",
        lambda: f"there is {phrase()} in the {place}",
        lambda: f"a {rng.choice(['boy', 'girl'])} wearing {phrase()} and holding {phrase()}",
        lambda: f"{noun()} {rng.choice(RELATIONS).upper()} {noun()}",
        lambda: f"{phrase()} with {phrase()} is {rng.choice(RELATIONS)} {phrase()}",
    )
    text = rng.choice(templates)()
    return text[0].upper() + text[1:] + "." if rng.random() < 0.5 else text
