"""WordNet's files, read from a small database in their format, written here."""

import os
from pathlib import Path

import pytest
from errors import raises

from counterpoint.generation.language import wordnet

LICENCE = "  1 This is no WordNet 3.0 Copyright of anybody, only a small one in its format.  \n"

# number: (kind, words, pointers); a pointer is (symbol, number, source and target word)
NOUNS = {
    1: ("n", ["thing"], [("~", 2, "0000")]),
    2: ("n", ["animal", "creature"], [("@", 1, "0000"), ("~", 3, "0000"), ("~", 4, "0000")]),
    3: ("n", ["dog", "domestic_dog"], [("@", 2, "0000"), ("~", 5, "0000")]),
    4: ("n", ["cat"], [("@", 2, "0000")]),
    5: ("n", ["puppy"], [("@", 3, "0000")]),
    6: ("n", ["hot_dog", "dog"], []),
    7: ("n", ["'hood"], []),
    8: ("n", ["zebra"], [("@", 2, "0000")]),
}
ADJECTIVES = {
    1: ("a", ["large", "big"], [("!", 2, "0101"), ("!", 2, "0202"), ("&", 3, "0000")]),
    2: ("a", ["small", "little"], [("!", 1, "0101"), ("!", 1, "0202")]),
    3: ("s", ["huge", "giant(p)"], [("&", 1, "0000")]),
}
VERBS = {
    1: ("v", ["move"], [("~", 2, "0000"), ("~", 3, "0000")]),
    2: ("v", ["walk"], [("@", 1, "0000")]),
    3: ("v", ["run"], [("@", 1, "0000")]),
}
ADVERBS = {1: ("r", ["quickly"], [])}


def write(folder: Path, name: str, synsets: dict) -> None:
    """Offsets are bytes from the start of the data file, so that lines are laid out first."""
    letter = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}[name]

    def record(number: int, offsets: dict) -> str:
        kind, words, pointers = synsets[number]
        parts = [f"{offsets[number]:08d} 03 {kind} {len(words):02x}"]
        parts += [f"{word} 0" for word in words]
        parts += [f"{len(pointers):03d}"]
        parts += [f"{symbol} {offsets[to]:08d} {letter} {ends}" for symbol, to, ends in pointers]
        return " ".join(parts) + " | a gloss; with @ 12345678 n 0000 in it  \n"

    offsets, place = dict.fromkeys(synsets, 0), len(LICENCE)
    for number in synsets:
        offsets[number] = place
        place += len(record(number, dict.fromkeys(synsets, 0)))
    body = "".join(record(number, offsets) for number in synsets)
    (folder / f"data.{name}").write_text(LICENCE + body)
    senses: dict[str, list[int]] = {}
    for number, (_, words, _) in synsets.items():
        for word in words:
            senses.setdefault(word.partition("(")[0], []).append(offsets[number])
    lines = [
        f"{word} {letter} {len(found)} 2 @ ~ {len(found)} 1 "
        + " ".join(f"{offset:08d}" for offset in found)
        + "  \n"
        for word, found in sorted(senses.items())
    ]
    (folder / f"index.{name}").write_text(LICENCE + "".join(lines))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("WNSEARCHDIR", "WNHOME"):
        monkeypatch.delenv(name, raising=False)
    for name, synsets in (("noun", NOUNS), ("adj", ADJECTIVES), ("verb", VERBS), ("adv", ADVERBS)):
        write(tmp_path, name, synsets)
    return tmp_path


@pytest.fixture
def net(folder):
    return wordnet.WordNet(folder)


def test_every_word_is_found(net):
    for pos, synsets in (("NOUN", NOUNS), ("ADJ", ADJECTIVES), ("VERB", VERBS), ("ADV", ADVERBS)):
        for _, words, _ in synsets.values():
            for word in words:
                lemma = word.partition("(")[0].replace("_", " ")
                assert any(lemma in net.synset(*key).words for key in net.senses(lemma, pos)), word


@pytest.mark.parametrize("lemma", ["", "aardvark", "do", "dogs", "zz", "  1 This", "1", "\n", "Ü"])
def test_other_words_are_not(net, lemma):
    assert net.senses(lemma, "NOUN") == ()
    assert net.synonyms(lemma, "NOUN") == net.siblings(lemma, "NOUN") == ()


def test_a_part_of_speech_that_wordnet_does_not_have(net):
    assert net.senses("on", "ADP") == ()


def test_senses_come_in_the_order_of_the_index(net):
    first, second = net.senses("dog", "NOUN")
    assert net.synset(*first).words == ("dog", "domestic dog")
    assert net.synset(*second).words == ("hot dog", "dog")


def test_synonyms(net):
    assert net.synonyms("dog", "NOUN") == ("domestic dog", "hot dog")
    assert net.synonyms("huge", "ADJ") == ("giant",)  # without the mark of its place
    assert net.synonyms("cat", "NOUN") == ()


