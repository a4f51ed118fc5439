"""A method that asks a served language model: the steps of its template, for many captions at once.

    with ChatModel("some-model") as model:
        drafts = ChatMethod("llm/replace-obj", model).make(captions, seeds)

An answer is stored under a digest of the server's address, the model and the request (messages,
temperature, token limit, seed) as soon as it arrives. So no request is sent twice, and a killed
process loses only the requests in flight.

A method can also say what the requests will cost (`estimate`) and show the prompts (`prompts`),
both without a server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from counterpoint._util.errors import MissingExtraError
from counterpoint._util.progress import Progress
from counterpoint._util.store import Store, default_store, digest
from counterpoint.generation.inputs.captions import Captions
from counterpoint.generation.llm import answers
from counterpoint.generation.llm.answers import UnusableAnswerError
from counterpoint.generation.llm.templates import (
    SENTENCES,
    Step,
    Template,
    filled,
    messages,
    quotable,
    read_template,
)
from counterpoint.generation.pairs import FINISHED, Draft, Rejection
from counterpoint.models.api import ChatAnswer, Endpoint, read_answer, read_endpoint, read_price

if TYPE_CHECKING:
    from counterpoint.models.api import Client

_SAMPLE: Final = 1000  # captions used for an estimate
_FIRST_RETRIES: Final = 2  # few: after a mistyped address the wait should be short
_ROOM: Final = 4096  # tokens for a model that reasons before it answers
_LATIN: Final = 0.5  # minimum share of Latin letters in a caption
_CHARACTERS: Final = 4  # a token
_FRAME: Final = 4  # tokens around a message


@dataclass(frozen=True, slots=True)
class Request:
    """A request. The seed is None at temperature 0, where it has no effect."""

    messages: tuple[tuple[str, str], ...]  # role, content
    temperature: float
    max_tokens: int
    seed: int | None = None

    def forms(self) -> list[dict[str, Any]]:
        """The parameters in the forms that are tried in turn, as endpoints accept different ones.

        Not all accept a seed, and reasoning models accept no temperature and have another name for
        the limit.
        """
        usual = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        seeded = usual if self.seed is None else usual | {"seed": self.seed}
        return [seeded, usual, {"max_completion_tokens": _ROOM + self.max_tokens}]


@dataclass(frozen=True, slots=True)
class Reply(ChatAnswer):
    """An answer, and whether it was cut off."""

    cut: bool = False


def read_reply(data: Mapping[str, Any]) -> Reply:
    answer, choice = asdict(read_answer(data)), data["choices"][0]
    # Half of a surrogate pair cannot be written.
    text = answer["text"].encode(errors="replace").decode()
    cut = choice.get("finish_reason") == "length"
    return Reply(**answer | {"text": text, "first": (), "cut": cut})


class ChatModel:
    """A model by its name at OPENAI_BASE_URL. Nothing is opened or sent before the first `ask`.

    All methods of a run share one, because a folder of answers can be opened once per process.
    """

    def __init__(self, name: str, answers: Path | None = None) -> None:
        self.name = name
        self.folder = answers or default_store().with_name("answers")
        self.form: int | None = None  # which of the forms of a request the endpoint accepts

    @cached_property
    def endpoint(self) -> Endpoint:
        return read_endpoint(f"language model {self.name}")

    @cached_property
    def client(self) -> Client:
        try:
            from counterpoint.models.api import Client
        except ImportError:
            raise MissingExtraError("llm/...", "generate") from None
        return Client(self.endpoint)

    @cached_property
    def store(self) -> Store:
        return Store(self.folder)

    def __enter__(self) -> ChatModel:
        return self

    def __exit__(self, *error: Any) -> None:
        if "store" in vars(self):
            vars(self).pop("store").__exit__(*error)

    def ask(self, requests: Sequence[Request]) -> list[Reply | None]:
        """One answer per request, in order; None where the server rejects the request.

        Only requests without a stored answer are sent.
        """
        keys = [self._key(request) for request in requests]
        stored = zip(keys, self.store.get(keys), strict=True)
        replies: dict[bytes, Reply | None] = {
            key: Reply(**json.loads(value)) for key, value in stored if value is not None
        }
        missing = {k: r for k, r in zip(keys, requests, strict=True) if k not in replies}
        if missing and self.form is None:
            key = next(iter(missing))
            self.form, replies[key] = self._first(key, missing.pop(key))
        if missing and self.form is not None:
            for key, reply in zip(missing, self._chat(missing, self.form), strict=True):
                replies[key] = reply if isinstance(reply, Reply) else None
        return [replies[key] for key in keys]

    def _first(self, key: bytes, request: Request) -> tuple[int, Reply]:
        """Send one request alone, to find the parameters that the endpoint accepts."""
        for form, _ in enumerate(request.forms()):
            [reply] = self._chat({key: request}, form, retries=_FIRST_RETRIES)
            if isinstance(reply, Reply):
                return form, reply
        raise reply

    def _chat(self, missing: Mapping[bytes, Request], form: int, **how: int) -> list[Any]:
        """The answers to requests, each of which is stored as it comes, or errors."""
        keys = list(missing)

        def keep(place: int, reply: Reply) -> None:
            value = {name: part for name, part in asdict(reply).items() if name != "first"}
            self.store.put({keys[place]: json.dumps(value).encode()})

        bodies = []
        for request in missing.values():
            turns = [{"role": role, "content": content} for role, content in request.messages]
            bodies.append({"model": self.name, "messages": turns, **request.forms()[form]})
        return self.client.chat(bodies, read_reply, keep, **how)

    def where(self) -> str:
        """The server's address without secrets."""
        return self.endpoint.shown()

    def _key(self, request: Request) -> bytes:
        return digest("llm 2", self.where(), self.name, json.dumps(asdict(request)))


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
        template = read_template(name)
        self.template: Template = template if shots is None else template.with_shots(shots)
        self.name, self.model = self.template.name, model
        self._served: set[str] = set()

    @property
    def version(self) -> str:
        """The version of the template, and the model's name as the server answers it."""
        return f"{self.template.version} {'+'.join(sorted(self._served)) or self.model.name}"

    @property
    def origin(self) -> str:
        """A digest of the server's address and the model's name: addresses are private."""
        return digest("llm origin", self.model.where(), self.model.name).hex()[:16]

    def make(self, captions: Sequence[str], seeds: Sequence[int]) -> list[list[Draft | Rejection]]:
        """A text, or the reason why there is none, for each caption.

        Texts depend on the seed if the template has a temperature.
        """
        works = [_Work(c, s, {"caption": c}) for c, s in zip(captions, seeds, strict=True)]
        for work in works:
            if reason := why_not(self.template, work.caption):
                work.result = Rejection(reason)
        for number, step in enumerate(self.template.steps):
            open_works = [work for work in works if work.result is None]
            replies = self.model.ask([self._request(step, number, work) for work in open_works])
            for work, reply in zip(open_works, replies, strict=True):
                try:
                    work.result = self._read(step, work, reply)
                except UnusableAnswerError as error:
                    work.result = Rejection(str(error))
        return [[work.result or Rejection(answers.EMPTY)] for work in works]

    def estimate(self, captions: Sequence[str]) -> CostEstimate:
        """An upper bound for these captions. Stored answers are not subtracted."""
        asked = [caption for caption in captions if why_not(self.template, caption) is None]
        characters_in, characters_out, turns = 0.0, 0.0, 0
        for step in self.template.steps:
            shots = [shot for shot in step.shots if not shot.answer.endswith("No")]
            example = max((shot.chosen for shot in step.shots), key=len, default="")
            prompt = messages(step, {"caption": "", "chosen": example, "new": example})
            repeats = step.answer in SENTENCES
            answer = fmean(
                [len(shot.answer) - repeats * len(shot.caption) for shot in shots] or [0]
            )
            turns += len(prompt)
            for caption in asked:
                characters_in += sum(len(turn["content"]) for turn in prompt) + len(caption)
                characters_out += answer + repeats * len(caption)
        tokens_in = characters_in / _CHARACTERS + _FRAME * turns * len(asked)
        tokens_out = characters_out / _CHARACTERS
        price = read_price("llm")
        cost = None if price is None else (tokens_in * price[0] + tokens_out * price[1]) / 1e6
        requests = len(asked) * len(self.template.steps)
        return CostEstimate(requests, round(tokens_in), round(tokens_out), cost)

    def prompts(self, caption: str) -> Iterator[str]:
        """One prompt per step, as it would be sent; what depends on an answer is in <...>."""
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
            turns = [f"[{turn['role']}]\n{turn['content']}" for turn in messages(step, values)]
            yield "\n".join([head, *turns])
            if step.answer == "list":
                values["chosen"] = f"<one of the answers to {step.name}>"
            elif step.answer == "concept":
                values["new"] = f"<the answer to {step.name}>"

    def _request(self, step: Step, number: int, work: _Work) -> Request:
        turns = tuple((turn["role"], turn["content"]) for turn in messages(step, work.values))
        seed = _derived(work.seed, self.name, number) if step.temperature > 0 else None
        return Request(turns, step.temperature, step.max_tokens, seed)

    def _read(self, step: Step, work: _Work, reply: Reply | None) -> Draft | None:
        """The text, or None if another step follows."""
        if reply is None:
            raise UnusableAnswerError("the server rejected the request")
        self._served |= {reply.model} - {""}
        if reply.refused:
            raise UnusableAnswerError("the server refused to answer")
        if reply.cut:
            raise UnusableAnswerError(answers.CUT_OFF)
        caption, values = quotable(work.caption), work.values
        text = answers.without_question(reply.text, step.ask, filled(step.ask, values))
        if step.answer == "list":
            parts = answers.located(text, caption, step.label)
            values["chosen"] = Random(_derived(work.seed, self.name, "chosen")).choice(parts)
            return None
        if step.answer == "concept":
            values["new"] = answers.proposed(text, caption, values["chosen"], step)
            return None
        if step.answer == "chain":
            values["chosen"], values["new"], sentence = answers.chained(text, caption, step)
        elif step.answer == "swap":
            sentence = answers.swapped(text, caption, step)
        else:
            sentence = answers.answered(text, step.label)
        return self._draft(work, sentence)

    def _draft(self, work: _Work, sentence: str) -> Draft:
        text, template = answers.in_format_of(work.caption, sentence), self.template
        answers.judge(work.caption, text, template.change)
        chosen, new = work.values.get("chosen", ""), work.values.get("new", "")
        if new and not answers.holds(text, new):
            raise UnusableAnswerError("the new words are not in the new sentence")
        before, after = (answers.occurrences(each, chosen) for each in (work.caption, text))
        if chosen and template.type == "replace" and after >= before:
            raise UnusableAnswerError("the old words are still in the new sentence")
        if chosen and template.type == "add" and not answers.holds_apart(text, chosen):
            raise UnusableAnswerError("what should be added to is not in the new sentence")
        finished = re.search(FINISHED, sentence) is not None
        return Draft(text, template.type, template.subtype, sentence=finished)


