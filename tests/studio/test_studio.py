"""The studio's shell: who is let in, what is refused, what every answer carries."""

from __future__ import annotations

import re
import stat
from html import unescape
from pathlib import Path

import pytest
import typer
from errors import raises
from sqlalchemy import text
from starlette.testclient import TestClient
from studio_runs import BASE, MARKUP, TOKEN, client, studio, write_runs
from typer.testing import CliRunner

from counterpoint.cli.campaign import studio as studio_command
from counterpoint.cli.console import plainly
from counterpoint.studio.app import bound, is_loopback
from counterpoint.studio.browse.library import find, readable, refusal
from counterpoint.studio.database import open_database
from counterpoint.studio.security import Guard, kept_key, same


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    return studio(write_runs(tmp_path_factory.mktemp("runs")), models=["blind:length"])


@pytest.fixture
def admin(app):
    return client(app)


def csrf(page: str) -> str:
    return re.search(r'name="csrf" value="([0-9a-f]+)"', page)[1]


PAGES = ("/", "/browse", "/browse/case?case=0", "/try", "/numbers?benchmark=odd", "/try/picture")


@pytest.mark.slow
def test_pages_are_for_the_admin_alone(app):
    stranger = client(app, admin=False)
    for path in PAGES:
        answer = stranger.get(path)
        assert answer.status_code == 403 and "open the link that was printed" in answer.text
        assert stranger.get(path, params={"token": TOKEN[:-1]}).status_code == 403


def test_the_token_leaves_the_address_at_once(app):
    stranger = client(app, admin=False)
    answer = stranger.get("/", params={"token": TOKEN}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    [cookie] = answer.headers.get_list("set-cookie")
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and TOKEN not in cookie
    assert stranger.get("/").status_code == 200


def test_another_start_of_the_server_lets_the_old_cookie_in_no_more(app, tmp_path):
    key = b"k" * 32
    first, second = (studio(tmp_path), studio(tmp_path))
    first.state.web.guard, second.state.web.guard = Guard("one", key), Guard("two", key)
    browser = client(first, admin=False)
    assert browser.get("/", params={"token": "one"}).status_code == 200
    later = client(second, admin=False)
    later.cookies.update(dict(browser.cookies.items()))
    assert later.get("/").status_code == 403


@pytest.mark.slow
def test_every_answer_forbids_scripts_of_others(admin):
    for path in (*PAGES, "/nothing", "/static/studio.css", "/static/htmx.js"):
        headers = admin.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy and "unsafe" not in policy, path
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


def test_an_error_of_ours_is_a_page_of_one_sentence_too(app, admin, monkeypatch):
    def fail(*_):
        raise ValueError("a secret path")

    monkeypatch.setattr("counterpoint.studio.browse.pages.list_context", fail)
    quiet = TestClient(app, base_url=BASE, raise_server_exceptions=False, cookies=admin.cookies)
    answer = quiet.get("/browse")
    assert answer.status_code == 500
    assert "An error of the studio itself" in answer.text and "secret" not in answer.text
    assert "default-src 'self'" in answer.headers["content-security-policy"]


STRANGE_HOSTS = [
    *("evil.example", "127.0.0.1.evil.example", "", "localhost@evil", "user:word@localhost"),
    *("[::1].evil.example", "[::1]x", "[::1", "[::1]:80:80", "[::1]@evil", "[evil]", "::1", "[]"),
    *("localhost:80:80", "localhost:80x", "localhost:123456", "localhost :80", ":80", "localhost."),
    *("127.0.0.1,evil.example", "localhost/evil", "localhost#evil", "127.0.0.1\\evil"),
]


def test_a_name_that_is_not_ours_is_not_answered(admin):
    for host in STRANGE_HOSTS:
        answer = admin.get("/", headers={"host": host})
        assert answer.status_code == 421 and "Unknown Host header" in answer.text, host
    for host in ("localhost", "LocalHost:1", "127.0.0.1:8765", "[::1]:8765"):
        assert admin.get("/static/studio.css", headers={"host": host}).status_code == 200


def test_another_name_can_be_allowed(tmp_path):
    allowed = client(studio(tmp_path, hosts=["lab.example"]), admin=False)
    assert allowed.get("/static/icon.svg", headers={"host": "lab.example:80"}).status_code == 200


def test_an_address_that_climbs_out_leads_nowhere(admin):
    key = re.search(r'value="([0-9a-f]{12})"', admin.get("/browse").text)[1]
    for path in (
        "/static/../web.py",
        "/static/%2e%2e/web.py",
        "/static/..%2fweb.py",
        "/static/%252e%252e%252fweb.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/studio.css%00.png",
        "/browse/picture/..%2f..%2fetc%2fpasswd/0/0",
        "/browse/picture/%2e%2e/0/0?benchmark=odd",
        "/browse/picture/KEY/0/-1?benchmark=odd",
        "/browse/picture/KEY/99/0?benchmark=odd",
        "/browse/picture/KEY/0/0?benchmark=../../odd",
        "/browse/picture/KEY/0/0?benchmark=%00",
        "/browse/case?case=../../etc/passwd",
        "/browse?run=../../..",
        "/browse?benchmark=%00",
        "/browse?outcome=<b>",
    ):
        answer = admin.get(path.replace("KEY", key))
        assert answer.status_code == 404, path
        assert "root:" not in answer.text and "import" not in answer.text


def test_a_form_needs_the_token_of_its_own_page(app, admin):
    token = csrf(admin.get("/try").text)
    sent = {"captions": "a red star", "csrf": token}
    assert admin.post("/try", data=sent, follow_redirects=False).status_code == 303
    for wrong in ("", "0" * 64, token[:-1]):
        answer = admin.post("/try", data={**sent, "csrf": wrong})
        assert answer.status_code == 403
        assert "load the page again" in answer.text
    other = client(app)  # another browser of the same admin
    other.get("/try")
    assert other.post("/try", data=sent).status_code == 403


def test_a_form_of_another_site_is_refused_even_with_the_token(admin):
    sent = {"captions": "a red star", "csrf": csrf(admin.get("/try").text)}
    for name, value in (
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),  # another port of this machine
        *(("origin", one) for one in ("http://evil.example", "null", "http://127.0.0.1:9999")),
    ):
        answer = admin.post("/try", data=sent, headers={name: value})
        assert answer.status_code == 403 and "another site" in answer.text, value


