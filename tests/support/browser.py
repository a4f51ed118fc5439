"""A real browser for tests, and a real server on this machine for it to look at.

    from browser import chromium, served, visit

    __all__ = ["chromium", "visit"]  # fixtures

    def test_something(visit):
        with served(app) as base:
            page = visit(base)
            page.goto(f"{base}/browse")
            ...

`visit(base)` opens a fresh browser context (no cookies). When the test ends it fails if the page
asked anything of another address than `base`, or if any script failed. Wait with selectors or
Playwright's `expect`: `wait_for_function` evaluates a string, which the studio's pages forbid.
"""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from counterpoint.studio.app import server_of

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
FLAGS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve an app on a free port of the loopback address; gives its address without a slash."""
    with running(server_of(app)) as base:
        yield base


@contextmanager
def running(server: uvicorn.Server) -> Iterator[str]:
    """Run a server in a thread, at a free port; gives its address."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([held],), daemon=True)
        thread.start()
        end = time.monotonic() + 20
        while not server.started:
            assert thread.is_alive() and time.monotonic() < end, "the server did not start"
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{held.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=20)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The system's Chromium, headless. A module's, since Playwright holds the thread's loop."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: install your system's package `chromium`")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[..., Any]]:
    """`visit(base, viewport=DESKTOP, **options of a browser context)` gives a page."""
    contexts: list[Any] = []
    strayed: list[str] = []
    failed: list[str] = []

    def open_page(base: str, **options: Any) -> Any:
        context = chromium.new_context(**{"viewport": DESKTOP, **options})
        context.set_default_timeout(30_000)
        contexts.append(context)

        def watch(request: Any) -> None:
            if not request.url.startswith((base, "data:", "blob:")):
                strayed.append(request.url)

        context.on("request", watch)
        page = context.new_page()
        page.on("pageerror", lambda error: failed.append(f"{error} {error.stack}"))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert strayed == [], f"the page asked another address: {strayed}"
    assert failed == [], f"a script failed: {failed}"
