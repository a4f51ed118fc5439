"""Baselines that see no image: `blind:length`, `blind:format`, `blind:bow`, `blind:ngram`,
`blind:chars`, and `random`.

What a blind baseline gets right, the captions of a benchmark give away. The scores of `random`
depend on nothing but the seed and the pair, so its results are at chance.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from counterpoint._util.errors import NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint.cases import Cases, ImageRef, gallery_rows
from counterpoint.models.registry import LoadOptions
from counterpoint.scoring import BlindScorer

TEXT_MODELS: Final = ("grammar", "plausible", "lm")  # of transformers, with or without `:WHERE`
_SEED: Final = 0  # not chosen: of 95 % intervals, about one in twenty does not hold chance
FOLDS: Final = 5
STRENGTH: Final = 0.3  # of a pair against the penalty |w|^2 / 2: scikit-learn's C
_TOLERANCE: Final = 1e-3  # the largest slope at the end, of that at the start
_STEPS: Final = 200
_MEMORY: Final = 10  # steps that L-BFGS remembers
PAIRS: Final = 4_000_000  # scores that are made at a time
_PIECE: Final = 20_000  # pairs or texts whose n-grams are in memory at a time
_WORD: Final = re.compile(r"[\w']+|[^\w\s]")

Grams = tuple[np.ndarray, np.ndarray]  # the number of a text, and the code of an n-gram in it
Piece = tuple[Sequence[str], Sequence[str], Sequence[Any]]  # texts x, texts y, their images


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


# --- fitted to the texts that are scored --------------------------------------------------------
#
# Of a true caption x and a false one y of a case: P(x is the true one) = sigmoid(w (f(x) - f(y))),
# where f counts n-grams. The weights w are those of an L2 logistic regression on the differences
# f(x) - f(y), so that what two captions share costs nothing. They are cross-fitted: images are
# dealt to five folds, and the captions of a fold are scored with weights from those of the others.


def word_grams(texts: Sequence[str]) -> Grams:
    """Words, marks, and pairs of neighbours; start and end count as neighbours, case does not."""
    found = [["^", *_WORD.findall(text.lower()), "$"] for text in texts]
    codes = np.array([_code(word) for words in found for word in words], dtype=np.uint64)
    return _grams(codes, np.array([len(words) for words in found], dtype=np.int64), 1, 2)


def character_grams(texts: Sequence[str]) -> Grams:
    """Strings of zero (which count the length) to four characters, as they stand."""
    joined = "".join(f"\2{text}\3" for text in texts).encode("utf-32-le", "surrogatepass")
    codes = np.frombuffer(joined, dtype="<u4").astype(np.uint64)
    return _grams(codes, np.array([len(text) + 2 for text in texts], dtype=np.int64), 0, 4)


@lru_cache(2**17)
def _code(word: str) -> int:
    digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _grams(tokens: np.ndarray, lengths: np.ndarray, least: int, most: int) -> Grams:
    """All n-grams of `least` to `most` tokens. Their codes have 64 bits: none meet by chance."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    codes = np.zeros(len(tokens), dtype=np.uint64)
    rows, found = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.uint64)]
    for order in range(most + 1):
        if order:  # those that are one token longer
            last = np.arange(order - 1, len(tokens))
            inside = owner[last] == owner[last - order + 1]
            longer = (codes[: len(last)] ^ tokens[last]) * np.uint64(0x9E3779B97F4A7C15)
            codes = np.where(inside, (longer ^ (longer >> np.uint64(29))) + np.uint64(order), 0)
        if order >= least:
            whole = codes != 0 if order else np.ones(len(codes), dtype=bool)
            rows.append(owner[: len(codes)][whole])
            found.append(codes[whole])
    return np.concatenate(rows), np.concatenate(found)