def test_a_form_is_no_larger_than_it_may_be(admin):
    sent = {"captions": "a" * (11 * 2**20), "csrf": csrf(admin.get("/try").text)}
    assert admin.post("/try", data=sent).status_code == 413
    answer = admin.post("/try", content=b"{}", headers={"content-type": "application/json"})
    assert answer.status_code == 400


def test_captions_are_text_wherever_they_are_shown(admin):
    pages = ["/browse?benchmark=odd", "/browse/case?benchmark=odd&case=odd", "/browse?q=" + MARKUP]
    for page in [*pages, "/try?captions=" + MARKUP.replace("&", "%26")]:
        text = admin.get(page).text
        assert "window.caught" in text
        assert "<script>window" not in text and "<b>red" not in text


# --- folders -----------------------------------------------------------------------------------


HOSTILE = [
    "<img src=x onerror=alert(1)>",
    'quote"name',
    "line\nbreak",
    "turned\u202eeman",
    "bell\x07",
    "n" * 201,
    "back\\slash",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_folder_with_a_hostile_name_is_refused_with_a_sentence(tmp_path, name):
    write_runs(tmp_path)
    source = tmp_path / "all" / "sure"
    target = tmp_path / name
    try:
        source.rename(target)
    except OSError:
        pytest.skip("this file system has no such names")
    found = find(tmp_path)
    assert [place.name for place in found.places] == ["all/mixed"]
    [(shown, why)] = found.refused
    assert why.endswith(".") and "\n" not in shown and "\u202e" not in shown
    page = client(studio(tmp_path)).get("/").text
    assert "Not shown" in page and "<img src=x" not in page


def test_a_link_that_leads_out_is_not_followed(tmp_path):
    outside = write_runs(tmp_path / "outside")
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "link").symlink_to(outside / "all", target_is_directory=True)
    found = find(runs)
    assert found.places == []
    assert found.refused == [("link", refusal("link", link=True))]


def test_runs_are_found_down_to_three_folders(tmp_path):
    for depth in range(6):
        folder = tmp_path.joinpath(*[f"d{i}" for i in range(depth)])
        folder.mkdir(exist_ok=True)
        (folder / f"r{depth}").mkdir()
        (folder / f"r{depth}" / "run.json").write_text("{}")
    assert [place.name for place in find(tmp_path).places] == ["d0/d1/r2", "d0/r1", "r0"]


DAMAGED = {
    '{"format": 1, "model": 3}': "run.json is damaged (files is missing)",
    '{"format": 99}': "has run format 99",
    '{"format": 1, "model": "m", "files": {}, "benchmarks": {}}': "names no benchmark",
    "[]": "run.json is damaged (it is [])",
    "{": "not valid JSON",
}


