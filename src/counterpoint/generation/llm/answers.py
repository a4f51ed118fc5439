"""What a model's answer says: strictly read, for a model that chats has not understood."""

from __future__ import annotations

import re
from typing import Final

from counterpoint.generation.llm import sentences
from counterpoint.generation.llm.sentences import ARTICLES, holds, trade_places, words
from counterpoint.generation.llm.templates import Step
from counterpoint.generation.registry import Rejection

_THOUGHT: Final = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_NO: Final = re.compile(r"(?:Possible:\s*)?No\W*", re.IGNORECASE)
_MARKS: Final = " \t\"'“”‘’`*[]().;"
_NONE: Final = frozenset({"", "none", "no", "nothing", "n/a"})
_MOST_NEW: Final = 4  # words of a new concept


def answered(text: str, label: str) -> str | Rejection:
    """What stands behind the label on the one line of an answer; without a label, the line."""
    lines = _lines(text)
    if not lines:
        return Rejection(sentences.EMPTY)
    if _NO.fullmatch(lines[0]):
        return Rejection(sentences.ANSWERED_NO)
    labelled = [line for line in lines if _starts(line, label)]
    if not labelled:
        return Rejection(sentences.no_line(label))
    if len(lines) > 1:
        return Rejection(sentences.EXTRA_LINES)
    return _behind(lines[0], label)


def swapped(text: str, caption: str, label: str) -> str | Rejection:
    """The sentence of an answer of three lines: `Possible: Yes`, `Swapped: x, y`, the sentence."""
    lines = _lines(text)
    if not lines:
        return Rejection(sentences.EMPTY)
    if _NO.fullmatch(lines[0]):
        return Rejection(sentences.ANSWERED_NO)
    if not any(_starts(line, label) for line in lines):
        return Rejection(sentences.no_line(label))
    first, second, third, *more = [*lines, "", ""]
    shape = (
        first.lower() == "possible: yes" and _starts(second, "Swapped") and _starts(third, label)
    )
    if not shape or any(more):
        return Rejection(sentences.EXTRA_LINES)
    parts = listed(_behind(second, "Swapped"))
    if len(parts) != 2 or not all(holds(caption, part) for part in parts):
        return Rejection(sentences.NOT_IN_CAPTION)
    sentence = _behind(third, label)
    return sentence if trade_places(caption, sentence, *parts) else Rejection(sentences.NOT_SWAPPED)


def located(text: str, caption: str, label: str) -> list[str] | Rejection:
    """The parts that are listed and are in the caption, each once, in the order of the answer."""
    line = answered(text, label)
    if isinstance(line, Rejection):
        return line
    parts = listed(line)
    if not parts:
        return Rejection(sentences.NOTHING_LOCATED)
    return [part for part in parts if holds(caption, part)] or Rejection(sentences.NOT_IN_CAPTION)


def listed(line: str) -> list[str]:
    parts = [part.strip(_MARKS) for part in line.split(",")]
    return list(dict.fromkeys(part for part in parts if part.lower() not in _NONE))


def proposed(text: str, caption: str, chosen: str, step: Step) -> str | Rejection:
    """The new concept: a few words that are neither the old ones nor in the caption."""
    line = answered(text, step.label)
    if isinstance(line, Rejection):
        return line
    new = line.strip(_MARKS)
    if new.lower() in _NONE or not words(new):
        return Rejection(sentences.NEW_EMPTY)
    if len(words(new)) > _MOST_NEW or "," in new:
        return Rejection(sentences.NEW_TOO_LONG)
    if _core(new) == _core(chosen):
        return Rejection(sentences.NEW_SAME)
    if holds(caption, new) or holds(" ".join(_core(caption)), " ".join(_core(new))):
        return Rejection(sentences.NEW_KNOWN)
    return new


def _core(text: str) -> list[str]:
    """Without articles, and without the s of a plural: "a dog" is no other thing than "dogs"."""
    found = [word for word in words(text) if word not in ARTICLES]
    return [word.removesuffix("s") if len(word) > 3 else word for word in found]


def _lines(text: str) -> list[str]:
    lines = _THOUGHT.sub("", text).splitlines()
    return [line for line in (" ".join(line.split()) for line in lines) if line]


def _starts(line: str, label: str) -> bool:
    return not label or line.lower().startswith(f"{label.lower()}:")


def _behind(line: str, label: str) -> str:
    return line[len(label) + 1 :].strip() if label else line
