"""Readers of cases, tables, runs, images and the world's codes as targets for fuzzers."""

from __future__ import annotations

import functools
import io
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from fuzz_support import LONGEST, Inputs, Target, mutations, of_bytes, of_json, of_lines
from models_for_tests import choice, is_sentence, noise
from PIL import Image

from counterpoint._util.errors import CounterpointError, RunError
from counterpoint._util.store import Store
from counterpoint._util.tables import read_table
from counterpoint.cases.files import read_cases
from counterpoint.cases.table import Case, Cases, ImageRef
from counterpoint.evaluation.importing import COLUMNS, _scores
from counterpoint.evaluation.submissions import check_submission
from counterpoint.images import Picture, decode
from counterpoint.metrics.protocols import PROTOCOLS
from counterpoint.runs import Part, Run, as_json, file_digest, load_run, rows, save_run
from counterpoint.world.scenes import SceneCodeError, read_scene

Reader = Callable[[bytes, Path], None]


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


def _file(reader: Callable[[Path], object], name: str) -> Reader:
    def target(data: bytes, folder: Path) -> None:
        path = folder / name
        path.write_bytes(data)
        reader(path)

    return target


def _results(data: bytes, folder: Path) -> None:
    """The numbers of a submission replaced; a difference is a sentence."""
    base = some_run(folder / "base")
    (base / "results.json").write_bytes(data)
    if found := check_submission(base, resamples=3).differences:
        raise RunError("E-RESULTS-FORMAT", found[0].rpartition(" [")[0] or found[0])


def _claims() -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        return as_json(rows(load_run(some_run(Path(folder) / "run")), resamples=3))


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


def _run_file(name: str) -> Reader:
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
        _use_run(run)

    return target


def image(data: bytes, folder: Path) -> None:
    del folder
    decode(data, "a.png")


def image_reference(data: bytes, folder: Path) -> None:
    """Its first line is the reference, the rest is a crop."""
    if not (folder / "a.png").exists():
        noise(1).save(folder / "a.png")
    reference, *box = data.decode("utf-8", "replace").split("\n", 4)
    sides = [int(side) for side in box if side.lstrip("-").isdecimal() and len(side) < 10]
    crop = (sides[0], sides[1], sides[2], sides[3]) if len(sides) == 4 else None
    picture = Picture(ImageRef(reference, crop), folder)
    refused = None
    with Store(folder / "store") as store:
        for read in (picture.open, picture.file, lambda: picture.key(store)):
            try:
                read()
            except CounterpointError as error:
                refused = error
    if refused is not None:
        raise refused


def world_code(data: bytes, folder: Path) -> None:
    del folder
    code = data.decode("utf-8", "replace")
    try:
        read_scene(code)
    except SceneCodeError as error:
        assert is_sentence(error) and len(str(error)) < LONGEST


# --- what they begin with ----------------------------------------------------------------------


CASES: list[dict[str, Any]] = [
    {"id": "1", "images": ["a.png"], "captions": ["a b", "b a"], "truth": [[True, False]]},
    {
        "id": 2,
        "images": [{"path": "b.png", "box": [1, 2, 3, 4]}, "c.png"],
        "captions": ["one", "two"],
        "truth": [[1, 0], [0, 1]],
        "groups": ["swap/att"],
        "cluster": "b",
    },
]


@functools.cache
def score_table() -> pl.DataFrame:
    cases = some_cases()
    pairs = cases.pairs()
    layout = cases.layout()
    return pl.DataFrame(
        {
            "case_id": cases.ids.gather(pairs.cases),
            "image": pairs.images - layout.images[pairs.cases],
            "caption": pairs.captions - layout.captions[pairs.cases],
            "score": [n / 8 for n in range(len(pairs.cases))],
        }
    )


