"""`generate`: from a stream of captions to one pairs file, whatever happens on the way."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from caption_grammar import captions as made_captions
from errors import raises
from typer.testing import CliRunner

from counterpoint.cli.app import app
from counterpoint.generation import chosen_methods, drafts, run as running
from counterpoint.generation.drafts import CAPTIONS, MADE, TextSettings, readable
from counterpoint.generation.inputs.captions import SourceCaption, open_captions
from counterpoint.generation.pairs import (
    SCHEMA,
    SENTENCE,
    Draft,
    Rejection,
    changed_span,
    read_about,
    read_pairs,
)
from counterpoint.generation.run import generate

pytestmark = pytest.mark.slow

RULES = ("negclip", "crepe-replace", "shuffle")
SETTINGS = TextSettings("negative", RULES)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "captions.jsonl"
    rows = [{"image": f"{n}.jpg", "caption": c} for n, c in enumerate(made_captions(150, seed=1))]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "PIECE", 40)


def table(path: Path) -> pl.DataFrame:
    return read_pairs(path, rejected=True)


def test_the_file_is_what_the_schema_says(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    report = generate(open_captions(str(file)), SETTINGS, out, workers=1)
    rows = table(out)
    assert rows.schema == SCHEMA
    assert len(rows) == report.rows > 500
    assert report.captions == 150
    assert set(rows["kind"]) == {"negative"}
    assert set(rows["method"]) == set(RULES)
    assert rows["refused"].to_list() == [""] * len(rows)
    assert rows["checks"].list.len().min() == 7
    for caption, text, start, end in rows.select("caption", "text", "start", "end").iter_rows():
        assert (start, end) == changed_span(caption, text)
        assert caption.startswith(text[:start])
        assert caption.endswith(text[end:])
    images = set(rows["image"])
    assert images <= {f"{n}.jpg" for n in range(150)} and len(images) > 140  # some give no text
    about = read_about(out)
    assert about["methods"] == list(RULES)
    assert about["root"] == str(tmp_path)
    counted = {(what, reason): n for what, reason, n in about["counts"]}
    assert counted[CAPTIONS, MADE] == 150
    assert sum(counted[name, MADE] for name in RULES) == len(rows)
    assert not out.with_name("out.parquet.parts").exists()


def test_pieces_and_processes_change_nothing(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captions = open_captions(str(file))
    one, two = tmp_path / "one.parquet", tmp_path / "two.parquet"
    generate(captions, SETTINGS, one, workers=1)
    monkeypatch.setattr(running, "PIECE", 40)
    generate(captions, SETTINGS, two, workers=2)
    assert table(one).equals(table(two))
    assert read_about(one) == read_about(two)


def test_a_finished_piece_is_not_made_again(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_pieces: None
) -> None:
    captions, out = open_captions(str(file)), tmp_path / "out.parquet"
    done: list[int] = []
    make = running.make_by_rules

    def breaking(sources: list, settings: TextSettings) -> object:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(len(sources))
        return make(sources, settings)

    monkeypatch.setattr(running, "make_by_rules", breaking)
    with pytest.raises(KeyboardInterrupt):
        generate(captions, SETTINGS, out, workers=1)
    assert not out.exists()
    monkeypatch.setattr(running, "make_by_rules", lambda s, t: (done.append(len(s)), make(s, t))[1])
    generate(captions, SETTINGS, out, workers=1)
    assert done == [40, 40, 40, 30]
    whole = tmp_path / "whole.parquet"
    generate(captions, SETTINGS, whole, workers=1)
    assert table(out).equals(table(whole))


SMALL_PIECES = """
from counterpoint.__main__ import main
from counterpoint.generation import run

