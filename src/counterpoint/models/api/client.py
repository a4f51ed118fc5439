"""A client of OpenAI-compatible endpoints: `parallel` requests at a time, from any thread.

What may succeed later is asked again: by OpenAI's own library where the endpoint says so, and here
if an answer is broken.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, TypeVar

import openai

from counterpoint._util.errors import ModelError
from counterpoint._util.processes import hear_interrupts
from counterpoint._util.untrusted import shortened
from counterpoint.models.api.endpoint import ChatAnswer, Endpoint

RETRIES: Final = 10  # with the library's pauses between them about a minute
PAUSE: Final = 1.0  # seconds after an answer that cannot be read
# What reading an answer raises that is not a whole chat completion.
_BROKEN: Final = (
    *(ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError),
)
_FILTERS: Final = {"content_filter", "content_policy_violation", "moderation_blocked"}
_FILTERED: Final = {"choices": [{"message": {}, "finish_reason": "content_filter"}]}

A = TypeVar("A", bound=ChatAnswer)


class RejectedRequestError(ModelError):
    """The endpoint does not take a request of this form."""


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
    """Asks an endpoint. Threads that share a client share its connections and their number."""

    def __init__(self, endpoint: Endpoint, parallel: int | None = None) -> None:
        self.endpoint, self.usage = endpoint, Usage()
        self.parallel = parallel or endpoint.parallel
        self._slots = asyncio.Semaphore(self.parallel)
        self._calls: set[Future[Any]] = set()
        self._open: list[openai.AsyncOpenAI] = []  # one for each call that is under way

    def chat(
        self,
        bodies: Sequence[Mapping[str, Any]],
        read: Callable[[Mapping[str, Any]], A],
        done: Callable[[int, A], None] = lambda place, answer: None,
        retries: int = RETRIES,
    ) -> list[A | RejectedRequestError]:
        """What `read` makes of the answers to requests, in order.

        `done(place, answer)` is called as each comes. A request that the endpoint does not take is
        its error, and does not end the others; what fails for good is a ModelError. Ctrl-C ends
        all of it at once.
        """

        async def one(client: Any, place: int, body: Mapping[str, Any]) -> A | RejectedRequestError:
            try:
                async with self._slots:  # also between attempts: a busy server is asked less
                    answer = await self._answer(client, body, read, retries)
            except RejectedRequestError as error:
                return error
            self.usage.add(answer)
            done(place, answer)
            return answer

        async def each() -> list[A | RejectedRequestError]:
            async with self._connected() as shared:
                client = shared.with_options(max_retries=retries)
                try:
                    async with asyncio.TaskGroup() as group:
                        tasks = [group.create_task(one(client, *e)) for e in enumerate(bodies)]
                except ExceptionGroup as errors:
                    raise errors.exceptions[0] from None
                return [task.result() for task in tasks]

        call = asyncio.run_coroutine_threadsafe(each(), _loop())
        self._calls.add(call)
        try:
            return call.result()
        finally:
            call.cancel()  # if this thread was interrupted
            self._calls.discard(call)

    def cancel(self) -> None:
        """End the calls of other threads."""
        for call in [*self._calls]:
            call.cancel()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[openai.AsyncOpenAI]:
        """Calls that run at a time share their connections; the last of them closes these."""
        at = self.endpoint
        self._open.append(
            self._open[0]
            if self._open
            else openai.AsyncOpenAI(base_url=at.url, api_key=at.key, timeout=at.timeout)
        )
        try:
            yield self._open[0]
        finally:
            last = self._open.pop()
            if not self._open:
                await last.close()

    async def _answer(
        self,
        client: Any,
        body: Mapping[str, Any],
        read: Callable[[Mapping[str, Any]], A],
        retries: int,
    ) -> A:
        for attempt in range(retries + 1):
            try:
                raw = await client.chat.completions.with_raw_response.create(**body)
            except openai.APIStatusError as error:
                self._explain(error)
                return read(_FILTERED)
            except openai.APITimeoutError:
                raise self._failed(f"it does not answer in {self.endpoint.timeout:g} s") from None
            except openai.APIConnectionError:
                raise self._failed("it cannot be reached") from None
            self.usage.retries += raw.retries_taken
            try:
                return read(json.loads(raw.text))
            except _BROKEN:
                broken = raw
            if attempt < retries:
                self.usage.retries += 1
                await asyncio.sleep(PAUSE)
        kind = broken.headers.get("content-type", "no type").partition(";")[0]
        said = self._plain(broken.text)[:80]
        raise self._failed(f"it answers with {kind} that is not a whole chat completion ({said})")

    def _explain(self, error: openai.APIStatusError) -> None:
        """Raise what it means; a filter's refusal is an answer too."""
        status, said = error.status_code, self._plain(error.message)
        if error.code in _FILTERS:
            return
        if status in (400, 413, 415, 422):
            raise RejectedRequestError(
                "E-REQUEST-REJECTED",
                f"{self.endpoint.name}: the endpoint rejects a request: {said}.",
            ) from None
        hints = {
            401: "; check OPENAI_API_KEY",
            403: "; check OPENAI_API_KEY",
            404: "; check the model's name, and that OPENAI_BASE_URL ends in /v1",
        }
        raise self._failed(f"it answers {said}{hints.get(status, '')}") from None

    def _failed(self, why: str) -> ModelError:
        at = self.endpoint
        return ModelError("E-ENDPOINT-FAILED", f"{at.name}: {at.shown()} cannot be used: {why}.")

    def _plain(self, message: str) -> str:
        """A server's words on one line, without the key that it may repeat."""
        return shortened(message.replace(self.endpoint.key, "***")).rstrip(" .")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One for all clients, in a thread of its own: a notebook has one running already."""
    hear_interrupts()
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop
