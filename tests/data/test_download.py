"""Downloads, against a server that breaks connections, lies and changes its mind."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from errors import raises
from http_server import (
    Server,
    breaks,
    ends_early,
    ignores_range,
    ignores_version,
    says,
    serves,
    serving,
    slow,
    to_itself,
    web_page,
    wrong_place,
)

from counterpoint._util.progress import Advance, Quiet
from counterpoint.data.batch import Failure, download_all
from counterpoint.data.download import ATTEMPTS, WantedFile, download, new_client, retry_after

pytestmark = pytest.mark.usefixtures("local_network")
CONTENT = bytes(range(256)) * 1200  # 307,200 bytes


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with new_client() as made:
        yield made


class Fetch:
    """Downloads into a folder, without sleeping, and remembers how long it would have slept."""

    def __init__(self, folder: Path, client: httpx.Client) -> None:
        self.client = client
        self.path = folder / "a" / "file.bin"
        self.part = self.path.with_name("file.bin.part")
        self.pauses: list[float] = []
        self.steps: list[int] = []

    def __call__(self, *urls: str, **known: object) -> bytes:
        wanted = WantedFile(self.path, urls, **known)
        download(wanted, self.client, self.pauses.append, lambda total: self.steps.append)
        assert sorted(path.name for path in self.path.parent.iterdir()) == ["file.bin"]
        return self.path.read_bytes()

    def fails(self, *urls: str, **known: object) -> list[str]:
        """The codes of what went wrong, one per mirror."""
        with raises("E-DOWNLOAD-FAILED", self.path.name) as caught:
            self(*urls, **known)
        assert not self.path.exists()
        self.said = str(caught.value)
        return caught.value.causes


@pytest.fixture
def fetch(tmp_path: Path, client: httpx.Client) -> Fetch:
    return Fetch(tmp_path, client)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# --- one file ----------------------------------------------------------------------------------


def test_a_file_is_fetched_checked_and_put_in_its_place(server, fetch):
    url = server.put("file", CONTENT)
    assert fetch(url, size=len(CONTENT), sha256=sha256(CONTENT)) == CONTENT
    assert fetch.pauses == [] and sum(fetch.steps) == len(CONTENT)


def test_what_is_there_is_not_asked_for(server, fetch):
    fetch.path.parent.mkdir()
    fetch.path.write_bytes(b"mine")
    assert fetch(server.put("file", CONTENT)) == b"mine"
    assert server.asked == []


DATE = "Wed, 21 Oct 2015 07:28:00 GMT"
CUT, KNOWN = breaks(100_000), {"sha256": sha256(CONTENT)}
# What the server does, what is known of the file, and which ranges are then asked for.
BROKEN = {
    "version": (([CUT, CUT], {}), KNOWN, [None, "bytes=100000-", "bytes=200000-"]),
    "date": (([CUT], {"etag": 'W/"weak"', "modified": DATE}), {}, [None, "bytes=100000-"]),
    "no version": (([CUT], {"etag": None}), {}, [None, None]),
    "checksum": (([CUT], {"etag": None}), KNOWN, [None, "bytes=100000-"]),
    "no range": (([CUT, ignores_range], {}), {}, [None, "bytes=100000-"]),
    "wrong place": (([CUT, wrong_place], {}), {}, [None, "bytes=100000-", None]),
    "416": (([CUT, says(416)], {}), {}, [None, "bytes=100000-", None]),
    "no length": (([ends_early(100_000)], {}), KNOWN, [None, "bytes=100000-"]),
    "wrong bytes": (([serves(b"?" * len(CONTENT))], {}), KNOWN, [None, None]),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_download_is_gone_on_with_or_starts_over(server, fetch, what):
    (faults, more), known, ranges = BROKEN[what]
    url = server.put("file", CONTENT, *faults, **more)
    assert fetch(url, size=len(CONTENT), **known) == CONTENT
    assert server.ranges() == ranges and len(fetch.pauses) <= len(faults)
    assert sum(fetch.steps) == len(CONTENT)  # what was thrown away was taken back
    if what in ("version", "date"):
        assert server.asked[1].if_range == more.get("modified", '"one"')


def test_breaks_with_progress_between_them_do_not_count(server, fetch):
    """A big file over a bad line comes in the end; here it breaks more often than is forgiven."""
    url = server.put("file", CONTENT * 3, *[breaks(70_000)] * (2 * ATTEMPTS))
    assert fetch(url) == CONTENT * 3
    assert len(server.asked) == 2 * ATTEMPTS + 1


def test_a_changed_file_is_not_glued_to_the_old_one(server, fetch):
    new = CONTENT[::-1]

    def change(handler, resource):
        resource.content, resource.etag = new, '"two"'
        ignores_range(handler, resource)

    assert fetch(server.put("file", CONTENT, breaks(100_000), change)) == new
    assert sum(fetch.steps) == len(new)


def test_a_changed_file_is_noticed_though_the_server_ignores_if_range(server, fetch):
    new = CONTENT[::-1]

    def change(handler, resource):
        resource.content, resource.etag = new, '"two"'
        ignores_version(handler, resource)

    assert fetch(server.put("file", CONTENT, breaks(100_000), change)) == new
    assert server.ranges() == [None, "bytes=100000-", None]


def test_a_part_that_is_whole_is_not_fetched_again(server, fetch):
    """Killed between the last byte and the rename; the size is known or not."""
    fetch.part.parent.mkdir()
    url = server.put("file", CONTENT)
    for known, requests in (({"size": len(CONTENT)}, 0), ({}, 1)):
        fetch.path.unlink(missing_ok=True)
        fetch.part.write_bytes(CONTENT)
        assert fetch(url, sha256=sha256(CONTENT), **known) == CONTENT
        assert len(server.asked) == requests
    assert server.ranges() == [f"bytes={len(CONTENT)}-"]  # answered 416: there is nothing more


def test_a_part_of_something_else_is_found_by_its_checksum(server, fetch):
    fetch.part.parent.mkdir()
    fetch.part.write_bytes(b"x" * 1000)
    assert fetch(server.put("file", CONTENT), sha256=sha256(CONTENT)) == CONTENT
    assert server.ranges() == ["bytes=1000-", None]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_busy_servers_are_asked_again(server, fetch, status):
    assert fetch(server.put("file", CONTENT, says(status), says(status))) == CONTENT
    first, second = fetch.pauses
    assert 0.5 <= first <= 1.0 and 1.0 <= second <= 2.0


def test_retry_after_is_honoured_up_to_a_minute(server, fetch):
    url = server.put("file", CONTENT, says(429, Retry_After="7"), says(503, Retry_After="86400"))
    assert fetch(url) == CONTENT
    assert fetch.pauses == [7.0, 60.0]


def test_retry_after_may_be_a_date():
    for said, seconds in [
        ("7", 7.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("soon", None),
        ("", None),
    ]:
        assert retry_after(httpx.Response(503, headers={"Retry-After": said})) == seconds


def test_a_server_that_stays_busy_is_given_up(server, fetch):
    assert fetch.fails(server.put("file", CONTENT, always=says(503))) == ["E-HTTP-STATUS"]
    assert len(server.asked) == ATTEMPTS and len(fetch.pauses) == ATTEMPTS - 1
    assert not fetch.part.exists()


def test_a_missing_file_is_not_asked_for_twice(server, fetch):
    assert fetch.fails(f"{server.url}/nothing") == ["E-HTTP-STATUS"]
    assert len(server.asked) == 1
    assert list(fetch.path.parent.iterdir()) == []


def test_the_next_mirror_is_asked(server, fetch):
    urls = [f"{server.url}/nothing", server.put("b", CONTENT, always=says(503))]
    assert fetch(*urls, server.put("c", CONTENT)) == CONTENT
    assert [asked.path for asked in server.asked] == ["/nothing", *["/b"] * ATTEMPTS, "/c"]


def test_a_part_of_one_mirror_is_not_gone_on_with_from_another(server, fetch):
    """The other may have another version under the same ETag."""
    first = server.put("a", CONTENT, breaks(100_000), always=says(404))
    assert fetch(first, server.put("b", CONTENT[::-1])) == CONTENT[::-1]
    assert server.ranges() == [None, "bytes=100000-", None]


def test_bytes_that_stay_wrong_send_to_the_next_mirror(server, fetch):
    urls = server.put("a", b"?" * len(CONTENT)), server.put("b", CONTENT)
    assert fetch(*urls, sha256=sha256(CONTENT)) == CONTENT
    assert [asked.path for asked in server.asked] == ["/a", "/a", "/b"]


@pytest.mark.parametrize("length", [10, len(CONTENT) + 10])
def test_a_wrong_length_is_seen_before_anything_is_fetched(server, fetch, length):
    assert fetch.fails(server.put("a", b"?" * length), size=len(CONTENT)) == ["E-FILE-WRONG"]
    assert fetch.steps == []


def test_a_web_page_is_no_file(server, fetch):
    url = server.put("file", CONTENT, always=web_page)
    assert fetch.fails(url) == ["E-HTTP-WEB-PAGE"]
    assert f"open {url} in a browser and save the file as {fetch.path}" in fetch.said


def test_redirects_are_followed_but_not_for_ever(server, fetch):
    there = server.put("there", CONTENT)
    assert fetch(server.put("here", b"", always=says(302, Location=there))) == CONTENT
    fetch.path.unlink()
    assert fetch.fails(server.put("round", b"", always=to_itself)) == ["E-HTTP-REDIRECTS"]
    assert len(server.asked) == 2 + 6


@pytest.mark.parametrize("url", ["file:///etc/hosts", "ftp://127.0.0.1/x", "nonsense"])
def test_only_http_is_spoken(fetch, url):
    assert fetch.fails(url) == ["E-HTTP-ADDRESS"]


def test_a_server_that_is_not_there_is_said_to_be(fetch):
    with serving() as gone:
        url = gone.put("file", CONTENT)
    assert fetch.fails(url) == ["E-SERVER-UNREACHABLE"]


def test_a_folder_that_cannot_be_written_to_is_one_sentence(server, fetch, tmp_path):

    (tmp_path / "a").write_text("a file, where a folder should be")
    with raises("E-OUTPUT-UNWRITABLE", fetch.path):
        fetch(server.put("file", CONTENT))


# --- many files --------------------------------------------------------------------------------


class Bars:
    """Remembers what would be shown."""

    def __init__(self) -> None:
        self.shown: dict[str, list[int]] = {}

    def start(self, what: str, total: int) -> Advance:
        self.shown[what] = [total, 0]

        def advance(steps: int) -> None:
            self.shown[what][1] += steps

        return advance


def test_few_files_have_a_bar_each_and_many_have_one(server, tmp_path):
    wanted = [
        WantedFile(tmp_path / f"{i}.jpg", (server.put(f"{i}", b"x" * i),)) for i in range(1, 13)
    ]
    bars = Bars()
    assert download_all(wanted[:2], "images", bars) == []
    assert bars.shown == {"1.jpg, bytes": [1, 1], "2.jpg, bytes": [2, 2]}
    bars = Bars()
    assert download_all(wanted, "images", bars) == []
    assert bars.shown == {"images": [12, 12]}
    assert len(server.asked) == 12  # two were there


def test_failures_are_collected_in_order(server, tmp_path):
    wanted = [WantedFile(tmp_path / f"{i:02}.jpg", (f"{server.url}/{i}",)) for i in range(20)]
    for i in range(0, 20, 2):
        server.put(f"{i}", b"image")
    failures = download_all(wanted, "images", Quiet(), pause=lambda _: None)
    assert [failure.path.name for failure in failures] == [f"{i:02}.jpg" for i in range(1, 20, 2)]
    assert failures[0] == Failure(
        tmp_path / "01.jpg", "01.jpg cannot be fetched: 127.0.0.1: HTTP 404.", absent=True
    )


def test_without_a_network_it_does_not_try_thousands(tmp_path):
    with serving() as gone:
        url = gone.url
    wanted = [WantedFile(tmp_path / f"{i:03}" / "x", (f"{url}/{i}",)) for i in range(300)]
    failures = download_all(wanted, "images", Quiet(), pause=lambda _: None, workers=2)
    assert len(failures) == 300
    untried = [failure for failure in failures if "was not tried" in failure.reason]
    assert len(untried) > 250
    assert "no connection" in failures[0].reason and failures[-len(untried) :] == untried
    assert len(list(tmp_path.iterdir())) < 50  # those were not even begun


def test_ctrl_c_ends_it_and_leaves_the_parts(server, tmp_path):
    wanted = [WantedFile(tmp_path / "quick", (server.put("quick", b"x"),))]
    wanted += [
        WantedFile(tmp_path / f"{i}", (server.put(f"{i}", CONTENT, slow(1000, 0.01)),))
        for i in range(9)
    ]

    class Interrupting:
        def start(self, what: str, total: int) -> Advance:
            def advance(steps: int) -> None:
                deadline = time.monotonic() + 10
                while not begun() and time.monotonic() < deadline:
                    time.sleep(0.01)
                raise KeyboardInterrupt

            return advance

    def begun() -> list[Path]:
        return [path for path in tmp_path.glob("*.part") if path.stat().st_size]

    with pytest.raises(KeyboardInterrupt):
        download_all(wanted, "images", Interrupting(), workers=4)
    assert begun()
    for resource in server.resources.values():
        resource.faults.clear()
    assert download_all(wanted, "images", Quiet()) == []
    assert any(asked.range for asked in server.asked)
    assert all((tmp_path / f"{i}").read_bytes() == CONTENT for i in range(9))


# --- processes ---------------------------------------------------------------------------------

PROGRAM = """
import sys
from pathlib import Path
from counterpoint.data.batch import download_all
from counterpoint.data.download import WantedFile
from counterpoint._util.progress import Quiet

