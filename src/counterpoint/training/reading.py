"""Recipes as files: found by name or path, changed by key=value, all mistakes in one error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from counterpoint._util.errors import DataError, NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint._util.untrusted import parse_yaml, read_text, shortened, shown

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from counterpoint.training.recipe import Recipe


FOLDER: Final = Path(__file__).parent / "recipes"
_LISTED: Final = 20  # mistakes in a message
_WORLD: Final = "_world"  # what `--world` puts over a recipe
_WORDS: Final = FOLDER / "_words.yaml"  # what other training programs call the keys of a recipe


def recipe_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml") if not path.stem.startswith("_"))


def list_recipes() -> list[dict[str, str]]:
    """For `counterpoint ls recipes`: id, from, loss, what. Nothing heavy is loaded."""
    rows = []
    for name in recipe_names():
        values = _parse(recipe_text(name), name)
        terms = " + ".join(
            (f"{t['weight']:g} " if t.get("weight", 1) != 1 else "") + t["term"]
            for t in values["loss"]
        )
        rows.append({"id": name, "from": values["from"], "loss": terms, "what": values["what"]})
    detector = "linear heads on a frozen encoder: `counterpoint detector train`"
    rows.append({"id": "detector", "from": "BiVLC", "loss": "heads", "what": detector})
    return sorted(rows, key=lambda row: row["id"])


def recipe_text(name: str) -> str:
    """The file itself, comments and all."""
    path = Path(name).expanduser()
    if path.suffix not in (".yaml", ".yml"):
        if name == "detector":
            raise NotFoundError(
                "E-RECIPE-UNKNOWN",
                "the detector has a verb of its own: counterpoint detector train ENCODER PAIRS.",
            )
        if name not in recipe_names():
            raise NotFoundError("E-RECIPE-UNKNOWN", did_you_mean("recipe", name, recipe_names()))
        path = FOLDER / f"{name}.yaml"
    return read_text(path, "recipe")


def load_recipe(name: str, changes: Sequence[str] = (), *, world: bool = False) -> Recipe:
    """A recipe by name or path, with `key=value` changes; every mistake in one DataError.

    A key is a path: `data.path`, `lora.rank`, `loss.negatives.weight` (the term of that name), or
    a short name that the recipe itself declares under `knobs`. Values are YAML.
    """
    return check(name, merged(name, changes, world=world))


def merged(name: str, changes: Sequence[str] = (), *, world: bool = False) -> dict[str, Any]:
    """The values of a recipe with its changes, as they are written; not checked yet."""
    values = _parse(recipe_text(name), name)
    if world:
        values = _over(values, _parse(recipe_text(str(FOLDER / f"{_WORLD}.yaml")), _WORLD))
        data = values["data"]
        if isinstance(data.get("negatives"), int):
            data["negatives"] = min(data["negatives"], 1)  # the world has one per caption
        if values.get("decoder"):
            values["decoder"] = "world"
    knobs, mistakes = _knobs(values), []
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key:
            raise DataError(
                "E-RECIPE-CHANGE",
                f"{shown(change)} is not a change: write key=value, as in lr=1e-5.",
            )
        path = str(knobs.get(key, key))
        try:
            value = parse_yaml(text, shown(text)) if text else ""
            _set(values, path.split("."), value, shortened(change))
        except DataError as error:
            mistakes.append(str(error))
    if mistakes:
        try:
            check(name, values)  # all mistakes at once
        except DataError as error:
            mistakes.append(str(error))
        raise DataError("E-RECIPE-INVALID", " ".join(mistakes))
    return values


def check(name: str, values: Mapping[str, Any]) -> Recipe:
    from pydantic import ValidationError

    from counterpoint.training.recipe import Recipe

    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False)
    keys = [shortened(".".join(_named(mistake["loc"], values))) for mistake in found]
    count = "1 mistake" if len(found) == 1 else f"{len(found)} mistakes"
    more = len(found) - _LISTED
    told = "; ".join(
        _told(key, mistake, values)
        for key, mistake in zip(keys[:_LISTED], found[:_LISTED], strict=True)
    )
    told += f"; and {more:,} more" if more > 0 else ""
    end = "" if told.endswith("?") else "."
    raise DataError("E-RECIPE-INVALID", f"recipe {name}: {count}: {told}{end}")


def _knobs(values: Mapping[str, Any]) -> dict[str, Any]:
    """Short names for keys; none where something else stands there, which `check` refuses."""
    found = values.get("knobs")
    return found if isinstance(found, dict) else {}


def as_yaml(values: Mapping[str, Any]) -> str:
    """Values as a recipe file would hold them."""
    import yaml  # type: ignore[import-untyped]

    return str(yaml.safe_dump(dict(values), sort_keys=False, default_flow_style=None, width=100))


# --- YAML --------------------------------------------------------------------------------------


def _parse(text: str, name: str) -> dict[str, Any]:
    values = parse_yaml(text, f"recipe {name}")
    if not isinstance(values, dict):
        raise DataError(
            "E-RECIPE-INVALID", f"recipe {name}: a recipe is a list of keys and values."
        )
    return values


def _over(values: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Sections are merged, all else is replaced. Epochs and steps exclude each other."""
    found = dict(deepcopy(dict(values)))
    for key, value in upper.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = _over(found[key], value) if both else deepcopy(value)
    return found


