"""Scores from elsewhere: every row in its place, or an error that names it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from errors import raises
from support import square, write_lines
from typer.testing import CliRunner

from counterpoint._util.errors import DataError
from counterpoint.benchmarks import load_benchmark
from counterpoint.cases import Cases
from counterpoint.cli.app import app
from counterpoint.evaluation import evaluate, import_scores
from counterpoint.runs import Run, as_json, load_run, rows

Rows = list[dict[str, Any]]
IDS = ("007", "7", "a/0", "x")


@pytest.fixture
def mine(tmp_path: Path) -> str:
    """A case of one image, and three of two; no image is there."""
    square = [[True, False], [False, True]]
    cases = [
        {"id": "007", "images": ["0.jpg"], "captions": ["a", "b", "c"], "truth": [[1, 1, 0]]},
        *(
            {"id": id, "images": ["1.jpg", "2.jpg"], "captions": ["a", "b"], "truth": square}
            for id in IDS[1:]
        ),
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(json.dumps(case) for case in cases))
    return "mine.jsonl"


def all_rows(first: float = 0.0) -> Rows:
    """A score for every pair of `mine`, which counts up."""
    shapes = {"007": (1, 3), "7": (2, 2), "a/0": (2, 2), "x": (2, 2)}
    pairs = [(id, i, c) for id, (k, m) in shapes.items() for i in range(k) for c in range(m)]
    return [
        {"case_id": id, "image": i, "caption": c, "score": first + n / 8}
        for n, (id, i, c) in enumerate(pairs)
    ]


def in_csv(found: Rows, separator: str = ",") -> str:
    lines = [separator.join(found[0])]
    lines += [separator.join("" if v is None else str(v) for v in row.values()) for row in found]
    return "\n".join(lines) + "\n"


WRITERS: dict[str, Callable[[Path, Rows], object]] = {
    "csv": lambda path, found: path.write_text(in_csv(found)),
    "tsv": lambda path, found: path.write_text(in_csv(found, "\t")),
    "jsonl": lambda path, found: path.write_text("\n".join(map(json.dumps, found))),
    "parquet": lambda path, found: pl.DataFrame(found).write_parquet(path),
}


def write(found: Rows, ending: str = "csv") -> Path:
    path = Path(f"scores.{ending}")
    WRITERS[ending](path, found)
    return path


def scores_of(run: Run) -> list[float]:
    [part] = run.parts.values()
    return part.scores.tolist()


# --- every row in its place --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("ending", WRITERS)
def test_rows_may_come_in_any_form_and_order(ending: str, mine: str) -> None:
    found, shuffle = all_rows(), np.random.default_rng(0).permutation
    for order in (range(15), range(14, -1, -1), shuffle(15).tolist()):
        path = write([found[n] for n in order], ending)
        run = import_scores(path, mine, "elsewhere", out="run")
        assert scores_of(run) == [n / 8 for n in range(15)]


@pytest.mark.slow
@pytest.mark.parametrize("ending", WRITERS)
def test_ids_stay_texts(ending: str, mine: str) -> None:
    """007 and 7 are two cases, in every form."""
    run = import_scores(write(all_rows(), ending), mine, "m", out="run")
    assert run.parts[mine].cases.ids.to_list() == list(IDS)
    wrong = [row | {"case_id": row["case_id"].lstrip("0")} for row in all_rows()]
    with raises("E-PAIR-UNKNOWN", 1):
        import_scores(write(wrong, ending), mine, "m", out="run")


def test_ids_may_be_numbers_in_jsonl(tmp_path: Path) -> None:
    Path("n.jsonl").write_text(
        json.dumps({"id": 7, "images": ["0.jpg"], "captions": ["a", "b"], "truth": [[1, 0]]})
    )
    found = [{"case_id": 7, "image": 0, "caption": c, "score": 1.0 - c} for c in (0, 1)]
    assert scores_of(import_scores(write(found, "jsonl"), "n.jsonl", "m", out="run")) == [1, 0]


def test_other_columns_are_no_harm(mine: str) -> None:
    found = [{"note": "x", **row, "more": "1"} for row in all_rows()]
    assert scores_of(import_scores(write(found), mine, "m", out="run")) == [
        n / 8 for n in range(15)
    ]


def test_whole_numbers_are_scores_too(mine: str) -> None:
    found = [row | {"score": n} for n, row in enumerate(all_rows())]
    for ending in WRITERS:
        run = import_scores(write(found, ending), mine, "m", out="run")
        assert scores_of(run) == list(range(15))


# --- the run -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["world-bi:size=8", "world-swap:size=12"])
def test_the_run_equals_one_that_was_evaluated(name: str) -> None:
    """A run's own scores.parquet can be imported."""
    evaluated = evaluate("random", name, out="first")
    import_scores("first/scores.parquet", name, "random", out="second")
    imported = load_run("second")
    assert as_json(rows(imported, resamples=50)) == as_json(rows(evaluated, resamples=50))
    a, b = evaluated.parts[name], imported.parts[name]
    assert np.array_equal(a.scores, b.scores)
    assert a.cases.frame.equals(b.cases.frame)
    assert a.protocol == b.protocol
    described = [run.manifest["benchmarks"][name] for run in (load_run("first"), imported)]
    assert described[0]["data_hash"] == described[1]["data_hash"]
    assert imported.left_out == 0


