"""The board: numbers of runs, marks of the paired test, links that lead to what they promise."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import polars as pl
import pytest
from cli_support import counterpoint, own_place
from errors import raises
from support import gallery, owned, part, random_scores, run_of, square, table
from test_report import scored

import counterpoint as cp
from counterpoint._util.progress import Quiet
from counterpoint.cases import Cases
from counterpoint.evaluation import check_submission, published
from counterpoint.metrics import ALL, METRICS, interval_text
from counterpoint.reports.board import BoardOptions, make_board
from counterpoint.reports.board.data import gather_board
from counterpoint.reports.board.tables import Links, index_sheet
from counterpoint.reports.ranking import written
from counterpoint.runs import Run, compare, rows, save_run

__all__ = ["counterpoint", "own_place"]  # fixtures
pytestmark = pytest.mark.slow
FAST = BoardOptions(resamples=50)
HOSTILE = "<script>alert(1)</script>"


class Page(HTMLParser):
    """The links, the ids and the rows of the first table of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.tags: list[str] = []
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.tags.append(tag)
        if found.get("id"):
            self.ids.add(str(found["id"]))
        self.links += [str(found[key]) for key in ("href", "src") if found.get(key)]


def named(run: Run, folder: str) -> Run:
    return replace(run, folder=Path(folder))


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """Four models and a baseline on one benchmark, one of them also on another, in another run."""
    cases = table(120)
    found = Cases.build([gallery(owned(8))], source="test")
    retrieval = part(found, random_scores(found, 3), name="retrieval/mine")
    return [
        named(scored(cases, 3.0, 1, "good"), "results/good"),
        named(scored(cases, 2.9, 2, "as good"), "results/as-good"),
        named(scored(cases, 0.1, 3, HOSTILE), "results/script"),
        named(scored(cases, 9.0, 5, "blind:length"), "results/blind"),
        named(run_of(retrieval, model="good"), "results/good-retrieval"),
    ]


