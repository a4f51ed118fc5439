"""A method that asks a language model: the steps of its template, for many captions at once.

    with ChatModel("some-model") as model:
        method = ChatMethod("llm/replace-obj", model)
        made = method.make(captions, seeds, Quiet())

It can also say what the requests will cost (`estimate`) and show the prompts (`dry_run`), both
without a server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import fmean
from typing import Final, NamedTuple

from counterpoint._util.progress import Progress
from counterpoint._util.store import digest
from counterpoint.generation.llm import answers
from counterpoint.generation.llm.answers import (
    answered,
    chained,
    holds,
    holds_apart,
    in_format_of,
    judge,
    located,
    occurrences,
    proposed,
    swapped,
    without_question,
)
from counterpoint.generation.llm.model import (
    ChatModel,
    Reply,
    Request,
    filled,
    messages,
    quotable,
    request_of,
    why_not,
)
from counterpoint.generation.llm.templates import Step, Template, read_template
from counterpoint.generation.pairs import FINISHED, Kind
from counterpoint.generation.registry import Draft, Rejection
from counterpoint.models.api import read_price

_CHOSEN: Final = "<one of the answers to {}>"
_NEW: Final = "<the answer to {}>"
_REPEATING: Final = ("sentence", "swap", "chain")  # answers that repeat the caption
_CHARACTERS: Final = 4  # a token
_FRAME: Final = 4  # tokens around a message


class CostEstimate(NamedTuple):
    """An upper bound for a number of captions. `cost` is in the unit of the price, if there is one.

    Requests: one per caption and step; a caption may end before its last step. Tokens: one per four
    characters, which is about right for English, and four per message for its frame. The answer to
    a step is taken to be as long as the answers of its shots on average; where it repeats the
    caption, its length changes with the caption's.
    """

    requests: int
    tokens_in: int
    tokens_out: int
    cost: float | None


def _prompt_characters(step: Step) -> tuple[int, bool]:
    """The length of a prompt without the caption, and whether the answer repeats the caption."""
    example = max((shot.chosen for shot in step.shots), key=len, default="")
    empty = messages(step, {"caption": "", "chosen": example, "new": example})
    return sum(len(m["content"]) for m in empty), step.answer in _REPEATING


def _extra(step: Step) -> float:
    """The characters of an answer in addition to the caption."""
    shots = [shot for shot in step.shots if not shot.answer.endswith("No")]
    if step.answer in _REPEATING:
        return fmean([len(shot.answer) - len(shot.caption) for shot in shots] or [0])
    return fmean([len(shot.answer) for shot in shots] or [0])


@dataclass(slots=True)
class _Work:
    """The state of one caption."""

    caption: str
    seed: int
    values: dict[str, str] = field(default_factory=dict)  # caption, chosen, new: as asked
    result: Draft | Rejection | None = None


class ChatMethod:
    """A method `llm/...`, or a user's template by its path. Only `make` needs a server.

    `shots`: how many examples a prompt has; None: as the template says.
    """

    def __init__(self, name: str, model: ChatModel, shots: int | None = None) -> None:
        found = read_template(name)
        self.template: Template = found if shots is None else found.with_shots(shots)
        self.name, self.model = self.template.name, model
        self.kind: Kind = self.template.kind
        self.summary = self.template.summary
        self._served: set[str] = set()

    @property
    def version(self) -> str:
        """The version of the template, and the model's name as the server answers it."""
        return f"{self.template.version} {'+'.join(sorted(self._served)) or self.model.name}"

    @property
    def origin(self) -> str:
        """A digest of the server's address and the model's name: addresses are private."""
        return digest("llm origin", self.model.where(), self.model.name).hex()[:16]

    def make(
        self, captions: Sequence[str], seeds: Sequence[int], progress: Progress
    ) -> list[list[Draft | Rejection]]:
        """A text, or the reason why there is none, for each caption.

        Texts depend on the seed if the template has a temperature.
        """
        works = [_Work(c, s, {"caption": c}) for c, s in zip(captions, seeds, strict=True)]
        for work in works:
            if reason := why_not(self.template, work.caption):
                work.result = Rejection(reason)
        for number, step in enumerate(self.template.steps):
            self._ask(step, number, [work for work in works if work.result is None], progress)
        return [[work.result or Rejection(answers.EMPTY)] for work in works]

    def estimate(self, captions: Sequence[str]) -> CostEstimate:
        """An upper bound for these captions. Stored answers are not subtracted."""
        asked = [caption for caption in captions if why_not(self.template, caption) is None]
        tokens_in, tokens_out = 0.0, 0.0
        characters = sum(map(len, asked))
        for step in self.template.steps:
            fixed, repeats = _prompt_characters(step)
            tokens_in += _FRAME * len(asked) * (2 * len(step.shots) + 1)
            tokens_in += (fixed * len(asked) + characters) / _CHARACTERS
            tokens_out += (_extra(step) * len(asked) + repeats * characters) / _CHARACTERS
        price = read_price("llm")
        cost = None if price is None else (tokens_in * price[0] + tokens_out * price[1]) / 1e6
        return CostEstimate(
            len(asked) * len(self.template.steps), round(tokens_in), round(tokens_out), cost
        )

    def dry_run(self, captions: Sequence[str], limit: int) -> Iterator[str]:
        """The prompts of the first `limit` captions, as they would be sent."""
        for caption in captions[:limit]:
            yield from self._prompts(caption)

    def _prompts(self, caption: str) -> Iterator[str]:
        """One prompt per step; what depends on an answer is in angle brackets."""
        template = self.template
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

    def _read(self, step: Step, work: _Work, reply: Reply | Rejection) -> Draft | Rejection | None:
        """The result of a step; None if another step follows."""
        if isinstance(reply, Rejection):
            return reply
        if reply.refused:
            return Rejection(answers.REFUSED)
        if reply.cut:
            return Rejection(answers.CUT_OFF)
        caption = quotable(work.caption)
        text = without_question(reply.text, step.ask, filled(step.ask, work.values))
        if step.answer == "list":
            parts = located(text, caption, step.label)
            if isinstance(parts, Rejection):
                return parts
            work.values["chosen"] = Random(_derived(work.seed, self.name, "chosen")).choice(parts)
            return None
        if step.answer == "concept":
            new = proposed(text, caption, work.values["chosen"], step)
            if isinstance(new, Rejection):
                return new
            work.values["new"] = new
            return None
        if step.answer == "chain":
            parts_and_sentence = chained(text, caption, step)
            if isinstance(parts_and_sentence, Rejection):
                return parts_and_sentence
            work.values["chosen"], work.values["new"], sentence = parts_and_sentence
            return self._draft(work, sentence)
        read = swapped(text, caption, step) if step.answer == "swap" else answered(text, step.label)
        return read if isinstance(read, Rejection) else self._draft(work, read)

    def _draft(self, work: _Work, sentence: str) -> Draft | Rejection:
        text = in_format_of(work.caption, sentence)
        if rejection := judge(work.caption, text, self.template.change):
            return rejection
        chosen, new = work.values.get("chosen", ""), work.values.get("new", "")
        if new and not holds(text, new):
            return Rejection(answers.NEW_UNUSED)
        replaces = chosen and self.template.type == "replace"
        if replaces and occurrences(text, chosen) >= occurrences(work.caption, chosen):
            return Rejection(answers.OLD_KEPT)
        if chosen and self.template.type == "add" and not holds_apart(text, chosen):
            return Rejection(answers.OLD_LOST)
        finished = re.search(FINISHED, sentence) is not None
        return Draft(text, self.template.type, self.template.subtype, sentence=finished)


def _derived(seed: int, *parts: object) -> int:
    """One seed per use, of 31 bits, which every server accepts."""
    return int.from_bytes(digest(str(seed), *map(str, parts))[:4], "little") >> 1
