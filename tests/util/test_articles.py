"""a or an: the exceptions, and one decision for rules, checks and the world."""

from __future__ import annotations

from counterpoint._util.english import article, articles_of, fits
from counterpoint.generation.checks.checking import check
from counterpoint.world.arrays import WORDS

EXPECTED = {
    "a": "urinal UFO ufo one one-way once unicycle uniform European ewe used usual utensil U-turn "
    "USB Uganda ukulele unanimous horse hat herbivore t-shirt TV BBQ K2 10 100 1960s Mr. year UK "
    "union unique mm STOP BLACK useful urine uranium user house hero utility",
    "an": "hour honest heirloom herb umbrella unusual unimpressed uninhabited unidentified urn "
    "onion onerous x-ray SUV RV ATV L-shaped S MRI mp3 LED 8 80 11 18 11th 1800s ugly utter urban "
    "usher upside UGG oven apple e-reader F-16 hors onlooker",
}


def test_the_sound_decides() -> None:
    for wanted, words in EXPECTED.items():
        assert [word for word in words.split() if article(word) != wanted] == []
        assert all(fits(wanted.upper(), word) for word in words.split())


def test_in_doubt_both_fit() -> None:
    assert articles_of("herb") == ("an", "a") and articles_of("historic") == ("a", "an")
    assert set(articles_of("NASA")) == {"a", "an"}  # read as a word; an unknown one might be spelt
    assert articles_of("UFO") == ("a",) and articles_of("urinal") == ("a",)
    assert article("unusual red bus") == "an"


def test_what_a_rule_writes_passes_the_check() -> None:
    claim = {"kind": "negative", "type": "replace"}
    for word in ["urinal", "UFO", "herb", "SUV", "X-ray", "hour", "unicycle"]:
        text = f"there is {article(word)} {word} on it"
        assert not check("there is a dog on it", text, **claim).rejected
        other = "a" if article(word) == "an" else "an"
        wrong = check("there is a dog on it", f"there is {other} {word} on it", **claim)
        assert fits(other, word) == ("a or an" not in str(wrong.rejected))


def test_the_worlds_words_are_as_their_letters() -> None:
    for word in WORDS:
        assert article(word) == ("an" if word[0] in "aeiou" else "a")
