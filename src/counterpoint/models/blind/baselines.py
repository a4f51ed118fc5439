"""Baselines that see no image: `blind:length`, `blind:format`, `blind:bow`, and `random`.

What a blind baseline gets right, the captions of a benchmark give away. Those that are fitted by
logistic regression are in fitted.py. The scores of `random`
depend on nothing but the seed and the pair, so its results are at chance.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from counterpoint._util.errors import NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint.cases import Cases, ImageRef
from counterpoint.models.blind.fitted import (
    FITTED,
    FOLDS,
    PAIRS,
    Ngrams,
    by_pair,
    folds,
    true_counts,
)
from counterpoint.models.registry import LoadOptions
from counterpoint.scoring import BlindScorer

TEXT_MODELS: Final = ("grammar", "plausible", "lm")  # of transformers, with or without `:WHERE`
_SEED: Final = 0  # not chosen: of 95 % intervals, about one in twenty does not hold chance


class Length:
    """The shorter caption, in characters, scores higher."""

    fingerprint = "blind:length 1"

    def score_captions(self, captions: Sequence[str]) -> np.ndarray:
        return -np.array([len(caption) for caption in captions], dtype=np.float32)


class Format:
    """The caption that looks less like an edited sentence scores higher.

    Negatives written by language models are neat: they start with a capital, end with a full stop
    and have no stray blanks. Human captions often are not.
    """

    fingerprint = "blind:format 1"

    def score_captions(self, captions: Sequence[str]) -> np.ndarray:
        return -np.array([self._neatness(caption) for caption in captions], dtype=np.float32)

    @staticmethod
    def _neatness(caption: str) -> int:
        return (
            caption.lstrip()[:1].isupper()
            + caption.rstrip().endswith(".")
            + (caption == caption.strip() and "  " not in caption)
        )


class BagOfWords:
    """How much more often a caption's words are in true captions than in false ones.

    Naive Bayes on the benchmark's own captions, cross-validated: the captions of an image are
    scored with counts from the other folds' images only. It is blind to word order, so two captions
    of the same words tie exactly: its `ties` count what no bag of words can tell apart.
    """

    fingerprint = "blind:bow 1"

    def score_cases(self, cases: Cases) -> np.ndarray:
        texts = cases.frame["captions"].explode().to_list()
        places, words, counts = _word_counts(texts)
        cases_of = np.repeat(np.arange(len(cases)), cases.caption_counts)
        fold = folds(cases.frame["cluster"].to_numpy())[cases_of]
        true = true_counts(cases, len(texts))
        false = np.repeat(cases.image_counts, cases.caption_counts) - true
        scores = np.zeros(len(texts))
        for number in range(FOLDS):
            seen = fold != number
            found = [np.bincount(words, counts * (n * seen)[places]) + 1 for n in (true, false)]
            # log P(word given true) - log P(word given false), one count added to each word
            odds = np.log(found[0] / found[0].sum()) - np.log(found[1] / found[1].sum())
            # Summed in the order of the words' numbers, so that equal bags give equal sums.
            sums = np.bincount(places, counts * odds[words], minlength=len(texts))
            scores[~seen] = sums[~seen]
        return by_pair(cases, scores.astype(np.float32))


def _word_counts(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The number of a text, the number of a word in it, and how often it is there."""
    numbers: dict[str, int] = {}
    found = [
        (place, numbers.setdefault(word, len(numbers)))
        for place, text in enumerate(texts)
        for word in sorted(re.findall(r"[\w']+", text.lower()))
    ]
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    unique, counts = np.unique(pairs, axis=0, return_counts=True)
    return unique[:, 0], unique[:, 1], counts


Blind = Length | Format | BagOfWords
SCORERS: Final[dict[str, type[Blind]]] = {"length": Length, "format": Format, "bow": BagOfWords}


def check(rest: str) -> None:
    """Refuse a name that no blind model has. The model itself is not looked for."""
    if rest.partition(":")[0] not in TEXT_MODELS and rest not in (*SCORERS, *FITTED):
        known = (*SCORERS, *FITTED, *TEXT_MODELS)
        raise NotFoundError("E-MODEL-UNKNOWN", did_you_mean("blind model", rest, known))


def load(rest: str, options: LoadOptions) -> Blind | Ngrams | BlindScorer:
    """A baseline (`length`, `ngram`, ...) or a text model (`grammar`, `plausible`, `lm`)."""
    check(rest)
    name, _, where = rest.partition(":")
    if name in TEXT_MODELS:
        from counterpoint.models.blind.text import load as load_text

        return load_text(name, where, options)
    return FITTED[rest]() if rest in FITTED else SCORERS[rest]()


class RandomScorer:
    """A uniform score for every pair, the same wherever the pair appears."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.fingerprint = f"random 2 {seed}"

    def score_cases(self, cases: Cases) -> np.ndarray:
        images = cases.frame["images"].explode().to_list()
        left = self._numbers(_name(image) for image in images)
        right = self._numbers(cases.frame["captions"].explode().to_list())
        texts = np.array([ImageRef(image["path"]).text is not None for image in images])
        layout = cases.layout()
        scores = np.empty(cases.pair_offsets[-1], dtype=np.float32)
        for lines in layout.pieces(np.arange(len(left)), PAIRS, PAIRS):
            pairs = layout.pairs(lines)
            one, two = left[pairs.images], right[pairs.captions]
            # Two texts are as like as they are the other way round, and a text is most like itself.
            mixed = np.where(texts[pairs.images], _mix(one + two), _mix(one + _mix(two)))
            # 24 bits, the precision of a float32 below 1: two pairs are equal once in 16 million.
            found = (mixed >> np.uint64(40)) / np.float32(2**24)
            scores[pairs.places] = np.where(texts[pairs.images] & (one == two), 1, found)
        return scores

    def _numbers(self, texts: Iterable[str]) -> np.ndarray:
        """A number of 64 bits for each text."""
        key = hashlib.blake2b(str(self.seed).encode(), digest_size=32).digest()
        digests = (hashlib.blake2b(t.encode(), digest_size=8, key=key).digest() for t in texts)
        return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _name(image: dict[str, Any]) -> str:
    text = ImageRef(image["path"]).text
    return f"{image['path']} {image['box']}" if text is None else text


def _mix(values: np.ndarray) -> np.ndarray:
    """SplitMix64's last steps: every bit of the result depends on every bit of the value."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def load_random(rest: str, options: LoadOptions) -> RandomScorer:
    """`random`, or `random:SEED`."""
    del options
    check_random(rest)
    return RandomScorer(int(rest or _SEED))


def check_random(rest: str) -> None:
    if rest and not rest.isdecimal():
        raise NotFoundError(
            "E-MODEL-ID-INVALID", f"random:{rest}: the seed must be a whole number, as in random:7."
        )