run.PIECE = 40
main()
"""


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_stopped_and_run_again_it_ends_with_the_same_rows(
    file: Path, tmp_path: Path, small_pieces: None, stop: signal.Signals
) -> None:
    """Finished pieces are kept as they are, nothing else is left, and no worker lives on."""
    out, parts = tmp_path / "out.parquet", tmp_path / "out.parquet.parts"
    command = [sys.executable, "-c", SMALL_PIECES, "generate", "negatives", str(file)]
    command += ["-M", "shuffle", "--workers", "2", "-o", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while not any(parts.glob("*-rules.parquet")) and time.monotonic() < deadline:
        assert process.poll() is None, "it ended before it could be stopped"
        time.sleep(0.005)
    os.kill(process.pid, stop)  # only the parent: its children must not outlive it
    assert process.wait() in (-stop, 128 + stop)
    _await_no_child(process.pid)
    assert not out.exists()
    kept = {path: path.stat().st_mtime_ns for path in parts.glob("*-rules.parquet")}
    assert kept and all(read_about(path)["counts"] for path in kept)
    captions, settings = (
        open_captions(str(file)),
        TextSettings("negative", ("shuffle",)),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "write_pairs", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            generate(captions, settings, out, workers=1)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    whole = tmp_path / "whole.parquet"
    for place in (out, whole):
        generate(captions, settings, place, workers=1)
    assert table(out).equals(table(whole))
    assert set(tmp_path.iterdir()) == {file, out, whole}


def _await_no_child(group: int) -> None:
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("a worker outlives its parent")


def test_parts_of_another_command_are_not_mixed_in(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_pieces: None
) -> None:
    captions, out = open_captions(str(file)), tmp_path / "out.parquet"
    monkeypatch.setattr(running, "write_pairs", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        generate(captions, SETTINGS, out, workers=1)
    other = TextSettings("negative", RULES, seed=1)
    with raises("E-SETTINGS-CHANGED", "seed"):
        generate(captions, other, out, workers=1)
    file.write_text(file.read_text() + "\n" + json.dumps({"caption": "a new one"}))
    with raises("E-SETTINGS-CHANGED", "fingerprint"):
        generate(open_captions(str(file)), SETTINGS, out, workers=1)


def _interrupted(*_: object) -> int:
    raise KeyboardInterrupt


@pytest.mark.parametrize("fails", [False, True])
def test_garbage_is_collected_again_after_a_part(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    seen: list[bool] = []

    def watched(*arguments: Any) -> list[SourceCaption]:
        seen.append(gc.isenabled())
        if fails:
            raise MemoryError
        return readable(*arguments)

    monkeypatch.setattr(drafts, "readable", watched)
    assert gc.isenabled()
    with pytest.raises(MemoryError) if fails else nullcontext():
        generate(open_captions(str(file)), SETTINGS, tmp_path / "out.parquet", workers=1)
    assert seen == [False] and gc.isenabled()


def test_a_finished_file_is_kept(file: Path, tmp_path: Path) -> None:
    captions, out = open_captions(str(file)), tmp_path / "out.parquet"
    first = generate(captions, SETTINGS, out, workers=1)
    before = out.stat().st_mtime_ns
    assert generate(captions, SETTINGS, out, workers=1) == first
    assert out.stat().st_mtime_ns == before
    with raises("E-OUTPUT-EXISTS", out):
        generate(captions, TextSettings("negative", RULES, seed=1), out, workers=1)


def test_broken_parts_are_told_of(file: Path, tmp_path: Path, small_pieces: None) -> None:
    out = tmp_path / "out.parquet"
    parts = tmp_path / "out.parquet.parts"
    parts.mkdir()
    (parts / "settings.json").write_text("{")
    with raises("E-FILE-MALFORMED", parts / "settings.json"):
        generate(open_captions(str(file)), SETTINGS, out, workers=1)


ODD = {
    "": "empty",
    " \n ": "empty",
    "🐶🐱": "no words",
    "42 !!": "no words",
    "a dog " * 250: "more than 80 words",
    "un chien blanc sur la plage avec un homme": "not English",
    "白い犬と黒い猫": "not English",
    "ein weißer Hund liegt auf dem Sofa": "not English",
    "A dog 🐶 on a bench": MADE,
    "skateboarder grinding a rail": MADE,
    "dog ON table": MADE,
    "a frisbee": MADE,
}


def test_odd_captions_are_refused_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    odd = [*ODD, None, "a red dog on a table"]
    path.write_text("\n".join(json.dumps({"caption": caption}) for caption in odd))
    for kind in ("negative", "positive"):
        names = chosen_methods(["rules"], kind).rules
        out = tmp_path / f"{kind}.parquet"
        report = generate(open_captions(str(path)), TextSettings(kind, names), out, workers=1)
        counts = {reason: n for (what, reason), n in report.counts.items() if what == CAPTIONS}
        assert counts == Counter([*ODD.values(), "empty", MADE])
        assert set(map(int, table(out)["source"])) <= {8, 9, 10, 11, 13}


def test_refused_texts_are_kept_when_asked_for(file: Path, tmp_path: Path) -> None:
    captions, names = open_captions(str(file)), ("negclip",)
    every = tmp_path / "every.parquet"
    # without ranking, so that swaps of one meaning get as far as the checks
    settings = TextSettings("negative", names, keep_refused=True, plausible="none")
    report = generate(captions, settings, every, workers=1)
    refused = table(every).filter(pl.col("refused") != "")
    assert len(refused) == sum(n for (m, r), n in report.counts.items() if m in names and r != MADE)
    assert refused["refused"].str.starts_with("meaning: ").any()
    assert len(read_pairs(every)) == report.rows - len(refused)


def test_without_checks_nothing_is_refused(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    methods = ("negclip",)
    settings = TextSettings("negative", methods, checks=False, plausible="none")
    report = generate(open_captions(str(file)), settings, out, workers=1)
    assert {reason for (what, reason), _ in report.counts.items() if what == "negclip"} == {MADE}
    assert table(out)["checks"].list.len().max() == 0


def test_uniform_captions_give_nothing_away(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    settings = TextSettings("negative", ("negclip",), form="uniform")
    generate(open_captions(str(file)), settings, out, workers=1)
    for text in (*table(out)["caption"], *table(out)["text"]):
        assert text[0].isupper()
        assert text.endswith(".")
        assert not text.endswith("..")


class Echo:
    """A writer that puts "big" before every noun it knows, and refuses the rest."""

    name, version, origin = "echo", "echo-1", "here"

    def __init__(self) -> None:
        self.asked = 0

    def make(self, captions: Sequence[str], seeds: Sequence[int]) -> list[list[Draft | Rejection]]:
        assert len(set(seeds)) == len(seeds) == len(captions)
        self.asked += len(captions)
        return [
            [Draft(c.replace("dog", "big dog"), "add", "att", sentence=True)]
            if "dog" in c
            else [Rejection("no dog")]
            for c in captions
        ]


def test_writers_are_asked_in_pieces_and_judged(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_pieces: None
) -> None:
    monkeypatch.setattr(running, "_ASKED", 16)
    captions, out = open_captions(str(file)), tmp_path / "out.parquet"
    writer = Echo()
    report = generate(captions, SETTINGS, out, writers=[writer], workers=1)
    assert writer.asked == report.captions == 150
    rows = table(out).filter(pl.col("method") == "echo")
    told = table(out).select("method", said=pl.col("checks").list.contains(SENTENCE))
    assert set(told.filter("said")["method"]) == {"echo"} and told["said"].sum() == len(rows)
    dogs = sum("dog" in source.caption for source in captions)
    assert report.counts["echo", "no dog"] == 150 - dogs
    assert 0 < len(rows) == report.counts["echo", MADE] <= dogs
    assert set(rows["type"]) == {"add"}
    assert set(rows["version"]) == {"echo-1"}


class Copycat:
    """A writer that makes, of every caption, what `negclip` has made of it already."""

    name, version, origin = "copycat", "copycat-1", "here"

    def __init__(self, rows: pl.DataFrame) -> None:
        self.texts = dict(rows.select("caption", "text").iter_rows())

    def make(self, captions: Sequence[str], seeds: Sequence[int]) -> list[list[Draft | Rejection]]:
        return [
            [Draft(self.texts[c], "swap", "obj") if c in self.texts else Rejection("none")]
            for c in captions
        ]


def test_what_two_methods_make_alike_is_kept_once(file: Path, tmp_path: Path) -> None:
    captions = open_captions(str(file))
    settings = TextSettings("negative", ("negclip",), plausible="none")
    alone, both = tmp_path / "alone.parquet", tmp_path / "both.parquet"
    first = generate(captions, settings, alone, workers=1)
    report = generate(captions, settings, both, writers=[Copycat(table(alone))], workers=1)
    assert table(both).equals(table(alone))
    assert report.rows == first.rows
    assert report.counts["copycat", MADE] == 0
    assert report.counts["copycat", "duplicate: made before"] > 50
    assert generate(captions, settings, both, writers=[Copycat(table(alone))]) == report


def test_only_the_first(file: Path) -> None:
    captions = open_captions(str(file), limit=7)
    assert len(list(captions)) == 7
    assert captions.fingerprint != open_captions(str(file)).fingerprint


def test_methods_by_name() -> None:
    assert chosen_methods(["rules", "negclip", "llm/swap-obj"], "negative")[1:] == (
        ("llm/swap-obj",),
        (),
    )
    assert len(chosen_methods(["llm"], "negative").llm) == 7
    trohn = chosen_methods(["trohn"], "negative").llm
    assert len(trohn) == 7 and all(name.startswith("llm/trohn-") for name in trohn)
    with raises("E-METHOD-UNKNOWN", "neglcip") as caught:
        chosen_methods(["neglcip"], "negative")
    assert "Did you mean 'negclip'" in str(caught.value)
    with raises("E-METHOD-KIND", "negclip", "positive"):
        chosen_methods(["negclip"], "positive")
    with raises("E-METHODS-MIXED", "vg-relation"):
        chosen_methods(["rules", "vg-relation"], "negative")


def test_the_command_line(tmp_path: Path) -> None:
    out = tmp_path / "w.parquet"
    command = ["generate", "negatives", "world:size=40", "-M", "crepe-swap", "-o", str(out)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "crepe-swap" in result.output
    assert f"pairs from 40 captions in {out}" in result.output.replace("\n", "")
    again = CliRunner().invoke(app, [*command, "--json"])
    counts = json.loads(again.stdout)
    assert {"what": "captions", "reason": "made", "count": 40} in counts


def test_wrong_commands_are_one_sentence(tmp_path: Path) -> None:
    command = ["generate", "negatives", "world:size=5", "-o", str(tmp_path / "o.parquet")]
    for options, status, said in (
        (["-M", "nonsense"], 1, "[E-METHOD-UNKNOWN]"),
        (["-o", str(tmp_path / "x.csv")], 1, "[E-FILE-FORMAT]"),
        (["--dry-run", "1"], 2, "only llm methods have prompts"),
        (["-M", "llm"], 2, "llm methods need the name of a model"),
    ):
        result = CliRunner().invoke(app, [*command, *options])
        assert result.exit_code == status and said in result.output
        assert not list(tmp_path.iterdir())


def test_prompts_are_shown_without_a_server(tmp_path: Path) -> None:
    command = ["generate", "negatives", "world:size=5", "-M", "llm/replace-obj", "--dry-run", "1"]
    result = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "o.parquet")])
    assert result.exit_code == 0, result.output
    assert result.output.count("# llm/replace-obj") == 3
    assert not (tmp_path / "o.parquet").exists()
