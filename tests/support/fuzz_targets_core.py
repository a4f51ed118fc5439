"""What a fuzzer feeds: readers of the core, each as a function of some bytes and a folder.

A target returns whether the input was taken or refused in a sentence. Any other error is a defect.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from models_for_tests import choice, is_sentence, noise

from counterpoint._util.errors import CounterpointError
from counterpoint._util.store import Store
from counterpoint._util.tables import read_table
from counterpoint.cases.files import read_cases
from counterpoint.cases.table import Case, Cases, ImageRef
from counterpoint.evaluation.importing import COLUMNS, _scores
from counterpoint.images.decoding import decode
from counterpoint.images.pictures import Picture
from counterpoint.metrics.protocols import PROTOCOLS
from counterpoint.runs.folders import Part, Run, file_digest, load_run, save_run
from counterpoint.runs.results import rows
from counterpoint.world.scenes import SceneCodeError, read_scene

Target = Callable[[bytes, Path], None]
LONGEST = 3000  # characters of a message


def some_cases() -> Cases:
    square = ((True, False), (False, True))
    images = (ImageRef("a.png", (0, 0, 3, 3)), ImageRef("world:x"))
    made = [
        *(choice(f"c{n}", f"{n % 3}.png", "a b", "b a", "a a") for n in range(4)),
        Case("square", images, ("one", "two"), square, ("swap/att",), "cluster"),
    ]
    return Cases.build(made, source="the fuzzer")


def some_run(folder: Path) -> Path:
    """A small run of two benchmarks, saved in a folder unless it is there."""
    if not folder.exists():
        cases = some_cases()
        scores = np.linspace(0, 1, cases.pair_offsets[-1], dtype=np.float32)
        parts = {
            name: Part(name, cases, scores, PROTOCOLS["strict"], (("lost", "no image."),))
            for name in ("one", "two")
        }
        save_run(Run("model", parts, {"created": "today", "command": ["x"]}), folder)
    return folder


def _try(read: Callable[[], object]) -> None:
    try:
        read()
    except CounterpointError as error:
        assert is_sentence(error), str(error)[:LONGEST]
        assert len(str(error)) < LONGEST


def _file(reader: Callable[[Path], object], name: str) -> Target:
    def target(data: bytes, folder: Path) -> None:
        path = folder / name
        path.write_bytes(data)
        _try(lambda: reader(path))

    return target


def _use_cases(path: Path) -> None:
    cases = read_cases(path)
    cases.content_hash()
    list(cases.blocks())
    for row in range(min(len(cases), 20)):
        cases.case(row)


def _use_table(path: Path) -> None:
    _scores(read_table(path, COLUMNS).select(*COLUMNS), some_cases(), path)


def _use_run(folder: Path) -> None:
    run = load_run(folder)
    rows(run, resamples=3)
    assert run.left_out >= 0


def _run_file(name: str) -> Target:
    """A run with one file replaced; the manifest names its digest, as one who made it would."""

    def target(data: bytes, folder: Path) -> None:
        base, run = some_run(folder / "base"), folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(base, run)
        (run / name).write_bytes(data)
        if name != "run.json":
            manifest = json.loads((run / "run.json").read_text())
            manifest["files"][name] = file_digest(run / name)
            (run / "run.json").write_text(json.dumps(manifest))
        _try(lambda: _use_run(run))

    return target


def image(data: bytes, folder: Path) -> None:
    del folder
    _try(lambda: decode(data, "a.png"))


def image_reference(data: bytes, folder: Path) -> None:
    """Its first line is the reference, the rest is a crop."""
    if not (folder / "a.png").exists():
        noise(1).save(folder / "a.png")
    reference, *box = data.decode("utf-8", "replace").split("\n", 4)
    sides = [int(side) for side in box if side.lstrip("-").isdecimal() and len(side) < 10]
    crop = (sides[0], sides[1], sides[2], sides[3]) if len(sides) == 4 else None
    picture = Picture(ImageRef(reference, crop), folder)
    _try(picture.open)
    _try(picture.file)
    with Store(folder / "store") as store:
        _try(lambda: picture.key(store))


def world_code(data: bytes, folder: Path) -> None:
    del folder
    code = data.decode("utf-8", "replace")
    try:
        read_scene(code)
    except SceneCodeError as error:
        assert is_sentence(error) and len(str(error)) < LONGEST


TARGETS: dict[str, Target] = {
    "cases.jsonl": _file(_use_cases, "cases.jsonl"),
    "cases.parquet": _file(_use_cases, "cases.parquet"),
    "table.csv": _file(_use_table, "table.csv"),
    "table.tsv": _file(_use_table, "table.tsv"),
    "table.jsonl": _file(_use_table, "table.jsonl"),
    "table.parquet": _file(_use_table, "table.parquet"),
    "run.json": _run_file("run.json"),
    "run cases.parquet": _run_file("cases.parquet"),
    "run scores.parquet": _run_file("scores.parquet"),
    "image": image,
    "image reference": image_reference,
    "world code": world_code,
}