sys.exit(len(download_all([WantedFile(Path(sys.argv[1]), (sys.argv[2],))], "file", Quiet())))
"""


def start(path: Path, url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(path), url])


def wait_for(true, seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.01)


@pytest.mark.slow
def test_a_killed_download_is_gone_on_with(server, fetch):
    """The second process asks for the rest only, which the server's log proves."""
    url = server.put("file", CONTENT, slow(20_000, 0.05))
    process = start(fetch.path, url)
    wait_for(lambda: fetch.part.exists() and fetch.part.stat().st_size >= 60_000)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    length = fetch.part.stat().st_size
    assert 0 < length < len(CONTENT)
    assert fetch(url) == CONTENT
    assert server.ranges() == [None, f"bytes={length}-"]


@pytest.mark.slow
def test_an_interrupted_process_says_so_and_leaves_its_part(server, fetch):
    process = start(fetch.path, server.put("file", CONTENT, slow(20_000, 0.05)))
    wait_for(lambda: fetch.part.exists() and fetch.part.stat().st_size >= 40_000)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=5) == -signal.SIGINT
    assert fetch.part.stat().st_size >= 40_000 and not fetch.path.exists()


@pytest.mark.slow
def test_two_processes_fetch_a_file_once(server, fetch):
    url = server.put("file", CONTENT, slow(20_000, 0.03))
    processes = [start(fetch.path, url), start(fetch.path, url)]
    assert [process.wait() for process in processes] == [0, 0]
    assert fetch.path.read_bytes() == CONTENT
    assert server.ranges() == [None]
    assert [path.name for path in fetch.path.parent.iterdir()] == ["file.bin"]
