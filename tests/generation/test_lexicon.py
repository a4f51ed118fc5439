"""The lexicon: what holds for every word in it, and the senses that captions trip over."""

import tomllib
from importlib import resources
from itertools import combinations

import pytest
from hypothesis import given, strategies as st
from rule_support import read_examples

from counterpoint.benchmarks import SYNONYMS
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import read_meanings
from counterpoint.world import scenes as world

MEANINGS = [meaning for field in lexicon.fields().values() for meaning in field]
WORDS = sorted({word for m in MEANINGS for word in (*m.offered, *m.also)})
HEADS = [(m.head, m.pos) for m in MEANINGS]
words = st.sampled_from(WORDS)
EXAMPLES = read_examples("lexicon")
LISTS = resources.files("counterpoint.generation.language") / "words"


# --- what holds for every word


@given(words, words)
def test_may_be_same_and_exclude_are_symmetric_and_never_both(a, b):
    assert lexicon.may_be_same(a, b) == lexicon.may_be_same(b, a)
    assert lexicon.exclude(a, b) == lexicon.exclude(b, a)
    assert not (lexicon.may_be_same(a, b) and lexicon.exclude(a, b))


def test_a_word_may_be_the_same_as_itself_and_as_its_synonyms():
    for meaning in MEANINGS:
        for word in (*meaning.offered, *meaning.also):
            assert lexicon.may_be_same(word, word)
            assert lexicon.may_be_same(meaning.head, word)


def test_near_and_kinds_may_be_the_same_and_opposites_contradict():
    for meaning in MEANINGS:
        for other in (*meaning.near, *meaning.kinds):
            assert lexicon.may_be_same(meaning.head, other), (meaning.head, other)
        for other in meaning.opposites:
            assert lexicon.exclude(meaning.head, other), (meaning.head, other)


def test_exclusive_meanings_contradict_unless_they_are_near_or_one_is_a_kind_of_the_other():
    """Computed from the lists, pair by pair."""
    for field in lexicon.fields().values():
        for one, other in combinations(field, 2):
            alike = one.contrast == "exclusive" and one.scale == other.scale
            if alike and not lexicon.may_be_same(one.head, other.head):
                assert lexicon.exclude(one.head, other.head)


@pytest.mark.slow
def test_rivals_are_heads_that_cannot_be_meant():
    for word, pos in sorted(set(HEADS)):
        found = lexicon.rivals(word, pos)
        assert len(set(found)) == len(found), word
        assert set(found) <= {head for head, part in HEADS if part == pos}, word
        assert not any(lexicon.may_be_same(word, rival) for rival in found), word
        assert not {synonym.text for synonym in lexicon.synonyms(word, pos)} & set(found), word
        assert set(lexicon.opposites(word, pos)) <= set(found), word


def test_most_words_have_rivals():
    for pos in ["NOUN", "ADJ", "VERB", "ADP", "NUM"]:
        found = [bool(lexicon.rivals(head, pos)) for head, part in HEADS if part == pos]
        assert sum(found) > 0.8 * len(found)


def test_synonyms_are_true_of_the_same_thing_and_never_the_word_itself():
    for word in WORDS:
        for pos in {meaning.pos for meaning in lexicon.meanings(word)}:
            for synonym in lexicon.synonyms(word, pos):
                assert synonym.text != word
                assert lexicon.may_be_same(word, synonym.text)
                assert not lexicon.exclude(word, synonym.text)


def test_nothing_is_near_to_a_kind_that_it_belongs_to():
    """It would be near to everything else of that kind."""
    kinds = {m.head: set(m.kinds) for m in MEANINGS if m.subtype == "obj"}
    for meaning in MEANINGS:
        above, edge = set(), set(meaning.kinds)
        while edge:
            above |= edge
            edge = set().union(*(kinds[kind] for kind in edge)) - above
        assert not above & meaning.near, meaning.head


def test_a_lexicon_is_immutable():
    meaning = MEANINGS[0]
    with pytest.raises(AttributeError):
        meaning.words = ()
    with pytest.raises(TypeError):
        lexicon.fields()["colour"] = ()


# --- relations


def test_the_converse_of_a_converse_is_the_word_or_means_the_same():
    pairs = {w: lexicon.converse(w) for w in lexicon.relations() if lexicon.converse(w)}
    assert len(pairs) >= 12
    for word, other in pairs.items():
        assert lexicon.may_be_same(lexicon.converse(other), word)
        assert lexicon.exclude(word, other)
        assert not lexicon.is_symmetric(word)
    for meaning in MEANINGS:
        if meaning.converse:
            assert lexicon.converse(lexicon.converse(meaning.head)) == meaning.head


