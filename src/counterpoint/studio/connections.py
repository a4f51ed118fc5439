"""Connections that are slow or many: what a client may keep open, and for how long.

uvicorn closes a connection that is idle after an answer, and waits without end for a request that
never becomes whole. Here a request has a time to arrive in, and a server a number of connections:
beyond it, the one that has kept the server waiting longest is closed.
"""

from __future__ import annotations

import asyncio
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST: Final = 512  # connections, where the system allows twice as many open files


def most_connections() -> int:
    """Half of the files that this process may have open: pictures and databases need some too."""
    try:
        import resource
    except ImportError:  # Windows sets no such limit
        return MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else min(MOST, max(1, files // 2))


class PatientProtocol(H11Protocol):
    """HTTP/1.1 by uvicorn, with an end to its patience. Times are in seconds."""

    header_time = 10.0
    body_time = 60.0  # after the headers: an upload may come over a slow line
    connections_at_most = most_connections()

    _clock: asyncio.TimerHandle | None = None
    _awaited: object = None  # the state of the request that the clock runs for
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > self.connections_at_most:
            waiting = (one for one in self.connections if isinstance(one, PatientProtocol))
            oldest = min(filter(PatientProtocol._waits, waiting), key=lambda one: one._since)
            oldest.transport.abort()
            oldest.connections.discard(oldest)  # at once: others may come before it is told

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """A clock for the headers, another for the body, none for a request that is whole."""
        state = self.conn.their_state
        if state is self._awaited:
            return
        self._stop()
        seconds = {h11.IDLE: self.header_time, h11.SEND_BODY: self.body_time}.get(state)
        if seconds is not None:
            self._awaited, self._since = state, self.loop.time()
            self._clock = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
        self._clock = self._awaited = None

    def _waits(self) -> bool:
        """Whether the next step is the client's, not the studio's."""
        working = self.cycle is not None and not self.cycle.response_complete
        return not working or self._clock is not None or self.flow.write_paused
