"""Submissions to a board that somebody forged: none that changes a number or a case may pass."""

from __future__ import annotations

import functools
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
from changed_runs import change_manifest, change_table
from fuzz_support import Target, json_mutations

from counterpoint._util.errors import CounterpointError, RunError
from counterpoint.benchmarks import load_benchmark
from counterpoint.evaluation import check_submission, evaluate, write_results
from counterpoint.evaluation.submissions import Submission
from counterpoint.metrics import PROTOCOLS
from counterpoint.runs import Run, as_json, load_run, rows

RESAMPLES = 20
NAMES = ("world-swap:size=12", "world-retrieval:size=5")
OTHERS = ("world-swap:size=6", "world-swap", "winoground", "own.jsonl", "world-swap:size=12:x=1")
SETTINGS: dict[str, tuple[Any, ...]] = {
    "name": ("strict", "bivlc", "retrieval", "lenient", "mine"),
    "tie": ("right", "half", "wrong"),
    "average": ("macro", "micro", "weighted"),
    "caption_format": ("lower", "raw", "stripped"),
    "exclude": (["attributes/size"], ["usual", "unusual"]),
    "skip": (["augmented_accuracy"], ["usual"]),
    "min_count": (5, 10**6, -1),
    "overlong": ("cut", "leave out"),
}
CASES = "cases.parquet"
SCORES = "scores.parquet"


