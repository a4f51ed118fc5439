"""A client of OpenAI-compatible endpoints.

Asks as many questions at a time as the endpoint takes (`pace`), retries what may succeed
later, and counts tokens.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

import openai

from counterpoint._util.errors import ModelError
from counterpoint._util.untrusted import shortened
from counterpoint.data import PassingError, retry_after
from counterpoint.models.api.answers import ChatAnswer, read_answer
from counterpoint.models.api.pace import Pace
from counterpoint.models.api.settings import Endpoint

ATTEMPTS: Final = 8  # with the pauses between them about two minutes
_LONGEST: Final = 60.0  # seconds of a pause that the server did not ask for
_PATIENCE: Final = (
    600.0  # seconds that a server may ask for; more, as of a daily limit, is an error
)
_BUSY: Final = {408, 409, 425, 429}
_FULL: Final = {408, 429, 503, 504, 529}  # of all that is tried again: fewer requests will help
_FILTERS: Final = {"content_filter", "content_policy_violation", "moderation_blocked"}
_FILTERED: Final = {"choices": [{"message": {}, "finish_reason": "content_filter"}]}

Pause = Callable[[float], Awaitable[object]]
T = TypeVar("T")
Item = TypeVar("Item")
A = TypeVar("A", bound=ChatAnswer)


class _BusyError(PassingError):
    """The endpoint has more to do than it can."""


class RejectedRequestError(ModelError):
    """The endpoint does not take a request of this form."""


class ChatQuestion(NamedTuple):
    """A text about an image. `encode` of `Client.ask` turns `image` into a data URL."""

    image: Hashable
    text: str


@dataclass(slots=True)
class Usage:
    """What has been asked since the model was loaded."""

    answers: int = 0
    retries: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    models: set[str] = field(default_factory=set)  # as the endpoint calls what has answered

    def add(self, answer: ChatAnswer) -> None:
        self.answers += 1
        self.tokens_in += answer.tokens_in
        self.tokens_out += answer.tokens_out
        self.models |= {answer.model} - {""}


class Client:
    """Asks an endpoint, `parallel` requests at a time or as many as the endpoint is said to take.

    Tests give a `pause(seconds)` that does not wait.
    """

    def __init__(
        self, endpoint: Endpoint, pause: Pause = asyncio.sleep, parallel: int | None = None
    ) -> None:
        self.endpoint, self.pause, self.usage = endpoint, pause, Usage()
        self.pace = Pace(parallel or endpoint.concurrency)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: openai.AsyncOpenAI | None = None

    def ask(
        self,
        questions: Sequence[ChatQuestion],
        encode: Callable[[Any], str],
        request: Mapping[str, Any],
        attempts: int = ATTEMPTS,
    ) -> list[ChatAnswer | RejectedRequestError]:
        """The answers, in order. Ctrl-C ends it at once; what fails for good is a ModelError.

        A request that the endpoint does not take is its error, and does not end the others.
        """
        return self._run(self._ask(questions, encode, request, attempts))

    def chat(
        self,
        bodies: Sequence[Mapping[str, Any]],
        read: Callable[[Mapping[str, Any]], A],
        done: Callable[[int, A], None] = lambda place, answer: None,
        attempts: int = ATTEMPTS,
    ) -> list[A | RejectedRequestError]:
        """What `read` makes of the answers to whole requests, in order.

        `done(place, answer)` is called as each comes. A request that the endpoint does not take is
        its error, and does not end the others.
        """

        async def one(client: Any, item: tuple[int, Mapping[str, Any]]) -> A | RejectedRequestError:
            place, body = item
            try:
                answer = await self._retried(client, body, attempts, read)
            except RejectedRequestError as error:
                return error
            done(place, answer)
            return answer

        return self._run(self._each(list(enumerate(bodies)), one))

    async def _ask(
        self,
        questions: Sequence[ChatQuestion],
        encode: Callable[[Any], str],
        request: Mapping[str, Any],
        attempts: int,
    ) -> list[ChatAnswer | RejectedRequestError]:
        images: dict[Hashable, asyncio.Task[str]] = {}

        async def one(client: Any, question: ChatQuestion) -> ChatAnswer | RejectedRequestError:
            if question.image not in images:
                work = asyncio.to_thread(encode, question.image)
                images[question.image] = asyncio.create_task(work)
            image = {"url": await images[question.image]}
            content = [
                {"type": "image_url", "image_url": image},
                {"type": "text", "text": question.text},
            ]
            body = {"messages": [{"role": "user", "content": content}], **request}
            try:
                return await self._retried(client, body, attempts, read_answer)
            except RejectedRequestError as error:
                return error

        return await self._each(questions, one)

    async def _each(
        self, items: Sequence[Item], one: Callable[[Any, Item], Coroutine[Any, Any, T]]
    ) -> list[T]:
        async with self._connected() as client:
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(one(client, item)) for item in items]
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[openai.AsyncOpenAI]:
        if self._open is not None:
            yield self._open
            return
        self.pace.begin()
        async with self._connect() as client:
            yield client

    def _connect(self) -> openai.AsyncOpenAI:
        where = self.endpoint
        return openai.AsyncOpenAI(
            base_url=where.url, api_key=where.key, timeout=where.timeout, max_retries=0
        )

    def start(self) -> None:
        """From here to `stop`, `ask` may be called in several threads, whose requests share an
        event loop, the connections and the pace."""

        async def connect() -> None:
            self.pace.begin()
            self._open = self._connect()

        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(connect(), self._loop).result()

    def cancel(self) -> None:
        """End all requests of `ask` in other threads."""

        async def end() -> None:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(end(), self._loop).result()

    def stop(self) -> None:
        """When no thread asks any more."""
        loop, client, self._loop, self._open = self._loop, self._open, None, None
        assert loop is not None and client is not None
        for last in (client.close(), loop.shutdown_default_executor()):
            asyncio.run_coroutine_threadsafe(last, loop).result()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """From anywhere: a notebook has a loop running already, so there it takes a thread."""
        if self._loop is not None:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(work)
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, work).result()

    async def _retried(
        self,
        client: Any,
        body: Mapping[str, Any],
        attempts: int,
        read: Callable[[Mapping[str, Any]], A],
    ) -> A:
        async with self.pace.slot():  # also while it pauses: a busy server is asked less
            for attempt in range(1, attempts + 1):
                sent = self.pace.halved
                try:
                    answer = await self._once(client, body, read)
                    self.usage.add(answer)
                    self.pace.answered()
                    return answer
                except PassingError as error:
                    if isinstance(error, _BusyError):
                        self.pace.busy(sent)
                    if attempt == attempts or (error.wait or 0) > _PATIENCE:
                        asked = f" and asks to wait {error.wait:.0f} s" if error.wait else ""
                        raise self._failed(f"{error}{asked}, {attempt} times") from None
                    self.usage.retries += 1
                    await self.pause(_wait(error.wait, attempt))
        raise AssertionError("no attempt was made")

    async def _once(
        self, client: Any, body: Mapping[str, Any], read: Callable[[Mapping[str, Any]], A]
    ) -> A:
        try:
            raw = await client.chat.completions.with_raw_response.create(**body)
        except openai.APIStatusError as error:
            self._explain(error)
            return read(_FILTERED)
        except openai.APITimeoutError:
            raise _BusyError(f"it does not answer in {self.endpoint.timeout:g} s") from None
        except openai.APIConnectionError:
            raise PassingError("it cannot be reached") from None
        try:
            return read(json.loads(raw.text))
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
            kind = raw.headers.get("content-type", "no type").partition(";")[0]
            said = self._plain(raw.text)[:80]
            raise PassingError(
                f"it answers with {kind} that is not a whole chat completion ({said})"
            ) from None

    def _explain(self, error: openai.APIStatusError) -> None:
        """Raise what it means; a filter's refusal is an answer too."""
        status, said = error.status_code, self._plain(error.message)
        if error.code in _FILTERS:
            return
        if error.code != "insufficient_quota" and (status in _BUSY or status >= 500):
            response: Any = error.response  # of httpx, or of its successor: the headers are alike
            kind = _BusyError if status in _FULL else PassingError
            raise kind(f"it answers {said}", retry_after(response)) from None
        if status in (400, 413, 415, 422):
            raise RejectedRequestError(
                "E-REQUEST-REJECTED",
                f"{self.endpoint.name}: the endpoint rejects a request: {said}.",
            )
        hints = {
            401: "; check OPENAI_API_KEY",
            403: "; check OPENAI_API_KEY",
            404: "; check the model's name, and that OPENAI_BASE_URL ends in /v1",
        }
        raise self._failed(f"it answers {said}{hints.get(status, '')}")

    def _failed(self, why: str) -> ModelError:
        return ModelError(
            "E-ENDPOINT-FAILED",
            f"{self.endpoint.name}: {self.endpoint.shown()} cannot be used: {why}.",
        )

    def _plain(self, message: str) -> str:
        """A server's words on one line, without the key that it may repeat."""
        return shortened(message.replace(self.endpoint.key, "***")).rstrip(" .")


def _wait(asked: float | None, attempt: int) -> float:
    """1, 2, 4, ... seconds, less up to a half, and not less than the server asks for.

    Many requests must not come back all at once: hence chance.
    """
    backoff = min(2.0 ** (attempt - 1), _LONGEST) * random.uniform(0.5, 1.0)
    return max(backoff, (asked or 0.0) * random.uniform(1.0, 1.1))