@pytest.mark.slow
def test_a_damaged_run_is_named_and_does_not_hide_the_others(tmp_path):
    """What is wrong with a run.json in general, tests/runs holds."""
    write_runs(tmp_path)
    for said, why in DAMAGED.items():
        (tmp_path / "all/mixed/run.json").write_text(said)
        page = client(studio(tmp_path))
        home = unescape(page.get("/").text)
        assert "<dt>all/mixed</dt>" in home and why in home and "world-replace" in home
        assert "as sure scored it" in page.get("/browse").text


@pytest.mark.slow
def test_a_run_whose_files_are_damaged_says_so_in_its_line(tmp_path):
    write_runs(tmp_path)
    (tmp_path / "all/mixed/scores.parquet").write_bytes(b"other bytes")
    page = client(studio(tmp_path))
    numbers = page.get("/numbers", params={"benchmark": "odd"}).text
    assert "not the file that run.json describes" in numbers
    assert "not the file that run.json describes" in page.get("/?show=odd").text
    assert "as sure scored it" in page.get("/browse").text  # the first that can be read
    case = page.get("/browse/case", params={"benchmark": "odd", "case": "odd"}).text
    assert "not the file that run.json describes" in case


def test_a_long_or_odd_name_is_written_out():
    assert readable("a\nb") == "a\\u000ab"
    assert len(readable("n" * 500)) == 80


# --- the key and the address -------------------------------------------------------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_can_read_the_links_in_the_database(tmp_path):
    path = tmp_path / "folder" / "studio.db"
    for _ in range(2):
        database = open_database(str(path))
        database.write(lambda session: session.execute(text("CREATE TABLE IF NOT EXISTS t (a)")))
        assert [mode(file) for file in sorted(path.parent.iterdir())] == [0o600] * 3
        database.close()
        path.chmod(0o644)  # of an older version


def test_the_key_is_kept_and_nobody_else_can_read_it(tmp_path):
    path = tmp_path / "key"
    key = kept_key(path)
    assert kept_key(path) == key and len(key) == 32
    assert mode(path) == 0o600
    path.chmod(0o644)  # by an older version, or by hand
    assert (kept_key(path), mode(path)) == (key, 0o600)
    path.write_bytes(b"short")
    with raises("E-KEY-INVALID"):
        kept_key(path)


def test_secrets_are_compared_whole():
    assert same("abc", "abc") and not same("abc", "abd") and not same("", "abc")
    assert not same("é", "e")


def test_what_the_loopback_is():
    assert all(map(is_loopback, ("127.0.0.1", "localhost", "::1", "127.8.8.8")))
    assert not any(map(is_loopback, ("0.0.0.0", "192.168.1.2", "example.org", "::")))


def test_a_port_in_use_is_a_sentence():
    with bound("127.0.0.1", 0) as held:
        held.listen()
        port = held.getsockname()[1]
        with raises("E-PORT-UNAVAILABLE", port):
            bound("127.0.0.1", port)


# --- the command -------------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Runs the command as if the server ended at once; gives what it printed and the app."""
    served = {}

    def serve(app, host, port, announce):
        served["app"] = app
        announce(f"http://{host}:{port or 1}")

    monkeypatch.setattr("counterpoint.studio.serve", serve)
    verbs = typer.Typer()
    verbs.command()(plainly(studio_command))

    def run(*arguments: str):
        db = ["--db", str(tmp_path / "studio.db")]
        return CliRunner().invoke(verbs, [*arguments, *db]), served.get("app")

    return run


@pytest.mark.slow
def test_the_command_prints_a_link_that_lets_the_admin_in(command, tmp_path):
    runs = write_runs(tmp_path / "runs")
    done, app = command("--runs", str(runs), "-m", "blind:length")
    assert done.exit_code == 0 and "warning" not in done.output
    [token] = re.findall(r"http://127.0.0.1:8765/\?token=(\S+)", done.output)
    browser = client(app, admin=False)
    assert "world-replace" in browser.get("/", params={"token": token}).text
    assert browser.get("/campaigns").status_code == 200
    assert (runs / ".studio-key").is_file()


def test_another_address_is_warned_of_and_answers_to_its_name(command, tmp_path):
    (tmp_path / "runs").mkdir()
    done, app = command("--runs", str(tmp_path / "runs"), "--host", "192.0.2.7")
    assert "can be reached from other machines" in " ".join(done.output.split())
    page = client(app, admin=False)
    assert page.get("/static/icon.svg", headers={"host": "192.0.2.7"}).status_code == 200


def test_a_folder_that_is_not_there_is_an_error_of_one_sentence(command, tmp_path):
    done, app = command("--runs", str(tmp_path / "none"))
    assert (done.exit_code, app) == (1, None)
    assert "[E-FOLDER-MISSING]" in done.output