def test_converse_and_symmetric_relations():
    for relation, other in EXAMPLES["converses"]:
        assert lexicon.converse(relation) == other
    for relation in EXAMPLES["symmetric"]:
        assert lexicon.is_symmetric(relation) and lexicon.may_be_symmetric(relation)
        assert lexicon.converse(relation) == ""
    assert not any(map(lexicon.is_symmetric, EXAMPLES["not_symmetric"]))
    assert all(map(lexicon.may_be_symmetric, ("with", "hug", "kiss", "talk to")))
    assert not lexicon.may_be_symmetric("above")


def test_relations_are_found_the_longest_first():
    found = lexicon.relations()
    assert found.index("on top of") < found.index("on")
    assert found.index("to the left of") < found.index("left of")
    assert found.index("look at") < found.index("look")
    assert "adjacent to" in found  # doubtful, but a relation
    assert len(set(found)) == len(found)


# --- the papers


LEMMAS = dict(EXAMPLES["lemmas"])


def test_every_pair_of_the_hard_positives_paper_may_be_the_same():
    pairs = [pair for table in SYNONYMS.values() for pair in table.items()]
    assert len(pairs) == 39
    for word, synonym in pairs:
        one, other = LEMMAS.get(word, word), LEMMAS.get(synonym, synonym)
        assert lexicon.may_be_same(one, other), (word, synonym)
        assert not lexicon.exclude(one, other)


def test_what_svlc_takes_for_different_may_be_the_same():
    for alike in EXAMPLES["what_svlc_takes_for_different_may_be_the_same"]:
        for one, other in combinations(alike, 2):
            if {one, other} != {
                "brown",
                "beige",
            }:  # a careful eye tells them apart, but not by much
                assert lexicon.may_be_same(one, other), (one, other)
            assert not lexicon.exclude(one, other)


def test_the_worlds_synonyms_may_be_the_same_and_its_other_words_are_not():
    for word, synonym in world.SYNONYMS.items():
        assert lexicon.may_be_same(word, synonym), (word, synonym)
    for field in (world.SHAPES, tuple(world.SIZES), world.TEXTURES):
        for one, other in combinations(field, 2):
            if {one, other} not in ({"circle", "ring"}, {"square", "diamond"}):
                assert lexicon.exclude(one, other), (one, other)
    for relation, other in world.CONVERSE.items():
        assert lexicon.converse(relation) == other
        assert lexicon.exclude(relation, other)


def test_every_class_of_coco_is_known():
    for name in EXAMPLES["classes_of_coco"]:
        assert any(name in (*m.offered, *m.also) and m.subtype == "obj" for m in MEANINGS)


# --- senses


def texts(word, pos, noun=""):
    return {synonym.text for synonym in lexicon.synonyms(word, pos, noun)}


def safe(word, pos, noun=""):
    return {text for text, doubt in lexicon.synonyms(word, pos, noun) if not doubt}


def test_a_word_is_replaced_in_the_sense_that_its_noun_asks_for():
    for word, pos, noun, *found in EXAMPLES["synonyms"]:
        assert sorted(texts(word, pos, noun)) == found, (word, noun)
    for word, pos, noun, *found in EXAMPLES["safe_synonyms"]:
        assert sorted(safe(word, pos, noun)) == found, (word, noun)
    for word, pos, noun, other, offered in EXAMPLES["one_synonym"]:
        assert (other in texts(word, pos, noun)) == offered, (word, noun)
    for word, pos, noun, *found in EXAMPLES["rivals"]:
        assert list(lexicon.rivals(word, pos, noun)) == found, (word, noun)
    for word, pos, noun, *found in EXAMPLES["first_rivals"]:
        assert list(lexicon.rivals(word, pos, noun))[: len(found)] == found, (word, noun)


SHADES = {"crimson": "red", "sapphire": "blue", "emerald": "green", "chestnut": "brown"}
SHADES |= {"ivory": "white", "ebony": "black"}


def test_a_shade_is_narrower_than_its_colour():
    """Of a blue dress it may be false that it is sapphire; a sapphire dress is blue."""
    for shade, colour in SHADES.items():
        [meaning] = (m for m in lexicon.fields()["colour"] if m.head == colour)
        for noun in sorted(meaning.narrower[shade]):
            assert shade not in safe(colour, "ADJ", noun)
            assert dict(lexicon.synonyms(colour, "ADJ", noun)).get(shade) == lexicon.NARROWER
        assert lexicon.doubt(colour, shade) == lexicon.NARROWER
        assert lexicon.doubt(shade, colour) == ""
        assert safe(shade, "ADJ", "dress") == {colour}


def test_a_shade_is_offered_only_with_nouns_that_it_fits():
    for colour, noun, shade in EXAMPLES["a_shade_is_offered_only_with_nouns_that_it_fits"]:
        assert shade not in texts(colour, "ADJ", noun)


def test_doubts_between_two_words():
    assert lexicon.doubt("above", "on top of") == "of what touches"
    assert lexicon.doubt("ruby", "red") == lexicon.doubt("red", "ruby") != ""
    assert lexicon.doubt("gray", "grey") == lexicon.doubt("couch", "sofa") == ""
    assert lexicon.doubt("red", "blue") is lexicon.doubt("zyx", "red") is None


