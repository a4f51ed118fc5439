"""The methods that users can name: `counterpoint ls methods`, `-M NAME`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from counterpoint._util.errors import NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint.generation.llm import templates
from counterpoint.generation.pairs import Kind
from counterpoint.generation.registry import RULES

ALL_RULES: Final = "rules"


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
    """The methods of these names, each once.

    `rules`, `llm` and `trohn` stand for all of the kind. A name that ends in .toml is the path of a
    user's own template for a language model.
    """
    known = {method.name: method for method in methods()}
    groups = {ALL_RULES: [m.name for m in known.values() if kind in m.kinds and not m.needs]}
    for name in templates.names():
        group = groups.setdefault(templates.read_template(name).group, [])
        group += [name] * (kind in known[name].kinds)
    for name in names:
        if name.endswith(templates.ENDING):
            own = templates.read_template(name)
            known[name] = Method(name, (own.kind,), "a language model", own.summary)
    wanted = dict.fromkeys(name for given in names for name in groups.get(given, [given]))
    for name in wanted:
        if name not in known:
            raise NotFoundError("E-METHOD-UNKNOWN", did_you_mean("method", name, [*known, *groups]))
        if kind not in known[name].kinds:
            fitting = ", ".join(m.name for m in known.values() if kind in m.kinds)
            raise NotFoundError(
                "E-METHOD-KIND", f"{name} does not make {kind}s; these do: {fitting}."
            )
    by_need = {need: tuple(n for n in wanted if known[n].needs == need) for need in _NEEDS}
    if by_need["scene graphs"] and len(by_need["scene graphs"]) < len(wanted):
        raise NotFoundError(
            "E-METHODS-MIXED",
            f"{by_need['scene graphs'][0]} reads scene graphs and the other methods read captions; "
            "run one command for each.",
        )
    return Chosen(by_need[""], by_need["a language model"], by_need["scene graphs"])


_NEEDS: Final = ("", "a language model", "scene graphs")
