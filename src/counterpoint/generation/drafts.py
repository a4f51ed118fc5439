"""From captions to checked pairs: drafts are made, ranked and checked, and results counted.

A negative's drafts are ranked by how plausible they are beside their caption, and the implausible
ones come last. `shipped` ranks by the n-gram model of the package, FILE.npz by one of your own,
`lm:...` and other blind models score whole batches; `none` takes drafts in random order, as the
authors of the methods do.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby, islice
from math import log
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Final, Literal, NamedTuple, Protocol

from counterpoint.cases import normal
from counterpoint.generation.checks.change import uniform
from counterpoint.generation.checks.checking import CheckResult, check
from counterpoint.generation.inputs.captions import SourceCaption
from counterpoint.generation.language import plausibility
from counterpoint.generation.language.lexicon import Vocabulary
from counterpoint.generation.language.sentences import Sentence, tagged, unreadable
from counterpoint.generation.language.words import role
from counterpoint.generation.pairs import (
    SENTENCE,
    Draft,
    Kind,
    Pair,
    Rejection,
    changed_span,
    stable_random,
)
from counterpoint.generation.registry import RULES, Rule

CAPTIONS: Final = "captions"
MADE: Final = "made"
NONE: Final = "none"
SHIPPED: Final = "shipped"
IMPLAUSIBLE: Final = "implausible"
_TRIES: Final = 8  # drafts of one kind that are tried at most
_DRAFTS: Final = 8  # drafts of one kind that are ranked at most
_BLOCK: Final = 64  # captions whose drafts are ranked together
_BATCH: Final = 128  # texts that a blind model scores at a time
_UNRANKED: Final = frozenset({"shuffle"})  # word order is its point
_SPREAD: Final = 1.0  # nats: how far the best draft may be beaten by chance
# How far below its caption a text may be, in nats. A replacement has as many words as its caption,
# and of those that are 5 nats below, a language model recognises nine in ten.
_FLOORS: Final = {"swap": -10.0, "replace": -5.0, "add": -9.0, "negate": -20.0}
_UNSAID: Final = ("determiner", "auxiliary", "joint", "pronoun", "negation")  # of a replacement
_REPLACED: Final = {"NOUN": "obj", "PROPN": "obj", "ADJ": "att", "ADV": "att", "NUM": "count"}

Counts = Counter[tuple[str, str]]  # by what and why: ("captions", "not English")


@dataclass(frozen=True, slots=True)
class TextSettings:
    """How texts are made. With the captions, these settings decide which pairs come out.

    `each` is the maximum number of texts per method and kind of change. `form` says how texts are
    written: like their captions, or both in one format (`uniform`). `plausible` names what ranks
    the drafts of a negative.
    """

    kind: Kind
    methods: tuple[str, ...]
    seed: int = 0
    checks: bool = True
    each: int = 1
    form: Literal["caption", "uniform"] = "caption"
    doubtful: bool = False
    keep_refused: bool = False
    plausible: str = SHIPPED

    @property
    def ranking(self) -> str:
        """What ranks drafts: those of negatives only."""
        return self.plausible if self.kind == "negative" and self.methods else NONE


class MadePairs(NamedTuple):
    """Pairs, and how many there are of what."""

    pairs: list[Pair]
    counts: Counts


@dataclass(slots=True)
class _Change:
    """A kind of change to a caption, with its drafts: in the end those that are tried, in order."""

    source: SourceCaption
    rule: Rule
    seed: int
    drafts: Iterable[Draft]


@contextmanager
def _no_collection() -> Iterator[None]:
    """Rules leave no cycles behind, and the collector would walk through all words and counts, a
    tenth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_no_collection()
def make_by_rules(sources: Sequence[SourceCaption], settings: TextSettings) -> MadePairs:
    """Apply all rules of the settings to all captions. Each caption is tagged once."""
    counts: Counts = Counter()
    kept = readable(sources, counts)
    rules: list[Rule] = [RULES.get(name) for name in settings.methods]
    words, ranker = Vocabulary(settings.doubtful), open_ranker(settings.ranking)
    versions = {rule.name: _version(rule, words, ranker) for rule in rules}
    pairs: list[Pair] = []
    captions = zip(kept, tagged(source.caption for source in kept), strict=True)
    while block := list(islice(captions, _BLOCK)):
        changes: Iterable[_Change] = (
            _Change(source, rule, seed, drafts)
            for source, sentence in block
            for known in (replace(words, true=source.others),)
            for rule in rules
            for seed in (seed_of(settings.seed, rule.name, source),)
            for drafts in rule.make(sentence, known, Random(seed))
        )
        if ranker is not None:
            changes = list(changes)
            _rank(changes, ranker)
        for source, of_one in groupby(changes, attrgetter("source")):
            checker = DraftChecker(source, settings, counts)
            for change in of_one:
                name = change.rule.name
                pairs += checker.accepted(change.drafts, name, versions[name])
            pairs += checker.spare_text()
    return MadePairs(pairs, counts)


