"""What a method is, and all methods by name. A new rule needs one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from counterpoint._util.errors import NotFoundError
from counterpoint._util.progress import Progress
from counterpoint._util.registry import Registry, did_you_mean
from counterpoint.generation.llm import templates
from counterpoint.generation.pairs import Kind, Type

if TYPE_CHECKING:
    from counterpoint.generation.language.sentences import Sentence
    from counterpoint.generation.language.wordnet import Vocabulary

_HOME: Final = "counterpoint.generation.rules"


class Draft(NamedTuple):
    """A text that a method made and that was not checked yet."""

    text: str
    type: Type
    subtype: str = ""


class Rejection(NamedTuple):
    """Why a method made no text. Reasons are counted."""

    reason: str


# A rule makes several kinds of change (swap two nouns, swap two adjectives, ...). For each kind it
# gives several drafts; the first that passes the checks is taken.
Ways = Iterable[Draft]
Make = Callable[["Sentence", "Vocabulary", Random], Iterable[Ways]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A method that needs only the tagged caption, words and random numbers.

    `version` changes when the same caption and seed give another text.
    """

    name: str
    kind: Kind
    version: str
    summary: str
    make: Make


class BatchMethod(Protocol):
    """A method that takes many captions at once, such as a language model."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    @property
    def version(self) -> str: ...

    @property
    def origin(self) -> str:
        """Where its texts come from. Work begun with another origin is not resumed."""

    def make(
        self, captions: Sequence[str], seeds: Sequence[int], progress: Progress
    ) -> list[list[Draft | Rejection]]:
        """The drafts of each caption, and the reasons why there are no more."""


RULES: Final = Registry(
    "rule",
    "counterpoint.rules",
    {
        "conjuncts": f"{_HOME}.reversal:CONJUNCTS",
        "converse": f"{_HOME}.reversal:CONVERSE",
        "crepe-negate": f"{_HOME}.negation:NEGATE",
        "crepe-replace": f"{_HOME}.replacement:CREPE",
        "crepe-swap": f"{_HOME}.swaps:CREPE",
        "hard-positives": f"{_HOME}.replacement:PAPER",
        "negclip": f"{_HOME}.swaps:NEGCLIP",
        "shuffle": f"{_HOME}.swaps:SHUFFLE",
        "svlc": f"{_HOME}.replacement:SVLC",
        "synonyms": f"{_HOME}.replacement:LEXICON",
    },
)


class GraphMethod(NamedTuple):
    """One of ARO's templates."""

    kinds: tuple[Kind, ...]
    version: str
    summary: str


GRAPH_METHODS: Final = {
    "vg-attribution": GraphMethod(
        ("negative", "positive"), "1", '"the A1 O1 and the A2 O2", attributes swapped or reversed'
    ),
    "vg-relation": GraphMethod(("negative",), "1", '"the X is REL the Y", the two swapped'),
}
ALL_RULES: Final = "rules"
ALL_LLM: Final = "llm"


class Method(NamedTuple):
    """What `counterpoint ls methods` shows."""

    name: str
    kinds: tuple[Kind, ...]
    needs: str
    summary: str


class Chosen(NamedTuple):
    """The chosen methods, by how they work."""

    rules: tuple[str, ...]
    llm: tuple[str, ...]
    graphs: tuple[str, ...]


def methods(without: Collection[str] = ()) -> list[Method]:
    """All methods, without the named rules."""
    rules = [RULES.get(name) for name in RULES.names() if name not in without]
    asked = [templates.read_template(name) for name in templates.names()]
    return [
        *(Method(rule.name, (rule.kind,), "", rule.summary) for rule in rules),
        *(
            Method(name, method.kinds, "scene graphs", method.summary)
            for name, method in GRAPH_METHODS.items()
        ),
        *(Method(t.name, (t.kind,), "a language model", t.summary) for t in asked),
    ]


def chosen_methods(names: Sequence[str], kind: Kind) -> Chosen:
    """The methods of these names, each once; `rules` and `llm` stand for all of the kind."""
    known = {method.name: method for method in methods()}
    groups = {
        ALL_RULES: [m.name for m in known.values() if kind in m.kinds and not m.needs],
        ALL_LLM: [m.name for m in known.values() if kind in m.kinds and "language" in m.needs],
    }
    wanted = dict.fromkeys(name for given in names for name in groups.get(given, [given]))
    for name in wanted:
        if name not in known:
            raise NotFoundError(
                "E-METHOD-UNKNOWN", did_you_mean("method", name, [*known, *groups]), name=name
            )
        if kind not in known[name].kinds:
            fitting = ", ".join(m.name for m in known.values() if kind in m.kinds)
            raise NotFoundError(
                "E-METHOD-KIND",
                f"{name} does not make {kind}s; these do: {fitting}.",
                name=name,
                kind=kind,
            )
    by_need = {need: tuple(n for n in wanted if known[n].needs == need) for need in _NEEDS}
    if by_need["scene graphs"] and len(by_need["scene graphs"]) < len(wanted):
        raise NotFoundError(
            "E-METHODS-MIXED",
            f"{by_need['scene graphs'][0]} reads scene graphs and the other methods read captions; "
            "run one command for each.",
            name=by_need["scene graphs"][0],
        )
    return Chosen(by_need[""], by_need["a language model"], by_need["scene graphs"])


_NEEDS: Final = ("", "a language model", "scene graphs")