def test_the_run_says_where_it_is_from(mine: str) -> None:
    run = import_scores(write(all_rows()), mine, "my/model:1", out="run")
    manifest = json.loads(Path("run/run.json").read_text())
    assert (manifest["model"], manifest["model_info"]) == (
        "my/model:1",
        {"imported_from": "scores.csv"},
    )
    before = manifest["fingerprint"]
    write(all_rows(1.0))
    import_scores("scores.csv", mine, "my/model:1", out="run")
    assert json.loads(Path("run/run.json").read_text())["fingerprint"] != before
    assert run.folder == Path("run")


def test_without_out_the_run_is_named_after_model_and_benchmark(mine: str) -> None:
    run = import_scores(write(all_rows()), mine, "my/model:1")
    assert run.folder == Path("runs/my-model-1-mine.jsonl-imported")
    assert load_run(run.folder).model == "my/model:1"


GOLDEN = {  # image by image: captions 0 and 1
    "both": ((2, 1), (1, 2)),
    "only I2T": ((5, 4), (6, 7)),
    "only T2I": ((5, 6), (4, 7)),
    "neither": ((1, 2), (2, 1)),
    "tie in I2T": ((5, 5), (4, 6)),
}
COUNTS = {"both": 4, "only I2T": 3, "only T2I": 2, "neither": 1}


def write_squares(blocks: list[tuple[tuple[int, int], ...]]) -> str:
    """BiVLC's shape, and a table of scores for it."""
    lines, found = [], []
    for number, block in enumerate(blocks):
        case = {"id": str(number), "images": [f"{number}-0.jpg", f"{number}-1.jpg"]}
        case |= {"captions": ["a b", "b a"], "truth": [[True, False], [False, True]]}
        lines.append(json.dumps(case))
        found += [
            {"case_id": str(number), "image": i, "caption": c, "score": block[i][c] / 10}
            for c in (0, 1)
            for i in (0, 1)
        ]
    Path("squares.jsonl").write_text("\n".join(lines))
    write(found)
    return "squares.jsonl"


def values(run: Run) -> dict[str, float]:
    return {row.metric: row.value for row in rows(run, resamples=10) if row.group == "all"}


def test_known_scores_give_known_numbers() -> None:
    blocks = [GOLDEN[name] for name, count in COUNTS.items() for _ in range(count)]
    found = values(
        import_scores("scores.csv", write_squares(blocks), "m", out="r", protocol="bivlc")
    )
    assert found["image_to_text"] == pytest.approx(0.7)
    assert found["text_to_image"] == pytest.approx(0.6)
    assert found["group"] == pytest.approx(0.4)
    assert found["image_to_text_0"] == pytest.approx(0.7)  # 5 < 6 of "only T2I" is image 0
    assert found["image_to_text_1"] == pytest.approx(0.9)
    assert found["text_to_image_0"] == pytest.approx(0.6)
    assert found["text_to_image_1"] == pytest.approx(0.9)


def test_a_tie_is_wrong_or_right_as_the_protocol_says() -> None:
    benchmark = write_squares([GOLDEN["tie in I2T"]] * 2)
    strict = values(import_scores("scores.csv", benchmark, "m", out="a", protocol="bivlc"))
    half = values(import_scores("scores.csv", benchmark, "m", out="b", protocol="half"))
    assert (strict["image_to_text"], strict["text_to_image"]) == (0, 1)
    assert (half["image_to_text"], half["text_to_image"]) == (0.5, 1)


