"""Results that cannot be written, and two commands that would write the same one."""

from __future__ import annotations

import json
import os
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import polars as pl
import pytest
from errors import raises
from PIL import Image
from typer.testing import CliRunner

from counterpoint.cases.table import ImageRef
from counterpoint.cli.app import app
from counterpoint.data.batch import DownloadReport, Failure
from counterpoint.generation.export import export_benchmark, export_training
from counterpoint.generation.export.hub import export_hub
from counterpoint.generation.images.backends import ImageFolder
from counterpoint.generation.pairs import Pair, read_pairs, reserved, tabulate, write_pairs

SCENE = "world:0.508;small,orange,solid,triangle,0.519,0.505;large,yellow,dotted,heart,0.843,0.817"


def rows(text: str, count: int = 50) -> pl.DataFrame:
    made = ("negative", "replace", "obj", "m", "1", 0)
    return tabulate(
        [Pair(str(n), ImageRef(SCENE), "a dog", f"{text} {n}", *made) for n in range(count)]
    )


@pytest.fixture
def pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "pairs.parquet", [rows("a cat")], {"input": "x"})
    graph = {"1": {"width": 9, "height": 9, "objects": {}}}
    (tmp_path / "graphs.json").write_text(json.dumps(graph))
    return tmp_path / "pairs.parquet"


# --- two at a time -----------------------------------------------------------------------------


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    """The second begins while the first has written half of its rows."""
    out = tmp_path / "out.parquet"

    def frames() -> Iterator[pl.DataFrame]:
        yield rows("first")
        with raises("E-OUTPUT-LOCKED", out):
            write_pairs(out, [rows("second")], {})
        yield rows("first")

    assert write_pairs(out, frames(), {}) == 100
    assert {text.split()[0] for text in read_pairs(out)["text"]} == {"first"}
    assert list(tmp_path.iterdir()) == [out]


COMMANDS = {
    "negatives": "generate negatives world:size=3 -o out.parquet -M negclip --workers 1",
    "graphs": "generate negatives graphs.json -M vg-relation -o out.parquet",
    "images": "generate images pairs.parquet -o out.parquet -m world",
    "neighbours": "generate neighbours pairs.parquet -o out.parquet -m blind:length",
    "refine": "refine pairs.parquet -o out.parquet --blind length",
    "benchmark": "export pairs.parquet --as benchmark -o out.parquet",
    "training": "export pairs.parquet --as training -o out.jsonl",
    "hf": "export pairs.parquet --as hf -o out",
}


@pytest.mark.slow
def test_a_second_command_is_refused_before_its_work(pairs: Path) -> None:
    for command in COMMANDS.values():
        words = command.split()
        out = Path(words[words.index("-o") + 1])
        with reserved(out):
            before = sorted(pairs.parent.rglob("*"))
            done = CliRunner().invoke(app, words)
            assert sorted(pairs.parent.rglob("*")) == before
        assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.exception
        assert f"error: {out}: " in done.stderr and "[E-OUTPUT-LOCKED]" in done.stderr


def test_the_same_images_are_not_drawn_by_two_commands(pairs: Path) -> None:
    with reserved(Path("out-images")):
        done = CliRunner().invoke(app, COMMANDS["images"].split())
    assert "error: out-images: " in done.stderr and "[E-OUTPUT-LOCKED]" in done.stderr


# --- places that cannot be written to ----------------------------------------------------------

_PLACES = {
    "name": ("x" * 260 + ".parquet", "the name is too long; choose a shorter one"),
    "file": ("pairs.parquet/out.parquet", "something else of that name is in the way"),
}
if os.geteuid() != 0:  # to whom nothing is forbidden
    _PLACES["forbidden"] = ("forbidden/out.parquet", "permission denied")


@pytest.mark.slow
def test_an_impossible_place_is_told_before_the_work(pairs: Path) -> None:
    Path("forbidden").mkdir(mode=0o500)
    for command, (name, reason) in product(COMMANDS.values(), _PLACES.values()):
        words = command.split()
        out = Path(name).with_suffix(Path(words[words.index("-o") + 1]).suffix)
        words[words.index("-o") + 1] = str(out)
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.exception
        [line] = done.stderr.splitlines()
        why = f"error: {out}: cannot be written: {reason}. [E-OUTPUT-UNWRITABLE]"
        assert line == why


# --- full disks --------------------------------------------------------------------------------


@contextmanager
def full_disk(most: int) -> Iterator[None]:
    """No file can grow beyond so many bytes: a fault of the system, as that of a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _hub(folder: Path, pairs: Path) -> None:
    export_hub([pairs], folder / "out", Counter(), embed=True)


def _images(folder: Path, pairs: Path) -> None:
    noise = Image.effect_noise((64, 64), 90)
    ImageFolder(folder / "images", folder).keep("abcd", noise)


WRITERS: dict[str, Callable[[Path, Path], object]] = {
    "pairs": lambda folder, pairs: write_pairs(folder / "o.parquet", [rows("x", 999)], {}),
    "many pieces": lambda folder, _: write_pairs(folder / "o.parquet", [rows("x", 99)] * 99, {}),
    "benchmark": lambda folder, pairs: export_benchmark([pairs], folder / "o.parquet", Counter()),
    "hub": _hub,
    "images": _images,
} | {
    suffix: lambda folder, pairs, suffix=suffix: export_training(
        [pairs], folder / f"o{suffix}", Counter()
    )
    for suffix in (".parquet", ".jsonl", ".csv")
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    pairs: Path, tmp_path: Path, write: Callable[[Path, Path], object]
) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    with (
        full_disk(1000),
        raises("E-OUTPUT-UNWRITABLE") as caught,
    ):
        write(folder, pairs)
    assert len(str(caught.value)) < 400 and "draft" not in str(caught.value)
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_a_list_of_failures_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    report = DownloadReport("x", failures=[Failure(Path("a"), "b" * 9000)])
    with full_disk(1000):
        report.list_failures(tmp_path)
    assert report.listed is None and list(tmp_path.iterdir()) == []
