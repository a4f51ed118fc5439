"""The prompts as they would be sent: what `--dry-run` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from counterpoint.generate.llm.prompts import messages, quotable, why_not
from counterpoint.generate.llm.templates import Template

_CHOSEN: Final = "<one of the answers to {}>"
_NEW: Final = "<the answer to {}>"


def preview(template: Template, caption: str) -> Iterator[str]:
    """One text a step; what depends on an answer stands in angle brackets."""
    if reason := why_not(template, caption):
        yield f"# {template.name}: nothing is asked about {quotable(caption)!r:.80}: {reason}"
        return
    values = {"caption": caption}
    for number, step in enumerate(template.steps, 1):
        head = (
            f"# {template.name} {template.version}, step {number} of {len(template.steps)}: "
            f"{step.name}, temperature {step.temperature:g}, at most {step.max_tokens} tokens"
        )
        turns = [f"[{m['role']}]\n{m['content']}" for m in messages(step, values)]
        yield "\n".join([head, *turns])
        if step.answer == "list":
            values["chosen"] = _CHOSEN.format(step.name)
        elif step.answer == "concept":
            values["new"] = _NEW.format(step.name)
