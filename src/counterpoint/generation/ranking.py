"""Which drafts of a change are tried first, and which are too implausible to be tried.

`shipped` is the n-gram model of the package, FILE.npz one of your own, `lm:...` and other blind
models score whole batches; `none` takes drafts in random order, as the authors of the methods do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from math import log
from pathlib import Path
from typing import Final, Protocol

from counterpoint.generation.language import plausibility
from counterpoint.generation.registry import Draft

NONE: Final = "none"
SHIPPED: Final = "shipped"
IMPLAUSIBLE: Final = "implausible"
_ENDING: Final = ".npz"
_SPREAD: Final = 1.0  # nats: how far the best draft may be beaten by chance
# How far below its caption a text may be, in nats. A replacement has as many words as its caption,
# and of those that are 5 nats below, a language model recognises nine in ten.
_FLOORS: Final = {"swap": -10.0, "replace": -5.0, "add": -9.0, "negate": -20.0}


class Ranker(Protocol):
    """Compares texts with their captions. `version` changes when its results do."""

    @property
    def version(self) -> str: ...

    def gains(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """For each caption and text: how much more plausible the text is, in nats."""


class NgramRanker:
    """By an n-gram model."""

    def __init__(self, model: plausibility.Plausibility) -> None:
        self.model, self.version = model, model.version

    def gains(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        return [self.model.gain(caption, text) for caption, text in pairs]


class BlindRanker:
    """By a blind model, whose score is the mean of a text's words."""

    def __init__(self, id: str) -> None:
        from counterpoint.generation.refinement.scores import load_blind, parse_blind_model
        from counterpoint.models import LoadOptions

        self.model = load_blind(parse_blind_model(id), LoadOptions())
        self.version = self.model.fingerprint

    def gains(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        texts = sorted(
            {text for pair in pairs for text in pair}, key=lambda text: (len(text), text)
        )
        found: dict[str, float] = {}
        for start in range(0, len(texts), _BATCH):
            some = texts[start : start + _BATCH]
            found |= zip(some, map(float, self.model.score_captions(some)), strict=True)
        return [(found[text] - found[caption]) * len(caption.split()) for caption, text in pairs]


_BATCH: Final = 128


def is_model(name: str) -> bool:
    """Whether a ranker is a model that has to be loaded once, not in every process."""
    return name not in (NONE, SHIPPED) and not name.endswith(_ENDING)


@cache
def open_ranker(name: str) -> Ranker | None:
    """The ranker of that name; nothing for `none`."""
    if name == NONE:
        return None
    if name == SHIPPED:
        return NgramRanker(plausibility.shipped())
    if is_model(name):
        return BlindRanker(name)
    return NgramRanker(plausibility.load(Path(name)))


def ranked(drafts: Sequence[Draft], gains: Sequence[float], seed: int) -> list[Draft]:
    """The best drafts first, with some chance; implausible ones last, marked as such."""
    if len(drafts) == 1 and not drafts[0].odd and gains[0] >= _FLOORS.get(drafts[0].type, gains[0]):
        return [*drafts]
    good: list[tuple[float, int]] = []
    bad: list[tuple[float, int]] = []
    for place, (draft, gain) in enumerate(zip(drafts, gains, strict=True)):
        if draft.odd or gain < _FLOORS.get(draft.type, gain):
            bad.append((-gain, place))
        else:
            good.append((-gain - _SPREAD * _chance(seed, draft.text), place))
    kept = [drafts[place] for _, place in sorted(good)]
    return kept + [_implausible(drafts[place]) for _, place in sorted(bad)]


def _implausible(draft: Draft) -> Draft:
    return draft if draft.odd else draft._replace(odd=IMPLAUSIBLE)


def _chance(seed: int, text: str) -> float:
    """A random number by Gumbel's law: the order is that of draws by probability."""
    said = f"{seed}\0{text}".encode("utf-8", "surrogatepass")
    uniform = (int.from_bytes(blake2b(said, digest_size=6).digest()) + 0.5) / 2**48
    return -log(-log(uniform))