def test_only_what_the_protocol_scores_is_asked_for(tmp_path: Path) -> None:
    """VL-CheckList's first 1,000: a table of more, or of fewer, is refused."""
    folder = tmp_path / "vl_checklist/Attribute/vg"
    folder.mkdir(parents=True)
    entries = [["VG_100K/1.jpg", {"POS": [f"a {n}"], "NEG": [f"b {n}"]}] for n in range(1002)]
    (folder / "size.json").write_text(json.dumps(entries))
    found = [
        {"case_id": f"Attribute/vg/size/{n}", "image": 0, "caption": c, "score": n + c}
        for n in range(1002)
        for c in (0, 1)
    ]
    path = write(found[:2000])
    run = import_scores(path, "vl-checklist", "m", data=tmp_path, out="run")
    assert len(run.parts["vl-checklist"].cases) == 1000
    with raises("E-CASE-UNKNOWN", 4):
        import_scores(write(found), "vl-checklist", "m", data=tmp_path, out="run")


# --- what is wrong -----------------------------------------------------------------------------


def changed(number: int, **changes: Any) -> Rows:
    found = all_rows()
    found[number] |= changes
    return found


def without(name: str) -> Rows:
    return [{k: v for k, v in row.items() if k != name} for row in all_rows()]


WRONG: list[tuple[Rows, str, tuple[object, ...]]] = [
    (all_rows()[:3] + all_rows()[5:], "E-PAIR-MISSING", (2, "7")),
    (all_rows()[:-5], "E-PAIR-MISSING", (5, "a/0")),
    ([*all_rows(), all_rows()[4]], "E-PAIR-REPEATED", (2, "7")),
    (
        [*all_rows(), *changed(0, case_id="y")[:1], *changed(0, case_id="07")[:1]],
        "E-CASE-UNKNOWN",
        (2, "y"),
    ),
    (changed(2, image=1), "E-PAIR-UNKNOWN", (1, "007")),
    (changed(3, caption=2), "E-PAIR-UNKNOWN", (1,)),
    (changed(3, image=-1), "E-PAIR-UNKNOWN", (1,)),
    (changed(3, caption=-1), "E-PAIR-UNKNOWN", (1,)),
    (changed(3, score=None), "E-VALUE-MISSING", (1, "7")),
    (changed(3, case_id=None), "E-VALUE-MISSING", (1,)),
    (changed(3, image=None), "E-VALUE-MISSING", (1,)),
    (changed(3, score=1e39), "E-SCORE-TOO-LARGE", (1,)),
    *((without(name), "E-COLUMN-MISSING", (name,)) for name in all_rows()[0]),
]


@pytest.mark.slow
@pytest.mark.parametrize("ending", WRITERS)
def test_what_is_wrong_is_counted_and_the_first_rows_named(ending: str, mine: str) -> None:
    for found, code, named in WRONG:
        with raises(code, Path(f"scores.{ending}"), *named):
            import_scores(write(found, ending), mine, "m", out="run")
    for score in ("NaN", "inf", "-inf") if ending != "jsonl" else ():
        found = changed(3, score=float(score) if ending == "parquet" else score)
        with raises("E-SCORE-NON-FINITE", 1):
            import_scores(write(found, ending), mine, "m", out="run")
    for column in ("image", "caption") if ending in ("jsonl", "parquet") else ():
        found = [row | {column: row[column] + 0.5} for row in all_rows()]  # half an image
        with raises("E-VALUE-INVALID", column, 1):
            import_scores(write(found, ending), mine, "m", out="run")
    for content in (b"", b"\x00\xff\xfe broken \x00", b"{"):
        Path(f"scores.{ending}").write_bytes(content)
        with pytest.raises(DataError, match=f"scores.{ending}") as caught:
            import_scores(f"scores.{ending}", mine, "m", out="run")
        assert caught.value.code in ("E-FILE-MALFORMED", "E-COLUMN-MISSING")
    assert not Path("run").exists()


def test_a_text_in_place_of_a_number_names_its_row(mine: str) -> None:
    for column, value in (("score", "high"), ("image", "0.5"), ("caption", "b")):
        with raises("E-VALUE-INVALID", column, 4):
            import_scores(write(changed(3, **{column: value})), mine, "m", out="run")


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_a_mark_before_the_first_line_is_accepted(ending: str, mine: str) -> None:
    path = Path(write(all_rows(), ending))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert scores_of(import_scores(path, mine, "m", out="run")) == [n / 8 for n in range(15)]


def test_a_message_is_short_however_long_its_row_is(mine: str) -> None:
    found = [row | {"case_id": "x" * 1_000_000} for row in all_rows()]
    with raises("E-CASE-UNKNOWN", 15) as error:
        import_scores(write(found, "parquet"), mine, "m", out="run")
    assert len(str(error.value)) < 2000