def test_antonyms_are_of_the_word_and_not_of_its_synonyms(net):
    assert net.antonyms("large", "ADJ") == ("small",)
    assert net.antonyms("big", "ADJ") == ("little",)
    assert net.antonyms("huge", "ADJ") == ()


def test_siblings_are_neither_above_nor_below(net):
    assert net.siblings("dog", "NOUN") == ("cat",)
    assert net.siblings("cat", "NOUN") == ("dog", "domestic dog")
    assert net.siblings("walk", "VERB") == ("run",)
    assert net.siblings("puppy", "NOUN") == ()
    assert net.siblings("large", "ADJ") == ()


def test_may_be_same(net):
    for one, other in [("dog", "animal"), ("puppy", "thing"), ("dog", "hot dog"), ("big", "huge")]:
        assert net.may_be_same(one, other)
        assert net.may_be_same(other, one)
    assert net.may_be_same("zyx", "zyx")
    assert not net.may_be_same("dog", "cat")
    assert not net.may_be_same("large", "small")
    assert not net.may_be_same("dog", "animal", "VERB")
    assert net.may_be_same("dog", "animal", "NOUN")


def test_the_version_is_what_the_file_says(net, folder):
    assert net.version == "WordNet 3.0"
    data = folder / "data.noun"
    data.write_text(data.read_text().replace("WordNet 3.0", "a free text"))
    assert wordnet.WordNet(folder).version == "WordNet"


def test_where_it_is_found(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(wordnet, "_USUAL", tmp_path / "nothing")
    assert wordnet.find() is None
    monkeypatch.setattr(wordnet, "_USUAL", folder)
    assert wordnet.find().folder == folder
    home = tmp_path / "home"
    home.mkdir()
    (home / "dict").symlink_to(folder)
    monkeypatch.setenv("WNHOME", str(home))
    assert wordnet.find().folder == home / "dict"
    monkeypatch.setenv("WNSEARCHDIR", str(folder))
    assert wordnet.find().folder == folder
    assert wordnet.find() is wordnet.find()


def test_a_folder_that_was_named_must_have_it(folder, monkeypatch):
    monkeypatch.setenv("WNSEARCHDIR", str(folder))
    (folder / "data.verb").unlink()
    with raises("E-WORDNET-MISSING", folder):
        wordnet.find()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:200],  # cut
        lambda text: text.replace(" n 02 ", " n ff "),
        lambda text: text.replace(" n ", " q "),
        lambda text: " " + text,  # every offset is wrong by one
    ],
)
def test_a_damaged_data_file_is_named(folder, damage):
    data = folder / "data.noun"
    data.write_text(damage(data.read_text()))
    with raises("E-FILE-MALFORMED", data):
        wordnet.WordNet(folder).synonyms("dog", "NOUN")


def test_a_damaged_index_is_named(folder):
    index = folder / "index.noun"
    index.write_text(index.read_text().replace("dog n 2", "dog n two"))
    with raises("E-FILE-MALFORMED", index):
        wordnet.WordNet(folder).senses("dog", "NOUN")


def test_an_empty_file_is_named(folder):
    (folder / "index.noun").write_text("")
    with raises("E-FILE-UNREADABLE", folder / "index.noun"):
        wordnet.WordNet(folder).senses("dog", "NOUN")


@pytest.mark.skipif(not os.environ.get("WNSEARCHDIR"), reason="needs WordNet: WNSEARCHDIR")
def test_the_real_wordnet():
    net = wordnet.find()
    assert net.version.startswith("WordNet ")
    assert "sofa" in net.synonyms("couch", "NOUN")
    assert net.antonyms("hot", "ADJ") == ("cold",)
    assert "cat" not in net.synonyms("dog", "NOUN")
    assert net.may_be_same("puppy", "dog")
    assert net.may_be_same("dog", "animal")
    assert net.may_be_same("big", "large", "ADJ")
    assert not net.may_be_same("dog", "cat", "NOUN")
    siblings = net.siblings("bicycle", "NOUN")
    assert siblings
    assert not set(siblings) & {"bike", "vehicle", "wheeled vehicle", "mountain bike"}
    checked = 0
    for pos, name in (("NOUN", "noun"), ("VERB", "verb"), ("ADJ", "adj"), ("ADV", "adv")):
        for line in (net.folder / f"index.{name}").read_text().splitlines()[40::97]:
            parts = line.split()
            keys = net.senses(parts[0].replace("_", " "), pos)
            assert [offset for _, offset in keys] == [int(x) for x in parts[-int(parts[2]) :]]
            assert all(parts[0].replace("_", " ") in net.synset(*key).words for key in keys)
            checked += 1
    assert checked > 1_000
