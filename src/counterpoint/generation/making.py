"""From captions to checked pairs, with counts of what was made and what was rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import groupby, islice
from operator import attrgetter
from random import Random
from typing import Final, Literal, NamedTuple

from counterpoint.cases import normal
from counterpoint.generation.caption_parts import replaced
from counterpoint.generation.checks.checking import CheckResult, check
from counterpoint.generation.checks.surface import uniform
from counterpoint.generation.inputs.source import SourceCaption
from counterpoint.generation.language.sentences import tagged, unreadable
from counterpoint.generation.language.wordnet import Vocabulary, WordNet, find as find_wordnet
from counterpoint.generation.pairs import SENTENCE, Kind, Pair
from counterpoint.generation.ranking import NONE, SHIPPED, Ranker, open_ranker, ranked
from counterpoint.generation.registry import RULES, Draft, Rejection, Rule, Ways

_TRIES: Final = 8  # drafts of one kind that are tried at most
_DRAFTS: Final = 8  # drafts of one kind that are ranked at most
_BLOCK: Final = 64  # captions whose drafts are ranked together
_UNRANKED: Final = frozenset({"shuffle"})  # word order is its point

CAPTIONS: Final = "captions"
MADE: Final = "made"


@dataclass(frozen=True, slots=True)
class TextSettings:
    """How texts are made. With the captions, these settings decide which pairs come out.

    `each` is the maximum number of texts per method and kind of change. `form` says how texts are
    written: like their captions, or both in one format (`uniform`). `plausible` names what ranks
    the drafts of a negative (ranking.py).
    """

    kind: Kind
    methods: tuple[str, ...]
    seed: int = 0
    checks: bool = True
    each: int = 1
    form: Literal["caption", "uniform"] = "caption"
    doubtful: bool = False
    wordnet: bool = True
    keep_refused: bool = False
    plausible: str = SHIPPED

    def ranker(self) -> Ranker | None:
        """What ranks drafts: those of negatives only."""
        return open_ranker(self.plausible) if self.kind == "negative" and self.methods else None

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(find_wordnet() if self.wordnet else None, self.doubtful)


class MadePairs(NamedTuple):
    """Pairs, and counts by (what, reason): `("captions", "not English")`, `("negclip", "made")`."""

    pairs: list[Pair]
    counts: Counter[tuple[str, str]]


def readable(
    sources: Sequence[SourceCaption], counts: Counter[tuple[str, str]]
) -> list[SourceCaption]:
    """The captions that can be used; the others are counted by the reason."""
    kept = []
    for source in sources:
        reason = unreadable(source.caption)
        counts[CAPTIONS, reason or MADE] += 1
        if not reason:
            kept.append(source)
    return kept


def make_by_rules(sources: Sequence[SourceCaption], settings: TextSettings) -> MadePairs:
    """Apply all rules of the settings to all captions. Each caption is tagged once."""
    counts: Counter[tuple[str, str]] = Counter()
    kept = readable(sources, counts)
    rules: list[Rule] = [RULES.get(name) for name in settings.methods]
    words = settings.vocabulary()
    ranker = settings.ranker()
    versions = {rule.name: _version(rule, words, ranker) for rule in rules}
    pairs: list[Pair] = []
    sentences = tagged(source.caption for source in kept)
    captions = zip(kept, sentences, strict=True)
    while block := list(islice(captions, _BLOCK)):
        changes = (
            _Change(source, rule, seed, ways)
            for source, sentence in block
            for known in (replace(words, true=source.others),)
            for rule in rules
            for seed in (seed_of(settings.seed, rule.name, source),)
            for ways in rule.make(sentence, known, Random(seed))
        )
        found = changes if ranker is None else _ranked(changes, ranker)
        for source, of_one in groupby(found, attrgetter("source")):
            checker = DraftChecker(source, settings, counts, words.wordnet)
            for change in of_one:
                name = change.rule.name
                pairs += checker.accepted(change.ways, name, versions[name])
            pairs += checker.spare_text()
    return MadePairs(pairs, counts)


def _version(rule: Rule, words: Vocabulary, ranker: Ranker | None) -> str:
    found = f"{rule.name}-{rule.version} {words.version}"
    if ranker is None or rule.name in _UNRANKED:
        return found
    return f"{found} plausibility {ranker.version}"


@dataclass(slots=True)
class _Change:
    """A kind of change to a caption, with its drafts: in the end those that are tried, in order."""

    source: SourceCaption
    rule: Rule
    seed: int
    ways: Ways


def _ranked(changes: Iterable[_Change], ranker: Ranker) -> list[_Change]:
    """The changes of some captions with their drafts ranked, in one call of the ranker."""
    read = list(changes)
    rows = [
        (change, change.source.caption, _first(change.ways))
        for change in read
        if change.rule.name not in _UNRANKED
    ]
    asked = dict.fromkeys(
        (caption, draft.text) for _, caption, drafts in rows for draft in drafts if not draft.odd
    )
    gains = dict(zip(asked, ranker.gains(list(asked)), strict=True))
    for change, caption, drafts in rows:
        found = [gains.get((caption, draft.text), 0.0) for draft in drafts]
        change.ways = ranked(drafts, found, change.seed) if drafts else ()
    return read


def _first(ways: Ways) -> list[Draft]:
    """The drafts that are ranked. Of the odd ones, which come last, one is enough to be counted."""
    found: list[Draft] = []
    for draft in islice(ways, _DRAFTS):
        found.append(draft)
        if draft.odd:
            break
    return found


def seed_of(seed: int, method: str, source: SourceCaption) -> int:
    """One random seed per caption and method: a text does not depend on what else is made."""
    said = f"{seed}\0{method}\0{source.id}\0{source.caption}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(said, digest_size=7).digest())


@dataclass(slots=True)
class DraftChecker:
    """Runs the checks on the drafts of one caption, and counts the results."""

    source: SourceCaption
    settings: TextSettings
    counts: Counter[tuple[str, str]]
    wordnet: WordNet | None = None
    seen: set[tuple[str, ...]] = field(default_factory=set)
    others: frozenset[tuple[str, ...]] = frozenset()
    spare: list[tuple[Draft, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.settings.kind == "negative":  # a positive may well be another caption
            self.others = frozenset(map(normal, self.source.others))

    def accepted(
        self, ways: Iterator[Draft | Rejection] | Ways, method: str, version: str
    ) -> Iterator[Pair]:
        """The first drafts that pass, as many as the settings allow; rejected ones if kept."""
        taken = 0
        for draft in islice(ways, _TRIES):
            if isinstance(draft, Rejection):
                self.counts[method, draft.reason] += 1
                continue
            if draft.common:
                if self.seen:
                    return  # common drafts are the last ones, and not needed any more
                self.spare.append((draft, method, version))
                continue
            odd = draft.odd if self.settings.plausible != NONE else ""
            if odd and not self.settings.keep_refused:
                self.counts[method, odd] += 1
                continue
            pair = self._pair(draft, method, version, odd)
            self.counts[method, pair.refused or MADE] += 1
            if not pair.refused:
                self.seen.add(normal(draft.text))
                taken += 1
            if not pair.refused or self.settings.keep_refused:
                yield pair
            if taken == self.settings.each:
                return

    def spare_text(self) -> Iterator[Pair]:
        """One common edit, if the caption has no other text: caps cost no caption its positive."""
        for draft, method, version in self.spare:
            if self.seen:
                return
            yield from self.accepted((draft._replace(common=False),), method, version)

    def _pair(self, draft: Draft, method: str, version: str, odd: str) -> Pair:
        source, settings = self.source, self.settings
        caption, text = source.caption, draft.text
        found = CheckResult((), odd)
        if settings.checks and not odd:
            found = check(
                caption,
                text,
                settings.kind,
                draft.type,
                others=self.others,
                seen=self.seen,
                thesaurus=self.wordnet,
            )
        if settings.form == "uniform":
            caption, text = uniform(caption), uniform(text)
        subtype = draft.subtype
        if draft.type == "replace" and not subtype:
            subtype = replaced(source.caption, draft.text)
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
            (*found.passed, SENTENCE) if draft.sentence else found.passed,
            found.rejected,
            found.doubt or draft.doubt,
        )