def test_a_header_alone_lacks_everything(mine: str) -> None:
    Path("scores.csv").write_text("case_id,image,caption,score\n")
    with raises("E-PAIR-MISSING", 15):
        import_scores("scores.csv", mine, "m", out="run")


def test_a_file_that_is_not_there_or_of_another_kind(mine: str) -> None:
    with raises("E-FILE-MISSING", Path("nowhere.csv")):
        import_scores("nowhere.csv", mine, "m", out="run")
    Path("scores.xlsx").write_text("x")
    with raises("E-FILE-FORMAT", Path("scores.xlsx")):
        import_scores("scores.xlsx", mine, "m", out="run")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_name_with_brackets_is_a_name(ending: str, mine: str) -> None:
    path = write(all_rows(), ending).rename(f"scores[1].{ending}")
    assert len(scores_of(import_scores(path, mine, "m", out="run"))) == 15


def test_unknown_names_are_explained(mine: str) -> None:
    path = write(all_rows())
    with raises("E-PROTOCOL-UNKNOWN", "stric"):
        import_scores(path, mine, "m", out="run", protocol="stric")
    with raises("E-BENCHMARK-UNKNOWN", "sugarcrep"):
        import_scores(path, "sugarcrep", "m", out="run")


# --- what stands where the run goes ------------------------------------------------------------


@pytest.mark.parametrize("what", ["a folder", "a file"])
def test_what_is_no_run_is_not_overwritten(what: str, mine: str) -> None:
    place = Path("run")
    if what == "a file":
        place.write_text("precious")
    else:
        place.mkdir()
        (place / "precious.txt").write_text("precious")
    with raises("E-OUTPUT-EXISTS"):
        import_scores(write(all_rows()), mine, "m", out="run")
    kept = place if what == "a file" else place / "precious.txt"
    assert kept.read_text() == "precious"


def test_an_older_run_is_replaced_and_a_failure_leaves_it(mine: str) -> None:
    import_scores(write(all_rows()), mine, "m", out="run")
    with raises("E-PAIR-MISSING", 1):
        import_scores(write(all_rows()[1:]), mine, "m", out="run")
    assert scores_of(load_run("run"))[0] == 0
    import_scores(write(all_rows(1.0)), mine, "m", out="run")
    assert scores_of(load_run("run"))[0] == 1


# --- the command -------------------------------------------------------------------------------


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["import", *arguments])


@pytest.mark.slow
def test_the_command_prints_what_rescore_prints(mine: str) -> None:
    path = str(write(all_rows()))
    done = invoke(path, "-b", mine, "--name", "elsewhere", "--out", "run", "--json")
    assert done.exit_code == 0
    assert done.stdout == CliRunner().invoke(app, ["rescore", "run", "--json"]).stdout
    assert {row["model"] for row in json.loads(done.stdout)} == {"elsewhere"}
    shown = invoke(path, "-b", mine, "--name", "elsewhere", "--out", "run")
    assert "elsewhere" in shown.stdout and "saved run\n" in shown.stdout
    assert done.stderr == shown.stderr == ""


@pytest.mark.slow
def test_the_command_takes_data_protocol_and_groups(tmp_path: Path) -> None:
    subsets = ["add_att", "add_obj", "replace_att", "replace_obj", "replace_rel"]
    subsets += ["swap_att", "swap_obj"]
    (tmp_path / "sugarcrepe").mkdir()
    for subset in subsets:
        case = {"filename": "1.jpg", "caption": "a", "negative_caption": "b"}
        (tmp_path / f"sugarcrepe/{subset}.json").write_text(json.dumps({"0": case}))
    found = [
        {"case_id": f"{subset}/0", "image": 0, "caption": c, "score": 0}
        for subset in subsets
        for c in (0, 1)
    ]
    path = str(write(found))
    command = (path, "-b", "sugarcrepe", "--name", "m", "--data", str(tmp_path), "--out", "run")
    done = invoke(*command, "--protocol", "half", "--groups")
    assert done.exit_code == 3  # seven of 7,511 cases
    done = invoke(*command, "--protocol", "half", "--groups", "--allow-missing")
    assert done.exit_code == 0
    assert "replace/rel" in done.stdout and "Protocol half" in done.stdout
    [cases] = [part.cases for part in load_run("run").parts.values()]
    assert cases.frame.equals(load_benchmark("sugarcrepe", tmp_path).cases.frame)


