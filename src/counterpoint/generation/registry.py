"""The methods that users can name (`counterpoint ls methods`, `-M NAME`), and what they give.

A new rule needs one file and one line here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from counterpoint._util.errors import NotFoundError
from counterpoint._util.registry import Registry, did_you_mean
from counterpoint.generation.llm import templates
from counterpoint.generation.pairs import KINDS, Draft, Kind

if TYPE_CHECKING:
    from counterpoint.generation.language.lexicon import Vocabulary
    from counterpoint.generation.language.sentences import Sentence


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


def rule(name: str, kind: Kind, version: str) -> Callable[[Make], Rule]:
    """The rule that a function is; its docstring is the summary."""
    return lambda make: Rule(name, kind, version, (make.__doc__ or "").strip(), make)


_HOME: Final = "counterpoint.generation.rules"

RULES: Final = Registry(
    "rule",
    "counterpoint.rules",
    {
        "add": f"{_HOME}.additions:add",
        "bind": f"{_HOME}.swaps:bind",
        "conjuncts": f"{_HOME}.reversal:conjuncts",
        "converse": f"{_HOME}.reversal:converse",
        "crepe-negate": f"{_HOME}.negation:crepe_negate",
        "crepe-replace": f"{_HOME}.replacement:crepe_replace",
        "crepe-swap": f"{_HOME}.swaps:crepe_swap",
        "denials": f"{_HOME}.negation:denials",
        "determiners": f"{_HOME}.synonyms:determiners",
        "framing": f"{_HOME}.framing:framing",
        "fronted": f"{_HOME}.reversal:fronted",
        "hard-positives": f"{_HOME}.hard_positives:hard_positives",
        "negclip": f"{_HOME}.swaps:negclip",
        "passive": f"{_HOME}.framing:passive",
        "relative": f"{_HOME}.framing:relative",
        "shuffle": f"{_HOME}.swaps:shuffle",
        "svlc": f"{_HOME}.replacement:svlc",
        "synonyms": f"{_HOME}.synonyms:synonyms",
    },
)


# --- by name -----------------------------------------------------------------------------------

_GRAPHS: Final = "scene graphs"
_MODEL: Final = "a language model"


class Method(NamedTuple):
    """What `counterpoint ls methods` shows."""

    name: str
    kinds: tuple[Kind, ...]
    needs: str
    summary: str


GRAPH_METHODS: Final = (
    Method(
        *("vg-attribution", KINDS, _GRAPHS),
        '"the A1 O1 and the A2 O2", attributes swapped or reversed',
    ),
    Method("vg-relation", ("negative",), _GRAPHS, '"the X is REL the Y", the two swapped'),
)


class Chosen(NamedTuple):
    """The chosen methods, by how they work."""

    rules: tuple[str, ...]
    llm: tuple[str, ...]
    graphs: tuple[str, ...]


def methods(without: Collection[str] = ()) -> list[Method]:
    """All methods, without the named rules."""
    asked = map(templates.read_template, templates.names())
    return [
        *_rules(without),
        *GRAPH_METHODS,
        *(Method(one.name, (one.kind,), _MODEL, one.summary) for one in asked),
    ]


def _rules(without: Collection[str] = ()) -> list[Method]:
    rules = (RULES.get(name) for name in RULES.names() if name not in without)
    return [Method(rule.name, (rule.kind,), "", rule.summary) for rule in rules]


def chosen_methods(names: Sequence[str], kind: Kind) -> Chosen:
    """The methods of these names, each once.

    `rules`, `llm` and `trohn` stand for all of the kind. A name that ends in .toml is the path of a
    user's own template for a language model.
    """
    known = {rule.name: rule for rule in _rules()}
    groups = {"rules": [name for name, rule in known.items() if kind in rule.kinds]}
    if not set(names) <= {*groups, *groups["rules"]}:  # else no template has to be read
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