@functools.cache
def _right() -> Path:
    """A submission as `counterpoint board` takes it; it stays until the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="submission-"))
    run = evaluate("random", NAMES, out=folder / "run", store=folder / "store")
    write_results(rows(load_run(run.folder), resamples=RESAMPLES), run.folder)
    return run.folder


# --- forgeries -----------------------------------------------------------------------------------


def claims(folder: Path, rng: random.Random) -> None:
    path = folder / "results.json"
    found = json.loads(path.read_text())
    row = rng.choice(found)
    key = rng.choice([*row])
    if rng.random() < 0.2:
        found.append({**row, key: rng.choice((None, 0.5, "x"))})
    elif rng.random() < 0.2:
        found.remove(row)
    elif isinstance(row[key], int | float) and rng.random() < 0.7:
        row[key] = row[key] * rng.choice((1.001, -1, 2)) + rng.choice((0, 0.001, 1))
    else:
        row[key] = rng.choice(found).get(key)
    path.write_text(json.dumps(found))


def anything(folder: Path, rng: random.Random) -> None:
    """Any part of run.json, or of the rows of results.json."""
    path = folder / rng.choice(("run.json", "run.json", "results.json"))
    [changed] = json_mutations(json.loads(path.read_text()), 1, rng.randrange(10**9))
    path.write_text(json.dumps(changed))


def protocol(folder: Path, rng: random.Random) -> None:
    key = rng.choice([*SETTINGS])
    name = rng.choice(NAMES)

    def change(manifest: Any) -> None:
        manifest["benchmarks"][name]["protocol"][key] = rng.choice(SETTINGS[key])

    change_manifest(folder, change)


def of_benchmark(change: Callable[[pl.DataFrame], pl.DataFrame], name: str) -> Any:
    """A change of the rows of one benchmark."""

    def changed(frame: pl.DataFrame) -> pl.DataFrame:
        own = pl.col("benchmark") == name
        return pl.concat([change(frame.filter(own)), frame.filter(~own)], how="vertical_relaxed")

    return changed


def cases(folder: Path, rng: random.Random) -> None:
    """Other content of some cases, under the same ids."""
    at = pl.int_range(pl.len()).is_in(rng.sample(range(12), rng.choice((1, 3, 12))))
    column, new = rng.choice(
        (
            ("captions", pl.col("captions").list.reverse()),
            ("captions", pl.col("captions").list.eval(pl.element() + " ")),
            ("groups", pl.col("groups").list.eval(pl.element() + "x")),
            ("groups", pl.col("groups").list.head(1)),
            ("cluster", pl.lit("one")),
            ("id", pl.col("id") + "0"),
            ("images", pl.col("images").list.reverse()),
            ("images", pl.col("images").first()),
            ("truth", pl.col("truth").list.reverse()),
        )
    )
    changed = pl.when(at).then(new).otherwise(pl.col(column)).alias(column)
    change_table(folder, CASES, of_benchmark(lambda own: own.with_columns(changed), NAMES[0]))


def fewer(folder: Path, rng: random.Random) -> None:
    """Some cases are gone with their scores, and run.json may say a reason that is none."""
    gone = [str(number) for number in rng.sample(range(12), rng.choice((1, 3, 11)))]
    for name, column in ((CASES, "id"), (SCORES, "case_id")):
        stays = ~pl.col(column).is_in(gone)
        change_table(folder, name, of_benchmark(lambda own, s=stays: own.filter(s), NAMES[0]))
    left, stated = 12 - len(gone), rng.randrange(5)

    def change(manifest: Any) -> None:
        said = manifest["benchmarks"][NAMES[0]]
        said.update(cases=left, scored=left, pairs=3 * left, whole=rng.choice((left, 12)))
        if stated == 1:
            said["cases"], said["left_out"] = 12, [[id, "no such file"] for id in gone]
        elif stated == 2:
            manifest["options"]["limit"] = left
        elif stated == 3:
            said["absent"] = [{"what": gone[0], "why": "rows missing", "cases": len(gone)}]
        elif stated == 4:
            said["lost_images"] = [[id, "no such file"] for id in gone]

    change_manifest(folder, change)


def scores(folder: Path, rng: random.Random) -> None:
    new = rng.choice((-pl.col("score"), pl.col("score").reverse(), pl.col("score").shift(1)))
    some = pl.int_range(pl.len()) < rng.choice((2, 40))
    value = pl.when(some).then(new).otherwise("score").alias("score")
    odd = pl.lit(rng.choice((float("nan"), float("inf"), 1e38)), pl.Float32).alias("score")
    made = value if rng.random() < 0.7 else pl.when(some).then(odd).otherwise("score")
    change_table(folder, SCORES, lambda frame: frame.with_columns(made.alias("score")))


def renamed(folder: Path, rng: random.Random) -> None:
    """A benchmark goes under the name of another one."""
    old, new = rng.choice(NAMES), rng.choice((*OTHERS, *NAMES))
    name = pl.col("benchmark").replace(old, new)
    for table in (CASES, SCORES):
        change_table(folder, table, lambda frame: frame.with_columns(name))
    change_manifest(
        folder, lambda told: told["benchmarks"].update({new: told["benchmarks"].pop(old)})
    )


FORGERIES = (claims, claims, anything, protocol, cases, cases, fewer, fewer, scores, renamed)


def _made_to_fit(folder: Path, rng: random.Random) -> None:
    """Hashes and numbers are made anew of what is there, as a forger would do."""
    with_hashes, with_numbers = rng.random() < 0.7, rng.random() < 0.8
    run = load_run(folder)
    if with_hashes:
        hashes = {name: part.cases.content_hash() for name, part in run.parts.items()}

        def change(manifest: Any) -> None:
            for name, found in hashes.items():
                manifest["benchmarks"][name]["data_hash"] = found

        change_manifest(folder, change)
    if with_numbers:
        write_results(rows(load_run(folder), resamples=RESAMPLES), folder)


# --- what must not pass --------------------------------------------------------------------------


def submission(data: bytes, folder: Path) -> None:
    place = folder / "sent"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(_right(), place)
    rng = random.Random(data)
    forged = [rng.choice(FORGERIES) for _ in range(rng.choice((1, 1, 2)))]
    try:
        for forge in forged:
            forge(place, rng)
        if not {claims, scores}.intersection(forged):
            _made_to_fit(place, rng)
    except (CounterpointError, AttributeError, KeyError, TypeError, ValueError):
        pass  # the first forgery left nothing for the second: sent as it is
    found = check_submission(place, data=folder, resamples=RESAMPLES)
    for said in found.differences:
        assert "\n" not in said and said.endswith((".", "]")) and len(said) < 1200, said
    if found.differences:
        raise RunError("E-RUN-DAMAGED", min(found.differences, key=len))
    _refuse_forgery(place, found, folder, [forge.__name__ for forge in forged])


def _refuse_forgery(folder: Path, found: Submission, data: Path, forged: list[str]) -> None:
    run = load_run(folder)
    limit = run.manifest["options"].get("limit") if "options" in run.manifest else None
    for name, part in run.parts.items():
        told = [note for note in found.notes if repr(name) in note]
        if any("was not compared" in note for note in told):
            continue
        chosen = PROTOCOLS[part.protocol.name]
        true = _lines(load_benchmark(name, data, protocol=chosen.name).cases.frame)
        sent = _lines(part.cases.frame)
        lost = {id for id, _ in part.left_out_images}
        assert all(true[id] == line for id, line in sent.items() if id not in lost), forged
        lacking = true.keys() - sent.keys() - {id for id, _ in part.left_out}
        assert not lacking or limit or told, forged
    _refuse_numbers(run, json.loads((folder / "results.json").read_text()), forged)


def _lines(frame: pl.DataFrame) -> dict[str, str]:
    columns = [name for name in ("images", "captions", "truth", "groups") if name in frame]
    content = frame.select(columns).write_ndjson().split("\n")
    return dict(zip(frame["id"], content, strict=False))


def _refuse_numbers(run: Run, sent: Any, forged: list[str]) -> None:
    """Every number is that of the scores under the protocol that is published by its name."""
    under = {
        name: replace(part, protocol=PROTOCOLS[part.protocol.name])
        for name, part in run.parts.items()
    }
    true = {
        (row["benchmark"], row["group"], row["metric"]): row
        for row in as_json(rows(replace(run, parts=under), resamples=RESAMPLES, main=False))
    }
    for row in sent:
        own = true[row["benchmark"], row["group"], row["metric"]]
        for key in ("value", "ci_low", "ci_high", "n", "ties", "chance"):
            value, right = row.get(key), own.get(key)
            fits = value == right or abs(value - right) <= 1e-5 * abs(right)
            assert fits, (forged, key, value, right)


def seeds(count: int, seed: int) -> Iterator[bytes]:
    for number in range(count):
        yield f"{seed} {number}".encode()


TARGETS = {"submission": Target(submission, seeds)}
