"""`llm/...` stopped on its way: the endpoint's log says what was asked again."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import llm_server
import pytest
from api_server import KEY, Endpoint, serve
from errors import raises

from counterpoint.generation.llm import ChatMethod, ChatModel
from counterpoint.generation.run import Parts

pytestmark = pytest.mark.faults

MAKE = """
import json, sys
from pathlib import Path
from counterpoint.generation.llm import ChatMethod, ChatModel
captions = [f"cat{n} sits by the red box and a dog{n}" for n in range(int(sys.argv[2]))]
with ChatModel("m", Path(sys.argv[1])) as model:
    method = ChatMethod("llm/replace-obj", model)
    made = method.make(captions, list(range(len(captions))))
    sent = model.client.usage.answers if model.form is not None else 0
    print(json.dumps([made, method.version, sent]))
"""
COUNT, LIMIT = 30, 4


CAPTIONS = [f"cat{n} sits by the red box and a dog{n}" for n in range(COUNT)]


def settings(endpoint: Endpoint) -> dict[str, str]:
    return {
        "COUNTERPOINT_API_CONCURRENCY": str(LIMIT),
        "OPENAI_BASE_URL": endpoint.url,
        "OPENAI_API_KEY": KEY,
        "NO_PROXY": "*",
    }


def here(folder: Path) -> list[Any]:
    """What a child would print."""
    with ChatModel("m", folder) as model:
        method = ChatMethod("llm/replace-obj", model)
        made = method.make(CAPTIONS, list(range(COUNT)))
        sent = model.client.usage.answers if model.form is not None else 0
        return json.loads(json.dumps([made, method.version, sent]))


def start(folder: Path, endpoint: Endpoint) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", MAKE, str(folder), str(COUNT)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=os.environ | settings(endpoint), stdout=pipe, stderr=pipe)


def start_and_hold(folder: Path, endpoint: Endpoint, answers: int) -> subprocess.Popen[bytes]:
    """Until so many questions are answered, and the rest has to wait."""
    endpoint.prompt, goal = len(endpoint.asked) + answers, endpoint.answered + answers
    child, limit = start(folder, endpoint), time.monotonic() + 60
    while endpoint.answered < goal or len(endpoint.asked) <= endpoint.prompt:
        assert child.poll() is None and time.monotonic() < limit
        time.sleep(0.005)
    return child


def finish(child: subprocess.Popen[bytes]) -> list[Any]:
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors.decode()
    return json.loads(output)


def test_what_is_stopped_loses_what_was_in_flight(
    tmp_path: Path, local_network: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill -9 in the first step and in the last, Ctrl-C in between, then to the end."""
    llm_server.take_over(monkeypatch)
    with serve() as server:
        undisturbed = server.new_endpoint()
        for name, value in settings(undisturbed).items():
            monkeypatch.setenv(name, value)
        expected = here(tmp_path / "other")
        assert len(undisturbed.asked) == 3 * COUNT

        endpoint, folder = server.new_endpoint(), tmp_path / "answers"
        child = start_and_hold(folder, endpoint, 13)
        child.kill()
        child.communicate(timeout=60)
        assert child.returncode == -signal.SIGKILL

        child = start_and_hold(folder, endpoint, 25)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
        assert child.returncode == -signal.SIGINT and b"KeyboardInterrupt" in errors

        child = start_and_hold(folder, endpoint, 30)
        child.kill()
        child.communicate(timeout=60)

        endpoint.prompt = math.inf
        made, version, sent = finish(start(folder, endpoint))
        asked_in_all = len(endpoint.asked)
        again = here(folder)
    assert [made, version] == expected[:2] == again[:2]
    times = Counter(json.dumps(asked.body) for asked in endpoint.asked)
    assert len(times) == 3 * COUNT
    # Answers that were on their way when the kill came may be lost with those that were awaited.
    assert sum(times.values()) - len(times) <= 3 * 2 * LIMIT
    assert sent <= 3 * COUNT - 13 - 25 - 30 + 3 * LIMIT
    assert again[2] == 0 and len(endpoint.asked) == asked_in_all


def test_every_server_gives_its_own_answers(
    local_network: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers may call different models by one name; who asks with which key is no matter."""
    llm_server.take_over(monkeypatch)
    with serve() as first, serve() as second:
        asked = []
        secret = first.url.replace("//", "//user:password@")
        for url in (first.url, second.url, secret, second.url):
            endpoints = [server.new_endpoint() for server in (first, second)]
            for name, value in settings(endpoints[0]).items():
                monkeypatch.setenv(name, value)
            monkeypatch.setenv("OPENAI_BASE_URL", url)
            here(tmp_path)
            asked.append([len(endpoint.asked) for endpoint in endpoints])
        assert asked == [[3 * COUNT, 0], [0, 3 * COUNT], [0, 0], [0, 0]]


def test_work_that_was_begun_with_another_server_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    origins = []
    for url in ("http://a/v1", "http://b/v1", "http://key@a/v1/"):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        with ChatModel("m", tmp_path) as model:
            origins.append(ChatMethod("llm/replace-obj", model).origin)
    assert origins[0] == origins[2] != origins[1]
    Parts(tmp_path / "out.parquet", {"origin": origins[0]})
    with raises("E-SETTINGS-CHANGED", "origin"):
        Parts(tmp_path / "out.parquet", {"origin": origins[1]})
