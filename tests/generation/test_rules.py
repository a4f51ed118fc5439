"""What holds of every text that rules make: of any caption, of the world, and in any order."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import cache

import numpy as np
import pytest
from caption_grammar import captions
from rule_support import read_examples

from counterpoint.cases import shared_ends
from counterpoint.generation import RULES, TextSettings, make_by_rules
from counterpoint.generation.inputs.captions import SourceCaption
from counterpoint.generation.pairs import Kind, Pair
from counterpoint.world.grammar import GrammarError, holds, read, sample_caption
from counterpoint.world.scenes import sample_scene

pytestmark = pytest.mark.slow

WORDS = re.compile(r"[\w'-]+")
MANY = captions(600, seed=3)
OWN = read_examples("rule")["own"]
POSITIVE = tuple(name for name in RULES.names() if RULES.get(name).kind == "positive")


def pairs(captions: list[str], names: tuple[str, ...] = POSITIVE, *, seed: int = 0) -> list[Pair]:
    kind = RULES.get(names[0]).kind
    sources = [SourceCaption(str(n), None, caption) for n, caption in enumerate(captions)]
    return make_by_rules(sources, TextSettings(kind, names, seed)).pairs


@cache
def many(kind: Kind) -> list[Pair]:
    """All rules on hundreds of captions, checked."""
    return pairs(MANY, tuple(name for name in RULES.names() if RULES.get(name).kind == kind))


def words_of(text: str) -> list[str]:
    """Its words; a and an are one word, for they follow the word behind them."""
    return ["a" if word == "an" else word for word in WORDS.findall(text.lower())]


def test_there_is_enough_to_test() -> None:
    assert len(many("negative")) > 5 * len(MANY)
    assert len(many("positive")) > len(MANY) / 2
    rules = {pair.method for pair in (*many("negative"), *many("positive"))}
    assert rules == set(RULES.names()) - {"denials"}  # these captions deny nothing


def test_swaps_and_shuffles_keep_the_bag_of_words() -> None:
    found = (*many("negative"), *many("positive"), *pairs(OWN, ("fronted",)))
    moved = [pair for pair in found if pair.type in ("swap", "shuffle")]
    methods = {"negclip", "crepe-swap", "shuffle", "conjuncts", "fronted"}
    assert {pair.method for pair in moved} >= methods
    for pair in moved:
        assert Counter(words_of(pair.text)) == Counter(words_of(pair.caption)), pair


def test_additions_only_add() -> None:
    found = [pair for pair in many("negative") if pair.method == "add"]
    assert len(found) > 100 and {pair.subtype for pair in found} == {"obj", "att"}
    for pair in found:
        assert pair.type == "add"
        rest = iter(words_of(pair.text))
        assert all(word in rest for word in words_of(pair.caption)), pair  # in the same order


def test_a_replaced_slot_is_the_only_difference() -> None:
    """What stands before and after it is as it was, but for an article next to it."""
    replaced = [p for p in (*many("negative"), *many("positive")) if p.type == "replace"]
    assert len(replaced) > len(MANY)
    for pair in replaced:
        before, after = words_of(pair.caption), words_of(pair.text)
        shared = sum(shared_ends(before, after))
        assert max(len(before), len(after)) - shared <= 4, pair


def test_words_change_and_what_is_no_word_stays() -> None:
    for pair in (*many("negative"), *many("positive")):
        assert words_of(pair.text) != words_of(pair.caption)
        assert pair.text.endswith(".") == pair.caption.endswith(".")
        if pair.caption[1:].lower() == pair.caption[1:]:  # else a word in capitals may come first
            assert pair.text[0].isupper() == pair.caption[0].isupper()
        assert "  " not in pair.text


def test_every_caption_and_seed_has_its_own_chance() -> None:
    """What is made of a caption does not depend on what else is in the file, nor on the methods."""
    names = ("negclip", "crepe-replace", "shuffle")
    sources = [SourceCaption(str(n), None, caption) for n, caption in enumerate(MANY[:60])]
    whole = make_by_rules(sources, TextSettings("negative", names)).pairs
    part = make_by_rules(sources[30:31], TextSettings("negative", names[1:2])).pairs
    alone = [p for p in whole if p.source == "30" and p.method == names[1]]
    assert [p.text for p in part] == [p.text for p in alone] != []
    other = make_by_rules(sources, TextSettings("negative", names, seed=1)).pairs
    assert [p.text for p in other] != [p.text for p in whole]


def judged(names: tuple[str, ...]) -> dict[str, list[bool]]:
    """By method: whether each text that the world understands is true of its scene."""
    rng = np.random.default_rng(5)
    scenes = [sample_scene(rng) for _ in range(300)]
    found: dict[str, list[bool]] = {}
    for pair in pairs([sample_caption(scene, rng) for scene in scenes], names):
        try:
            statement = read(pair.text)
        except GrammarError:
            continue  # "a gold circle": not a word of the world
        found.setdefault(pair.method, []).append(holds(statement, scenes[int(pair.source)]))
    return found


def test_positives_are_true_in_the_world() -> None:
    found = judged(("conjuncts", "converse", "hard-positives", "synonyms"))
    least = {"conjuncts": 20, "converse": 20, "hard-positives": 5}
    assert all(len(found[name]) > count for name, count in least.items())
    assert all(map(all, found.values()))


def test_negatives_are_false_in_the_world() -> None:
    """Nearly: another object of the scene may be what the negative says, which no text can know."""
    for name in ("negclip", "crepe-replace", "crepe-swap", "svlc", "bind"):
        [truths] = judged((name,)).values()  # alone: they share texts
        assert len(truths) > 30
        assert sum(truths) / len(truths) < 0.04


# --- positives ----------------------------------------------------------------------------------


def test_most_captions_get_a_positive() -> None:
    made = pairs(OWN)
    assert len({pair.source for pair in made}) >= 0.9 * len(OWN)
    assert {pair.method for pair in made} >= {"framing", "relative", "synonyms"}


def test_an_edit_has_one_subtype() -> None:
    subtypes = defaultdict(set)
    captions = [*OWN, "a sitting man", "a man sitting on a chair", "a closed door", "a door closed"]
    for seed in range(4):
        for pair in pairs(captions, ("hard-positives", "synonyms"), seed=seed):
            old, new = pair.caption.lower().split(), pair.text.lower().split()
            lost, gained = Counter(old) - Counter(new), Counter(new) - Counter(old)
            subtypes[pair.method, tuple(sorted(lost)), tuple(sorted(gained))].add(pair.subtype)
    assert subtypes
    assert all(len(found) == 1 for found in subtypes.values()), subtypes


SAME_WORD = [
    f"a {colour} {thing} next to a cage"
    for colour in ("red", "blue", "green", "black")
    for thing in ("vase", "towel", "kettle", "ladder", "brush", "hose", "rope", "lamp")
]


def test_a_common_edit_is_rare_where_other_rules_have_texts() -> None:
    made = pairs(SAME_WORD, POSITIVE)
    alone = pairs(SAME_WORD, ("hard-positives",))
    near = [pair for pair in made if "near" in pair.text]
    assert len(near) < len(SAME_WORD) / 4
    # Of captions without another text more have it, but not all.
    assert len(near) < len({pair.source for pair in alone}) < len(SAME_WORD)


def test_a_capped_text_depends_on_its_caption_alone() -> None:
    sources = [SourceCaption(str(n), None, caption) for n, caption in enumerate(SAME_WORD)]
    settings = TextSettings("positive", POSITIVE)
    pieces = [make_by_rules(sources[n : n + 5], settings).pairs for n in range(0, 32, 5)]
    assert [pair for piece in pieces for pair in piece] == pairs(SAME_WORD)
