"""What a language model is asked: one TOML file per method, versioned, and checked when it is read.

    version, kind, type, subtype, summary
    [caption]   fewest_words, most_words, needs: which captions are asked about
    [change]    measure, least, share: how much of the caption may change (answers.py)
    [[steps]]   name, answer, label, temperature, max_tokens, instruction, ask, shots

`ask` and the instruction hold `{caption}`, `{chosen}` and `{new}`: the caption, what was located
in it, and what was proposed instead. `answer` is the form of the answer (answers.py): a `list` of
parts of the caption, a new `concept`, a `sentence`, or a `swap`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, Literal, get_args

from counterpoint._util.errors import NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint.generation.pairs import KINDS, SUBTYPES, TYPES, Kind, Type

PREFIX: Final = "llm/"
MOST_WORDS: Final = 60  # of a caption: with the change, they fit into any answer
AnswerForm = Literal["list", "concept", "sentence", "swap"]
Measure = Literal["words", "bag"]


@dataclass(frozen=True, slots=True)
class Shot:
    """An example of a question with its correct answer."""

    answer: str
    caption: str
    chosen: str = ""
    new: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One question to the model."""

    name: str
    answer: AnswerForm
    label: str  # what the answer's line starts with; empty: it is the sentence alone
    temperature: float
    max_tokens: int
    instruction: str
    ask: str
    shots: tuple[Shot, ...]


@dataclass(frozen=True, slots=True)
class ChangeLimit:
    """At most `least` words may change, or this share of the caption's if that is more."""

    measure: Measure
    least: int
    share: float


@dataclass(frozen=True, slots=True)
class Template:
    """A method's questions, in order."""

    name: str
    version: str
    kind: Kind
    type: Type
    subtype: str
    summary: str
    change: ChangeLimit
    steps: tuple[Step, ...]
    fewest_words: int = 1
    most_words: int = MOST_WORDS
    needs: str = ""


@cache
def names() -> tuple[str, ...]:
    """The names of all methods, sorted: `llm/add-att`, ..."""
    files = resources.files(__package__).joinpath("templates").iterdir()
    found = [file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")]
    return tuple(sorted(PREFIX + name for name in found))


@cache
def read_template(name: str) -> Template:
    """The template of a method."""
    if name not in names():
        raise NotFoundError(
            "E-METHOD-UNKNOWN", did_you_mean("language model method", name, names()), name=name
        )
    file = resources.files(__package__).joinpath("templates", f"{name.removeprefix(PREFIX)}.toml")
    return parse_template(name, tomllib.loads(file.read_text(encoding="utf-8")))


def parse_template(name: str, data: Mapping[str, Any]) -> Template:
    """Raises ValueError, TypeError or KeyError if malformed: the files belong to this package."""
    more = {key: value for key, value in data.items() if key not in ("caption", "change", "steps")}
    found = Template(
        name=name,
        **more,
        **data.get("caption", {}),
        change=ChangeLimit(**data["change"]),
        steps=tuple(_step(step) for step in data["steps"]),
    )
    known = found.kind in KINDS and found.type in TYPES and found.subtype in SUBTYPES
    if not known or found.change.measure not in get_args(Measure):
        raise ValueError(f"{name}: an unknown kind, type, subtype or measure")
    if not found.steps or found.steps[-1].answer not in ("sentence", "swap"):
        raise ValueError(f"{name}: the last step must make a sentence")
    return found


def _step(data: Mapping[str, Any]) -> Step:
    texts = {key: data[key].strip() for key in ("instruction", "ask")}
    step = Step(**{**data, **texts, "shots": tuple(Shot(**shot) for shot in data["shots"])})
    if step.answer not in get_args(AnswerForm):
        raise ValueError(f"{step.name}: no answer is a {step.answer!r}")
    return step
