"""The report in a real browser, on a desktop and on a phone."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from browser import DESKTOP, PHONE, chromium, visit
from studio_runs import world
from support import gallery, owned, part, random_scores, run_of
from test_report import scored

from counterpoint.cases.table import Cases
from counterpoint.models.blind.baselines import BagOfWords
from counterpoint.reports.page import ReportOptions, report_page

__all__ = ["chromium", "visit"]  # fixtures


@pytest.fixture(scope="module")
def text() -> str:
    """Three models and two baselines on three benchmarks; the bag of words ties on one of them.

    The models have a retrieval too, as it is and shuffled.
    """
    names = ("world-replace", "world-swap", "world-bi")
    cases = {name: world(name, 40) for name in names}
    runs = []
    found = Cases.build([gallery(owned(8))], source="test")
    models = [("good", 2.0), ("a-model-with-a-long-name/v2", 0.5), ("another-long-name/v3", 1.0)]
    for seed, (model, quality) in enumerate(models):
        parts = [
            part(table, scored(table, quality, seed, "").parts["bench"].scores, name=name)
            for name, table in cases.items()
        ]
        for number, how in enumerate(("", ":captions=nouns-adjectives", ":images=patches")):
            scores = random_scores(found, 3 * seed + number)
            parts.append(part(found, scores, name=f"retrieval/coco{how}"))
        runs.append(run_of(*parts, model=model))
    bow = [part(t, BagOfWords().score_cases(t), name=name) for name, t in cases.items()]
    dice = [part(t, random_scores(t, 9), name=name) for name, t in cases.items()]
    runs += [run_of(*bow, model="blind:bow"), run_of(*dice, model="random")]
    return report_page(runs, ReportOptions(resamples=50))


@pytest.fixture
def opened(text, tmp_path, visit):
    """`visit` fails if anything but the file is asked for."""

    def open_page(**options):
        path = tmp_path / "report.html"
        path.write_text(text, encoding="utf-8")
        page = visit("file://", **options)
        page.goto(path.as_uri())
        return page

    return open_page


BOXES = (
    "nodes => nodes.map(n => { const b = n.getBoundingClientRect(); return [b.left, b.right]; })"
)


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_everything_lies_on_the_screen(opened, viewport):
    page = opened(viewport=viewport)
    page.locator("details").evaluate_all("nodes => nodes.forEach(n => n.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    for what in (".plot svg", ".plot svg text", ".plot svg image", ".case", ".case img", "#found"):
        boxes = page.locator(what).evaluate_all(BOXES)
        assert boxes and all(left >= 0 and right <= viewport["width"] for left, right in boxes)


def test_figures_use_the_width(opened):
    page = opened(viewport=DESKTOP)
    width = page.locator("main").bounding_box()["width"]
    boxes = page.locator(".plot svg").evaluate_all(BOXES)
    assert max(right for _, right in boxes) - min(left for left, _ in boxes) > 0.98 * width
    page = opened(viewport=PHONE)
    boxes = page.locator(".plot svg").evaluate_all(BOXES)
    assert all(right - left > 0.85 * PHONE["width"] for left, right in boxes)
    height = "nodes => nodes.map(n => n.getBoundingClientRect().height)"
    assert min(page.locator(".plot svg text").evaluate_all(height)) >= 7  # it can be read


def test_examples_and_their_baselines_are_folded(opened):
    page = opened()
    assert not page.locator(".case").first.is_visible()
    page.locator("details.group > summary").first.click()
    case = page.locator(".case").first
    assert case.is_visible() and case.locator(".scores th", has_text="good").is_visible()
    assert not case.locator(".scores th", has_text="blind:bow").is_visible()
    case.locator("details.baselines > summary").click()
    assert case.locator(".scores th", has_text="blind:bow").is_visible()
    assert page.locator(".case > .wide .scores th", has_text="blind:bow").count() == 0


def test_baselines_are_grey(opened):
    page = opened()
    colour = "node => getComputedStyle(node).color"
    names = page.locator("#table > .wide").first.locator("tbody th")
    colours = {name.inner_text(): name.evaluate(colour) for name in names.all()}
    assert colours["blind:bow"] == colours["random"] == colours["chance"]
    assert colours["good"] == colours["a-model-with-a-long-name/v2"] != colours["random"]


class Images(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.alternatives: list[str] = []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag == "img":
            self.alternatives.append(found["alt"])
        elif tag == "svg":
            assert found["role"] == "img"
            self.alternatives.append(found["aria-label"])


@pytest.mark.slow
def test_every_image_has_an_alternative_text(text):
    read = Images()
    read.feed(text)
    assert len(read.alternatives) > 20 and all(read.alternatives)
    assert 'src="http' not in text and "url(http" not in text and "javascript:" not in text
    assert "<mark>" in text  # of words that differ from the original's
    assert "Original and augmented accuracy. world-replace, good: original " in str(
        read.alternatives
    )
    assert any(said.startswith("Image: ") for said in read.alternatives)