def test_doubtful_synonyms_say_why():
    doubts = dict(lexicon.synonyms("above", "ADP"))
    assert doubts["on top of"] == "of what touches"
    assert dict(lexicon.synonyms("small", "ADJ", "dog"))["tiny"] == "very small"
    assert dict(lexicon.synonyms("ruby", "ADJ", "car"))["red"]  # the doubt goes both ways
    assert dict(lexicon.synonyms("couch", "NOUN"))["sofa"] == ""


def test_what_may_be_same_and_what_contradicts():
    for one, *others in EXAMPLES["may_be_same"]:
        for other in others:
            assert lexicon.may_be_same(one, other), (one, other)
            assert other not in lexicon.rivals(one, lexicon.meanings(one)[0].pos)
    assert not lexicon.may_be_same("puppy", "vehicle")
    for one, *others in EXAMPLES["exclude"]:
        assert all(lexicon.exclude(one, other) for other in others), one


def test_unknown_words_are_only_themselves():
    assert lexicon.may_be_same("zyx", "zyx")
    assert not lexicon.may_be_same("zyx", "red")
    assert not lexicon.exclude("zyx", "red")
    assert lexicon.meanings("zyx") == lexicon.synonyms("zyx", "ADJ") == ()
    assert lexicon.rivals("zyx", "ADJ") == lexicon.opposites("zyx", "ADJ") == ()


# --- the word lists

GOOD = """
[size]
subtype = "att"
pos = "ADJ"
contrast = "exclusive"
meanings = [
  { words = ["big"], opposites = ["small"], only_with = ["@solid", "box"] },
  "small",
]
[size.nouns]
solid = ["rock", "stone"]
"""


def test_a_word_list_is_read():
    big, small = read_meanings([GOOD])
    assert big.only_with == {"rock", "stone", "box"}
    assert small.words == ("small",)
    assert small.scale == small.converse == ""


KNOWN = {
    **dict.fromkeys(("words", "also", "near", "opposites", "instead", "kinds"), list),
    **dict.fromkeys(("only_with", "not_with"), list),
    **dict.fromkeys(("doubtful", "narrower", "sure"), dict),
    **dict.fromkeys(("symmetric", "mutual"), bool),
    **dict.fromkeys(("scale", "converse", "note"), str),
}


def test_the_word_lists_are_well_formed():
    """Keys, kinds of values, lower case, no word twice; a reason for each doubt."""
    read = [tomllib.loads(path.read_text("utf-8")) for path in LISTS.iterdir()]
    fields = [(name, field) for tables in read for name, field in tables.items()]
    assert len(dict(fields)) == len(fields) == len(lexicon.fields())
    for name, field in fields:
        assert set(field) <= {"subtype", "pos", "contrast", "kinds", "meanings", "nouns"}, name
        assert field["subtype"] in ("att", "obj", "rel"), name
        assert field["pos"] in ("ADJ", "NOUN", "VERB", "ADP", "NUM", "ADV"), name
        assert field["contrast"] in ("exclusive", "rival", "none"), name
        lists = [*field.get("nouns", {}).values(), field.get("kinds", [])]
        for row in field["meanings"]:
            row = row if isinstance(row, dict) else {"words": [row]}
            assert all(isinstance(value, KNOWN[key]) for key, value in row.items()), row
            doubtful, narrower, sure = (row.get(k, {}) for k in ("doubtful", "narrower", "sure"))
            assert all(doubtful.values()) and set(sure) <= set(doubtful), row
            lists += [v for v in row.values() if isinstance(v, list)] + [*narrower.values()]
            lists += [*sure.values(), [*row["words"], *doubtful, *narrower, *row.get("also", [])]]
            assert row["words"], name
        for words in lists:
            assert len({*words}) == len(words), (name, words)
            assert all(word and word == " ".join(word.lower().split()) for word in words), words


def test_every_head_that_a_meaning_names_exists_and_relations_fit_together():
    heads = {(meaning.subtype, meaning.head): meaning for meaning in MEANINGS}
    for meaning in MEANINGS:
        named = {*meaning.near, *meaning.opposites, *meaning.instead, *meaning.kinds}
        assert all((meaning.subtype, name) in heads for name in named), meaning
        assert meaning.head not in {*meaning.near, *meaning.opposites}, meaning
        assert meaning.near.isdisjoint(meaning.opposites), meaning
        if meaning.converse:
            assert not meaning.symmetric, meaning
            assert heads[meaning.subtype, meaning.converse].converse == meaning.head, meaning


def test_a_sure_word_is_true_one_way():
    """A bicycle is a bike; a bike may be a motorcycle."""
    assert lexicon.doubt("bicycle", "bike") == ""
    assert lexicon.doubt("bike", "bicycle")
