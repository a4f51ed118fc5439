"""The board in a real browser, from disk: on a desktop and on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import DESKTOP, PHONE, chromium, visit
from support import gallery, owned, part, random_scores, run_of, table
from test_report import scored

from counterpoint.cases.table import Cases
from counterpoint.reports.board import BoardOptions, make_board

__all__ = ["chromium", "visit"]  # fixtures
HOSTILE = "<script>alert(1)</script>"
ROWS = "rows => rows.filter(r => !r.hidden).map(r => r.cells[0].innerText)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cases = table(80)
    found = Cases.build([gallery(owned(8))], source="test")
    models = [("bad", 0.1), ("good", 3.0), (HOSTILE, 1.0), ("blind:length", 0.0)]
    runs = [scored(cases, quality, seed, name) for seed, (name, quality) in enumerate(models)]
    retrieval = part(found, random_scores(found, 3), name="retrieval/mine")
    runs.append(run_of(retrieval, model="good"))
    folder = tmp_path_factory.mktemp("board") / "site"
    make_board(runs, folder, BoardOptions(resamples=50))
    return folder


@pytest.fixture
def opened(site: Path, visit):
    """`visit` fails if anything but files of the site is asked for, or if a script fails."""

    def open_page(path: str = "index.html", **options):
        page = visit("file://", **options)
        page.on("dialog", lambda dialog: pytest.fail(f"a name ran as a script: {dialog.message}"))
        page.goto((site / path).as_uri())
        return page

    return open_page


def shown(page) -> list[str]:
    return page.locator("#table tbody tr").evaluate_all(ROWS)


def numbers(page, column: int) -> list[float]:
    found = page.locator("#table tbody tr:not([hidden])").evaluate_all(
        f"rows => rows.map(r => r.cells[{column}].querySelector('.value')).filter(Boolean)"
        ".map(v => parseFloat(v.textContent))"
    )
    return list(found)


def test_a_column_is_sorted_the_best_first_and_then_the_worst(opened):
    page = opened()
    before = numbers(page, 1)
    assert before != sorted(before, reverse=True)
    head = page.locator("#table thead tr:last-child th").nth(1)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert numbers(page, 1) == sorted(before, reverse=True)
    assert shown(page)[0] == "good" and "published" in shown(page)[-1]  # without a number: last
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending" and numbers(page, 1) == sorted(before)
    lower = page.locator("#table thead tr:last-child th").nth(2)
    assert "↓" in lower.inner_text()
    lower.get_by_role("button").click()
    assert numbers(page, 2) == sorted(numbers(page, 2))  # the best is the lowest
    assert head.get_attribute("aria-sort") is None
    page.locator("#table thead th.name button").click()
    names = [name.lower() for name in shown(page)]
    assert names == page.evaluate("names => [...names].sort((a, b) => a.localeCompare(b))", names)


def test_benchmarks_and_models_can_be_chosen(opened):
    page = opened()
    families = page.locator("#choose option").all_inner_texts()
    assert families == ["compositionality", "retrieval", "classification", "all"]
    heads = page.locator("#table thead th[scope=colgroup]:visible")
    assert "retrieval/mine" not in heads.all_inner_texts()
    assert any("NegCLIP" in name for name in shown(page))
    page.get_by_label("published", exact=True).uncheck()
    assert shown(page) == ["bad", "good", HOSTILE, "blind:length", "chance"]
    assert [text.split()[0] for text in heads.all_inner_texts()] == ["bench"]
    page.get_by_label("Find a model").fill("GOOD")
    assert shown(page) == ["good"]
    page.get_by_label("Benchmarks").select_option("retrieval")
    assert [text.split()[0] for text in heads.all_inner_texts()] == ["retrieval/mine"]
    cells = page.locator("#table tbody tr:visible td:visible")
    assert cells.count() == heads.first.evaluate("head => head.colSpan")


def test_the_policy_runs_no_other_script(opened):
    page = opened()
    ran = page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.bad = 1';"
        " document.body.append(s); return window.bad === undefined; }"
    )
    assert ran


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_pages_fit_the_screen_and_names_stay_in_sight(opened, viewport):
    for path in (
        "models/good.html",
        "benchmarks/bench.html",
        "benchmarks/eqben.html",
        "index.html",
    ):
        page = opened(path, viewport=viewport)
        page.locator("details").evaluate_all("nodes => nodes.forEach(n => n.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        assert page.locator("h1").is_visible() and page.locator("table").first.is_visible()
    wide = page.locator("#table .wide")
    wide.evaluate("node => node.scrollTo(400, 600)")
    box, edge = wide.bounding_box(), page.locator("#table thead th.name").bounding_box()
    assert abs(edge["x"] - box["x"]) < 3
    assert 0 <= edge["y"] - box["y"] < 200
    names = page.locator("#table tbody tr:visible th.name").nth(20).bounding_box()
    assert abs(names["x"] - box["x"]) < 3
