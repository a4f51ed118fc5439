"""The studio in a real browser: filters, links, the back button, trying a model."""

from __future__ import annotations

import pytest
from browser import DESKTOP, PHONE, chromium, served, visit
from studio_runs import MARKUP, TOKEN, studio, write_runs

__all__ = ["chromium", "visit"]  # fixtures
sync_api = pytest.importorskip("playwright.sync_api")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    app = studio(write_runs(tmp_path_factory.mktemp("runs")), models=["world:base"])
    with served(app) as address:
        yield address


@pytest.fixture
def page(visit, base):
    opened = visit(base)
    opened.goto(f"{base}/?token={TOKEN}")
    assert opened.url == f"{base}/"
    return opened


def titles(page) -> list[str]:
    return [text.removeprefix("Case ") for text in page.locator(".case .title a").all_inner_texts()]


def test_the_first_page_fills_in_its_numbers_and_leads_to_cases(page):
    page.locator("td.number a", has_text="25.0").nth(1).click()
    page.wait_for_url("**metric=brittleness")
    assert titles(page)[:3] == ["1", "5", "9"]


def test_a_filter_swaps_the_list_and_the_address_and_back_takes_it_back(page, base, visit):
    page.goto(f"{base}/browse?benchmark=world-replace")
    first = titles(page)
    page.get_by_label("Model").select_option(label="mixed · all/mixed")
    page.wait_for_url("**run=*")
    page.locator(".outcomes a", has_text="wrong").click()
    page.wait_for_url("**outcome=wrong**")
    page.wait_for_selector(".outcomes a[aria-current]:has-text('wrong')")
    assert titles(page) == [str(i) for i in range(2, 48, 4)]
    page.get_by_label("Words in the captions").press_sequentially("st")
    page.wait_for_url("**q=st**")
    sync_api.expect(page.locator(".case")).not_to_have_count(12)
    assert page.get_by_label("Words in the captions").evaluate("e => e === document.activeElement")
    narrowed, link = titles(page), page.url
    assert set(narrowed) < {str(i) for i in range(2, 48, 4)} and narrowed

    shared = visit(base)  # somebody else, with the same link
    shared.goto(f"{base}/?token={TOKEN}")
    shared.goto(link)
    assert titles(shared) == narrowed

    page.go_back()
    sync_api.expect(page.get_by_label("Words in the captions")).to_have_value("")
    sync_api.expect(page.locator(".case")).to_have_count(12)
    assert titles(page) == [str(i) for i in range(2, 48, 4)]
    page.go_back()
    page.wait_for_url(lambda url: "outcome" not in url)
    page.wait_for_selector(".outcomes a[aria-current]:has-text('all')")
    assert titles(page) == first


def test_arrow_keys_move_between_cases(page, base):
    page.goto(f"{base}/browse/case?benchmark=world-replace&case=5&outcome=brittle")
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**case=9")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**case=5")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**case=1")
    page.keyboard.press("ArrowLeft")  # the first: nothing happens
    page.goto(f"{base}/browse?benchmark=world-replace")
    page.get_by_label("Words in the captions").press("ArrowRight")  # moves the cursor
    page.locator("h1").click()
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**page=2")


def test_captions_with_markup_are_shown_and_not_run(page, base):
    page.goto(f"{base}/browse?benchmark=odd")
    assert MARKUP in page.locator(".captions").inner_text()
    page.locator(".case .title a").click()
    assert MARKUP in page.locator(".captions").inner_text()
    assert page.evaluate("window.caught") is None


def test_it_works_without_javascript(visit, base):
    page = visit(base, java_script_enabled=False)
    page.goto(f"{base}/?token={TOKEN}")
    page.goto(f"{base}/browse?benchmark=world-replace")
    page.get_by_label("Model").select_option(label="mixed · all/mixed")
    page.get_by_label("Words in the captions").fill("st")
    page.get_by_role("button", name="Show").click()
    assert "q=st" in page.url and titles(page)
    page.locator(".case .title a").first.click()
    assert page.locator("table.heat tbody").count() == 2


def test_scores_can_be_read_on_their_shades(page, base):
    """The contrast of text and ground in every cell of the heat map, light and dark."""
    page.goto(f"{base}/browse/case?benchmark=world-replace&case=1")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        pairs = page.locator(".scale li").evaluate_all(
            "all => all.map(e => [getComputedStyle(e).color, getComputedStyle(e).backgroundColor])"
        )
        assert len(pairs) == 11
        assert min(contrast(*pair) for pair in pairs) >= 4.5


def contrast(one: str, other: str) -> float:
    """Of two colours as CSS writes them, by the formula of WCAG 2."""

    def luminance(colour: str) -> float:
        numbers = [int(n) / 255 for n in colour.removeprefix("rgb(").removesuffix(")").split(",")]
        linear = [n / 12.92 if n <= 0.04045 else ((n + 0.055) / 1.055) ** 2.4 for n in numbers]
        return sum(w * n for w, n in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


def test_a_model_is_tried_on_a_drawn_scene_and_on_an_upload(page, base, tmp_path):
    page.goto(f"{base}/try?scene=4")
    assert "world:base" in page.locator(".answers").inner_text()  # loading, or loaded by now
    page.wait_for_selector(".answers .cell", timeout=120_000)  # spaCy and the model are loaded
    page.get_by_label("Captions, one per line").fill("the ring and the small star")
    page.get_by_role("button", name="Score").click()
    page.wait_for_url("**captions=**")
    assert page.locator("tr.caption .said").inner_text() == "the ring and the small star"
    kinds = page.locator(".answers .kind").all_inner_texts()
    assert "positive" in kinds and "negative" in kinds
    cells = page.locator(".answers .cell").all_inner_texts()
    assert len(set(cells)) > 3 and all(0 < float(text) < 1 for text in cells)

    page.locator(".image img").screenshot(path=tmp_path / "scene.png")
    page.get_by_label("Upload an image").set_input_files(tmp_path / "scene.png")
    page.get_by_role("button", name="Score").click()
    page.wait_for_url("**upload=**")
    assert "Your upload" in page.locator(".image").inner_text()
    assert page.locator(".image img").evaluate("e => e.decode().then(() => e.naturalWidth)") > 0

    (tmp_path / "no.png").write_text("no image")
    page.get_by_label("Upload an image").set_input_files(tmp_path / "no.png")
    page.get_by_role("button", name="Score").click()
    page.wait_for_selector("#notice .notice")
    assert "Only PNG, JPEG and WebP" in page.locator("#notice").inner_text()


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_no_page_is_wider_than_its_screen(visit, base, viewport):
    page = visit(base, viewport=viewport)
    page.goto(f"{base}/?token={TOKEN}")
    paths = ("/", "/browse", "/browse/case?case=0&benchmark=world-bi", "/try", "/nothing")
    for path in paths:
        page.goto(f"{base}{path}")
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