def test_errors_are_one_line(mine: str) -> None:
    path = str(write(changed(1, score=None)))
    done = invoke(path, "-b", mine, "--name", "m", "--out", "run")
    assert (done.exit_code, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: scores.csv: ") and line.endswith("[E-VALUE-MISSING]")


@pytest.mark.parametrize("missing", ["-b", "--name"])
def test_benchmark_and_name_must_be_given(missing: str, mine: str) -> None:
    options = {"-b": mine, "--name": "m"}
    del options[missing]
    done = invoke("scores.csv", *(part for pair in options.items() for part in pair))
    assert done.exit_code == 2


# --- one row per case, a column for each pair of a caption and an image ---------------------------

WIDE = ("C0I0", "C0I1", "C1I0", "C1I1")
SQUARES = [[0.9, 0.2, 0.4, 0.7], [0.1, 0.3, 0.5, 0.6]]


@pytest.fixture
def squares() -> str:
    Cases.build([square(0), square(1)], source="test").frame.write_parquet("squares.parquet")
    return "squares.parquet"


def wide(path: str, names: tuple[str, ...] = WIDE, id: str = "id") -> Path:
    table = pl.DataFrame({id: ["square-0", "square-1"], "tag": ["Negation, Scope", ""]})
    table = table.hstack(pl.DataFrame(SQUARES, schema=list(names), orient="row"))
    file = Path(path)
    if file.suffix == ".parquet":
        table.write_parquet(file)
    elif file.suffix == ".txt":
        lines = [table.columns, *([str(value) for value in row] for row in table.rows())]
        write_lines(file, *("\u00a0".join(line) for line in lines))
    else:
        table.write_csv(file, separator="\t" if file.suffix == ".tsv" else ",")
    return file


def imported(path: Path, squares: str) -> np.ndarray:
    [part] = import_scores(path, squares, "m", out="run").parts.values()
    return part.scores.reshape(2, 2, 2)  # case, image, caption


# Image 1 with caption 0 is C0I1, the second column; rows of the block are images.
IN_BLOCKS = np.array([[[0.9, 0.4], [0.2, 0.7]], [[0.1, 0.5], [0.3, 0.6]]], dtype=np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "txt"])
def test_a_row_per_case_is_read_by_the_names_of_its_columns(ending: str, squares: str) -> None:
    assert np.array_equal(imported(wide(f"wide.{ending}"), squares), IN_BLOCKS)


@pytest.mark.slow
@pytest.mark.parametrize("id", ["case_id", "ID", "id"])
@pytest.mark.parametrize(
    "form", ["c{0}_i{1}", "i{1}_c{0}", "I{1}C{0}", "caption_{0}_image_{1}", "score_c{0}_i{1}"]
)
def test_columns_have_many_names(form: str, id: str, squares: str) -> None:
    names = tuple(form.format(*pair) for pair in ("00", "01", "10", "11"))
    assert np.array_equal(imported(wide("wide.csv", names, id), squares), IN_BLOCKS)


def test_the_order_of_the_columns_does_not_matter(squares: str) -> None:
    file = wide("wide.csv")
    pl.read_csv(file).select("C1I1", "C0I1", "id", "C1I0", "C0I0").write_csv(file)
    assert np.array_equal(imported(file, squares), IN_BLOCKS)


@pytest.mark.parametrize(
    ("change", "code", "data"),
    [
        (("square-1", "square-9"), "E-CASE-UNKNOWN", {"first": "square-9"}),
        (("0.3", "n/a"), "E-SCORE-INVALID", {"column": "C0I1", "case": "square-1"}),
        (("C1I1", "C1I7"), "E-PAIR-UNKNOWN", {"count": 2}),
        (("C1I1", "c1_i0"), "E-COLUMN-REPEATED", {}),
        (("id,", "name,"), "E-COLUMN-MISSING", {"column": "case_id"}),
        ((",C1I1", ",other"), "E-PAIR-MISSING", {"count": 2}),
    ],
)
def test_what_is_wrong_with_a_row_per_case_is_named(
    change: tuple[str, str], code: str, data: dict[str, object], squares: str
) -> None:
    file = wide("wide.csv")
    file.write_text(file.read_text().replace(*change))
    with raises(code, file, *data.values()):
        imported(file, squares)


def test_a_text_file_with_uneven_lines_is_refused(squares: str) -> None:
    file = write_lines(Path("wide.txt"), "id\tC0I0", "square-0\t1\t2")
    with raises("E-FILE-MALFORMED", 2):
        imported(file, squares)
