"""From captions to checked pairs, with counts of what was made and what was rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from random import Random
from typing import Final, Literal, NamedTuple

from counterpoint.cases import normal
from counterpoint.generation.checks.checking import CheckResult, check
from counterpoint.generation.checks.surface import uniform
from counterpoint.generation.inputs.source import SourceCaption
from counterpoint.generation.language.sentences import Sentence, tagged, unreadable
from counterpoint.generation.language.wordnet import Vocabulary, WordNet, find as find_wordnet
from counterpoint.generation.pairs import Kind, Pair
from counterpoint.generation.registry import RULES, Draft, Rejection, Rule, Ways

_TRIES: Final = 8  # drafts of one kind that are tried at most

CAPTIONS: Final = "captions"
MADE: Final = "made"


@dataclass(frozen=True, slots=True)
class TextSettings:
    """How texts are made. With the captions, these settings decide which pairs come out.

    `each` is the maximum number of texts per method and kind of change. `form` says how texts are
    written: like their captions, or both in one format (`uniform`).
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
    versions = {rule.name: f"{rule.name}-{rule.version} {words.version}" for rule in rules}
    pairs: list[Pair] = []
    sentences = tagged(source.caption for source in kept)
    for source, sentence in zip(kept, sentences, strict=True):
        checker = DraftChecker(source, settings, counts, words.wordnet)
        for rule in rules:
            for ways in _ways(rule, source, sentence, words, settings):
                pairs += checker.accepted(ways, rule.name, versions[rule.name])
    return MadePairs(pairs, counts)


def _ways(
    rule: Rule, source: SourceCaption, sentence: Sentence, words: Vocabulary, settings: TextSettings
) -> Iterator[Ways]:
    rng = Random(seed_of(settings.seed, rule.name, source))
    yield from rule.make(sentence, words, rng)


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

    def __post_init__(self) -> None:
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
            pair = self._pair(draft, method, version)
            self.counts[method, pair.refused or MADE] += 1
            if not pair.refused:
                self.seen.add(normal(draft.text))
                taken += 1
            if not pair.refused or self.settings.keep_refused:
                yield pair
            if taken == self.settings.each:
                return

    def _pair(self, draft: Draft, method: str, version: str) -> Pair:
        source, settings = self.source, self.settings
        caption, text = source.caption, draft.text
        found = CheckResult((), "")
        if settings.checks:
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
        return Pair(
            source.id,
            source.image,
            caption,
            text,
            settings.kind,
            draft.type,
            draft.subtype,
            method,
            version,
            settings.seed,
            found.passed,
            found.rejected,
            found.doubt,
        )