@functools.cache
def _run_bytes(name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return (some_run(Path(folder) / "run") / name).read_bytes()


def as_parquet(frame: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    frame.write_parquet(file)
    return file.getvalue()


@functools.cache
def pictures() -> list[bytes]:
    """A small picture in every format that can be written here."""
    Image.init()
    found = []
    for format in Image.SAVE:
        for mode in ("RGB", "P", "1"):
            file = io.BytesIO()
            try:
                noise(1, (32, 24)).convert(mode).save(file, format)
            except Exception:  # not every format takes every mode
                continue
            found.append(file.getvalue())
    assert len(found) > 40
    return found


def of_pictures(count: int, seed: int) -> Iterator[bytes]:
    """As they are, and with changed bytes."""
    yield from pictures()
    for start in pictures():
        yield from mutations(start, max(1, count // len(pictures())), seed)


# --- tables ------------------------------------------------------------------------------------


def _without(frame: pl.DataFrame, column: str, rng: random.Random) -> pl.DataFrame:
    del rng
    return frame.drop(column)


def _of_other_type(frame: pl.DataFrame, column: str, rng: random.Random) -> pl.DataFrame:
    kind = rng.choice((pl.String(), pl.Float64(), pl.Int64(), pl.Boolean(), pl.Null()))
    return frame.with_columns(pl.lit(None, dtype=kind).alias(column))


def _with_nulls(frame: pl.DataFrame, column: str, rng: random.Random) -> pl.DataFrame:
    hidden = pl.Series([rng.random() < 0.3 for _ in range(len(frame))])
    return frame.with_columns(
        pl.when(hidden)
        .then(None)
        .otherwise(pl.col(column))
        .cast(frame.schema[column])
        .alias(column)
    )


def _in_other_order(frame: pl.DataFrame, column: str, rng: random.Random) -> pl.DataFrame:
    return frame.with_columns(frame[column].shuffle(rng.randrange(1000)))


def _of_other_length(frame: pl.DataFrame, column: str, rng: random.Random) -> pl.DataFrame:
    del column
    return frame.sample(rng.randrange(2 * len(frame)), with_replacement=True, seed=1)


CHANGES: tuple[Callable[[pl.DataFrame, str, random.Random], pl.DataFrame], ...] = (
    *(_without, _of_other_type, _with_nulls, _in_other_order, _of_other_length),
)


def of_table(make: Callable[[], bytes]) -> Inputs:
    """The table as it is, two thirds with changed bytes, and one with changed columns."""

    def inputs(count: int, seed: int) -> Iterator[bytes]:
        yield make()
        yield from mutations(make(), count - count // 3, seed)
        for number in range(count // 3):
            rng = random.Random(f"{seed} {number}")
            yield as_parquet(_odd(pl.read_parquet(make()), rng))

    return inputs


def _odd(frame: pl.DataFrame, rng: random.Random) -> pl.DataFrame:
    for _ in range(rng.choice((1, 1, 2))):
        if frame.width and frame.height:
            frame = rng.choice(CHANGES)(frame, rng.choice(frame.columns), rng)
    return frame


def _table(ending: str, inputs: Inputs) -> Target:
    return Target(_file(_use_table, f"table{ending}"), inputs)


TARGETS: dict[str, Target] = {
    "cases.jsonl": Target(_file(_use_cases, "cases.jsonl"), of_lines(CASES)),
    "cases.parquet": Target(
        _file(_use_cases, "cases.parquet"), of_table(lambda: as_parquet(some_cases().frame))
    ),
    "table.csv": _table(".csv", of_bytes(lambda: score_table().write_csv().encode())),
    "table.tsv": _table(".tsv", of_bytes(lambda: score_table().write_csv(separator="\t").encode())),
    "table.jsonl": _table(".jsonl", of_lines(score_table().to_dicts())),
    "table.parquet": _table(".parquet", of_table(lambda: as_parquet(score_table()))),
    "run.json": Target(_run_file("run.json"), of_json(lambda: json.loads(_run_bytes("run.json")))),
    "results.json": Target(_results, of_json(_claims)),
    "run cases.parquet": Target(
        _run_file("cases.parquet"), of_table(lambda: _run_bytes("cases.parquet"))
    ),
    "run scores.parquet": Target(
        _run_file("scores.parquet"), of_table(lambda: _run_bytes("scores.parquet"))
    ),
    "image": Target(image, of_pictures),
    "image reference": Target(
        image_reference, of_bytes(b"a.png\n0\n0\n3\n3", b"shuffle-rows:1:a.png", b"parquet:t#a/1")
    ),
    "world code": Target(
        world_code,
        of_bytes(b"0.500;small,red,solid,circle,0.167,0.167;large,blue,dotted,ring,.5,.5"),
    ),
}
