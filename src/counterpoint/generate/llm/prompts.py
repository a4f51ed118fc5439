"""From a caption to messages. A caption is data: it stands in quotes on one line, and no caption
can end them. What is filled in is never filled in again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from counterpoint.generate.llm import reasons
from counterpoint.generate.llm.sentences import words
from counterpoint.generate.llm.templates import Step, Template

Message = dict[str, str]
_PLACE: Final = re.compile(r"\{(caption|chosen|new)\}")
_LATIN: Final = 0.5  # of a caption's letters at least


def why_not(template: Template, caption: str) -> str | None:
    """The reason not to ask about this caption, if there is one."""
    found = words(caption)
    letters = [letter for letter in caption if letter.isalpha()]
    if not found or not letters:
        return reasons.NO_WORDS
    if sum(letter < "\u0250" for letter in letters) < _LATIN * len(letters):
        return reasons.OTHER_LETTERS
    if len(found) < template.fewest_words:
        return reasons.TOO_FEW_WORDS
    # An answer is as long as the caption, and a word is a token at least.
    if len(found) > min(template.most_words, template.steps[-1].max_tokens):
        return reasons.TOO_MANY_WORDS
    if template.needs and template.needs not in found:
        return reasons.needs(template.needs)
    return None


def quotable(text: str) -> str:
    """On one line, and without the quotation mark that ends a quotation."""
    printable = "".join(mark if mark.isprintable() else " " for mark in text)
    return " ".join(printable.replace('"', "'").split())


def messages(step: Step, values: Mapping[str, str]) -> list[Message]:
    """The instruction, the shots as turns of a talk, and the question last.

    All that is the same for every caption comes first, so that a server can keep it. There is no
    system message: some models know none.
    """
    found: list[Message] = []
    for shot in step.shots:
        given = {"caption": shot.caption, "chosen": shot.chosen, "new": shot.new}
        found.append({"role": "user", "content": filled(step.ask, given)})
        found.append({"role": "assistant", "content": shot.answer})
    found.append({"role": "user", "content": filled(step.ask, values)})
    found[0]["content"] = f"{step.instruction}\n\n{found[0]['content']}"
    return found


def filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda place: quotable(values[place[1]]), text)