def readable(sources: Sequence[SourceCaption], counts: Counts) -> list[SourceCaption]:
    """The captions that can be used; the others are counted by the reason."""
    kept = []
    for source in sources:
        reason = unreadable(source.caption)
        counts[CAPTIONS, reason or MADE] += 1
        if not reason:
            kept.append(source)
    return kept


def seed_of(seed: int, method: str, source: SourceCaption) -> int:
    """One random seed per caption and method: a text does not depend on what else is made."""
    return stable_random(seed, method, source.id, source.caption, bytes=7)


def _version(rule: Rule, words: Vocabulary, ranker: Ranker | None) -> str:
    found = f"{rule.name}-{rule.version} {words.version}"
    if ranker is None or rule.name in _UNRANKED:
        return found
    return f"{found} plausibility {ranker.version}"


# --- ranking --------------------------------------------------------------------------------------


class Ranker(Protocol):
    """Compares texts with their captions. `version` changes when its results do."""

    @property
    def version(self) -> str: ...

    def gains(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """For each caption and text: how much more plausible the text is, in nats."""


class BlindRanker:
    """By a blind model, whose score is the mean of a text's words."""

    def __init__(self, id: str) -> None:
        from counterpoint.generation.refinement.scores import load_blind, parse_blind_model
        from counterpoint.models import LoadOptions

        self.model = load_blind(parse_blind_model(id), LoadOptions())
        self.version = self.model.fingerprint

    def gains(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        unique = {text for pair in pairs for text in pair}
        texts = sorted(unique, key=lambda text: (len(text), text))
        scores: dict[str, float] = {}
        for start in range(0, len(texts), _BATCH):
            batch = texts[start : start + _BATCH]
            scores |= zip(batch, map(float, self.model.score_captions(batch)), strict=True)
        return [(scores[text] - scores[caption]) * len(caption.split()) for caption, text in pairs]


def is_model(name: str) -> bool:
    """Whether a ranker is a model that has to be loaded once, not in every process."""
    return name not in (NONE, SHIPPED) and not name.endswith(".npz")


@cache
def open_ranker(name: str) -> Ranker | None:
    """The ranker of that name; nothing for `none`."""
    if name == NONE:
        return None
    if is_model(name):
        return BlindRanker(name)
    return plausibility.load(plausibility.SHIPPED_FILE if name == SHIPPED else Path(name))


def _rank(changes: Sequence[_Change], ranker: Ranker) -> None:
    """Put the drafts of some changes into the order of trying, in one call of the ranker.

    Of the odd ones, which come last, one is enough to be counted.
    """
    rows: list[tuple[_Change, list[Draft]]] = []
    asked: dict[tuple[str, str], None] = {}
    for one in changes:
        if one.rule.name not in _UNRANKED:
            rows.append((one, []))
            for draft in islice(one.drafts, _DRAFTS):
                rows[-1][1].append(draft)
                if draft.odd:
                    break
                asked[one.source.caption, draft.text] = None
    gains = dict(zip(asked, ranker.gains(list(asked)), strict=True))
    for one, drafts in rows:
        mine = [gains.get((one.source.caption, draft.text), 0.0) for draft in drafts]
        one.drafts = ranked(drafts, mine, one.seed)


def ranked(drafts: Sequence[Draft], gains: Sequence[float], seed: int) -> list[Draft]:
    """The best drafts first, with some chance; implausible ones last, marked as such."""
    good: list[tuple[float, int]] = []
    bad: list[tuple[float, int]] = []
    for place, (draft, gain) in enumerate(zip(drafts, gains, strict=True)):
        if draft.odd or gain < _FLOORS.get(draft.type, gain):
            bad.append((-gain, place))
        else:
            good.append((-gain - _SPREAD * _gumbel(seed, draft.text), place))
    kept = [drafts[place] for _, place in sorted(good)]
    odd = [drafts[place] for _, place in sorted(bad)]
    return kept + [draft if draft.odd else draft._replace(odd=IMPLAUSIBLE) for draft in odd]


def _gumbel(seed: int, text: str) -> float:
    """A random number by Gumbel's law: the order is that of draws by probability."""
    uniform = (stable_random(seed, text, bytes=6) + 0.5) / 2**48
    return -log(-log(uniform))


# --- checking -------------------------------------------------------------------------------------


@dataclass(slots=True)
class DraftChecker:
    """Runs the checks on the drafts of one caption, and counts the results."""

    source: SourceCaption
    settings: TextSettings
    counts: Counts
    seen: set[tuple[str, ...]] = field(default_factory=set)
    others: frozenset[tuple[str, ...]] = frozenset()
    spare: list[tuple[Draft, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.settings.kind == "negative":  # a positive may well be another caption
            self.others = frozenset(map(normal, self.source.others))

    def accepted(
        self, drafts: Iterable[Draft | Rejection], method: str, version: str
    ) -> Iterator[Pair]:
        """The first drafts that pass, as many as the settings allow; rejected ones if kept."""
        settings, caption, taken = self.settings, self.source.caption, 0
        for draft in islice(drafts, _TRIES):
            if isinstance(draft, Rejection):
                self.counts[method, draft.reason] += 1
                continue
            if draft.common:
                if self.seen:
                    return  # common drafts are the last ones, and not needed any more
                self.spare.append((draft, method, version))
                continue
            odd = draft.odd if settings.plausible != NONE else ""
            if odd and not settings.keep_refused:
                self.counts[method, odd] += 1
                continue
            result = CheckResult((), odd)
            if settings.checks and not odd:
                kind, others, seen = settings.kind, self.others, self.seen
                result = check(caption, draft.text, kind, draft.type, others=others, seen=seen)
            self.counts[method, result.rejected or MADE] += 1
            if not result.rejected:
                self.seen.add(normal(draft.text))
                taken += 1
            if not result.rejected or settings.keep_refused:
                yield self._pair(draft, result, method, version)
            if taken == settings.each:
                return

    def spare_text(self) -> Iterator[Pair]:
        """One common edit, if the caption has no other text: caps cost no caption its positive."""
        for draft, method, version in self.spare:
            if self.seen:
                return
            yield from self.accepted((draft._replace(common=False),), method, version)

    def _pair(self, draft: Draft, result: CheckResult, method: str, version: str) -> Pair:
        source, settings, subtype = self.source, self.settings, draft.subtype
        if draft.type == "replace" and not subtype:
            subtype = replaced(source.caption, draft.text)
        caption, text = source.caption, draft.text
        if settings.form == "uniform":
            caption, text = uniform(caption), uniform(text)
        return Pair(
            source.id,
            source.image,
            caption,
            text,
            settings.kind,
            draft.type,
            subtype,
            method,
            version,
            settings.seed,
            (*result.passed, SENTENCE) if draft.sentence else result.passed,
            result.rejected,
            result.doubt or draft.doubt,
        )


def replaced(caption: str, text: str) -> str:
    """The subtype of a replacement: what the words are that the text has lost.

    Nouns are obj, adjectives and participles before a noun att, verbs and prepositions rel. Empty
    where words of several kinds were replaced, or none.
    """
    [sentence, other] = tagged((caption, text))
    kept = {token.lower for token in other.tokens}
    start, end = changed_span(text, caption)
    lost = [
        place
        for place, token in enumerate(sentence.tokens)
        if start < token.end and token.start < end and token.lower not in kept
    ]
    found = {_replaced(sentence, place) for place in lost} - {""}
    return found.pop() if len(found) == 1 else ""


def _replaced(sentence: Sentence, place: int) -> str:
    token, following = sentence.tokens[place], sentence.tokens[place + 1 : place + 2]
    known = role(token.lower)
    if known in _UNSAID:
        return ""
    if known in ("preposition", "side"):
        return "rel"  # "next to", "on top of"
    if token.pos == "VERB":
        before_noun = following and following[0].pos in ("NOUN", "ADJ")
        return "att" if token.tag == "VBN" and before_noun else "rel"
    return _REPLACED.get(token.pos, "")
