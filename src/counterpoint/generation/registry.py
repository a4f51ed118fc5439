"""What a method is, and the methods that users can name: `counterpoint ls methods`, `-M NAME`.

A new rule needs one file and one line here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from counterpoint._util.errors import NotFoundError
from counterpoint._util.progress import Progress
from counterpoint._util.registry import Registry, did_you_mean
from counterpoint.generation.pairs import Kind, Type

if TYPE_CHECKING:
    from counterpoint.generation.language.sentences import Sentence
    from counterpoint.generation.language.wordnet import Vocabulary


class Draft(NamedTuple):
    """A text that a method made and that was not checked yet.

    `doubt` says why a positive may be false, if the method knows. A `common` draft is the edit of
    many captions: it is used only for a caption that gets no other text. `odd` says why a negative
    is hardly plausible; such a draft comes after all others of its kind of change, and is rejected
    unless texts are not ranked. `sentence`: what a language model answered ended as a sentence.
    """

    text: str
    type: Type
    subtype: str = ""
    doubt: str = ""
    common: bool = False
    odd: str = ""
    sentence: bool = False


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


_HOME: Final = "counterpoint.generation.rules"

RULES: Final = Registry(
    "rule",
    "counterpoint.rules",
    {
        "add": f"{_HOME}.additions:ADD",
        "bind": f"{_HOME}.swaps:BIND",
        "conjuncts": f"{_HOME}.reversal:CONJUNCTS",
        "converse": f"{_HOME}.reversal:CONVERSE",
        "crepe-negate": f"{_HOME}.negation:NEGATE",
        "crepe-replace": f"{_HOME}.replacement:CREPE",
        "crepe-swap": f"{_HOME}.swaps:CREPE",
        "denials": f"{_HOME}.wording:DENIALS",
        "determiners": f"{_HOME}.wording:DETERMINERS",
        "framing": f"{_HOME}.framing:FRAMING",
        "fronted": f"{_HOME}.clause_order:FRONTED",
        "hard-positives": f"{_HOME}.hard_positives:PAPER",
        "negclip": f"{_HOME}.swaps:NEGCLIP",
        "passive": f"{_HOME}.clause_order:PASSIVE",
        "relative": f"{_HOME}.framing:RELATIVE",
        "shuffle": f"{_HOME}.swaps:SHUFFLE",
        "svlc": f"{_HOME}.replacement:SVLC",
        "synonyms": f"{_HOME}.synonyms:LEXICON",
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
_GRAPHS: Final = "scene graphs"
_MODEL: Final = "a language model"


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


def _rules(without: Collection[str] = ()) -> list[Method]:
    rules = (RULES.get(name) for name in RULES.names() if name not in without)
    return [Method(rule.name, (rule.kind,), "", rule.summary) for rule in rules]


def methods(without: Collection[str] = ()) -> list[Method]:
    """All methods, without the named rules."""
    from counterpoint.generation.llm import templates

    graphs = GRAPH_METHODS.items()
    asked = map(templates.read_template, templates.names())
    return [
        *_rules(without),
        *(Method(name, method.kinds, _GRAPHS, method.summary) for name, method in graphs),
        *(Method(one.name, (one.kind,), _MODEL, one.summary) for one in asked),
    ]


def chosen_methods(names: Sequence[str], kind: Kind) -> Chosen:
    """The methods of these names, each once.

    `rules`, `llm` and `trohn` stand for all of the kind. A name that ends in .toml is the path of a
    user's own template for a language model.
    """
    known = {rule.name: rule for rule in _rules()}
    groups = {"rules": [name for name, rule in known.items() if kind in rule.kinds]}
    if not set(names) <= {*groups, *groups["rules"]}:  # else no template has to be read
        from counterpoint.generation.llm import templates

        known = {method.name: method for method in methods()}
        for name in templates.names():
            group = groups.setdefault(templates.read_template(name).group, [])
            group += [name] * (kind in known[name].kinds)
        for name in names:
            if name.endswith(templates.ENDING):
                own = templates.read_template(name)
                known[name] = Method(name, (own.kind,), _MODEL, own.summary)
    wanted = dict.fromkeys(name for given in names for name in groups.get(given, [given]))
    for name in wanted:
        if name not in known:
            raise NotFoundError("E-METHOD-UNKNOWN", did_you_mean("method", name, [*known, *groups]))
        if kind not in known[name].kinds:
            fitting = ", ".join(m.name for m in known.values() if kind in m.kinds)
            raise NotFoundError(
                "E-METHOD-KIND", f"{name} does not make {kind}s; these do: {fitting}."
            )
    rules, models, graphs = (
        tuple(name for name in wanted if known[name].needs == need)
        for need in ("", _MODEL, _GRAPHS)
    )
    if graphs and len(graphs) < len(wanted):
        raise NotFoundError(
            "E-METHODS-MIXED",
            f"{graphs[0]} reads scene graphs and the other methods read captions; "
            "run one command for each.",
        )
    return Chosen(rules, models, graphs)
