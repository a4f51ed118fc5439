"""`counterpoint data`: what it gets, shows and calls by its path, and its exit status."""

from __future__ import annotations

import json

from data_catalogue import SUBSETS, lay, no_server, server
from http_server import Server
from typer.testing import CliRunner

from counterpoint.cli.data import app

__all__ = ["no_server", "server"]  # fixtures


def cli(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def publish_sugarcrepe(server: Server, *images: str) -> None:
    for number, subset in enumerate(SUBSETS):
        name = f"{number % 2:012}.jpg"
        row = {"filename": name, "caption": "a cat", "negative_caption": "a dog"}
        server.put(f"data/{subset}.json", json.dumps({"0": row}).encode())
    for name in images:
        server.put(f"val2017/{name}", b"image")


def test_a_benchmark_is_got_from_nothing_and_then_there(server, tmp_path):
    publish_sugarcrepe(server, "000000000000.jpg", "000000000001.jpg", "000000000002.jpg")
    status, out, _ = cli("get", "sugarcrepe", "--data", tmp_path)
    assert status == 0 and out == "sugarcrepe: 9 fetched, 0 were there.\n"
    assert len(list((tmp_path / "coco/val2017").iterdir())) == 2
    asked = len(server.asked)
    status, out, _ = cli("get", "sugarcrepe+hp:positives=x", "--data", tmp_path)  # the same files
    assert (status, out) == (0, "sugarcrepe: everything is there (9 files).\n")
    assert len(server.asked) == asked


def test_failures_are_shown_and_the_status_is_1(server, tmp_path):
    publish_sugarcrepe(server, "000000000001.jpg")
    status, out, err = cli("get", "sugarcrepe", "--data", tmp_path)
    assert status == 1 and out == "sugarcrepe: 8 fetched, 0 were there, 1 failed.\n"
    assert "failed: 000000000000.jpg cannot be fetched: 127.0.0.1: HTTP 404." in err


def test_many_failures_are_in_a_list(server, tmp_path):
    status, _, err = cli("get", "sugarcrepe", "--data", tmp_path)
    assert status == 1 and err.count("failed: ") == 5
    assert f"... and 2 more, all in {tmp_path / 'failed-sugarcrepe.txt'}" in err


def test_what_is_to_be_done_by_hand_is_shown(no_server, tmp_path):
    status, _, err = cli("get", "by-hand", "--data", tmp_path)
    assert status == 1
    assert f"by hand: Ask at https://host/form (here: {tmp_path / 'mixed'})." in err


def test_names_are_checked_before_anything_is_fetched(no_server, tmp_path):
    status, _, err = cli("get", "sugarcrepe", "sugarcrep", "--data", tmp_path)
    assert status == 1 and "Did you mean 'sugarcrepe'?" in err


def test_the_world_needs_no_files(tmp_path):
    assert cli("get", "world-swap:size=5", "--data", tmp_path)[:2] == (
        0,
        "world-swap: needs no files.\n",
    )


def test_path_prints_folders(tmp_path, monkeypatch):
    assert cli("path", "--data", tmp_path) == (0, f"{tmp_path}\n", "")
    folders = f"{tmp_path}/sugarcrepe\n{tmp_path}/coco/val2017\n"
    assert cli("path", "sugarcrepe", "--data", tmp_path) == (0, folders, "")
    monkeypatch.setenv("COUNTERPOINT_DATA", "/somewhere")
    assert cli("path")[1] == "/somewhere\n"


def test_ls_shows_what_is_there(tmp_path):
    lay(tmp_path, "sugarcrepe/add_att.json", "coco/val2017/1.jpg")
    status, out, _ = cli("ls", "--data", tmp_path)
    assert status == 0 and "1 of 7" in out and "1 files" in out and "1.7 MB" in out
    rows = {row["source"]: row for row in json.loads(cli("ls", "--data", tmp_path, "--json")[1])}
    assert rows["sugarcrepe"]["files"] == 1 and rows["sugarcrepe"]["of"] == 7
    sums = {"sugarcrepe": "yes", "vl-checklist": "7 of 24", "aro-images": "no", "bivlc": "no"}
    assert {source: rows[source]["sha256"] for source in sums} == sums
    expected = ["negbench", "negbench/retrieval", "sugarcrepe", "sugarcrepe-pp", "visla"]
    expected += ["vsr", "whatsup/coco"]
    assert rows["coco-val2017"]["benchmarks"] == expected
