"""Rules on single captions: what they make of them, and what they must leave alone."""

from __future__ import annotations

import pytest
from rule_support import drafts_of, made_of, read_examples

from counterpoint.generation import RULES, TextSettings, make_by_rules
from counterpoint.generation.inputs.captions import SourceCaption
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.sentences import Put, tagged
from counterpoint.generation.language.words import inflected
from counterpoint.generation.pairs import Draft, Pair
from counterpoint.generation.rules import fitting, hard_positives, synonyms

pytestmark = pytest.mark.slow

EXAMPLES = read_examples("rule")


def checked(caption: str, *rules: str, seed: int = 0, doubtful: bool = False) -> list[Pair]:
    """The positives that pass the checks."""
    settings = TextSettings("positive", rules, seed, each=8, doubtful=doubtful)
    return make_by_rules([SourceCaption("0", None, caption)], settings).pairs


def test_what_a_rule_makes() -> None:
    for rule, caption, text in EXAMPLES["makes"]:
        made = made_of(caption, rule, tries=60)
        assert text in made, (rule, caption)
        if rule == "conjuncts":
            assert made == {text}
        if RULES.get(rule).kind == "positive":
            seeds = range(40)
            assert any(text in {p.text for p in checked(caption, rule, seed=n)} for n in seeds)
    for rule, caption, text in EXAMPLES["makes_if_doubtful"]:
        assert text in made_of(caption, rule, doubtful=True), caption


def test_what_is_not_clear_is_left_alone() -> None:
    for rule, caption in EXAMPLES["makes_nothing"]:
        assert made_of(caption, rule) == set(), (rule, caption)


def test_what_does_not_fit_is_not_made() -> None:
    for rule, caption, *never in EXAMPLES["never_makes"]:
        for text in made_of(caption, rule, tries=60):
            assert not any(f" {words} " in f" {text} " for words in never), text
    for caption, wrong in EXAMPLES["other_senses"]:
        assert not any(wrong in t for t in made_of(caption, "hard-positives", doubtful=True))
    for caption, wrong in EXAMPLES["unclear_conjuncts"]:
        assert wrong not in {pair.text for pair in checked(caption, "conjuncts")}


# --- positives ----------------------------------------------------------------------------------


def test_narrower_words_are_made_if_asked_for_and_marked() -> None:
    rules = ("hard-positives", "synonyms")
    assert checked("a red shirt", *rules) == []
    pairs = [
        p for seed in range(9) for p in checked("a red shirt", *rules, seed=seed, doubtful=True)
    ]
    texts = {(pair.text, pair.doubt) for pair in pairs}
    assert {pair.method for pair in pairs} == set(rules)
    assert ("a crimson shirt", "narrower") in texts
    assert all(doubt for _, doubt in texts)


def test_a_sure_synonym_goes_before_a_doubtful_one() -> None:
    """It does so too where it is a common edit, which only a caption without another text gets."""
    settings = (TextSettings("positive", ("synonyms",), n, doubtful=True) for n in range(20))
    source = SourceCaption("0", None, "a large red ball")
    pairs = [pair for setting in settings for pair in make_by_rules([source], setting).pairs]
    assert {pair.text for pair in pairs if pair.subtype == "att"} == {"a big red ball"}


def test_what_is_turned_twice_is_the_caption() -> None:
    for caption in EXAMPLES["passives"]:
        [passive] = made_of(caption, "passive")
        assert made_of(passive, "passive") == {caption}
    for caption in EXAMPLES["turned"]:
        for text in made_of(caption, "converse"):
            assert caption in made_of(text, "converse")


def test_a_saying_can_be_made_and_says_no_opposite() -> None:
    sayings = hard_positives.SAYINGS
    assert all(rate > synonyms.SHARE for rate in synonyms.RATES.values())
    assert len({(saying.old, saying.new) for saying in sayings}) == len(sayings)
    for saying in sayings:
        old, new = saying.old.split(), saying.new.split()
        assert old != new
        assert saying.subtype in ("att", "rel")
        assert not any(word.startswith("~") for word in (*old[1:], *new[1:]))  # only the first
        if new[0].startswith("~"):
            assert old[0].startswith("~")  # else no token has the form
            assert all(inflected(new[0][1:], tag) for tag in ("VBG", "VBZ", "VBD"))
        for one in (saying.old.lstrip("~"), *(word.lstrip("~") for word in old)):
            assert not lexicon.exclude(one, saying.new.lstrip("~"))


# --- negatives ----------------------------------------------------------------------------------


def plausible_swaps(caption: str) -> set[str]:
    """What both rules offer without a reason against it."""
    rules = ("negclip", "crepe-swap")
    return {d.text for rule in rules for d in drafts_of(caption, rule, tries=1) if not d.odd}