@pytest.fixture(scope="module")
def site(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("board") / "site"
    make_board(runs, folder, FAST)
    return folder


def sheet_of(runs: list[Run], resamples: int = 50):
    data = gather_board(runs, {}, resamples, Quiet())
    labels = {label: f"m{i}" for i, label in enumerate(data.material.runs)}
    papers = {name: f"p{i}" for i, name in enumerate(data.published_models)}
    pages = {name: f"b{i}" for i, name in enumerate(data.benchmarks)}
    return data, index_sheet(data, Links(labels, papers, pages))


def cells_of(sheet, benchmark: str, metric: str) -> dict[str, object]:
    places = [(h.benchmark, m) for h in sheet.heads for m in h.metrics]
    return {line.name: line.cells[places.index((benchmark, metric))] for line in sheet.lines}


# --- numbers and marks ---------------------------------------------------------------------------


def test_the_numbers_are_those_of_the_runs(runs: list[Run]) -> None:
    _, sheet = sheet_of(runs)
    assert [line.name for line in sheet.lines if not line.tag][:3] == ["good", "as good", HOSTILE]
    for run in runs:
        for row in rows(run, resamples=50, groups=False):
            if row.metric in ("augmented_accuracy", "brittleness", "image_to_text_recall@1"):
                cell = cells_of(sheet, row.benchmark, row.metric)[run.model]
                assert cell.value == written(row.metric, row.value)
                write = partial(written, row.metric)
                assert cell.reach == interval_text(row.value, row.ci_low, row.ci_high, write)


@pytest.mark.parametrize("quality", [(3.0, 2.9, 0.1), (3.0, 1.0, 0.1), (1.0, 1.0, 1.0)])
def test_the_best_is_marked_only_where_the_paired_test_says_so(quality) -> None:
    """As `compare` says of it against every other model; a maximum alone is no mark."""
    cases = table(150)
    models = [scored(cases, q, i, f"model {i}") for i, q in enumerate(quality)]
    _, sheet = sheet_of(models)
    for metric in ("augmented_accuracy", "brittleness"):
        found = cells_of(sheet, "bench", metric)
        for run in models:
            others = [other for other in models if other is not run]
            verdicts = {
                d.verdict
                for other in others
                for d in compare(run, other, resamples=50)
                if (d.group, d.metric) == (ALL, metric)
            }
            assert (found[run.model].standing == "best") == (verdicts == {"A is better"})
    if len(set(quality)) == 1:
        assert {found[run.model].standing for run in models} == {"not separated"}


def test_runs_over_other_cases_are_shown_and_not_compared() -> None:
    cases = table(120)
    few = Cases(cases.frame[:40], None)
    models = [
        scored(cases, 1.0, 1, "a"),
        scored(cases, 0.9, 2, "b"),
        scored(few, 9.0, 3, "c"),
        scored(few, 0.1, 4, "d"),
    ]
    data, sheet = sheet_of(models)
    found = cells_of(sheet, "bench", "augmented_accuracy")
    assert [found[name].apart for name in "abcd"] == [False, False, True, True]
    assert found["c"].standing == "" and "not compared" in found["c"].says
    assert [sorted(same.labels) for same in data.same_cases["bench"]] == [["a", "b"], ["c", "d"]]
    inside = {n.model: n.standing for n in data.same_cases["bench"][1].numbers if n.group == ALL}
    assert inside["c"]  # compared with d, on the page of the benchmark


def test_baselines_are_not_ranked() -> None:
    """Where they are alone, a report ranks them; beside the models of papers that would mislead."""
    cases = table(60)
    _, sheet = sheet_of(
        [scored(cases, q, 1, name) for name, q in (("random", 0), ("blind:bow", 9))]
    )
    found = cells_of(sheet, "bench", "augmented_accuracy")
    assert [found[name].standing for name in ("random", "blind:bow")] == ["", ""]


def test_other_protocols_are_not_compared() -> None:
    cases = table(60)
    strict = scored(cases, 2.0, 1, "a")
    other = part(cases, strict.parts["bench"].scores, "aro-order")
    data, _ = sheet_of([strict, run_of(other, model="b")])
    assert [same.labels for same in data.same_cases["bench"]] == [{"a"}, {"b"}]


def test_the_folder_of_the_images_does_not_keep_runs_apart() -> None:
    frame = table(60).frame
    models = [
        scored(Cases(frame, Path(f"/home/{name}/data")), 1.0, seed, name)
        for seed, name in enumerate("ab")
    ]
    data, _ = sheet_of(models)
    assert [same.labels for same in data.same_cases["bench"]] == [{"a", "b"}]


def test_runs_of_one_model_are_one_line_and_a_second_of_a_benchmark_is_another(runs) -> None:
    again = named(scored(table(120), 1.0, 9, "good"), "results/good-again")
    weights = replace(runs[0], manifest={"fingerprint": "other"}, folder=Path("results/other"))
    data, _ = sheet_of([*runs, again, weights])
    assert [one.label for one in data.runs if one.run.model == "good"] == [
        "good",
        "good",
        "good (good-again)",
        "good (other)",
    ]


# --- published values ----------------------------------------------------------------------------


def test_published_values_are_marked_and_not_ranked(runs: list[Run]) -> None:
    _, sheet = sheet_of(runs)
    lines = [line for line in sheet.lines if line.kind == "published"]
    assert len(lines) > 50 and {line.tag for line in lines} == {"published"}
    assert not any(cell.standing or cell.reach for line in lines for cell in line.cells)
    cell = cells_of(sheet, "hard-positives/swap", "brittleness")["NegCLIP"]
    known = published().filter(
        model="NegCLIP", benchmark="hard-positives/swap", group="all", metric="brittleness"
    )
    assert cell.value in known["value"].to_list() and known["source"][0] in cell.says


def test_every_published_value_is_on_the_pages(site: Path) -> None:
    pages = "".join(file.read_text() for file in site.glob("models/published-*.html"))
    known = published().filter(~published()["benchmark"].str.starts_with("other/"))
    counted = [
        row
        for row in known.iter_rows(named=True)
        if row["metric"] in METRICS and row["model"] != "Data set"
    ]
    assert pages.count('<tr class="published">') == len(counted) > 5700
    about = json.loads((site / "board.json").read_text())
    assert about["published"] == len(counted)


def test_the_papers_stand_beside_a_model_that_they_know(tmp_path: Path) -> None:
    """Beside the whole benchmark in the cell; of a part, the page says why not."""
    whole = Cases.build([square(i, "") for i in range(400)], source="test")
    few = table(30)
    mine = run_of(
        part(whole, random_scores(whole, 1), "bivlc", name="winoground"),
        part(few, random_scores(few, 1), "sugarcrepe", name="sugarcrepe"),
        model="m",
    )
    make_board([mine], tmp_path / "site", replace(FAST, called={"m": "CLIP ViT-B/32"}))
    known = published().filter(
        model="CLIP ViT-B/32", benchmark="winoground", group="all", metric="group"
    )
    shown = written("group", float(known["value"][0]) / 100)
    assert f">paper {shown}</span>" in (tmp_path / "site/index.html").read_text()
    text = (tmp_path / "site/models/m.html").read_text()
    assert "Beside the papers" in text and "cannot be compared" in text
    theirs = (tmp_path / "site/models/published-CLIP-ViT-B-32.html").read_text()
    assert 'Ours: <a href="../models/m.html">m</a>' in theirs


# --- the site ------------------------------------------------------------------------------------


def test_every_link_leads_somewhere_inside_the_site(site: Path) -> None:
    pages = {file: Page(file) for file in site.rglob("*.html")}
    assert len(pages) > 100
    for file, page in pages.items():
        for link in page.links:
            if link.startswith("data:"):
                continue
            parts = urlsplit(link)
            assert not parts.scheme and not parts.netloc, link
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            assert target.is_file() and target.is_relative_to(site.resolve()), link
            if parts.fragment and target.suffix == ".html":
                assert unquote(parts.fragment) in pages[Path(target)].ids, link


def test_a_page_says_how_much_was_counted(site: Path) -> None:
    assert "<h2>120 cases</h2>" in (site / "benchmarks/bench.html").read_text()
    assert "counterpoint board check runs/good" in (site / "models/good.html").read_text()
    assert "<h2>16 queries</h2>" in (site / "benchmarks/retrieval-mine.html").read_text()


def test_every_number_of_ours_leads_to_the_run_that_gives_it(site: Path, runs) -> None:
    _, sheet = sheet_of(runs)
    for line in sheet.lines:
        for cell, place in zip(
            line.cells, [h.benchmark for h in sheet.heads for _ in h.metrics], strict=True
        ):
            if line.kind in ("model", "baseline") and not cell.empty:
                name = cell.link.partition("#run-")[2]
                assert (
                    place
                    in json.loads((site / "runs" / name / "run.json").read_text())["benchmarks"]
                )


def test_the_numbers_of_the_site_are_computed_again_from_its_runs(site: Path, runs) -> None:
    folders = sorted((site / "runs").iterdir())
    assert [folder.name for folder in folders] == sorted(run.folder.name for run in runs)
    for folder in folders:
        found = check_submission(folder, resamples=50)
        assert found.differences == () and found.numbers > 0


def test_a_changed_number_of_the_site_is_refused(site: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(site / "runs/good", tmp_path / "good"))
    claims = json.loads((folder / "results.json").read_text())
    claims[0]["value"] += 0.01
    (folder / "results.json").write_text(json.dumps(claims))
    assert len(check_submission(folder, resamples=50).differences) == 1


def test_names_are_text_and_stay_in_the_folder(site: Path) -> None:
    for file in site.rglob("*.html"):
        page = Page(file)
        assert page.tags.count("script") == 1 and HOSTILE not in page.text
    text = (site / "index.html").read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    titles = re.findall(r"<g><title>(.*?)</title>", text)  # of the points of the figure
    assert any("bench, good: augmented accuracy" in title for title in titles)
    assert any("NegCLIP (published)" in title for title in titles)


def test_nothing_of_the_machine_is_in_the_site(tmp_path: Path) -> None:
    cases = Cases(table(40).frame, Path("/home/somebody/secret/data"))
    made = scored(cases, 1.0, 1, "checkpoint:/home/somebody/secret/clip.pt")
    manifest = {"command": ["/home/somebody/secret/bin/counterpoint", "eval"]}
    make_board([replace(made, manifest=manifest)], tmp_path / "site", FAST)
    for file in (tmp_path / "site").rglob("*"):
        if file.is_file():
            assert b"somebody" not in file.read_bytes(), file


def test_the_same_runs_give_the_same_site(runs: list[Run], site: Path, tmp_path: Path) -> None:
    make_board(runs, tmp_path / "again", FAST)
    files = sorted(file.relative_to(site) for file in site.rglob("*") if file.is_file())
    assert files == sorted(
        f.relative_to(tmp_path / "again") for f in (tmp_path / "again").rglob("*") if f.is_file()
    )
    assert [
        f for f in files if (site / f).read_bytes() != (tmp_path / "again" / f).read_bytes()
    ] == []


def test_the_file_of_all_numbers_has_them(site: Path, runs: list[Run]) -> None:
    found = pl.read_csv(site / "numbers.csv", infer_schema_length=None)
    theirs = found.filter(kind="published")
    assert len(theirs) == json.loads((site / "board.json").read_text())["published"]
    ours = {
        (row["model"], row["benchmark"], row["group"], row["metric"]): row
        for row in found.filter(kind="measured").iter_rows(named=True)
    }
    known = [row for run in runs for row in rows(run, resamples=50, main=True)]
    main = [row for row in known if METRICS[row.metric].main]
    assert len(main) == len(ours)
    for row in main:
        line = ours[row.model, row.benchmark, row.group, row.metric]
        assert line["value"] == pytest.approx(row.value) and line["n"] == row.n


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("years of work")
    with raises("E-OUTPUT-EXISTS", tmp_path / "mine"):
        make_board([], tmp_path / "mine", FAST)
    assert (tmp_path / "mine/thesis.tex").read_text() == "years of work"


# --- the command ---------------------------------------------------------------------------------


def test_the_command_makes_a_board_of_the_published_values_alone(counterpoint) -> None:
    done = counterpoint("board", "-o", "site")
    assert done.code == 0 and "wrote site: 0 models, 52 benchmarks, 5,8" in done.out
    text = Path("site/index.html").read_text()
    assert "NegCLIP" in text and "published" in text and not [*Path("site/runs").iterdir()]
    assert "Brittleness and augmented accuracy" in text


def test_the_command_makes_a_board_that_its_check_accepts_and_that_can_be_made_again(counterpoint):
    run = scored(table(40), 1.0, 1, "mine")
    save_run(run, Path("runs/mine"))
    assert counterpoint("board", "runs", "-o", "site", "--title", "A <b> board").code == 0
    assert "<title>A &lt;b&gt; board</title>" in Path("site/index.html").read_text()
    assert counterpoint("board", "check", "site/runs").code == 0
    assert counterpoint("board", "site/runs", "-o", "site").code == 0
    assert counterpoint("board", "check", "site/runs").code == 0
    assert counterpoint("board", "runs").code == 2  # no folder for the site


def test_the_python_api_makes_a_board(tmp_path: Path) -> None:
    page = cp.board([], tmp_path / "site", title="Papers", progress=None)
    assert page == tmp_path / "site/index.html" and "<h1>Papers</h1>" in page.read_text()
