"""Starting the server, and saying where it is."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING

from counterpoint.errors import CounterpointError, Terminated

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from counterpoint.studio.connections import PatientProtocol


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can reach the address."""
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

    from counterpoint.studio.connections import PatientProtocol

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
            f"cannot listen at {host} port {port} ({why}); choose another with --port."
        ) from None
    return held
