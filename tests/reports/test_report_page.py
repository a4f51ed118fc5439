"""The page: what it shows of runs, in a real browser from disk, and that nothing leaves it."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import typer
from browser import DESKTOP, PHONE, chromium, visit
from models_for_tests import Towers
from PIL import Image
from support import case, classes, gallery, owned, part, random_run, random_scores, run_of, table
from test_report import FEW, HOSTILE, scored
from typer.testing import CliRunner

from counterpoint.cases.table import Cases, ImageRef, caption_case
from counterpoint.cli.console import plainly
from counterpoint.cli.reports import report
from counterpoint.evaluation.evaluating import evaluate
from counterpoint.metrics.registry import METRICS
from counterpoint.reports.case_outcomes import blind_right, opposed, outcomes, telling
from counterpoint.reports.data import gather
from counterpoint.reports.examples import Album
from counterpoint.reports.figures.scores import by_kind, density_of
from counterpoint.reports.page import ReportOptions, compare_page, figures, report_page
from counterpoint.reports.provenance import Provenance
from counterpoint.reports.ranking import numbers_of
from counterpoint.runs import Run, rows, save_run

__all__ = ["chromium", "visit"]  # fixtures
QUICK = ReportOptions(resamples=FEW)

pytestmark = pytest.mark.slow


def wise(run: Run, alpha: float) -> Run:
    about = {"wise": {"base": "start", "tuned": "end", "alpha": alpha}}
    return replace(run, model=f"end@{alpha:g}", manifest={"model_info": about})


@pytest.fixture(scope="module")
def rich() -> list[Run]:
    """Runs that can make every figure: three benchmarks, two retrievals, a line of alphas."""
    cases = table(120)
    found = Cases.build([gallery(owned(8))], source="test")
    made = []
    for number, (model, quality) in enumerate([("good", 3.0), ("bad", 0.3), ("blind:bow", 0)]):
        parts = [scored(cases, quality, 10 * number + i, "") for i in range(3)]
        named = [replace(p.parts["bench"], benchmark=f"bench {i}") for i, p in enumerate(parts)]
        galleries = [
            part(found, random_scores(found, number + i), name=name)
            for i, name in enumerate(["retrieval", "retrieval:captions=all"])
        ]
        made.append(run_of(*named, *galleries, model=model))
    lines = [wise(scored(cases, 1 + a, 5, ""), a) for a in (0, 0.5, 1)]
    return [*made, *(replace(r, parts={"bench 0": _renamed(r)}) for r in lines)]


@pytest.fixture(scope="module")
def rich_page(rich) -> str:
    return report_page(rich, QUICK)


@pytest.fixture
def opened(rich_page, tmp_path, visit):
    """The rich page in a browser, from disk. `visit` fails if anything else is asked for."""

    def open_page(**options):
        path = tmp_path / "report.html"
        path.write_text(rich_page, encoding="utf-8")
        page = visit("file://", **options)
        page.goto(path.as_uri())
        return page

    return open_page


def _renamed(run: Run):
    return replace(run.parts["bench"], benchmark="bench 0")


# --- figures -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(rich):
    """Numbers, and the figures made of them."""
    material, numbers = _material(rich)
    drawn, omitted = figures(material, numbers, Album())
    assert omitted == []
    return numbers, drawn


def test_every_figure_is_drawn_from_its_csv(made):
    numbers, drawn = made
    kinds = dict.fromkeys(figure.title.split(",")[0].split(":")[0] for figure in drawn)
    assert list(kinds) == [
        "Original and augmented accuracy",
        "Brittleness and augmented accuracy",
        "By group",
        "Over all benchmarks",
        "Scores",
        "WiSE-FT line",
        "Retrieval and zero-shot against compositionality",
        "Shuffled retrieval",
        "Sample predictions",
    ]
    known = {(n.benchmark, n.model, n.group, n.metric): n for n in numbers}
    [drop] = [figure for figure in drawn if figure.name == "original-and-augmented"]
    for line in csv.DictReader(io.StringIO(drop.csv)):
        original, augmented = (
            known[line["benchmark"], line["model"], "all", f"{name}_accuracy"].value
            for name in ("original", "augmented")
        )
        assert float(line["drop"]) == pytest.approx(100 * (original - augmented))
    [line] = [figure for figure in drawn if figure.name == "wise-ft"]
    assert [row["alpha"] for row in line.rows] == [0, 0.5, 1]
    for row in line.rows:
        number = known["bench 0", f"end@{row['alpha']:g}", "all", "augmented_accuracy"]
        assert row["y_value"] == 100 * number.value


def test_figures_that_runs_cannot_make_say_why():
    cases = Cases.build([case(i, positives=1, group="") for i in range(20)], source="test")
    drawn, omitted = figures(*_material([random_run(cases, 1)]), Album())
    assert [figure.title for figure in drawn] == ["Scores, bench"]
    assert len(omitted) == 8 and all(figure.why.endswith(".") for figure in omitted)


def _material(runs):
    material = gather(runs)
    return material, numbers_of(material, resamples=FEW)


def test_densities_are_of_the_scores():
    run = scored(table(400), 2.0, 1, "m")
    kinds = by_kind(run.parts["bench"])
    found = {r.metric: r.value for r in rows(run, resamples=FEW) if r.group == "all"}
    for kind, values in kinds.items():
        assert values.mean() == pytest.approx(found[f"mean_score_{kind}"], abs=1e-5)
        places, density = density_of(values, (-6.0, 8.0))
        assert np.trapezoid(density, places) == pytest.approx(1, abs=0.01)
        middle = np.trapezoid(density * places, places)
        assert middle == pytest.approx(values.mean(), abs=0.02)


def test_svg_follows_the_page_and_its_ids_are_its_own(made):
    seen: set[str] = set()
    for figure in made[1]:
        ids = set(re.findall(r'id="([^"]+)"', figure.svg))
        used = re.findall(r'xlink:href="#([^"]+)"|url\(#([^)]+)\)', figure.svg)
        assert {a or b for a, b in used} <= ids
        assert not ids & seen
        seen |= ids
        assert "currentColor" in figure.svg and "#010203" not in figure.svg
        assert "<metadata" not in figure.svg


# --- examples ----------------------------------------------------------------------------------


def photographed(folder: Path, count: int = 12) -> Cases:
    """Cases whose images are on disk, but for the last."""
    made = []
    for i in range(count):
        if i < count - 1:
            Image.new("RGB", (400, 300), (20 * i, 90, 200)).save(folder / f"{i}.jpg")
        texts = ["a dog", "a hound"], ["A cat, in a longer caption."]
        made.append(caption_case(f"case {i}", ImageRef(f"{i}.jpg"), *texts, ("replace/obj",)))
    return Cases.build(made, root=folder, source="test")


def by_outcome(cases: Cases, said: list[str], model: str) -> Run:
    """A run with a given outcome for each case."""
    scores = {"right": [3, 2, 1], "brittle": [3, 1, 2], "wrong": [1, 2, 3]}
    return run_of(part(cases, np.concatenate([scores[s] for s in said])), model=model)


def test_cases_are_chosen_for_what_they_say(tmp_path):
    cases = photographed(tmp_path, 6)
    one = ["right", "right", "brittle", "wrong", "wrong", "right"]
    two = ["right", "wrong", "brittle", "wrong", "brittle", "wrong"]
    found = outcomes(
        gather([by_outcome(cases, one, "a"), by_outcome(cases, two, "b")]).benchmarks["bench"]
    )
    chosen, said = telling(found, [0, 1], count=9)
    picked = {choice.kind: set(choice.found["replace/obj"]) for choice in chosen}
    assert picked == {"disagree": {1, 5}, "brittle": {2, 4}, "failed": {3}}
    assert chosen[1].found["replace/obj"][0] == 2  # brittle for both comes first
    assert said == []
    assert found.outcome(4, 1) == "brittle" and found.outcome(3, 0) == "wrong"


def test_a_case_that_a_run_lacks_is_not_held_against_it(tmp_path):
    cases = photographed(tmp_path, 4)
    short = Cases(cases.frame[[3, 1]], cases.root)  # fewer, and in another order
    runs = [
        by_outcome(cases, ["wrong", "right", "wrong", "wrong"], "a"),
        by_outcome(short, ["wrong", "brittle"], "b"),
    ]
    found = outcomes(gather(runs).benchmarks["bench"])
    assert [found.outcome(number, 1) for number in range(4)] == [
        "not scored",
        "brittle",
        "not scored",
        "wrong",
    ]
    chosen, said = telling(found, [0, 1], count=9)
    picked = {choice.kind: choice.found["replace/obj"] for choice in chosen}
    assert picked == {"brittle": [1], "failed": [3]}
    assert said == ["The models disagree: there is no such case beside the brittle ones."]
    one, two = opposed(found, 9, ("a", "b"))[0]
    assert (one.title, one.found) == ("Only a is right", {"replace/obj": [1]})
    assert (two.title, two.found) == ("Neither is right", {"replace/obj": [3]})


def test_blind_baselines_that_would_be_right_are_named(tmp_path):
    cases = photographed(tmp_path)
    run = run_of(part(cases, random_scores(cases, 1)))
    right = blind_right(cases, run.parts["bench"].protocol, "augmented_accuracy")
    # The true captions are shorter, not neat, and always the same words.
    assert {name: bool(found.all()) for name, found in right.items()} == {
        "blind:length": True,
        "blind:format": True,
        "blind:bow": True,
    }


def test_examples_hold_their_images_or_say_why_not(tmp_path):
    cases = photographed(tmp_path, 3)
    said = ["wrong"] * 3
    page = report_page([by_outcome(cases, said, "m")], replace(QUICK, examples=3))
    assert page.count("data:image/") == 2
    assert "2.jpg: no such file." in page
    assert "Images of examples that could not be read: 1" in page
    assert "Right without the image: blind:length, blind:format, blind:bow" in page
    for uri in re.findall(r'src="data:image/\w+;base64,([^"]+)"', page):
        assert max(Image.open(io.BytesIO(base64.b64decode(uri))).size) == 288
    small = report_page([by_outcome(cases, said, "m")], replace(QUICK, image_bytes=0))
    assert "data:image/" not in small and "no room for more pictures" in small


def test_a_gallery_shows_what_models_answer():
    for truth, name in ((owned(6), "caption 3"), (classes([0, 1, 1, 0, 2, 2], 3), "caption 2")):
        cases = Cases.build([gallery(truth, images=[f"world:{i}" for i in range(6)])], source="t")
        right = part(cases, cases.truth_flat().astype(np.float32), name="retrieval")
        wrong = part(cases, -cases.truth_flat().astype(np.float32), name="retrieval")
        runs = [run_of(right, model="a"), run_of(wrong, model="b")]
        page = report_page(runs, replace(QUICK, examples=6))
        assert "The models disagree" in page and f"{name} of gallery" in page
        assert "its first answer" in page


# --- the page ----------------------------------------------------------------------------------


def test_the_same_runs_make_the_same_page_but_for_how_it_was_made(rich):
    made = Provenance(("counterpoint", "report"), "2024-01-01T00:00:00+00:00")
    lines = rich[-2:]  # of one benchmark: the figures are few
    pages = report_page(lines, replace(QUICK, made=made)), report_page(lines, QUICK)
    ends = [page.partition('id="making"') for page in pages]
    assert ends[0][0] == ends[1][0]
    assert made.created in ends[0][2] and made.created not in ends[1][2]


def test_the_csv_in_the_page_is_the_table(rich, rich_page):
    files = dict(re.findall(r'download="([^"]+)" href="data:text/csv[^,]*,([^"]+)"', rich_page))
    lines = list(csv.DictReader(io.StringIO(base64.b64decode(files["table.csv"]).decode())))
    found = {(x["model"], x["benchmark"], x["group"], x["metric"]): x["value"] for x in lines}
    for run in rich:
        for row in rows(run, groups=False, resamples=FEW):
            key = (row.model, row.benchmark, row.group, row.metric)
            if METRICS[row.metric].main:
                assert float(found[key]) == row.value
    assert "by-group-bench-1.csv" in files and "against-retrieval.csv" in files


def hostile_page(tmp_path: Path) -> str:
    images = [ImageRef("text:<img src=x onerror=alert(1)>"), ImageRef("../../etc/passwd")]
    made = [
        caption_case(f"{HOSTILE}{i}", images[i % 2], [HOSTILE, "b"], [f"{HOSTILE} c"], (HOSTILE,))
        for i in range(8)
    ]
    cases = Cases.build(made, root=tmp_path, source="test")
    shown = part(cases, random_scores(cases, 1), name=HOSTILE)
    lost = replace(shown, left_out=((HOSTILE, HOSTILE),))
    names = [HOSTILE, "</style></svg><script>alert(2)</script>"]
    runs = [replace(run_of(lost, model=name), manifest={"command": [HOSTILE]}) for name in names]
    other = part(cases, random_scores(cases, 2), name=HOSTILE)
    return report_page([runs[0], run_of(other, model=names[1])], replace(QUICK, title=HOSTILE))


def test_any_name_and_caption_is_text(tmp_path):
    page = hostile_page(tmp_path)
    assert "<script" not in page and "<img src=x" not in page
    assert "leads out of" in page  # of the image that climbs out of its root
    assert "alert('x')" in unescape(page)


def test_a_hostile_page_runs_nothing(tmp_path, visit):
    path = tmp_path / "hostile.html"
    path.write_text(hostile_page(tmp_path), encoding="utf-8")
    page = visit("file://")
    said: list[str] = []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    page.goto(path.as_uri())
    assert page.evaluate("document.scripts.length") == 0
    assert page.locator("th.name", has_text="</style></svg><script>").count() > 0
    assert page.locator("svg text", has_text="</script>").count() > 0
    assert said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_opened_from_disk(opened, scheme, viewport):
    page = opened(viewport=viewport, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    pixels = np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("L"), dtype=float)
    assert pixels.std() > 8  # something is written there
    assert (np.median(pixels) > 200) == (scheme == "light")
    ink = page.locator("svg text").first.evaluate("node => getComputedStyle(node).fill")
    light = sum(map(int, re.findall(r"\d+", ink)[:3])) / 3
    assert light < 80 if scheme == "light" else light > 180
    with page.expect_download() as saved:
        page.locator("#table .csv").click()
    assert Path(saved.value.path()).read_text().startswith("model,benchmark,group,metric,value")
    page.locator("nav >> text=How it was made").click()
    assert page.locator("#making").is_visible()


def test_it_prints(opened):
    page = opened(color_scheme="dark", viewport={"width": 690, "height": 900})
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 690  # nothing is cut off
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_missing_images_are_said_at_the_top(tmp_path):
    photographed(tmp_path, 4)
    path = tmp_path / "cases.jsonl"
    shape = {"captions": ["a ring", "a star"], "truth": [[True, False]]}
    lines = [{"id": str(i), "images": [f"{i}.jpg"], **shape} for i in range(4)]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    [run] = evaluate([("towers", Towers())], str(path), out=tmp_path / "run", store=tmp_path / "s")
    page = report_page([run], QUICK)
    top = page[page.index('id="notices"') : page.index('id="table"')]
    assert "1 of 4 cases were left out (image missing: 1)" in top
    assert "3.jpg: no such file." in top
    assert run.manifest["files"]["scores.parquet"] in page  # how it was made
    assert f"<dd>{run.manifest['fingerprint']}</dd>" in page


def test_two_runs_side_by_side(rich):
    good, bad = (replace(run, parts={"bench 0": run.parts["bench 0"]}) for run in rich[:2])
    page = compare_page(good, bad, QUICK)
    assert "A is better" in page and "Only good is right" in page
    assert "good is better than bad on bench 0: " in page[: page.index("<nav")]
    assert "† depends on how ties are counted: " in page
    assert "Difference in augmented, bench 0" in page
    assert page.count("data:text/csv") > 4
    lone = part(table(20), random_scores(table(20), 1), name="lone")
    page = compare_page(replace(good, parts={**good.parts, "lone": lone}), bad, QUICK)
    assert "Only good was evaluated on it." in page
    assert 'id="examples"' not in report_page([bad], replace(QUICK, examples=0))


# --- the command -------------------------------------------------------------------------------


@pytest.fixture
def command():
    app = typer.Typer()
    app.command()(plainly(report))
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


def test_the_command_writes_pages_and_tables(tmp_path, command):
    for seed in (1, 2):
        save_run(random_run(table(30), seed, model=f"m{seed}"), tmp_path / "runs" / f"m{seed}")
    page = tmp_path / "out" / "report.html"
    page.parent.mkdir()
    done = command(tmp_path / "runs", "-o", page, "--title", "Ours & theirs")
    assert done.exit_code == 0, done.output
    assert "<title>Ours &amp; theirs</title>" in page.read_text()
    done = command(tmp_path / "runs", "-o", tmp_path / "t.tex")
    assert r"\toprule" in (tmp_path / "t.tex").read_text()
    done = command(tmp_path / "runs", "--format", "csv", "--all-metrics")
    assert "mean_score_original" in done.stdout
    assert list(page.parent.iterdir()) == [page]  # no half of a file is left behind


def test_compare_writes_and_opens_its_page(tmp_path, monkeypatch):
    from counterpoint.cli.app import app

    a, b = (random_run(table(20), seed, model=f"m{seed}") for seed in (1, 2))
    folders = [save_run(run, tmp_path / run.model).folder for run in (a, b)]
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: bool(shown.append(address)))
    monkeypatch.chdir(tmp_path)
    words = ["compare", *map(str, folders)]
    done = CliRunner().invoke(app, [*words, "--html", "two.html"])
    assert done.exit_code == 0 and shown == []
    page = (tmp_path / "two.html").read_text(encoding="utf-8")
    assert "m1" in page and "m2" in page and page.startswith("<!doctype html>")
    done = CliRunner().invoke(app, [*words, "--open"])  # a machine without a browser
    assert done.exit_code == 0
    assert shown == [(tmp_path / "compare.html").resolve().as_uri()]
    assert "open compare.html yourself" in done.stderr


def test_no_folder_is_made_that_was_not_asked_for(tmp_path, monkeypatch):
    from counterpoint.cli.app import app

    monkeypatch.chdir(tmp_path)
    for seed in (1, 2):
        save_run(random_run(table(30), seed), tmp_path / f"run{seed}")
    for words in (
        ["report", "run1", "-o", "deep/er/report.html"],
        ["report", "run1", "-o", "deep/er/table.tex"],
        ["compare", "run1", "run2", "--html", "deep/er/two.html"],
    ):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 1
        [line] = done.stderr.splitlines()
        assert line.endswith("[E-FOLDER-MISSING]") and "deep/er" in line
        assert not (tmp_path / "deep").exists()


def test_wrong_usage_is_one_line(tmp_path, command):
    save_run(random_run(table(30), 1), tmp_path / "run")
    for words, why in (
        ([tmp_path / "run"], "a file for the page"),
        ([tmp_path / "run", "-o", "report.pdf"], "or say --format"),
        ([tmp_path / "run", "-o", "x.html", "--as", "name"], "MODEL=PUBLISHED"),
        ([tmp_path / "nothing", "-o", "x.html"], "[E-RUN-MISSING]"),
    ):
        done = command(*words)
        assert done.exit_code in (1, 2) and why in done.output
