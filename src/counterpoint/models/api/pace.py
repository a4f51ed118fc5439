"""How many requests run at a time: as many as the server takes, found by trying.

A server that batches what is in flight (vLLM) answers more per second the more it is asked at once,
up to a limit of its own. So the number is doubled while the rate of answers grows, and later raised
by an eighth now and then. It is halved when the server says that it is busy (429, 503, a timeout).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

MOST: Final = 256  # at a time, unless a number was asked for
_FIRST: Final = 8
_DOUBLED, _RAISED = 1.1, 1.02  # how much faster answers must come to keep a larger number
_HOLD: Final = 4  # rounds before a larger number is tried again


class Pace:
    """The number of requests at a time; a fixed one does not change.

    A round is as many answers as requests run at a time. A number is judged by the rate of answers
    in a whole round during which other requests were waiting; the round after a change is not
    judged, for its requests met the old number.
    """

    def __init__(self, fixed: int | None = None) -> None:
        self.fixed, self.limit, self.most = fixed, fixed or _FIRST, fixed or MOST
        self.active, self.largest = 0, 0  # now, and at any time
        self._waiting, self.halved = 0, 0  # requests; how often the number was halved
        self._doubling, self._held = True, 0
        self._best, self._good = 0.0, self.limit  # answers per second, and the number that gave it
        self._answers, self._settling, self._begun = 0, False, 0.0
        self._turn: asyncio.Condition | None = None

    def begin(self) -> None:
        """In a new event loop, where nothing runs yet."""
        self._turn, self.active, self._waiting = asyncio.Condition(), 0, 0
        self._restart()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a turn."""
        if self._turn is None:
            raise RuntimeError("begin() comes first")
        async with self._turn:
            self._waiting += 1
            try:
                await self._turn.wait_for(lambda: self.active < self.limit)
            finally:
                self._waiting -= 1
            self.active += 1
            self.largest = max(self.largest, self.active)
        try:
            yield
        finally:
            self.active -= 1
            async with self._turn:
                self._turn.notify(max(1, self.limit - self.active))

    def answered(self) -> None:
        if self.fixed:
            return
        if not self._waiting:  # the last of a batch: the server is not full
            self._restart()
            return
        self._answers += 1
        if self._answers < self.limit:
            return
        rate = self._answers / max(time.monotonic() - self._begun, 1e-9)
        settling = self._settling
        self._restart()
        if not settling:
            self._judge(rate)

    def busy(self, sent: int) -> None:
        """The server cannot take so many. `sent` is `halved` as it was when the request was sent:
        of all requests that met one number, the first to fail halves it."""
        if self.fixed or sent < self.halved:
            return
        self.halved += 1
        self._doubling, self._best, self._held = False, 0.0, 0
        self._change(max(1, self.limit // 2))
        self._good = self.limit

    def _judge(self, rate: float) -> None:
        if rate > self._best * (_DOUBLED if self._doubling else _RAISED):
            self._best, self._good = rate, self.limit
            self._grow()
        elif self.limit > self._good:  # it did not help
            self._doubling, self._held = False, 0
            self._change(self._good)
        else:
            self._best, self._held = rate, self._held + 1  # a server's speed may change
            if self._held >= _HOLD:
                self._grow()

    def _grow(self) -> None:
        more = self.limit if self._doubling else max(1, self.limit // 8)
        self._held = 0
        self._change(min(self.most, self.limit + more))

    def _change(self, limit: int) -> None:
        settling = limit != self.limit
        self.limit = limit
        self._restart(settling)

    def _restart(self, settling: bool = False) -> None:
        self._answers, self._settling, self._begun = 0, settling, time.monotonic()
