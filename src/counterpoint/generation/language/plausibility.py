"""How plausible a text is as a caption: an n-gram model that is small and fast.

Two chains of words are scored. The surface is every word. The skeleton has no articles, adjectives,
adverbs and auxiliaries, so that a verb meets its subject and its object: "bench riding man". In
both, three words back off to two words, and these to classes of words: the fields of the lexicon
("animal", "vehicle") or Penn tags. A word that was never seen is scored by its class.

A model is an `.npz` file of counts. n-grams that occur once are left out, so that no caption can be
read from it. One model ships (`shipped`); `scripts/fit_plausibility.py` fits others.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from io import BytesIO
from math import log
from pathlib import Path
from typing import Final

import numpy as np

from counterpoint._util.errors import DataError, reason
from counterpoint.cases import shared_ends
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.words import lemma

FORMAT: Final = "plausibility 1"
SHIPPED_FILE: Final = Path(__file__).with_name("plausibility.npz")
WORD: Final = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*|\d+|,")
_DISCOUNT: Final = 0.75  # taken from every count, for what was not seen
LEAST: Final = 2  # count of an n-gram that is kept
_SKELETON: Final = 0.5  # weight of the skeleton
_ADDED: Final = 0.5  # of what words cost on average that an added one may cost
_CACHE: Final = 1 << 18
_BITS: Final = 16  # of a number in a key
BORDER: Final = "<s>"  # before and after a text
_OPEN: Final = ("NN", "VB", "JJ", "RB", "CD")  # tags whose words share a class
_KEPT: Final = ("NN", "VB", "IN", "RP", "TO", "CC")  # tags of the skeleton
_LISTED: Final = {"NN": "NOUN", "NNS": "NOUN", "JJ": "ADJ", "CD": "NUM", "VB": "VERB"}
CHAINS: Final = ("surface", "skeleton")


def words_of(text: str) -> list[str]:
    """The words that are scored: lower case, `an` as `a`, every number as `0`."""
    found = WORD.findall(text.lower())
    return ["a" if word == "an" else "0" if word.isdigit() else word for word in found]


Counts = Mapping[int, int]


class _Chain:
    """The n-grams of one chain of words. What was not seen is as likely as its shorter n-gram."""

    def __init__(self, tables: Mapping[str, Counts], classes: Sequence[int], size: int) -> None:
        self._classes, self._known = classes, size
        self._words, self._kinds = tables["words1"], tables["classes1"]
        self._total = max(1, sum(self._kinds.values()))
        self._levels = []
        for name, shorter in _BACK_OFF:
            found, histories = tables[name], tables[shorter]
            seen: dict[int, float] = defaultdict(float)
            for key, count in found.items():
                seen[key >> _BITS] += count - _DISCOUNT
            left = {k: max(1 - min(part / histories[k], 1.0), 1e-3) for k, part in seen.items()}
            self._levels.append((found, histories, left))

    def excess(self, first: int, second: int, word: int) -> float:
        """How much more likely a word is after two others than by itself."""
        kind = self._classes[word]
        alone = max(self._kinds.get(kind, 0), 1) / self._total * self._share(word, kind)
        return self.term(first, second, word) - log(alone)

    def term(self, first: int, second: int, word: int) -> float:
        """Log-probability of a word after two others."""
        one, two, kind = self._classes[first], self._classes[second], self._classes[word]
        classes2, classes3, words2, words3 = self._levels
        found = max(self._kinds.get(kind, 0), 1) / self._total
        found = _probability(classes2, two, kind, found)
        found = _probability(classes3, one << _BITS | two, kind, found)
        found *= self._share(word, kind)
        found = _probability(words2, second, word, found)
        return log(_probability(words3, first << _BITS | second, word, found))

    def _share(self, word: int, kind: int) -> float:
        """The probability of a word in its class. Words never seen share that of a rare one."""
        count = self._words.get(word, 0) if word < self._known else 0
        return (count or 0.5) / max(self._kinds.get(kind, 0), count, 1)


_BACK_OFF: Final = (
    *(("classes2", "classes1"), ("classes3", "classes2")),
    *(("words2", "words1"), ("words3", "words2")),
)


def _probability(
    level: tuple[Counts, Counts, Mapping[int, float]], history: int, last: int, lower: float
) -> float:
    """How likely a word or class is after its history, by counts or by what they leave."""
    counts, histories, left = level
    if history not in left:
        return lower
    lower *= left[history]
    count = counts.get(history << _BITS | last)
    return lower if count is None else (count - _DISCOUNT) / histories[history] + lower


class _Numbers(dict[str, int]):
    """The numbers of words as they are written in texts; found at first use."""

    def __init__(self, words: Sequence[str], classes: Sequence[str]) -> None:
        super().__init__()
        self.known = {word: number for number, word in enumerate(words)}
        self.classes = {name: number for number, name in enumerate(classes)}

    def __missing__(self, written: str) -> int:
        [word] = words_of(written) or [written]
        number = self.known.get(word)
        if number is None:  # that of its class, after those of all words
            number = len(self.known) + self.classes.get(class_of(word, _guessed(word)), 0)
        if len(self) < _CACHE:
            self[written] = number
        return number


class Plausibility:
    """A fitted model of the arrays of a file. `version` changes with its counts."""

    def __init__(self, arrays: Mapping[str, np.ndarray], version: str) -> None:
        """Raises ValueError, KeyError or IndexError if the arrays are not those of a model."""
        if _read_lines(arrays["format"]) != [FORMAT]:
            raise ValueError
        words, classes = _read_lines(arrays["words"]), _read_lines(arrays["classes"])
        word_class = arrays["word_class"]
        if word_class.shape != (len(words),) or len(set(words)) != len(words):
            raise ValueError
        if any(array.dtype.kind != "u" for array in arrays.values()):
            raise ValueError
        if (word_class >= len(classes)).any():
            raise ValueError
        self.version = version
        self._numbers = _Numbers(words, classes)
        limits = {"words": len(words), "classes": len(classes)}
        kinds = [*word_class.tolist(), *range(len(classes))]
        self._tables, chains = {}, []
        for chain in CHAINS:
            tables = {
                f"{what}{size}": _table(arrays, f"{chain}/{what}{size}", size, limit)
                for what, limit in limits.items()
                for size in (1, 2, 3)
            }
            for name, shorter in _BACK_OFF:
                if any(key >> _BITS not in tables[shorter] for key in tables[name]):
                    raise ValueError
            self._tables[chain] = [tables[f"words{size}"] for size in (1, 2, 3)]
            chains.append(_Chain(tables, kinds, len(words)))
        self._surface = lru_cache(_CACHE)(chains[0].term)
        self._skeleton = lru_cache(_CACHE)(chains[1].excess)
        self._kept = [is_kept(classes[kind]) for kind in kinds]
        self._read = lru_cache(1 << 10)(self._numbered)
        self._of_caption = lru_cache(1 << 10)(self.score)

    def score(self, text: str) -> float:
        """The log-likelihood of a text, in nats; higher is more plausible."""
        surface, skeleton = self._read(text)
        skeleton_score = sum(map(self._skeleton, skeleton, skeleton[1:], skeleton[2:]))
        return sum(map(self._surface, surface, surface[1:], surface[2:])) + (
            _SKELETON * skeleton_score
        )

    def gain(self, caption: str, text: str) -> float:
        """How much more plausible a text is than its caption, in nats; mostly below 0.

        Each word that a text has more than its caption may cost half as much as the caption's words
        do on average, so that a longer text is not worse for its length alone.
        """
        return self.gains([(caption, text)])[0]

    def gains(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The same for each caption and text."""
        found = []
        for caption, text in pairs:
            old, new = self._read(caption), self._numbered(text)
            gain = _changed(self._surface, old[0], new[0])
            gain += _SKELETON * _changed(self._skeleton, old[1], new[1])
            more, length = len(new[0]) - len(old[0]), len(old[0]) - _BORDERS
            if more and length:
                gain -= _ADDED * self._of_caption(caption) * more / length
            found.append(gain)
        return found

    def count(self, *words: str, chain: str = "surface") -> int:
        """How often one, two or three words in a row occur in the captions that were fitted."""
        known = self._numbers.known
        numbers = [known.get(word, -1) for word in words]
        if -1 in numbers:  # not written as in the model, or several words
            numbers = [known.get(word, -1) for word in words_of(" ".join(words))]
        if -1 in numbers or not 1 <= len(numbers) <= 3:
            return 0
        key = 0
        for number in numbers:
            key = key << _BITS | number
        return self._tables[chain][len(numbers) - 1].get(key, 0)

    def _numbered(self, text: str) -> Chains:
        """The surface and the skeleton, with their borders."""
        found, kept = self._numbers, self._kept
        numbers = [found[word] for word in WORD.findall(text.lower())]
        return [0, 0, *numbers, 0], [0, 0, *[n for n in numbers if kept[n]], 0]


