"""`counterpoint ls`: list benchmarks, methods, models, protocols and recipes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from counterpoint.cli.console import AsJson, output, print_json

_PACKAGES = {"vlm": ("transformers", "accelerate", "sentencepiece", "openai")}
_ONLY_JSON = ("images", "ids", "chance", "paper", "licence", "note")  # too much for a terminal


class Listing(StrEnum):
    benchmarks = "benchmarks"
    methods = "methods"
    models = "models"
    protocols = "protocols"
    recipes = "recipes"


def ls(
    kind: Annotated[
        Listing | None, typer.Argument(help="What to list; everything if left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List benchmarks, methods of making pairs, models, protocols and training recipes.

    Example:

    counterpoint ls models
    """
    from counterpoint.runs import Sheet

    kinds = [kind] if kind else list(Listing)
    listed = {chosen: _rows(chosen) for chosen in kinds}
    if as_json:
        print_json([{"kind": k, **row} for k, rows in listed.items() for row in rows])
        return
    for chosen, rows in listed.items():
        names = [name for name in rows[0] if name not in _ONLY_JSON]
        sheet = Sheet({name: "id" if name == "id" else "name" for name in names}, chosen.value)
        for row in rows:
            sheet.add(*(row[name] for name in names))
        output.print(sheet)


def _rows(kind: Listing) -> list[dict[str, str]]:
    if kind is Listing.benchmarks:
        return _benchmarks()
    if kind is Listing.models:
        return _models()
    if kind is Listing.methods:
        return _methods()
    if kind is Listing.recipes:
        from counterpoint.training import list_recipes

        return list_recipes()
    from counterpoint.metrics import PROTOCOLS

    return [{"id": p.name, "what": p.summary, "detail": p.describe()} for p in PROTOCOLS.values()]


def _benchmarks() -> list[dict[str, str]]:
    from counterpoint.benchmarks import BENCHMARKS, Benchmark
    from counterpoint.cases import read_cases

    broken = BENCHMARKS.broken()
    found = [BENCHMARKS.get(name) for name in BENCHMARKS.names() if name not in broken]
    about = ("FILE.jsonl", "your own cases (see docs/concepts/cases.md)", "any", "strict")
    own = Benchmark(*about, lambda _: read_cases("FILE.jsonl"), ids="those of the file")
    rows = [
        {
            "id": b.id,
            "shape": b.shape,
            "cases": "" if b.count is None else f"{b.count:,}",
            "protocol": b.protocol,
            "what": b.summary + _options(b.defaults) + (f" [{b.note}]" if b.note else ""),
            **{name: getattr(b, name) for name in _ONLY_JSON},
        }
        for b in (*found, own)
    ]
    return _with_broken(rows, broken)


def _options(defaults: Mapping[str, Any]) -> str:
    known = ", ".join(f"{key}={value}" for key, value in defaults.items())
    return f" (options: {known})" if known else ""


def _methods() -> list[dict[str, str]]:
    from counterpoint.generation import RULES, methods

    broken = RULES.broken()
    rows = []
    for m in methods(without=broken):
        makes = " and ".join(f"{kind}s" for kind in m.kinds)
        rows.append({"id": m.name, "makes": makes, "what": m.summary, "needs": m.needs})
    return _with_broken(rows, broken)


def _models() -> list[dict[str, str]]:
    from counterpoint.models import EXAMPLES, FAMILIES

    known = {id.partition(":")[0] for id in EXAMPLES}
    broken = FAMILIES.broken()
    rows = [
        {"id": id, "what": example.what, "needs": _needs(example.extra)}
        for id, example in EXAMPLES.items()
    ]
    plugins = [name for name in FAMILIES.names() if name not in {*known, *broken}]
    about = {"what": "from an installed plug-in", "needs": ""}
    return _with_broken([*rows, *({"id": f"{name}:...", **about} for name in plugins)], broken)


def _with_broken(rows: list[dict[str, str]], broken: Mapping[str, str]) -> list[dict[str, str]]:
    """The rows, and one for each plug-in that cannot be imported."""
    blank = dict.fromkeys(rows[0], "")
    return rows + [{**blank, "id": name, "what": f"broken: {broken[name]}"} for name in broken]


def _needs(extra: str) -> str:
    """The pip command of an extra, unless it is installed."""
    if not extra:
        return ""
    command = f"pip install 'counterpoint[{extra}]'"
    return f"[{extra}], installed" if all(map(find_spec, _PACKAGES[extra])) else command
