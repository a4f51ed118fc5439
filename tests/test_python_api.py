"""The Python API: strings, paths and objects alike; one in, one out; every error has a code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from errors import raises
from PIL import Image

import counterpoint as cp
from counterpoint import ImageRef
from counterpoint.generation import root_of
from counterpoint.metrics import METRICS

SWAP = "world-swap:size=40"
BI = "world-bi:size=20"


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))


class Lengths:
    """A model of the user's own."""

    fingerprint = "lengths"

    def score_captions(self, captions: list[str]) -> np.ndarray:
        return np.array([float(len(caption)) for caption in captions])


@pytest.mark.slow
def test_one_model_gives_a_run_and_a_list_gives_a_list() -> None:
    assert isinstance(cp.evaluate("random", SWAP), cp.Run)
    runs = cp.evaluate(["random", "blind:length"], [SWAP, BI])
    assert [run.model for run in runs] == ["random", "blind:length"]
    assert [list(run.parts) for run in runs] == [[SWAP, BI]] * 2
    [alone] = cp.evaluate(["random"], SWAP, out="alone")
    assert alone.model == "random"


@pytest.mark.slow
def test_models_and_benchmarks_may_be_objects() -> None:
    loaded = cp.load_benchmark(SWAP)
    by_id, by_object = cp.evaluate("random", SWAP), cp.evaluate(cp.load_model("random"), loaded)
    assert by_object.model == "random"
    np.testing.assert_array_equal(by_id.parts[SWAP].scores, by_object.parts[SWAP].scores)
    mine = cp.evaluate(Lengths(), loaded.cases)
    assert (mine.model, list(mine.parts)) == ("Lengths", ["cases"])
    named = cp.evaluate(("mine", Lengths()), SWAP)
    assert named.model == "mine"
    np.testing.assert_array_equal(mine.parts["cases"].scores, named.parts[SWAP].scores)


def test_a_case_file_may_be_a_path(tmp_path: Path) -> None:
    cp.write_cases(cp.load_benchmark(SWAP).cases, tmp_path / "mine.parquet")
    run = cp.evaluate("random", tmp_path / "mine.parquet")
    assert len(run.parts[str(tmp_path / "mine.parquet")].cases) == 40


@pytest.mark.slow
def test_tables_say_what_was_left_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Image.new("RGB", (8, 8), "red" if name == "a" else "blue").save(tmp_path / f"{name}.png")
    cases = [cp.caption_case(n, ImageRef(f"{n}.png"), ["a dog"], ["a cat"]) for n in ("a", "b")]
    whole = cp.Cases.build(cases, root=tmp_path, source="the test")
    full = cp.evaluate("world:base", whole, out=tmp_path / "full")
    (tmp_path / "b.png").unlink()
    run = cp.evaluate("world:base", whole, out=tmp_path / "less")
    assert "1 cases, 1 left out" in repr(run) and "left out" not in repr(full)
    for table in (run.results(), run.compare(full), cp.rescore([full, run])):
        assert "were left out (image missing: 1)" in repr(table).replace("\n", " ")
        assert "were left out" in table._repr_html_()
    assert "1 cases in both" in repr(full.compare(run))


@pytest.mark.slow
def test_a_number_that_depends_on_ties_is_explained() -> None:
    run = cp.evaluate("blind:bow", SWAP)
    for table in (run.results(), run.compare(cp.evaluate("random", SWAP))):
        assert "†" in repr(table) and "†" in table.notes[1]