def why_not(template: Template, caption: str) -> str | None:
    """The reason not to ask about this caption, if there is one."""
    words = answers.words(caption)
    letters = [letter for letter in caption if letter.isalpha()]
    if not words or not letters:
        return "the caption has no words"
    if sum(letter < "\u0250" for letter in letters) < _LATIN * len(letters):
        return "the caption is not in Latin letters"
    if len(words) < template.fewest_words:
        return "the caption has too few words"
    # An answer is as long as the caption, and a word is at least one token.
    if len(words) > min(template.most_words, template.steps[-1].max_tokens):
        return "the caption has too many words"
    if template.needs and template.needs not in words:
        return answers.needs(template.needs)
    return None


def _derived(seed: int, *parts: object) -> int:
    """One seed per use, of 31 bits, which every server accepts."""
    return int.from_bytes(digest(str(seed), *map(str, parts))[:4], "little") >> 1


def note_costs(captions: Captions, methods: Sequence[ChatMethod], progress: Progress) -> None:
    """Show what the requests will cost, estimated from the first captions."""
    sample = [source.caption for source in islice(captions, _SAMPLE)]
    total = captions.total
    if total is None:
        total = len(sample) if len(sample) < _SAMPLE else sum(1 for _ in captions)
    share = total / max(1, len(sample))
    for method in methods:
        requests, tokens_in, tokens_out, price = method.estimate(sample)
        cost = "" if price is None else f", ${price * share:,.2f}"
        progress.note(
            f"{method.name}: at most {round(requests * share):,} requests, about "
            f"{round((tokens_in + tokens_out) * share):,} tokens{cost}, "
            "less what was already answered"
        )