Chains = tuple[list[int], list[int]]
Term = Callable[[int, int, int], float]  # what a word adds to a score after two others
_BORDERS: Final = 3  # in a chain


def _changed(term: Term, old: Sequence[int], new: Sequence[int]) -> float:
    """The terms of `new` less those of `old`; those of n-grams in front of and after all changes
    are the same."""
    if old == new:
        return 0.0
    begin, tail = shared_ends(old, new)
    more = min(0, 2 - tail)  # two words after a change belong to n-grams with it
    sums = []
    for chain in (new, old):
        part = chain[begin - 2 : len(chain) + more]
        sums.append(sum(map(term, part, part[1:], part[2:])))
    return sums[0] - sums[1]


def is_kept(name: str) -> bool:
    tag = name.rpartition("/")[2] if "/" in name else ""
    return tag.startswith(_KEPT)


@lru_cache(_CACHE)
def class_of(word: str, tag: str) -> str:
    """FIELD/TAG for words of the lexicon, /TAG for others, WORD/TAG for function words."""
    if word in WORDS.auxiliary_verbs:
        return f"{word}/AUX"
    if not tag.startswith(_OPEN):
        return f"{word}/{tag}"
    pos = next((_LISTED[key] for key in (tag, tag[:2]) if key in _LISTED), "")
    found = lexicon.meanings(lemma(word, pos), pos) if pos else ()
    found = tuple(m for m in found if lemma(word, pos) in m.words) or found
    return f"{found[0].field if found else ''}/{tag}"