@dataclass(frozen=True, slots=True)
class Differences:
    """f(x) - f(y) of n pairs: the entries that are not 0, sorted by pair and n-gram.

    Only n-grams by which pairs of at least two images differ: others cannot be learned.
    """

    rows: np.ndarray
    columns: np.ndarray  # numbers into `codes`
    values: np.ndarray
    codes: np.ndarray  # of the n-grams, sorted
    clusters: np.ndarray  # (n,): the number of each pair's image

    @classmethod
    def of(cls, grams: Callable[[Sequence[str]], Grams], pieces: Iterable[Piece]) -> Differences:
        """Of texts x and y, each pair with the name of its image."""
        rows, codes, values = [np.zeros(0, dtype=np.int64)], [_NONE], [np.zeros(0)]
        clusters: list[Any] = []
        for first, second, images in pieces:
            row, code, value = _differences(grams, first, second)
            rows.append(row + len(clusters))
            codes.append(code)
            values.append(value)
            clusters.extend(images)
        numbers = np.unique(np.array(clusters), return_inverse=True)[1]
        return _shared(np.concatenate(rows), np.concatenate(codes), np.concatenate(values), numbers)

    def only(self, pairs: np.ndarray) -> Differences:
        """Of some pairs, given by their numbers, in the order given."""
        place = np.full(len(self.clusters), -1)
        place[pairs] = np.arange(len(pairs))
        mine = np.flatnonzero(place[self.rows] >= 0)
        mine = mine[np.argsort(place[self.rows[mine]], kind="stable")]
        codes = self.codes[self.columns[mine]]
        return _shared(place[self.rows[mine]], codes, self.values[mine], self.clusters[pairs])

    def weights(self, pairs: np.ndarray) -> np.ndarray:
        """Of each n-gram, fitted to the pairs of a mask (n,)."""
        mine = pairs[self.rows]
        rows, columns, values = self.rows[mine], self.columns[mine], self.values[mine]
        count, width = len(self.clusters), len(self.codes)

        def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
            margin = np.bincount(rows, values * w[columns], minlength=count)
            slope = -STRENGTH / (1 + np.exp(np.minimum(margin, 500)))
            down = np.bincount(columns, values * slope[rows], minlength=width)
            found = STRENGTH * np.logaddexp(0, -margin[pairs]).sum() + (w * w).sum() / 2
            return float(found), down + w

        return minimum(loss, width)

    def gaps(self, seed: int) -> np.ndarray:
        """w (f(x) - f(y)) of each pair, cross-fitted; 0 if nothing is known of the difference."""
        found, fold = np.zeros(len(self.clusters)), folds(self.clusters, seed)
        for number in range(FOLDS):
            w = self.weights(fold != number)
            gap = np.bincount(self.rows, self.values * w[self.columns], minlength=len(found))
            found[fold == number] = gap[fold == number]
        return found


_NONE: Final = np.zeros(0, dtype=np.uint64)