def _set(values: dict[str, Any], path: Sequence[str], value: Any, change: str) -> None:
    place: Any = values
    for part in path[:-1]:
        if isinstance(place, dict):
            if place.get(part) is None:
                place[part] = {}  # `lora.rank=8` where there was no LoRA
            place = place[part]
        else:
            place = _item(place, part, change)
    if isinstance(place, list):
        place[place.index(_item(place, path[-1], change))] = value
    elif isinstance(place, dict):
        place[path[-1]] = value
        other = {"epochs": "steps", "steps": "epochs"}.get(path[-1]) if len(path) == 1 else None
        if other and value is not None:
            place.pop(other, None)
    else:
        raise DataError("E-RECIPE-CHANGE", f"{change}: {'.'.join(path[:-1])} has no keys.")


def _item(place: Any, part: str, change: str) -> Any:
    """An element of a list by its number, or a term of the loss by its name."""
    if not isinstance(place, list):
        raise DataError("E-RECIPE-CHANGE", f"{change}: there is no {part} there.")
    if part.isdecimal() and len(part) < 10 and int(part) < len(place):
        return place[int(part)]
    named = {shortened(t.get("term")): t for t in place if isinstance(t, dict)}
    if part in named:
        return named[part]
    raise DataError(
        "E-RECIPE-CHANGE", f"{change}: {did_you_mean('term of this loss', part, named)}"
    )


# --- mistakes ----------------------------------------------------------------------------------


def _told(where: str, problem: ErrorDetails, values: Mapping[str, Any]) -> str:
    if problem["type"] == "extra_forbidden":
        *above, name = map(str, problem["loc"])
        meant = _meant(name, _known_keys(above, values))
        return f"{where}: unknown key" + (f", did you mean {meant!r}?" if meant else "")
    message = problem["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:1000]
    if problem["type"] in ("missing", "value_error"):
        return f"{where}: {message}" if where else message
    return f"{where}: {message}, not {shown(problem['input'])}"


def _known_keys(above: Sequence[str], values: Mapping[str, Any]) -> dict[str, str]:
    """What a key of this section could be called, and which key that is; those of other sections
    by their paths."""
    known = {key: key for key in _keys_at(above)}
    known |= {} if above else {str(knob): str(knob) for knob in _knobs(values)}
    for section in ("", "data", "lora", "lock", "validation"):
        path = [section] if section else []
        for key in _keys_at(path):
            known.setdefault(key, ".".join([*path, key]))
    for key, words in _parse(_WORDS.read_text(encoding="utf-8"), _WORDS.name).items():
        for word in words if key in known else ():
            known.setdefault(word, known[key])
    return known


def _meant(name: str, known: Mapping[str, str]) -> str | None:
    plain = name.lower().replace("-", "_")
    close = get_close_matches(plain, known, n=1, cutoff=0.6)
    return known[plain if plain in known else close[0]] if close else None


def _named(place: Sequence[int | str], values: Mapping[str, Any]) -> list[str]:
    """The path of a value, with terms of the loss by their names."""
    parts = [str(part) for part in place]
    if len(place) > 1 and place[0] == "loss" and isinstance(place[1], int):
        term = values["loss"][place[1]]
        parts[1] = str(term.get("term", place[1])) if isinstance(term, dict) else parts[1]
    return parts


def _keys_at(path: Sequence[str]) -> list[str]:
    """The keys that the section at a path may have."""
    from counterpoint.training.recipe import DataConfig, Lock, Lora, Recipe, TermConfig, Validation

    sections = {"data": DataConfig, "loss": TermConfig, "lora": Lora, "lock": Lock}
    sections["validation"] = Validation
    section: Any = sections.get(path[0]) if path else Recipe
    fields = section.model_fields if section else {}
    return [field.alias or name for name, field in fields.items()]
