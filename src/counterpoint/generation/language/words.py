"""Single words: dictionary forms, inflections, and what is likely of a word by itself.

The checks know words by this file alone. Nothing is parsed: a check must not depend on the tags
that the text was made with.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final

from counterpoint._util.english import english_versions
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import TABLES, WORDS

_NUMBERS: Final[dict[str, int]] = TABLES["number_words"]
_VARIANTS: Final[dict[str, str]] = TABLES["spellings"]
_FORMS: Final = frozenset({"NNS", "NNPS", "VBD", "VBG", "VBN", "VBZ", "VBP", "JJR", "JJS"})


@cache
def _lemminflect() -> Any:
    import lemminflect  # slow: it imports spaCy

    return lemminflect


@cache
def lemma(word: str, pos: str) -> str:
    """The dictionary form of a lower-case word."""
    kind = "VERB" if pos == "AUX" else pos
    if kind not in ("NOUN", "PROPN", "VERB", "ADJ", "ADV"):
        return word
    found = _lemminflect().getLemma(word, "NOUN" if kind == "PROPN" else kind)
    return str(found[0]) if found else word


@cache
def inflected(word: str, tag: str) -> str:
    """The word in the form of a Penn tag; empty if it has none."""
    if tag not in _FORMS:
        return "" if tag == "NN" and is_plural(word) else word
    if tag in ("NNS", "NNPS") and is_plural(word):
        return word
    if tag == "NNS" and word in WORDS.mass_nouns:
        return ""
    if tag == "NNS" and word in WORDS.unchanged:
        return word
    known = _lemminflect().getInflection(word, tag, inflect_oov=tag not in ("JJR", "JJS"))
    return str(known[0]) if known else ""


@cache
def is_plural(word: str) -> bool:
    """Whether a noun is a plural as it stands: "sunglasses", "stairs"."""
    return word in WORDS.plurals or (word.endswith("s") and lemma(word, "NOUN") != word)


@cache
def is_english(word: str) -> bool:
    """Whether a dictionary of English has this lower-case word, in any form."""
    listed = _dictionary(word) or _dictionary(word.removesuffix("s"))
    return bool(listed) or word in WORDS.function_words


def version() -> str:
    """The versions of what tags and forms depend on."""
    return english_versions("lemminflect")


@lru_cache(maxsize=1 << 16)
def _dictionary(word: str) -> dict[str, tuple[str, ...]]:
    """A lower-case word's lemmas by part of speech; empty if no dictionary has it."""
    return dict(_lemminflect().getAllLemmas(word))


@lru_cache(maxsize=1 << 16)
def lemmas(word: str) -> frozenset[str]:
    """The word and every form it may be in a dictionary."""
    return frozenset({word}.union(*_lemminflect().getAllLemmas(word).values()))


@lru_cache(maxsize=1 << 16)
def key(word: str) -> str:
    """One form that all numbers and tenses of a word share, for comparing."""
    found = _dictionary(word)
    for part in ("NOUN", "VERB", "ADJ"):
        if part in found:
            return found[part][0]
    return word


@lru_cache(maxsize=1 << 16)
def spelling(word: str) -> str:
    """One of the ways to spell a word, the same for all of them."""
    word = word.replace("-", "")
    plural = word.endswith("s") and word[:-1] in _VARIANTS
    word = _VARIANTS.get(word[:-1], word) + "s" if plural else _VARIANTS.get(word, word)
    word = word.replace("-", "")
    if len(word) > 5:
        word = word.replace("our", "or").replace("ise", "ize").replace("lled", "led")
        word = word.replace("lling", "ling")
    return word


@lru_cache(maxsize=1 << 16)
def is_known(word: str) -> bool:
    """Whether a dictionary, the lexicon or a closed class has this lower-case word."""
    return bool(
        _dictionary(word)
        or role(word) in _CLOSED
        or word.isdigit()
        or lexicon.meanings(word)
        or lexicon.meanings(word.removesuffix("'s").removesuffix("s"))
        or ("-" in word and all(is_known(part) for part in word.split("-")))
    )


_CLASSES: Final = {
    "determiner": WORDS.determiners,
    "joint": WORDS.coordinators,
    "negation": WORDS.negations,
    "preposition": WORDS.prepositions,
    "auxiliary": WORDS.auxiliaries,
    "pronoun": WORDS.pronouns,
    "side": WORDS.sides,
    "adverb": WORDS.adverbs,
}
_CLOSED: Final = {*_CLASSES, "number"} - {"adverb"}


@lru_cache(maxsize=1 << 16)
def role(word: str) -> str:
    """The most likely part of speech of a lower-case word in a caption, without its context."""
    for name, members in _CLASSES.items():
        if word in members:
            return name
    if word in _NUMBERS or word.isdigit():
        return "number"
    parts = _dictionary(word)
    listed = {m.pos for lemma in lemmas(word) for m in lexicon.meanings(lemma)}
    if word.endswith("ing") and "VERB" in parts and word not in WORDS.ing_nouns:
        return "verb"
    if "ADJ" in listed or ("ADJ" in parts and "NOUN" not in parts):
        return "adjective"
    if "VERB" in parts and lemmas(word) & WORDS.postures:
        return "verb"
    if "NOUN" in listed or "NOUN" in parts:
        return "noun"
    if "VERB" in parts:
        return "verb"
    return "adverb" if "ADV" in parts else "noun"


@lru_cache(maxsize=4096)
def numbers(words: tuple[str, ...]) -> tuple[int, ...]:
    """The numbers that a text names, sorted; one is left out, since `a` says it too."""
    found = [_NUMBERS[word] for word in words if word in _NUMBERS]
    found += [int(w) for w in words if w.isascii() and w.isdigit() and len(w) <= 9]
    return tuple(sorted(value for value in found if value != 1))


@lru_cache(maxsize=4096)
def negations(words: tuple[str, ...]) -> int:
    """How many words deny something."""
    return sum(word in WORDS.negations or word.endswith("n't") for word in words)


@lru_cache(maxsize=1 << 14)
def forms(*part: str) -> tuple[str, ...]:
    """A phrase as a dictionary may have it: as it is, its last word or its first as a lemma."""
    if not part:
        return ()
    if not part:
        return ()
    last = [" ".join((*part[:-1], lemma)) for lemma in sorted(lemmas(part[-1]))]
    first = [" ".join((lemma, *part[1:])) for lemma in sorted(lemmas(part[0]))]
    return tuple(dict.fromkeys((" ".join(part), *last, *first)))


def genera(words: tuple[str, ...]) -> set[str]:
    """All that these words name kinds of: a puppy is a dog and an animal."""
    return set[str]().union(*map(lexicon.wider, words))
