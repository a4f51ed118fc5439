"""A language model's method: its template's steps, for many captions at once.

with LanguageModel("some-model") as model:
    method = LanguageModelMethod("llm/replace-obj", model)
    made = method.make(captions, seeds, Quiet())
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from counterpoint.generate.llm import reasons
from counterpoint.generate.llm.answers import answered, located, proposed, swapped
from counterpoint.generate.llm.estimates import Estimate, estimate
from counterpoint.generate.llm.model import LanguageModel, Reply, Request, request_of
from counterpoint.generate.llm.previews import preview
from counterpoint.generate.llm.prompts import messages, quotable, why_not
from counterpoint.generate.llm.sentences import holds, in_format_of, judge, occurrences
from counterpoint.generate.llm.templates import Step, Template, read_template
from counterpoint.generate.methods import Draft, Refusal
from counterpoint.generate.pairs import Kind
from counterpoint.progress import Progress
from counterpoint.scoring.store import digest


@dataclass(slots=True)
class _Work:
    """What is known of a caption so far."""

    caption: str
    seed: int
    values: dict[str, str] = field(default_factory=dict)  # caption, chosen, new: as asked
    result: Draft | Refusal | None = None


class LanguageModelMethod:
    """`llm/...`. Only `make` needs a server."""

    def __init__(self, name: str, model: LanguageModel) -> None:
        self.template: Template = read_template(name)
        self.name, self.model = name, model
        self.kind: Kind = self.template.kind
        self.summary = self.template.summary
        self._served: set[str] = set()

    @property
    def version(self) -> str:
        """Of the template, with the model as the server calls what has answered: that is known
        once something has been made."""
        return f"{self.template.version} {'+'.join(sorted(self._served)) or self.model.name}"

    @property
    def origin(self) -> str:
        """Of the server and the model's name. A digest: addresses are nobody else's business."""
        return digest("llm origin", self.model.where(), self.model.name).hex()[:16]

    def make(
        self, captions: Sequence[str], seeds: Sequence[int], progress: Progress
    ) -> list[list[Draft | Refusal]]:
        """A text, or why there is none, for each caption. Texts depend on the seed where the
        template has a temperature."""
        works = [_Work(c, s, {"caption": c}) for c, s in zip(captions, seeds, strict=True)]
        for work in works:
            if reason := why_not(self.template, work.caption):
                work.result = Refusal(reason)
        for number, step in enumerate(self.template.steps):
            self._ask(step, number, [work for work in works if work.result is None], progress)
        return [[work.result or Refusal(reasons.EMPTY)] for work in works]

    def estimate(self, captions: Sequence[str]) -> Estimate:
        """What asking about all of them takes at most, without what is kept already."""
        return estimate(self.template, captions)

    def dry_run(self, captions: Sequence[str], limit: int) -> Iterator[str]:
        """The prompts of the first `limit` captions, as they would be sent."""
        for caption in captions[:limit]:
            yield from preview(self.template, caption)

    def _ask(self, step: Step, number: int, works: Sequence[_Work], progress: Progress) -> None:
        if not works:
            return
        advance = progress.start(f"{self.name} {step.name}", len(works))
        requests = [self._request(step, number, work) for work in works]
        replies = self.model.ask(requests, advance)
        for work, reply in zip(works, replies, strict=True):
            if isinstance(reply, Reply):
                self._served |= {reply.model} - {""}
            work.result = self._read(step, work, reply)

    def _request(self, step: Step, number: int, work: _Work) -> Request:
        seed = _derived(work.seed, self.name, number)
        prompt = messages(step, work.values)
        return request_of(prompt, step.temperature, step.max_tokens, seed)

    def _read(self, step: Step, work: _Work, reply: Reply | Refusal) -> Draft | Refusal | None:
        """What a step has led to; None if another follows."""
        if isinstance(reply, Refusal):
            return reply
        if reply.refused:
            return Refusal(reasons.REFUSED)
        if reply.cut:
            return Refusal(reasons.CUT_OFF)
        caption = quotable(work.caption)
        if step.answer == "list":
            parts = located(reply.text, caption, step.label)
            if isinstance(parts, Refusal):
                return parts
            work.values["chosen"] = Random(_derived(work.seed, self.name, "chosen")).choice(parts)
            return None
        if step.answer == "concept":
            new = proposed(reply.text, caption, work.values["chosen"], step)
            if isinstance(new, Refusal):
                return new
            work.values["new"] = new
            return None
        sentence = (
            swapped(reply.text, caption, step.label)
            if step.answer == "swap"
            else answered(reply.text, step.label)
        )
        return sentence if isinstance(sentence, Refusal) else self._draft(work, sentence)

    def _draft(self, work: _Work, sentence: str) -> Draft | Refusal:
        text = in_format_of(work.caption, sentence)
        if refusal := judge(work.caption, text, self.template.change):
            return refusal
        chosen, new = work.values.get("chosen", ""), work.values.get("new", "")
        if new and not holds(text, new):
            return Refusal(reasons.NEW_UNUSED)
        replaces = chosen and self.template.type == "replace"
        if replaces and occurrences(text, chosen) >= occurrences(work.caption, chosen):
            return Refusal(reasons.OLD_KEPT)
        if chosen and self.template.type == "add" and not holds(text, chosen):
            return Refusal(reasons.OLD_LOST)
        return Draft(text, self.template.type, self.template.subtype)


def _derived(seed: int, *parts: object) -> int:
    """A seed of its own for every use; 31 bits, which every server takes."""
    return int.from_bytes(digest(str(seed), *map(str, parts))[:4], "little") >> 1