def test_like_changes_places_with_like() -> None:
    for caption, text in EXAMPLES["plausible_swaps"]:
        assert text in plausible_swaps(caption)
    for caption in EXAMPLES["no_plausible_swaps"]:
        assert plausible_swaps(caption) == set(), caption


def test_how_a_denial_begins() -> None:
    for caption, text in EXAMPLES["negations"]:
        assert any(made.startswith(text) for made in made_of(caption, "crepe-negate"))


def test_replacements_keep_number_article_and_case() -> None:
    apples, dogs = (
        made_of(f"An old man with two {things}", "crepe-replace", tries=60)
        for things in ("red apples", "small dogs")
    )
    assert any(text.startswith("A young man") for text in apples)
    assert any(text.endswith("two green apples") for text in apples)
    assert any(" three " in text or " four " in text for text in apples)
    assert any(text.endswith("two small cats") for text in dogs)
    assert all(text.startswith(("An old ", "A ")) for text in apples | dogs)


def test_numbers_are_a_group() -> None:
    counted = {
        d for d in drafts_of("Two dogs near a tree", "crepe-replace") if d.subtype == "count"
    }
    assert {d.text for d in counted} == {"Three dogs near a tree", "Four dogs near a tree"}
    spoken = drafts_of("Two dogs, one of them black", "crepe-replace")
    assert not any(draft.subtype == "count" for draft in spoken)


def test_binding_exchanges_what_excludes_each_other() -> None:
    [draft] = drafts_of("A black dog and a white cat", "bind", tries=1)
    assert draft == Draft("A white dog and a black cat", "swap", "bind")
    assert made_of("two dogs and three cats", "bind") == {"three dogs and two cats"}
    assert made_of("black dogs and white cats", "bind") == {"white dogs and black cats"}


def added(caption: str, subtype: str, *true: str) -> set[str]:
    return {d.text for d in drafts_of(caption, "add", *true, tries=60) if d.subtype == subtype}


def test_additions() -> None:
    things = added("A man riding a horse on a beach.", "obj")
    assert "A man riding a horse on a beach near a lighthouse." in things
    assert all(text.endswith(".") and " ." not in text for text in things)
    walking = added("A woman walking down a street", "obj")
    assert "A woman with a dog walking down a street" in walking
    assert "a cow and a goat stands in a field" not in added("a cow stands in a field", "obj")
    attributes = added("A man sits on a bus", "att")
    assert {"A shirtless man sits on a bus", "A man sits on a purple bus"} <= attributes
    assert not any("yellow" in text or "red" in text for text in attributes)  # buses often are
    assert not added("a young man", "att")  # it has one
    dog = made_of("a man and a dog", "add", tries=60)
    assert not any("wet" in text or "elderly" in text for text in dog)


def test_nothing_is_added_that_another_caption_says() -> None:
    for true, gone in EXAMPLES["said_by_another"]:
        assert any(gone in text for text in made_of("A man on a beach", "add", tries=60))
        assert not any(gone in text for text in made_of("A man on a beach", "add", true, tries=60))
    caption = "A man sits on a bus"
    assert any("pink bus" in text for text in made_of(caption, "add", tries=60))
    striped = made_of(caption, "add", "A bus with pink stripes", tries=60)
    assert not any("pink" in text for text in striped)
    itself = made_of(f"{caption} with pink stripes", "add", tries=60)
    assert not any("pink bus" in text for text in itself)
    sources = [
        SourceCaption(str(n), None, "A man riding on a beach", ("A horse and tents",))
        for n in range(40)
    ]
    texts = {pair.text for pair in make_by_rules(sources, TextSettings("negative", ("add",))).pairs}
    assert len(texts) > 3
    assert not any(word in text for text in texts for word in ("horse", "tent"))


def test_the_tables_name_words_of_the_lexicon() -> None:
    """A misspelt adjective or verb would never be offered, and nobody would see it."""
    for pos, tables in (
        ("ADJ", (fitting.COLOURS, fitting.MATERIALS, fitting.OTHERS)),
        ("VERB", (fitting.DOES, fitting.DONE_TO)),
    ):
        for table in tables:
            for words in table.values():
                assert all(lexicon.meanings(word, pos) for word in words), words


# --- words --------------------------------------------------------------------------------------


def test_forms_of_nouns() -> None:
    for word, tag, form in EXAMPLES["forms_of_nouns"]:
        assert inflected(word, tag) == form


def test_articles_fit_what_follows() -> None:
    for place, word, text in EXAMPLES["articles"]:
        [sentence] = tagged(["A man wearing a hat near an umbrella."])
        assert sentence.rewrite((Put(place, place + 1, word),)) == text
