"""What a language model is asked: one TOML file per method, versioned, and checked when it is read.

    version, kind, type, subtype, summary, group
    [caption]   fewest_words, most_words, needs: which captions are asked about
    [change]    measure, least, share: how much of the caption may change (answers.py)
    [[steps]]   name, answer, label, labels, temperature, max_tokens, instruction, ask, shots,
                more_shots

`ask` holds `{caption}`, `{chosen}` and `{new}`: the caption, what was located in it, and what was
proposed instead. `answer` is the form of the answer (answers.py): a `list` of parts of the caption,
a new `concept`, a `sentence`, a `swap`, or a `chain`: all of list, choice, concept and sentence in
one answer of four lines, which start with `labels`; those of a `swap` are three. `more_shots` are
asked for with `--shots`.

The files of this package are the methods `llm/NAME`. A user's own file is given by its path.

A caption is data: in a prompt it stands in quotation marks on one line, and no caption can close
them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from hashlib import blake2b
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal, get_args

from counterpoint._util.errors import DataError, NotFoundError, reason
from counterpoint._util.registry import did_you_mean
from counterpoint._util.untrusted import open_regular, shortened, shown
from counterpoint.generation.pairs import KINDS, SUBTYPES, TYPES, Kind, Type

PREFIX: Final = "llm/"
ENDING: Final = ".toml"
MOST_WORDS: Final = 60  # of a caption: with the change, they fit into any answer
AnswerForm = Literal["list", "concept", "sentence", "swap", "chain"]
Measure = Literal["words", "bag"]
Message = dict[str, str]  # role, content
SENTENCES: Final = ("sentence", "swap", "chain")  # answers that repeat the caption
_PLACE: Final = re.compile(r"\{(caption|chosen|new)\}")


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
    more_shots: tuple[Shot, ...] = ()
    labels: tuple[str, ...] = ()  # of the four lines of a chain, or the three of a swap


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
    group: str = "llm"

    def with_shots(self, count: int) -> Template:
        """The template with this number of examples in every step; its version says so."""
        steps = []
        for step in self.steps:
            known = (*step.shots, *step.more_shots)
            if count > len(known):
                raise DataError(
                    "E-SHOTS-MISSING",
                    f"{self.name}: the step {step.name!r} has {len(known)} examples, not {count}.",
                )
            steps.append(replace(step, shots=known[:count], more_shots=known[count:]))
        return replace(self, steps=tuple(steps), version=f"{self.version}+{count}-shots")


def quotable(text: str) -> str:
    """The text on one line, without the quotation mark that would end the quotation."""
    printable = "".join(mark if mark.isprintable() else " " for mark in text)
    return " ".join(printable.replace('"', "'").split())


def filled(text: str, values: Mapping[str, str]) -> str:
    """The question with its places filled. What was filled in is never filled in again."""
    return _PLACE.sub(lambda place: quotable(values[place[1]]), text)


def messages(step: Step, values: Mapping[str, str]) -> list[Message]:
    """The instruction, then the shots as turns of a dialogue, then the question.

    What is the same for every caption comes first, so that a server can cache it. There is no
    system message, because some models do not support it.
    """
    turns: list[Message] = []
    for shot in step.shots:
        given = {"caption": shot.caption, "chosen": shot.chosen, "new": shot.new}
        turns.append({"role": "user", "content": filled(step.ask, given)})
        turns.append({"role": "assistant", "content": shot.answer})
    turns.append({"role": "user", "content": filled(step.ask, values)})
    turns[0]["content"] = f"{step.instruction}\n\n{turns[0]['content']}"
    return turns


@cache
def names() -> tuple[str, ...]:
    """The names of all methods, sorted: `llm/add-att`, ..."""
    files = resources.files(__package__).joinpath("templates").iterdir()
    stems = [file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")]
    return tuple(sorted(PREFIX + name for name in stems))


def read_template(name: str) -> Template:
    """The template of a method, or of a user's own file: a path that ends in .toml.

    The name of a user's template is its file name with a digest of what it holds.
    """
    if not name.endswith(ENDING):
        return _packaged(name)
    path = Path(name)
    try:
        with open_regular(path) as file:
            content = file.read(_MOST_BYTES)
        own = f"{PREFIX}{path.stem}@{blake2b(content, digest_size=4).hexdigest()}"
        return parse_template(own, tomllib.loads(content.decode()))
    except FileNotFoundError:
        raise DataError("E-FILE-MISSING", f"{path}: no such file.") from None
    except OSError as error:
        raise DataError("E-FILE-UNREADABLE", f"{path}: cannot be read: {reason(error)}.") from None
    except (ValueError, RecursionError) as error:  # TOML, UTF-8 or the template
        raise DataError(
            "E-TEMPLATE-INVALID", f"{path}: not a template: {shortened(error)}."
        ) from None


@cache
def _packaged(name: str) -> Template:
    if name not in names():
        raise NotFoundError(
            "E-METHOD-UNKNOWN", did_you_mean("language model method", name, names())
        )
    file = resources.files(__package__).joinpath("templates", f"{name.removeprefix(PREFIX)}.toml")
    return parse_template(name, tomllib.loads(file.read_text(encoding="utf-8")))


def parse_template(name: str, data: Mapping[str, Any]) -> Template:
    """Raises a ValueError that says what is wrong."""
    about = {**data, "name": name, "steps": ()}
    about |= _table(about.pop("caption", {}), "caption")
    change = ChangeLimit(**_fitting(ChangeLimit, about.get("change"), "change"))
    tables = data.get("steps")
    if not isinstance(tables, list) or not tables:
        raise ValueError("it has no [[steps]]")
    steps = tuple(_step(table, number) for number, table in enumerate(tables, 1))
    template = Template(
        **_fitting(Template, about, "the file") | {"change": change, "steps": steps}
    )
    for part, field, known in (
        (template, "kind", KINDS),
        (template, "type", TYPES),
        (template, "subtype", SUBTYPES),
        (change, "measure", get_args(Measure)),
    ):
        if getattr(part, field) not in known:
            raise ValueError(f"{field} is {shown(getattr(part, field))}, not one of {known}")
    _check_order(steps)
    return template


def _check_order(steps: tuple[Step, ...]) -> None:
    """What a question holds must be known by then, and only the last answer is a sentence."""
    known = {"caption"}
    for step in steps:
        places = set(re.findall(r"\{(\w+)\}", step.ask))
        if "caption" not in places or not places <= known:
            allowed = ", ".join(f"{{{place}}}" for place in sorted(known))
            raise ValueError(
                f"'ask' of the step {step.name!r} holds {{caption}}, and nothing else in braces "
                f"than {allowed}"
            )
        if (step.answer in SENTENCES) != (step is steps[-1]):
            raise ValueError("the last step, and no other, is answered by a sentence")
        known |= {{"list": "chosen", "concept": "new"}.get(step.answer, "caption")}
        if step.answer == "concept" and "chosen" not in known:
            raise ValueError("a concept is proposed after a list was located")


def _step(data: Any, number: int) -> Step:
    where = f"step {number}"
    table = _fitting(Step, data, where)
    for key in ("shots", "more_shots"):
        shots = table.get(key, ())
        table[key] = tuple(Shot(**_fitting(Shot, shot, f"a shot of {where}")) for shot in shots)
    table |= {key: table[key].strip() for key in ("instruction", "ask")}
    table["labels"] = tuple(map(str, table.get("labels", ())))
    step = Step(**table)
    if step.answer not in get_args(AnswerForm):
        raise ValueError(f"{where}: no answer is a {shown(step.answer)}")
    if step.answer == "chain" and (len(step.labels) != 4 or step.labels[-1] != step.label):
        raise ValueError(f"{where}: a chain has four labels, the last of which is its label")
    three = len(step.labels) == 3 and all(step.labels[1:])
    if step.answer == "swap" and step.labels and not three:
        raise ValueError(
            f"{where}: the labels of a swap are three: of Yes (which may be empty), of the two "
            "parts and of the sentence"
        )
    if step.answer in ("list", "concept") and not step.label:
        raise ValueError(f"{where}: a {step.answer} needs a label")
    if not 0 <= step.temperature <= 2 or step.max_tokens < 1:
        raise ValueError(f"{where}: a temperature is from 0 to 2, max_tokens is positive")
    return step


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} should be a table, it is {shown(value)}")
    return dict(value)


def _fitting(kind: type[Any], value: Any, where: str) -> dict[str, Any]:
    """The table, if it has the fields of this class and their types, and no others."""
    table, known = _table(value, where), {field.name: field for field in fields(kind)}
    for name, field in known.items():
        if name not in table and field.default is MISSING:
            raise ValueError(f"{where} has no {name!r}")
    for name, item in table.items():
        if name not in known:
            raise ValueError(f"{where} has {shown(name)}, which is not one of {', '.join(known)}")
        wanted = _TYPES.get(str(known[name].type))
        if wanted and (not isinstance(item, wanted) or isinstance(item, bool)):
            raise ValueError(f"{name!r} of {where} is {shown(item)}, which is of another type")
    return table


_TYPES: Final[dict[str, tuple[type, ...]]] = {
    **dict.fromkeys(["str", "AnswerForm", "Measure", "Kind", "Type"], (str,)),
    **dict.fromkeys(["tuple[Shot, ...]", "tuple[str, ...]"], (list,)),
    "int": (int,),
    "float": (int, float),
}
_MOST_BYTES: Final = 2**20