def _guessed(word: str) -> str:
    """The tag of a word that was never seen."""
    if word.endswith("ing") and lemma(word, "VERB") != word:
        return "VBG"
    if lexicon.meanings(word, "ADJ"):
        return "JJ"
    return "NNS" if word.endswith("s") and lemma(word, "NOUN") != word else "NN"


# --- files ----------------------------------------------------------------------------------------


@cache
def shipped() -> Plausibility:
    """The model of this package."""
    return load(SHIPPED_FILE)


@cache
def load(path: Path) -> Plausibility:
    """Read a model. A file that is not one is refused."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError("E-FILE-UNREADABLE", f"{path}: cannot be read: {reason(error)}.") from None
    try:
        with np.load(BytesIO(content), allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        return Plausibility(arrays, blake2b(content, digest_size=8).hexdigest())
    except (ValueError, KeyError, EOFError, OSError, IndexError, zipfile.BadZipFile, zlib.error):
        raise DataError(
            "E-FILE-MALFORMED",
            f"{path}: not a plausibility model; fit one with scripts/fit_plausibility.py.",
        ) from None


def _read_lines(array: np.ndarray) -> list[str]:
    return array.tobytes().decode().split("\n")


def _table(arrays: Mapping[str, np.ndarray], name: str, size: int, limit: int) -> Counts:
    rows, counts = arrays[name].astype(np.int64), arrays[f"{name}/n"]
    if rows.shape != (size, *counts.shape) or counts.ndim != 1 or (rows >= limit).any():
        raise ValueError
    if (counts < LEAST).any() or (counts >= 1 << 31).any():
        raise ValueError
    keys = rows[0]
    for row in rows[1:]:
        keys = keys << _BITS | row
    return dict(zip(keys.tolist(), counts.tolist(), strict=True))
