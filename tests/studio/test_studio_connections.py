"""Slow and many connections, on a real server: the studio goes on answering."""

from __future__ import annotations

import resource
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest
from browser import running
from campaigns import opened
from studio_runs import studio

from counterpoint.studio.app import PatientProtocol, most_connections, server_of

pytestmark = pytest.mark.faults

pytestmark = pytest.mark.usefixtures("local_network")
WHOLE = b"GET /static/icon.svg HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HALF = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
HALF_BODY = (
    b"POST /a/token/1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n\r\nhalf"
)
WAIT = 20  # seconds after which a test has failed


class Quick(PatientProtocol):
    """The same, with little patience."""

    header_time = body_time = 0.2
    connections_at_most = 200


class Crowded(Quick):
    """Closes only what is too many."""

    header_time = body_time = 60.0


@pytest.fixture
def many_files():
    """A test opens both ends of each connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)
    if wanted < 3000:
        pytest.skip("this machine allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connected(stack: ExitStack, base: str, sent: bytes) -> socket.socket:
    host, _, port = base.partition("://")[2].partition(":")
    made = stack.enter_context(socket.socket())
    made.settimeout(WAIT)
    made.connect((host, int(port)))
    made.sendall(sent)
    return made


def is_closed(connection: socket.socket) -> bool:
    """Waits for the server to close it without an answer."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.slow
def test_1100_incomplete_requests_do_not_stop_the_studio(tmp_path, many_files):
    server, most = server_of(studio(tmp_path), Crowded), Crowded.connections_at_most
    with running(server) as base, ExitStack() as stack:
        slow: list[socket.socket] = []
        for _ in range(11):
            slow += [connected(stack, base, HALF) for _ in range(100)]
            with connected(stack, base, WHOLE) as meanwhile:
                assert meanwhile.recv(1 << 16).startswith(b"HTTP/1.1 200")
        assert len(server.server_state.connections) <= most
        assert all(map(is_closed, slow[:-most]))


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", HALF, HALF_BODY], ids=["nothing", "headers", "body"])
def test_a_request_that_never_becomes_whole_is_closed(tmp_path, sent, capfd):
    app = studio(tmp_path, database=opened(tmp_path))
    with running(server_of(app, Quick)) as base, ExitStack() as stack:
        slow = [connected(stack, base, sent) for _ in range(3)]
        assert all(map(is_closed, slow))
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
def test_bytes_that_trickle_in_buy_no_time(tmp_path):
    with running(server_of(studio(tmp_path), Quick)) as base, ExitStack() as stack:
        slow = connected(stack, base, HALF)
        end = time.monotonic() + WAIT
        try:
            while time.monotonic() < end:
                slow.sendall(b"x")
                time.sleep(0.02)
        except ConnectionError:
            return
        pytest.fail("the server went on waiting")


@pytest.mark.slow
def test_a_connection_is_kept_between_whole_requests(tmp_path):
    with running(server_of(studio(tmp_path), Quick)) as base, ExitStack() as stack:
        one = connected(stack, base, WHOLE)
        for _ in range(3):
            answer = b""
            while not answer.endswith(b"</svg>\n"):
                part = one.recv(1 << 16)
                assert part, "the connection was closed"
                answer += part
            time.sleep(1.5 * Quick.header_time)  # an idle connection has the time of uvicorn's
            one.sendall(WHOLE)


def test_connections_leave_files_for_everything_else():
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 0 < most_connections() <= max(1, soft // 2)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 0)])
def test_a_signal_ends_the_studio(tmp_path, number, status):
    command = [sys.executable, "-m", "counterpoint", "studio", "--port", "0"]
    places = ["--runs", str(tmp_path), "--db", str(tmp_path / "studio.db")]
    with subprocess.Popen([*command, *places], stdout=-1, stderr=-1, text=True) as process:
        assert "Studio: http://127.0.0.1:" in process.stdout.readline()
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said.partition("Traceback")[2]) == (status, "")
    assert not (tmp_path / "studio.db-wal").exists()  # closed, with everything in its file
