"""A served language model: prompts become requests, and every answer is stored.

An answer is stored under a digest of the server's address, the model and the request (messages,
temperature, token limit, seed) as soon as it arrives. So no request is sent twice, and a killed
process loses only the requests in flight.

A caption is data: in a prompt it stands in quotation marks on one line, and no caption can close
them. What was filled in is never filled in again.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from counterpoint._util.errors import MissingExtraError
from counterpoint._util.progress import Advance
from counterpoint._util.store import Store, default_store, digest
from counterpoint.generation.llm import answers
from counterpoint.generation.llm.answers import words
from counterpoint.generation.llm.templates import Step, Template
from counterpoint.generation.registry import Rejection
from counterpoint.models.api import ChatAnswer, Endpoint, read_answer, read_endpoint

if TYPE_CHECKING:
    from counterpoint.models.api import Client

Message = dict[str, str]
_USAGE: Final = ("answers", "retries", "tokens_in", "tokens_out")
_FIRST_RETRIES: Final = 2  # few: after a mistyped address the wait should be short
_ROOM: Final = 4096  # tokens for a model that reasons before it answers
_PLACE: Final = re.compile(r"\{(caption|chosen|new)\}")
_LATIN: Final = 0.5  # minimum share of Latin letters in a caption


def why_not(template: Template, caption: str) -> str | None:
    """The reason not to ask about this caption, if there is one."""
    found = words(caption)
    letters = [letter for letter in caption if letter.isalpha()]
    if not found or not letters:
        return answers.NO_WORDS
    if sum(letter < "\u0250" for letter in letters) < _LATIN * len(letters):
        return answers.OTHER_LETTERS
    if len(found) < template.fewest_words:
        return answers.TOO_FEW_WORDS
    # An answer is as long as the caption, and a word is at least one token.
    if len(found) > min(template.most_words, template.steps[-1].max_tokens):
        return answers.TOO_MANY_WORDS
    if template.needs and template.needs not in found:
        return answers.needs(template.needs)
    return None


def quotable(text: str) -> str:
    """The text on one line, without the quotation mark that would end the quotation."""
    printable = "".join(mark if mark.isprintable() else " " for mark in text)
    return " ".join(printable.replace('"', "'").split())


def messages(step: Step, values: Mapping[str, str]) -> list[Message]:
    """The instruction, then the shots as turns of a dialogue, then the question.

    What is the same for every caption comes first, so that a server can cache it. There is no
    system message, because some models do not support it.
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


@dataclass(frozen=True, slots=True)
class Request:
    """A request. The seed is None at temperature 0, where it has no effect."""

    messages: tuple[tuple[str, str], ...]  # role, content
    temperature: float
    max_tokens: int
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Reply(ChatAnswer):
    """An answer, and whether it was cut off."""

    cut: bool = False


def request_of(messages: Sequence[Message], temperature: float, limit: int, seed: int) -> Request:
    turns = tuple((message["role"], message["content"]) for message in messages)
    return Request(turns, temperature, limit, seed if temperature > 0 else None)


def read_reply(data: Mapping[str, Any]) -> Reply:
    answer, choice = read_answer(data), data["choices"][0]
    return Reply(
        answer.text.encode(errors="replace").decode(),  # half of a surrogate pair cannot be written
        answer.refused,
        (),
        answer.tokens_in,
        answer.tokens_out,
        answer.model,
        choice.get("finish_reason") == "length",
    )


Form = Callable[[Request], dict[str, Any]]


def _usual(request: Request) -> dict[str, Any]:
    seed = {} if request.seed is None else {"seed": request.seed}
    return _seedless(request) | seed


def _seedless(request: Request) -> dict[str, Any]:
    return {"temperature": request.temperature, "max_tokens": request.max_tokens}


def _thinking(request: Request) -> dict[str, Any]:
    return {"max_completion_tokens": _ROOM + request.max_tokens}


# Endpoints accept different parameters, so these are tried in turn. Not all accept a seed, and
# reasoning models accept no temperature and have another name for the limit.
_FORMS: Final[tuple[Form, ...]] = (_usual, _seedless, _thinking)


class ChatModel:
    """A model by its name at OPENAI_BASE_URL. Nothing is opened or sent before the first `ask`.

    All methods of a run share one, because a folder of answers can be opened once per process.
    """

    def __init__(self, name: str, answers: Path | None = None) -> None:
        self.name = name
        self.folder = answers or default_store().with_name("answers")
        self.form: Form | None = None

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

    def ask(self, requests: Sequence[Request], advance: Advance) -> list[Reply | Rejection]:
        """One answer per request, in order. Only requests without a stored answer are sent."""
        keys = [self._key(request) for request in requests]
        found = self._kept(keys)
        missing = {k: r for k, r in zip(keys, requests, strict=True) if k not in found}
        advance(sum(key in found for key in keys))
        if missing:
            counts = Counter(keys)  # the same request may have been made twice
            found |= self._asked(missing, lambda key: advance(counts[key]))
        return [found[key] for key in keys]

    def usage(self) -> dict[str, int]:
        """What this process has sent; stored answers are not counted."""
        used = self.client.usage if "client" in vars(self) else None
        return {name: getattr(used, name, 0) for name in _USAGE}

    def _asked(
        self, missing: Mapping[bytes, Request], done: Callable[[bytes], None]
    ) -> dict[bytes, Reply | Rejection]:
        keys = list(missing)
        found: dict[bytes, Reply | Rejection] = {}
        if self.form is None:
            self.form, found[keys[0]] = self._first(missing[keys[0]])
            done(keys[0])
        rest, form = [key for key in keys if key not in found], self.form

        def keep(place: int, reply: Reply) -> None:
            self._keep(rest[place], reply)
            done(rest[place])

        bodies = [self._body(form, missing[key]) for key in rest]
        for key, reply in zip(rest, self.client.chat(bodies, read_reply, keep), strict=True):
            found[key] = reply if isinstance(reply, Reply) else Rejection(answers.REJECTED)
        return found

    def _first(self, request: Request) -> tuple[Form, Reply]:
        """Send one request alone, to find the parameters that the endpoint accepts."""
        for form in _FORMS:
            body = self._body(form, request)
            [reply] = self.client.chat([body], read_reply, retries=_FIRST_RETRIES)
            if isinstance(reply, Reply):
                self._keep(self._key(request), reply)
                return form, reply
        assert not isinstance(reply, Reply)
        raise reply

    def _body(self, form: Form, request: Request) -> dict[str, Any]:
        messages = [{"role": role, "content": content} for role, content in request.messages]
        return {"model": self.name, "messages": messages, **form(request)}

    def where(self) -> str:
        """The server's address without secrets."""
        return self.endpoint.shown()

    def _key(self, request: Request) -> bytes:
        return digest("llm 2", self.where(), self.name, json.dumps(asdict(request)))

    def _kept(self, keys: Sequence[bytes]) -> dict[bytes, Reply | Rejection]:
        values = zip(keys, self.store.get(keys), strict=True)
        return {key: Reply(**json.loads(value)) for key, value in values if value is not None}

    def _keep(self, key: bytes, reply: Reply) -> None:
        value = {k: v for k, v in asdict(reply).items() if k != "first"}
        self.store.put({key: json.dumps(value).encode()})
