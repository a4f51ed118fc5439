"""Settings of the whole process: two threads that overlap leave them as they were."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager

import huggingface_hub.constants as hub_settings
import pytest
import transformers

from counterpoint._util.processes import Switch, without_warnings
from counterpoint.models import hub
from counterpoint.models.blind.text import _no_stderr
from counterpoint.models.hf.loading import bars
from counterpoint.models.torch_models import quiet

Change = Callable[[], AbstractContextManager[object]]


def settings() -> tuple[object, ...]:
    return (
        logging.root.manager.disable,
        list(warnings.filters),
        transformers.logging.is_progress_bar_enabled(),
        hub_settings.HF_HUB_OFFLINE,
        sys.stderr,
    )


def overlapping(first: Change, second: Change) -> list[tuple[object, ...]]:
    """The first begins, the second begins, the first ends, the second ends; the settings then."""
    entered, left = threading.Event(), threading.Event()
    found = []

    def late() -> None:
        with second():
            entered.set()
            assert left.wait(10)
            found.append(settings())

    with first():
        other = threading.Thread(target=late)
        other.start()
        assert entered.wait(10)
        found.append(settings())
    found.append(settings())
    left.set()
    other.join(10)
    return [*found, settings()]


@pytest.fixture
def silent_hub(tmp_path, monkeypatch) -> Change:
    """A load from the cache of a hub that does not answer."""
    server = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{server.getsockname()[1]}"
    server.close()
    (tmp_path / "models--org--model").mkdir()
    monkeypatch.setattr(hub_settings, "ENDPOINT", address)
    monkeypatch.setattr(hub_settings, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub_settings, "HF_HUB_OFFLINE", False)
    return lambda: hub.hub_or_cache("hf:org/model", "org/model")


@pytest.mark.usefixtures("local_network")
def test_loads_of_two_threads_leave_the_hub_as_it_was(silent_hub):
    before = settings()
    *inside, end = overlapping(silent_hub, silent_hub)
    assert [each[3] for each in inside] == [True] * 3
    assert end == before and end[3] is False


@pytest.mark.parametrize("second", [quiet, without_warnings])
@pytest.mark.parametrize("first", [quiet, without_warnings])
def test_silence_of_two_threads_ends_with_the_last(first, second):
    before = settings()
    both, one_left, last, end = overlapping(first, second)
    assert end == before
    assert both != before and last == one_left != before


def test_bars_and_the_terminal_come_back():
    for change in (lambda: bars(shown=False), _no_stderr):
        before = settings()
        both, one_left, last, end = overlapping(change, change)
        assert end == before != both == one_left == last


def test_an_error_inside_is_an_end():
    before = settings()
    with pytest.raises(ZeroDivisionError), quiet():
        raise ZeroDivisionError
    assert settings() == before


def test_many_threads_make_one_change():
    made, inside, most = [], 0, 0

    class Counted:
        def __enter__(self) -> None:
            made.append("in")

        def __exit__(self, *_: object) -> None:
            made.append("out")

    shared = Switch(Counted)

    def often() -> None:
        nonlocal inside, most
        for _ in range(200):
            with shared():
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ["in", "out"] * (len(made) // 2)
    assert shared.outside(lambda: "free") == "free"
