"""What a rule gives for one caption, and the examples of rules and checks beside their tests."""

from __future__ import annotations

import tomllib
from pathlib import Path
from random import Random
from typing import Any

from counterpoint.generation import RULES
from counterpoint.generation.language.lexicon import Vocabulary
from counterpoint.generation.language.sentences import tagged
from counterpoint.generation.pairs import Draft

_GENERATION = Path(__file__).parents[1] / "generation"


def read_examples(name: str) -> dict[str, list[Any]]:
    return tomllib.loads((_GENERATION / f"{name}_examples.toml").read_text(encoding="utf-8"))


def drafts_of(caption: str, rule: str, *true: str, tries: int = 12, **how: bool) -> list[Draft]:
    """Every draft within a few seeds; `true` are other captions of the image."""
    [sentence] = tagged([caption])
    vocabulary = Vocabulary(true=true, **how)
    return [
        draft
        for seed in range(tries)
        for way in RULES.get(rule).make(sentence, vocabulary, Random(seed))
        for draft in way
    ]


def made_of(caption: str, rule: str, *true: str, tries: int = 12, **how: bool) -> set[str]:
    return {draft.text for draft in drafts_of(caption, rule, *true, tries=tries, **how)}