@pytest.mark.slow
def test_a_main_metric_needs_no_heading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A metric that is added in one place is in every table."""
    added = replace(METRICS["original_accuracy"], name="my_metric")
    monkeypatch.setitem(METRICS, "my_metric", added)
    a, b = cp.evaluate(["random", "blind:length"], SWAP)
    for table in (a.results(), a.compare(b), cp.rescore([a, b])):
        assert "my metric" in repr(table)


@pytest.mark.slow
def test_results_are_a_table() -> None:
    run = cp.evaluate("random", [SWAP, BI])
    found = run.results(resamples=50)
    assert isinstance(found.to_polars(), pl.DataFrame)
    assert found.to_polars().height == len(found) == len(list(found))
    assert set(found.to_polars()["group"].unique()) == {"all"}
    assert len(run.results(groups=True, resamples=50)) > len(found)
    assert found[0] == cp.rescore(str(run.folder), groups=False, resamples=50)[0]
    for shown in ("augmented", "brittleness", "chance", SWAP, BI):
        assert shown in repr(found)
    assert cp.rescore([run], resamples=50).to_dicts() == found.to_dicts()


def test_another_protocol_counts_the_same_scores() -> None:
    run = cp.evaluate("blind:length", SWAP)
    lenient = replace(cp.load_run(run.folder).parts[SWAP].protocol, name="lenient", tie="right")
    strict, right = (run.results(protocol=one, resamples=50) for one in ("strict", lenient))
    assert (strict[0].value, right[0].value) == (0.0, 1.0)  # the captions are equally long


@pytest.mark.slow
def test_runs_are_compared_by_path_or_object() -> None:
    a, b = cp.evaluate(["random", "blind:length"], SWAP)
    found = a.compare(b, resamples=50)
    for other in (
        cp.compare(a, b, resamples=50),
        cp.compare(str(a.folder), b.folder, resamples=50),
    ):
        assert other.to_dicts() == found.to_dicts()
    assert found.to_polars()["verdict"][0] == found[0].verdict
    assert "A = random, B = blind:length" in repr(found)


def test_a_notebook_shows_tables_and_escapes_names() -> None:
    run = cp.evaluate(("<script>x</script>", Lengths()), SWAP)
    html = run._repr_html_()
    assert html.count("<table>") == 1 and "<script>" not in html
    assert re.search(r"<td>&lt;script&gt;", html)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["html", "md", "tex", "csv"])
def test_reports_are_written_by_their_ending(ending: str) -> None:
    run = cp.evaluate("random", SWAP)
    assert cp.report(run, f"report.{ending}") == Path(f"report.{ending}")
    assert "random" in Path(f"report.{ending}").read_text()
    assert cp.report([run, run.folder], Path(f"two.{ending}")).exists()


@pytest.mark.slow
def test_pairs_are_made_refined_and_exported() -> None:
    made = cp.generate("negatives", "world:size=100", "pairs.parquet", methods="crepe-swap")
    assert made.rows > 10
    kept = cp.refine("pairs.parquet", "refined.parquet", "length")
    assert 0 < kept.after <= made.rows
    written = cp.export("refined.parquet", "mine.parquet", form="benchmark")
    assert written["rows"] == len(cp.read_cases("mine.parquet"))
    assert cp.evaluate("blind:length", "mine.parquet").model == "blind:length"


def test_pairs_know_where_the_images_of_their_captions_are() -> None:
    Path("captions.jsonl").write_text(json.dumps({"caption": "a dog and a cat", "image": "1.jpg"}))
    cp.generate("positives", "captions.jsonl", "pairs.parquet", images="photos")
    assert root_of(Path("pairs.parquet")) == Path("photos").absolute()


WRONG: dict[str, tuple[str, Callable[[], object]]] = {
    "no model": ("E-MODEL-INVALID", lambda: cp.evaluate(object(), SWAP)),
    "a class": ("E-MODEL-INVALID", lambda: cp.evaluate(Lengths, SWAP)),
    "no benchmark": ("E-BENCHMARK-INVALID", lambda: cp.evaluate("random", 3)),
    "unknown model": ("E-MODEL-UNKNOWN", lambda: cp.evaluate("randm", SWAP)),
    "unknown benchmark": ("E-BENCHMARK-UNKNOWN", lambda: cp.load_benchmark("sugarcrpe")),
    "nothing": ("E-ARGUMENT-MISSING", lambda: cp.evaluate([], SWAP)),
    "no run": ("E-RUN-MISSING", lambda: cp.compare("nowhere", "neither")),
    "rescore of no run": ("E-RUN-MISSING", lambda: cp.rescore("nowhere")),
    "no grid": ("E-FILE-UNREADABLE", lambda: cp.sweep("hp-hn", "nowhere.yaml", world=True)),
    "ending": ("E-OUTPUT-ENDING", lambda: cp.report(cp.evaluate("random", SWAP), "a.doc")),
    "option": ("E-OPTION-UNKNOWN", lambda: cp.generate("negatives", "world", "a.parquet", sed=1)),
    "kind": ("E-OPTION-INVALID", lambda: cp.generate("other", "world", "a.parquet")),
    "form": ("E-OPTION-INVALID", lambda: cp.export("a.parquet", "b", form="other")),
    "protocol": (
        "E-PROTOCOL-UNKNOWN",
        lambda: cp.evaluate("random", SWAP).results(protocol="strikt"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", WRONG)
def test_mistakes_are_errors_of_our_own(what: str) -> None:
    code, call = WRONG[what]
    with raises(code):
        call()


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "counterpoint.models.hf.dual", None)
    with pytest.raises(ModuleNotFoundError):  # not a package of an extra: a fault of the program
        cp.load_model("hf:x")

    def absent(*_: object, **__: object) -> object:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("counterpoint._util.registry.importlib.import_module", absent)
    with raises("E-EXTRA-MISSING", "models"):
        cp.load_model("hf:x")


def test_what_there_is_can_be_listed() -> None:
    assert "sugarcrepe" in cp.list_benchmarks()
    assert "world:base" in cp.list_models()
    assert {"evaluate", "DualEncoder", "Run"} <= set(dir(cp))
    assert re.fullmatch(r"\d+\.\d+.*", cp.__version__)
