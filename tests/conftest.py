"""What holds for every test."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest

# Tests run side by side, so a test works on one core; before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

_CONNECT, _GETADDRINFO = socket.socket.connect, socket.getaddrinfo


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may ask for the network, not even what is going to be refused."""

    def refuse(*_: object) -> None:
        raise AssertionError("the network was touched")

    def connect(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX:  # how processes of one machine talk
            refuse()
        _CONNECT(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def local_network(no_network: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine may be asked, and nothing else; no proxy either."""

    def connect(self: socket.socket, address: Any) -> None:
        own = self.family == socket.AF_UNIX or address[0] == "127.0.0.1"
        assert own, f"the network was touched: {address}"
        _CONNECT(self, address)

    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        assert host in ("127.0.0.1", b"127.0.0.1"), f"the network was touched: {host}"
        return _GETADDRINFO(host, *args, **kwargs)

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    for scheme in ("http", "https", "all"):
        monkeypatch.delenv(f"{scheme}_proxy", raising=False)
        monkeypatch.delenv(f"{scheme}_proxy".upper(), raising=False)
