"""Mutated files of every kind that the core reads: a result or a sentence, never a traceback."""

from __future__ import annotations

import copy
import io
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fuzz_targets_core import TARGETS, some_cases, some_run
from models_for_tests import noise
from PIL import Image

TRIES = 120
ODD_TEXTS = (
    *(
        "",
        "\0",
        "é",
        "\ufeff",
        "\u202e",
        "all",
        "NaN",
        "1e999",
        "9" * 5000,
        "x" * 100_000,
        "\\ud800",
    ),
    *("..", "/dev/zero", "text:", "world:", "shuffle-rows:1:", "parquet:a#b/1", "[", "{", "]" * 50),
)
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**70, 0.5, 1e308, float("nan"), float("inf")),
    *([], {}, [[]], [None], {"a": None}, "true", *ODD_TEXTS),
)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """A few bytes changed, removed, repeated or put in."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5, 30))):
        place = chance.randrange(len(found) + 1)
        match chance.randrange(5):
            case 0 if found:
                found[min(place, len(found) - 1)] ^= 1 << chance.randrange(8)
            case 1:
                found[place:place] = chance.choice(ODD_TEXTS).encode()[:2000]
            case 2:
                del found[place : place + chance.choice((1, 4, 100))]
            case 3:
                found[place:place] = found[place : place + chance.choice((1, 20, 500))]
            case _:
                found[place : place + 4] = chance.randbytes(4)
    return bytes(found[: chance.randrange(len(found) + 1)] if chance.random() < 0.1 else found)


def changed(value: Any, chance: random.Random) -> Any:
    """A JSON value with one node replaced, removed or doubled."""
    places = list(_places(value))
    owner, key = chance.choice(places)
    match chance.randrange(4):
        case 0:
            del owner[key]
        case 1 if isinstance(owner, list):
            owner.append(copy.deepcopy(owner[key]))
        case _:
            owner[key] = copy.deepcopy(chance.choice(ODD_VALUES))
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list) and value[key]:
            yield from _places(value[key])


def as_parquet(frame: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    frame.write_parquet(file)
    return file.getvalue()


# --- seeds -------------------------------------------------------------------------------------


def case_lines() -> list[dict[str, Any]]:
    return [
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


def seeds(name: str, folder: Path) -> list[bytes]:
    run, kind = some_run(folder / "base"), name.split()[-1]
    if name.startswith("run"):
        return [(run / kind).read_bytes()]
    return {
        "cases.jsonl": lambda: ["\n".join(map(json.dumps, case_lines())).encode()],
        "cases.parquet": lambda: [as_parquet(some_cases().frame)],
        "table.csv": lambda: [score_table().write_csv().encode()],
        "table.tsv": lambda: [score_table().write_csv(separator="\t").encode()],
        "table.jsonl": lambda: [score_table().write_ndjson().encode()],
        "table.parquet": lambda: [as_parquet(score_table())],
        "image": images,
        "reference": lambda: [b"a.png\n0\n0\n3\n3", b"shuffle-rows:1:a.png", b"parquet:t#a/1"],
        "code": lambda: [b"0.500;small,red,solid,circle,0.167,0.167;large,blue,dotted,ring,.5,.5"],
    }[kind]()


def images() -> list[bytes]:
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


# --- the fuzzers -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # Pillow warns of what it repairs
@pytest.mark.parametrize("name", TARGETS)
def test_mutated_bytes(name: str, tmp_path: Path) -> None:
    chance, found = random.Random(name), seeds(name, tmp_path)
    for data in found:
        TARGETS[name](data, tmp_path)
    for number in range(TRIES if name != "image" else 5 * len(found)):
        TARGETS[name](mutated(found[number % len(found)], chance), tmp_path)


@pytest.mark.parametrize("name", ["cases.jsonl", "table.jsonl", "run.json"])
def test_changed_values(name: str, tmp_path: Path) -> None:
    chance = random.Random(name)
    [seed] = seeds(name, tmp_path)
    lines = [seed] if name == "run.json" else seed.splitlines()
    values = [json.loads(line) for line in lines]
    for _ in range(TRIES):
        odd = changed(copy.deepcopy(values), chance)
        TARGETS[name]("\n".join(map(json.dumps, odd)).encode(), tmp_path)


def _without(frame: pl.DataFrame, column: str, chance: random.Random) -> pl.DataFrame:
    del chance
    return frame.drop(column)


def _of_other_type(frame: pl.DataFrame, column: str, chance: random.Random) -> pl.DataFrame:
    kind = chance.choice((pl.String(), pl.Float64(), pl.Int64(), pl.Boolean(), pl.Null()))
    return frame.with_columns(pl.lit(None, dtype=kind).alias(column))


def _with_nulls(frame: pl.DataFrame, column: str, chance: random.Random) -> pl.DataFrame:
    hidden = pl.Series([chance.random() < 0.3 for _ in range(len(frame))])
    return frame.with_columns(
        pl.when(hidden)
        .then(None)
        .otherwise(pl.col(column))
        .cast(frame.schema[column])
        .alias(column)
    )


def _in_other_order(frame: pl.DataFrame, column: str, chance: random.Random) -> pl.DataFrame:
    return frame.with_columns(frame[column].shuffle(chance.randrange(1000)))


def _of_other_length(frame: pl.DataFrame, column: str, chance: random.Random) -> pl.DataFrame:
    del column
    return frame.sample(chance.randrange(2 * len(frame)), with_replacement=True, seed=1)


CHANGES: tuple[Callable[[pl.DataFrame, str, random.Random], pl.DataFrame], ...] = (
    *(_without, _of_other_type, _with_nulls, _in_other_order, _of_other_length),
)


@pytest.mark.parametrize(
    "name", ["cases.parquet", "table.parquet", "run cases.parquet", "run scores.parquet"]
)
def test_changed_columns(name: str, tmp_path: Path) -> None:
    chance = random.Random(name)
    [seed] = seeds(name, tmp_path)
    frame = pl.read_parquet(seed)
    for _ in range(TRIES // 2):
        odd = frame
        for _ in range(chance.choice((1, 1, 2))):
            odd = chance.choice(CHANGES)(odd, chance.choice(odd.columns), chance)
            if not odd.width or not odd.height:
                break
        TARGETS[name](as_parquet(odd), tmp_path)