def _differences(
    grams: Callable[[Sequence[str]], Grams], first: Sequence[str], second: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pair, code and value of each entry, sorted by pair and code."""
    both = (*first, *second)
    numbers = {text: n for n, text in enumerate(dict.fromkeys(both))}
    owner, found = grams(list(numbers))
    order = np.argsort(owner, kind="stable")
    starts = np.searchsorted(owner[order], np.arange(len(numbers) + 1))
    used = np.array([numbers[text] for text in both], dtype=np.int64)
    sizes = starts[used + 1] - starts[used]
    place = np.arange(sizes.sum()) + np.repeat(starts[used] - np.cumsum(sizes) + sizes, sizes)
    pair = np.repeat(np.arange(len(both)), sizes)
    names, number = np.unique(found[order][place], return_inverse=True)
    key, inverse = np.unique(pair % len(first) * len(names) + number, return_inverse=True)
    sums = np.bincount(inverse, np.where(pair < len(first), 1.0, -1.0), minlength=len(key))
    key, sums = key[sums != 0], sums[sums != 0]
    return key // len(names), names[key % len(names)], sums


def _shared(
    rows: np.ndarray, codes: np.ndarray, values: np.ndarray, clusters: np.ndarray
) -> Differences:
    """Without the n-grams of a single image."""
    numbers = np.unique(clusters, return_inverse=True)[1]
    names, columns = np.unique(codes, return_inverse=True)
    images = int(numbers.max(initial=-1)) + 1
    seen = np.unique(columns * images + numbers[rows]) // max(images, 1)
    often = np.bincount(seen, minlength=len(names)) > 1
    mine = often[columns]
    place = np.cumsum(often) - 1
    return Differences(rows[mine], place[columns[mine]], values[mine], names[often], numbers)


def minimum(loss: Callable[[np.ndarray], tuple[float, np.ndarray]], width: int) -> np.ndarray:
    """Where a smooth convex function is least, by L-BFGS. Sums do not depend on threads."""
    w = np.zeros(width)
    value, slope = loss(w)
    least = _TOLERANCE * np.abs(slope).max(initial=0)
    past: list[tuple[np.ndarray, np.ndarray, float]] = []  # steps, changes of slope, their product
    for _ in range(_STEPS):
        if np.abs(slope).max(initial=0) <= least:
            break
        step = -_turned(slope, past)
        descent, share = float((step * slope).sum()), 1.0
        while True:
            there, slope_there = loss(w + share * step)
            if there <= value + 1e-4 * share * descent or share < 1e-8:
                break
            share /= 2
        moved, change = share * step, slope_there - slope
        if (product := float((moved * change).sum())) > 0:
            past = [*past[1 - _MEMORY :], (moved, change, product)]
        w, value, slope = w + moved, there, slope_there
    return w


def _turned(slope: np.ndarray, past: Sequence[tuple[np.ndarray, np.ndarray, float]]) -> np.ndarray:
    """The slope times an estimate of the inverse curvature: L-BFGS's two loops."""
    turned, shares = slope.copy(), []
    for moved, change, product in reversed(past):
        shares.append(float((moved * turned).sum()) / product)
        turned -= shares[-1] * change
    if past:
        turned *= past[-1][2] / float((past[-1][1] ** 2).sum())
    else:
        turned /= max(1.0, float(np.sqrt((slope * slope).sum())))
    for (moved, change, product), share in zip(past, reversed(shares), strict=True):
        turned += moved * (share - float((change * turned).sum()) / product)
    return turned


class Ngrams:
    """Words and pairs of neighbouring words that true captions have and false ones have not."""

    fingerprint = "blind:ngram 1"
    grams = staticmethod(word_grams)

    def score_cases(self, cases: Cases) -> np.ndarray:
        """w f(x) of every caption x. 0 for all if no other image has anything to learn from."""
        texts = cases.frame["captions"].explode().to_list()
        better, worse = _competing(cases, len(texts))
        case_of = np.repeat(np.arange(len(cases)), cases.caption_counts)
        clusters = np.unique(cases.frame["cluster"].to_numpy(), return_inverse=True)[1]
        cluster = clusters[case_of[better]].tolist()
        pieces = (
            ([texts[i] for i in better[at]], [texts[i] for i in worse[at]], cluster[at])
            for at in _slices(len(better))
        )
        differences = Differences.of(self.grams, pieces)
        fold = folds(clusters, 0)  # of the cases; that of a pair is the same
        fold_of_pair, scores = fold[case_of[better]], np.zeros(len(texts))
        weights = [differences.weights(fold_of_pair != number) for number in range(FOLDS)]
        for at in _slices(len(texts)):
            scores[at] = self._scores(texts[at], differences.codes, weights, fold[case_of[at]])
        return by_pair(cases, scores.astype(np.float32))

    def _scores(
        self, texts: list[str], codes: np.ndarray, weights: list[np.ndarray], fold: np.ndarray
    ) -> np.ndarray:
        rows, found = self.grams(texts)
        if not len(codes):
            return np.zeros(len(texts))
        column = np.minimum(np.searchsorted(codes, found), len(codes) - 1)
        known = codes[column] == found
        # Sorted, so that texts with the same n-grams have the same sum to the last bit.
        key = np.sort(rows[known] * len(codes) + column[known])
        row, column = key // len(codes), key % len(codes)
        return np.bincount(row, np.stack(weights)[fold[row], column], minlength=len(texts))


class Characters(Ngrams):
    """Strings of up to four characters, and the length: another family than words."""

    fingerprint = "blind:chars 1"
    grams = staticmethod(character_grams)


FITTED: Final[dict[str, type[Ngrams]]] = {"ngram": Ngrams, "chars": Characters}


def _slices(total: int) -> Iterator[slice]:
    yield from (slice(start, start + _PIECE) for start in range(0, total, _PIECE))


def _competing(cases: Cases, total: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of captions of a case, of which the first is true of more images than the second.

    A gallery has none: each of its captions is true of some image, and false of all others.
    """
    true, starts = true_counts(cases, total), cases.layout().captions
    better, worse = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for row in np.flatnonzero(~gallery_rows(cases)):
        mine = true[starts[row] : starts[row + 1]]
        first, second = np.nonzero(mine[:, None] > mine)
        better.append(first + starts[row])
        worse.append(second + starts[row])
    return np.concatenate(better), np.concatenate(worse)


def by_pair(cases: Cases, values: np.ndarray) -> np.ndarray:
    """A value for each caption as one for each pair, flat."""
    layout = cases.layout()
    found = np.empty(cases.pair_offsets[-1], dtype=values.dtype)
    for lines in layout.pieces(np.arange(layout.images[-1]), PAIRS, PAIRS):
        pairs = layout.pairs(lines)
        found[pairs.places] = values[pairs.captions]
    return found


def true_counts(cases: Cases, captions: int) -> np.ndarray:
    """Of how many images of its case each caption is true."""
    cells = cases.frame["truth"]
    case = np.repeat(np.arange(len(cases)), cells.list.len().to_numpy())
    place = cells.explode().to_numpy() % cases.caption_counts[case]
    return np.bincount(cases.layout().captions[case] + place, minlength=captions).astype(float)


def folds(clusters: np.ndarray, seed: int = 0) -> np.ndarray:
    """A fold for each row, by cluster, so that no image is on both sides."""
    codes = np.unique(clusters, return_inverse=True)[1]
    shuffled = np.random.default_rng(seed).permutation(int(codes.max(initial=-1)) + 1)
    found: np.ndarray = shuffled[codes] % FOLDS
    return found


# --- random and ids -----------------------------------------------------------------------------

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
