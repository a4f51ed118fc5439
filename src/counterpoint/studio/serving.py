"""Starts the server and prints its address; limits slow and idle connections.

uvicorn closes a connection that is idle after an answer, but waits without end for a request that
never becomes complete. Here a request has a time limit, and a server has a maximum number of
connections: beyond it, the one that has kept the server waiting longest is closed.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from counterpoint._util.errors import CounterpointError, Terminated

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI


# --- slow and idle connections ------------------------------------------------------------------


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


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def serve(app: FastAPI, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until interrupted; `announce` is told the address once the port is held.

    Ctrl-C is the usual end, and no failure; SIGTERM exits with 143.
    """
    try:
        with bound(host, port) as held:
            name = f"[{host}]" if ":" in host else host
            announce(f"http://{name}:{held.getsockname()[1]}")
            server_of(app).run([held])  # ends what is under way, then passes the signal on
    except KeyboardInterrupt as stop:
        if isinstance(stop, Terminated):
            sys.exit(143)


def server_of(app: FastAPI, protocol: type[PatientProtocol] | None = None) -> uvicorn.Server:
    """A server of the app; `protocol` says how patient it is with slow clients."""
    import uvicorn

    protocol = protocol or PatientProtocol
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=-(-protocol.connections_at_most // 2),  # accepted in one go, and then counted
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, port))
    except (OSError, OverflowError) as error:
        held.close()
        why = getattr(error, "strerror", None) or str(error)
        raise CounterpointError(
            "E-PORT-UNAVAILABLE",
            f"cannot listen at {host} port {port} ({why}); choose another with --port.",
            host=host,
            port=port,
        ) from None
    return held
