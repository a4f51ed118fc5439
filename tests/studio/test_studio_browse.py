"""Browse: outcomes, filters, search, the same case under other models, pictures."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from io import BytesIO
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image
from studio_runs import (
    OUTCOMES,
    SCORES,
    client,
    key_of,
    png_header,
    repeated,
    studio,
    world,
    write_run,
    write_runs,
)
from support import FEW, asked, case, gallery, mixed, owned, part, random_scores, reference

from counterpoint._util.errors import ImageError
from counterpoint.cases.galleries import gallery_rows
from counterpoint.cases.table import Case, Cases, ImageRef, caption_case
from counterpoint.images.pictures import Picture
from counterpoint.runs import Run, case_outcomes, outcome_of_one, same_rows, save_run
from counterpoint.studio.browse.library import Library, make_index
from counterpoint.studio.browse.pages import (
    DIFFER,
    Filter,
    by_outcome,
    chosen_rows,
    disagreeing,
    fitted,
    found_rows,
    read_filter,
    with_outcome,
)
from counterpoint.studio.browse.views import SHADES, digits_for, letter, numbers_table, shades_of


@pytest.fixture(scope="module")
def admin(tmp_path_factory):
    return client(studio(write_runs(tmp_path_factory.mktemp("runs"))))


def titles(page: str) -> list[str]:
    return re.findall(r">Case (.*?)</a>", page)


def badges(page: str) -> list[str]:
    return re.findall(r'class="badge \w*">(\w+)<', page)


# --- outcomes ----------------------------------------------------------------------------------


@pytest.mark.slow
@FEW
@given(st.integers(0, 10**6), st.integers(2, 6))
def test_outcomes_are_those_of_the_metrics_definitions(seed, values):
    """Against the slow metrics: of one image by its partition, of squares by the group score."""
    cases = mixed()
    scores = random_scores(cases, seed, values)
    found = case_outcomes(part(cases, scores)).tolist()
    starts = cases.pair_offsets
    for row, outcome in enumerate(found):
        truth = cases.case(row).truth
        block = scores[starts[row] : starts[row + 1]].reshape(len(truth), -1).tolist()
        if len(truth) == 1:
            names = {
                "right": "augmented_accuracy",
                "brittle": "brittleness",
                "wrong": "negative_above_both",
                "tied": "tied",
            }
            true = [o for o, metric in names.items() if reference(metric, block, truth, "wrong")]
            assert [outcome] == true
        else:
            strict, lenient = (reference("group", block, truth, tie) for tie in ("wrong", "right"))
            assert outcome == ("right" if strict else "tied" if lenient else "wrong")


def test_answers_are_right_if_all_of_them_are():
    cases = Cases.build([asked(n) for n in range(4)], source="test")
    right = [2, 1, 8, 9, 1, 2, 9, 8]
    brittle = [9, 1, 7, 8, 1, 2, 9, 8]  # by all captions: 9 and 8 of image 0 are above 7
    scores = np.array([right, [1, 2, *right[2:]], [2, 2, *right[2:]], brittle], dtype=float)
    found = case_outcomes(part(cases, scores.reshape(-1))).tolist()
    assert found == ["right", "wrong", "tied", "right"]
    counted = make_index("model", part(cases, scores.reshape(-1))).counted
    assert counted["all_answers"].tolist() == [0, 3]


def test_a_gallery_has_no_outcome_and_one_line_can_be_judged_alone():
    cases = Cases.build([gallery(owned(6))], source="test")
    assert gallery_rows(cases).all()
    assert case_outcomes(part(cases, random_scores(cases, 1))).tolist() == ["gallery"]
    for outcome, scores in SCORES.items():
        assert outcome_of_one(np.array(scores), np.array([True, True, False])) == outcome
    assert outcome_of_one(np.array([0.1, 0.2]), np.array([True, True])) == ""


# --- the index ---------------------------------------------------------------------------------


def index_of(cases, outcomes=OUTCOMES, model="model"):
    return make_index(model, part(cases, repeated(cases, outcomes)))


def test_a_filter_is_the_intersection_of_its_parts():
    cases = world("world-replace", 40)
    index, other = index_of(cases), index_of(cases, ("right", "right", "wrong", "wrong", "tied"))
    captions = cases.frame["captions"].to_list()
    groups = cases.frame["groups"].to_list()
    wanted = [
        row
        for row in range(40)
        if "attributes/colour" in groups[row]
        and any(re.search(r"\bsq", caption) for caption in captions[row])
        and (row % 4 == 0) != (row % 5 < 2)
    ]
    found = chosen_rows(Filter(group="attributes/colour", q="SQ", other="x"), index, other)
    assert found.tolist() == wanted != []
    assert sum(by_outcome(found, index).values()) == len(wanted)
    assert with_outcome(found, index, "tied").tolist() == [r for r in wanted if r % 4 == 3]
    first = chosen_rows(Filter(other="x", differ="first"), index, other)
    second = chosen_rows(Filter(other="x", differ="second"), index, other)
    assert sorted([*first, *second]) == chosen_rows(Filter(other="x"), index, other).tolist()
    assert all(row % 4 == 0 for row in first)


def test_the_same_case_is_found_in_another_order_and_not_if_it_says_something_else():
    cases = [case(number) for number in range(8)]
    changed = caption_case("case-3", ImageRef("images/1.jpg"), ["other words"], ["still others"])
    whole = Cases.build(cases, source="test")
    others = Cases.build([cases[5], changed, cases[0]], source="test")
    assert same_rows(whole, others).tolist() == [2, -1, -1, -1, -1, 0, -1, -1]
    empty = whole.keep(np.zeros(8, dtype=bool))
    assert same_rows(whole, empty).tolist() == [-1] * 8 and not len(same_rows(empty, whole))
    mine, none = index_of(whole), make_index("empty", part(empty, np.zeros(0)))
    for differ in DIFFER:
        assert not disagreeing(mine, none, differ).any()
        assert not disagreeing(none, mine, differ).size


def test_words_find_their_beginnings_and_phrases_themselves():
    said = ["a red dog", "dogs; a dog on it", "L'été: 猫がいる", "a.c", "none"]
    cases = Cases.build(
        [caption_case(f"{i}", ImageRef("i.png"), [text], ["x"]) for i, text in enumerate(said)],
        source="test",
    )
    index = make_index("m", part(cases, np.zeros(10)))
    for words, found in (
        ("dog", [0, 1]),  # the beginning of a word
        ("DOG red", [0]),
        ("og", []),  # not its middle
        ('"dog on"', [1]),
        ("l'été", [2]),
        ('"red do', [0]),
        ("a.c", [3]),  # no regular expression
        (".*", []),
        ("猫", [2]),
        ("\\", []),
    ):
        assert np.flatnonzero(index.matching(words)).tolist() == found, words


def test_shades_span_a_case_and_digits_tell_its_scores_apart():
    scores = np.array([[0.2, 0.3, 0.25]])
    assert shades_of(scores).tolist() == [[0, SHADES, SHADES // 2]]
    assert shades_of(np.zeros((1, 2))).tolist() == [[SHADES // 2] * 2]
    assert [digits_for(np.array(s)) for s in ([1.0, 2.0], [0.1, 0.2], [0.1234, 0.1233])] == [
        0,
        2,
        4,
    ]
    assert [letter(i) for i in (0, 25, 26)] == ["A", "Z", "A2"]


# --- pages -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_first_page_shows_every_run_and_each_number_leads_to_its_cases(admin):
    page = admin.get("/", params={"show": "world-replace"}).text
    assert ">25.0†</a>" in page and ">100.0</a>" in page
    link = unescape(re.search(r'href="([^"]*metric=brittleness)">25.0†<', page)[1])
    assert set(badges(admin.get(link).text)) == {"brittle"}


@pytest.mark.slow
def test_every_number_leads_to_the_cases_that_it_counts(tmp_path):
    """Of one image with and without positives, and of two images and two captions."""
    image = ImageRef("a.png")
    reworded = [
        caption_case(f"p{n}", image, ["a", "b"], ["c"], (f"g{n % 2}",), f"i{n}") for n in range(40)
    ]
    plain = [caption_case(f"n{n}", image, ["a"], ["c"], ("g0",), f"i{n}") for n in range(30)]
    cases = Cases.build([*reworded, *plain], source="t")
    squares = world("world-bi", 30)
    rng = np.random.default_rng(1)
    both = rng.integers(0, 3, int(cases.pair_offsets[-1])).astype(float)
    write_run(tmp_path / "r", "m", b=(cases, both), sq=(squares, rng.normal(size=120)))
    library = Library(tmp_path)
    checked = []
    for benchmark in ("b", "sq"):
        found = {
            (row.group, row.metric): row for row in library.numbers(*library.runs(), benchmark)
        }
        for line in numbers_table(library, benchmark).lines:
            for metric, number in line.numbers.items():
                asked = read_filter(dict(parse_qsl(urlsplit(number.address).query)))
                filter, _, index = fitted(library, asked)
                row = found[line.part or "all", metric]
                counted = len(found_rows(library, filter, index))
                assert counted == round(row.value * row.n) < len(index.outcomes)
                checked.append((line.part, metric))
    assert checked == [
        *[("", m) for m in ("original_accuracy", "augmented_accuracy", "brittleness")],
        ("without positives", "original_accuracy"),
        *[("", metric) for metric in ("image_to_text", "text_to_image", "group")],
    ]


def test_a_number_that_depends_on_ties_says_so(tmp_path):
    cases = world("world-replace", 12)
    write_run(tmp_path / "r", "m", b=(cases, np.zeros(int(cases.pair_offsets[-1]))))
    page = client(studio(tmp_path)).get("/", params={"show": "b"}).text
    assert ">0.0†</a>" in page and "† depends on how ties are counted" in page


def test_models_are_counted_and_not_runs(tmp_path):
    cases = world("world-replace", 4)
    for name in ("one", "two"):
        write_run(tmp_path / name, "m", b=(cases, repeated(cases)))
    page = client(studio(tmp_path)).get("/").text
    assert "1 model in 2 runs;" in page


def test_scores_stand_alike_in_the_list_and_on_the_page_of_a_case(tmp_path):
    """A line per caption, a cell per image: also where there are more captions than images."""
    images, truth = (ImageRef("a"), ImageRef("b")), ((True, True, False), (False, False, True))
    made = Case("1", images, ("x", "y", "z"), truth)
    scores = np.array([0.11, 0.12, 0.13, 0.21, 0.22, 0.23])
    write_run(tmp_path / "r", "m", b=(Cases.build([made], source="t"), scores))
    page = client(studio(tmp_path))
    by_caption = ["0.11", "0.21", "0.12", "0.22", "0.13", "0.23"]
    listed = re.findall(r'class="cell[^"]*">([^<]+)<', page.get("/browse").text)
    alone = re.findall(r'<td class="heat-[^"]*">([^<]+)<', page.get("/browse/case?case=1").text)
    assert listed == alone == by_caption


@pytest.mark.slow
def test_the_list_is_paged_and_filtered_by_outcome(admin):
    key = key_of(admin, "mixed")
    found = []
    for number in range(1, 4):
        asked = {"run": key, "benchmark": "world-replace", "page": number}
        found += titles(admin.get("/browse", params=asked).text)
    assert found == [str(i) for i in range(48)]
    page = admin.get("/browse", params={"run": key, "outcome": "tied"}).text
    assert titles(page) == [str(i) for i in range(3, 48, 4)]
    beyond = admin.get("/browse", params={"run": key, "page": "99999"}).text
    assert titles(beyond) == titles(admin.get("/browse", params={"run": key, "page": 3}).text)


def test_disagreement_between_two_models(admin):
    asked = {"run": key_of(admin, "mixed"), "other": key_of(admin, "sure")}
    page = admin.get("/browse", params={**asked, "outcome": "wrong"}).text
    assert titles(page) == [str(i) for i in range(2, 48, 4)]
    only = admin.get("/browse", params={**asked, "differ": "first"}).text
    assert titles(only) == [] and "No case is like that." in only


def test_htmx_gets_the_part_it_swaps_and_a_plain_address(admin):
    asked = {"run": key_of(admin, "mixed"), "benchmark": "world-replace", "group": "", "q": ""}
    answer = admin.get("/browse", params=asked, headers={"hx-request": "true"})
    assert "<html" not in answer.text and 'id="browse"' in answer.text
    pushed = answer.headers["hx-push-url"]
    assert pushed == f"/browse?run={asked['run']}&benchmark=world-replace"
    assert titles(admin.get(pushed).text) == titles(answer.text)
    same = {"hx-request": "true", "hx-current-url": f"http://127.0.0.1:8765{pushed}"}
    assert admin.get(pushed, headers=same).headers["hx-push-url"] == "false"
    back = {"hx-request": "true", "hx-history-restore-request": "true"}
    assert "<html" in admin.get(pushed, headers=back).text


def test_another_benchmark_drops_the_group_that_it_lacks(admin):
    asked = {"run": key_of(admin, "mixed"), "benchmark": "world-bi", "group": "attributes/colour"}
    assert len(titles(admin.get("/browse", params=asked).text)) == 6


def test_a_case_shows_its_scores_under_every_model_and_its_neighbours_in_the_list(admin):
    key = key_of(admin, "mixed")
    asked = {"run": key, "benchmark": "world-replace", "outcome": "brittle", "case": "5"}
    page = admin.get("/browse/case", params=asked).text
    assert badges(page) == ["brittle", "brittle", "right"]  # the title's, then each model's
    assert re.findall(r'<td class="heat-(\d+)( is-true)?">([^<]*)<', page)[:3] == [
        ("10", " is-true", "0.90"),
        ("0", " is-true", "0.10"),
        ("5", "", "0.50"),
    ]
    links = {rel: unescape(link) for rel, link in re.findall(r'rel="(\w+)" href="([^"]*)"', page)}
    assert links["prev"].endswith("case=1") and links["next"].endswith("case=9")
    assert "2 of 12" in page
    square = admin.get("/browse/case", params={"run": key, "benchmark": "world-bi", "case": "0"})
    assert square.text.count("<img") == 2 and "true of 2" in square.text
    assert admin.get("/browse/case", params={"run": key, "case": "no"}).status_code == 404


def test_a_gallery_is_looked_at_an_image_at_a_time(tmp_path):
    cases = Cases.build([gallery(owned(7, 3), images=["x.png"] * 7)], source="test")
    scores = np.zeros((7, 21))
    scores[2, 20] = 2  # wrong, and above
    scores[2, 8] = 1  # its own
    write_run(tmp_path / "r", "m", found=(cases, scores.reshape(-1)))
    page = client(studio(tmp_path))
    text = page.get("/browse/case", params={"case": "gallery", "image": "3"}).text
    answers = re.findall(r'class="cell heat-\d+( is-true)?">.*?said">.*?</span> (.*?)<', text)
    assert answers[:2] == [("", "caption 20 of gallery"), (" is-true", "caption 8 of gallery")]
    assert "Image 3 of 7" in text and len([a for a in answers if a[0]]) == 3
    assert "15 more captions" in page.get("/browse").text


def test_a_run_that_is_made_anew_is_read_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("counterpoint.studio.browse.library._FRESH", 0)
    cases = world("world-replace", 4)
    page = client(studio(tmp_path))
    assert "No runs yet" in page.get("/browse").text
    write_run(tmp_path / "r", "m", b=(cases, repeated(cases, ("right",))))
    assert badges(page.get("/browse").text) == ["right"] * 4
    write_run(tmp_path / "r", "m", b=(cases, repeated(cases, ("wrong",))))
    assert badges(page.get("/browse").text) == ["wrong"] * 4


# --- pictures ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_pictures_are_scaled_and_large_ones_refused(tmp_path):
    Image.new("RGB", (3000, 1500), "red").save(tmp_path / "photo.jpg")
    (tmp_path / "narrow.png").write_bytes(png_header(30_000, 200))
    (tmp_path / "huge.png").write_bytes(png_header(20_000, 20_000))
    (tmp_path / "broken.png").write_bytes(b"no image")
    (tmp_path.parent / "secret.png").write_bytes((tmp_path / "photo.jpg").read_bytes())
    names = ("photo.jpg", "narrow.png", "huge.png", "broken.png", "missing.png", "../secret.png")
    cases = Cases.build(
        [caption_case(name, ImageRef(name), ["a"], ["b"]) for name in names],
        root=tmp_path,
        source="test",
    )
    write_run(tmp_path / "runs" / "r", "m", b=(cases, np.tile([1.0, 0.0], len(names))))
    page = client(studio(tmp_path / "runs"))
    key = key_of(page, "m")

    def picture(row: int, **asked: str):
        return page.get(f"/browse/picture/{key}/{row}/0", params={"benchmark": "b", **asked})

    large, small = picture(0), picture(0, size="small")
    sizes = [Image.open(BytesIO(a.content)).size for a in (large, small)]
    assert sizes == [(1024, 512), (320, 160)]
    assert large.headers["content-type"] == "image/jpeg"
    again = {"if-none-match": large.headers["etag"]}
    assert page.get(str(large.url), headers=again).status_code == 304
    drawn = page.get(str(picture(1).url), headers={"accept": "image/webp,*/*"})
    assert (drawn.status_code, drawn.headers["content-type"]) == (404, "image/svg+xml")
    for row in (1, 2, 3, 4, 5):
        assert picture(row).status_code == 404
        assert "cannot be shown" in picture(row).text


def test_no_file_is_opened_but_by_the_picture_itself(tmp_path, monkeypatch):
    """`Picture.open` refuses devices and pipes; nothing may look at the path before it."""
    cases = Cases.build([caption_case("1", ImageRef("/dev/zero"), ["a"], ["b"])], source="test")
    write_run(tmp_path / "r", "m", b=(cases, np.array([1.0, 0.0])))
    page = client(studio(tmp_path))
    address = f"/browse/picture/{key_of(page, 'm')}/0/0?benchmark=b"

    def refuse(picture):
        raise ImageError("E-IMAGE-UNREADABLE", f"image {picture.ref.path}: not a regular file.")

    monkeypatch.setattr(Picture, "open", refuse)
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("the path was opened"))
    answer = page.get(address)
    assert (answer.status_code, "not a regular file" in answer.text) == (404, True)


def test_another_crop_is_another_case():
    whole, cropped = (
        Cases.build([caption_case("1", ImageRef("a.png", box), ["a cat"], ["a dog"])], source="t")
        for box in (None, (0, 0, 5, 5))
    )
    assert same_rows(whole, whole).tolist() == [0]
    assert same_rows(whole, cropped).tolist() == [-1]


def test_the_table_marks_a_part_and_shows_both_ends_of_a_skewed_interval(tmp_path):
    cases = world("world-replace", 12)
    right = part(cases, repeated(cases, ("right",)), name="world-replace")
    save_run(Run("all of it", {"world-replace": right}, {"created": "1"}), tmp_path / "a")
    some = replace(right, whole=500)
    save_run(Run("some of it", {"world-replace": some}, {"created": "2"}), tmp_path / "b")
    table = numbers_table(Library(tmp_path), "world-replace")
    assert {line.run.model: line.cases for line in table.lines} == {
        "all of it": "12",
        "some of it": "12 of 500‡",
    }
    assert "not over the whole benchmark" in table.note
    assert "Brittleness: lower is better." in table.note
    for line in table.lines:
        assert line.numbers["augmented_accuracy"].interval.endswith(", 100.0]")
    page = client(studio(tmp_path)).get("/numbers?benchmark=world-replace").text
    assert "12 of 500‡" in page and ", 100.0]" in page
