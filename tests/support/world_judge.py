"""A judge of the world's statements, as slow and obvious as it can be."""

from __future__ import annotations

from itertools import permutations

from counterpoint.world import KINDS, Phrase, Scene, Statement, Thing


def judge(statement: Statement, scene: Scene) -> bool:
    return any(
        is_a(a, statement.first) and is_a(b, statement.second) and stands(a, statement.relation, b)
        for a, b in permutations(scene.things, 2)
    )


def is_a(thing: Thing, phrase: Phrase) -> bool:
    said = [getattr(phrase, kind) in (None, getattr(thing, kind)) for kind in KINDS]
    return phrase.shape == thing.shape and all(said)


def stands(a: Thing, relation: str | None, b: Thing) -> bool:
    # A quarter of the width lies in the gap between objects of one column and of the next, so the
    # judge need not know the margin of the code it judges.
    return {
        None: True,
        "left of": a.x + 0.25 < b.x,
        "right of": b.x + 0.25 < a.x,
        "above": a.y + 0.25 < b.y,
        "below": b.y + 0.25 < a.y,
    }[relation]
