"""The methods that users can name: `counterpoint ls methods`, `-M NAME`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from counterpoint._util.errors import NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint.generation.llm import templates
from counterpoint.generation.pairs import Kind
from counterpoint.generation.registry import GRAPH_METHODS, RULES

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
