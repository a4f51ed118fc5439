"""Annotation in a real browser: by keys, on a phone, without scripts, back and forth."""

from __future__ import annotations

import re

import pytest
from browser import PHONE, chromium, served, visit
from campaigns import campaign, compared_files, database, outcome
from sklearn.metrics import cohen_kappa_score
from sqlalchemy import select
from studio_runs import TOKEN, studio

from counterpoint.studio.database import Answer, Showing

__all__ = ["chromium", "database", "visit"]  # fixtures


@pytest.fixture
def base(database, tmp_path, local_network):
    (tmp_path / "runs").mkdir()
    with served(studio(tmp_path / "runs", database=database)) as address:
        yield address


def history(database):
    with database.reading() as session:
        return session.execute(
            select(Showing.annotator_id, Showing.number, Answer.revision)
            .join(Answer, Answer.showing_id == Showing.id)
            .order_by(Showing.annotator_id, Showing.number, Answer.revision)
        ).all()


def send(page, key):
    """Choose by a key and answer by Enter."""
    page.keyboard.press(key)
    with page.expect_navigation():
        page.keyboard.press("Enter")


def follow(page, selector):
    """Click a link, and wait for the page with its scripts."""
    with page.expect_navigation():
        page.click(selector)


def number_of(page) -> int:
    return int(page.url.rpartition("/")[2])


def test_ten_items_by_two_annotators(visit, base, database):
    """With a reload in the middle, the back button, and undo; nothing is lost or doubled."""
    made = campaign(database, "world-bi:size=5", "image-to-text")
    for person, link in enumerate(made.links):
        page = visit(base)
        page.goto(f"{base}{link}")
        follow(page, "#start")
        for number in range(1, 11):
            assert number_of(page) == number
            if number == 4:
                page.reload()
                assert number_of(page) == 4
                assert page.locator(".annotate-progress").inner_text().strip() == "3 of 10"
            if number == 6:  # back with the browser, the other answer, and on
                page.go_back()
                while number_of(page) != 5:
                    page.go_back()
                chosen = page.locator("input:checked").get_attribute("data-key")
                send(page, "2" if chosen == "1" else "1")
                assert number_of(page) == 6
            if number == 8:  # undo, and leave it as it is
                with page.expect_navigation():
                    page.keyboard.press("u")
                assert number_of(page) == 7 and page.locator("input:checked").count() == 1
                follow(page, "text=Leave it as it is")
                assert number_of(page) == 8
            send(page, str(1 + (number * (person + 2)) % 3 % 2))
        assert page.url.endswith("/done")
    rows = history(database)
    expected = [(n, r) for n in range(1, 11) for r in ((0, 1) if n == 5 else (0,))]
    assert [(number, revision) for _, number, revision in rows] == expected * 2

    said = [
        {one.item: one.value for one in outcome(database).kept if one.annotator == n}
        for n in (1, 2)
    ]
    items = sorted(said[0])
    assert sorted(said[1]) == items and len(items) == 10
    kappa = cohen_kappa_score([said[0][i] for i in items], [said[1][i] for i in items])
    admin = visit(base)
    admin.goto(f"{base}/?token={TOKEN}")
    admin.goto(f"{base}/campaigns/c")
    assert admin.locator(".kappa-mean").inner_text() == f"{kappa:.3f}"
    assert "20 of 20 answers" in admin.inner_text("main")


def test_ranks_and_both_by_keys_alone(visit, base, database):
    [ranks] = campaign(database, "world-replace:size=2", "rank", people=1, overlap=1).links
    page = visit(base)
    page.goto(f"{base}{ranks}")
    with page.expect_navigation():
        page.keyboard.press("Enter")  # starts
    page.keyboard.type("112")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    with page.expect_navigation():
        page.keyboard.press("u")
    assert [box.get_attribute("value") for box in page.locator("input:checked").all()] == [
        *("1", "1", "2")
    ]
    [either] = campaign(
        database, "world-bi:size=2", "which-image", name="w", people=1, overlap=1
    ).links
    page.goto(f"{base}{either}/next")
    send(page, "b")
    send(page, "b")
    assert {one.value for one in outcome(database, "w").kept} == {"both"}
    [best] = campaign(
        database, "world-bi:size=2", "best-image", name="b", people=1, overlap=1
    ).links
    page.goto(f"{base}{best}/next")
    send(page, "0")
    assert [one.value for one in outcome(database, "b").kept] == ["none"]


def test_tab_and_arrows_are_enough_without_scripts(visit, base, database):
    made = campaign(database, "world-bi:size=2", "both-ways", people=1, overlap=1)
    page = visit(base, java_script_enabled=False)
    page.goto(f"{base}{made.links[0]}")
    follow(page, "#start")
    while not page.url.endswith("/done"):
        page.locator("input[type=radio]").first.focus()
        page.keyboard.press("Space")
        page.keyboard.press("ArrowDown")
        with page.expect_navigation():
            page.keyboard.press("Enter")
    assert len(outcome(database).kept) == 8


def test_on_a_phone_by_touch(visit, base, database):
    sources = {"which-image": "world-bi", "rank": "world-replace", "renderings": "world-images"}
    for kind, source in sources.items():
        campaign(database, f"{source}:size=2", kind, name=kind, people=1, overlap=1)
    page = visit(base, viewport=PHONE, has_touch=True, is_mobile=True)
    for kind in sources:
        token = outcome(database, kind).people[0].token
        for place in ("", "/next"):
            page.goto(f"{base}/a/{token}{place}")
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= PHONE["width"], f"{kind}{place} is {wide} pixels wide"
        if kind == "rank":
            for row in page.locator("fieldset.rank").all():
                row.locator("label").first.tap()
        else:
            page.locator("label.choice").first.tap()
        with page.expect_navigation():
            page.locator("button.primary").tap()
        assert len(outcome(database, kind).kept) == 1


def test_every_control_has_a_name(visit, base, database):
    """What a screen reader says: radios, images, progress, groups."""
    for kind, source in (("rank", "world-replace:size=2"), ("which-image", "world-bi:size=2")):
        made = campaign(database, source, kind, name=kind, people=1, overlap=1)
        page = visit(base)
        page.goto(f"{base}{made.links[0]}/next")
        tree = page.locator("body").aria_snapshot()
        radios = re.findall(r'- radio(?!group)(?: "([^"]*)")?', tree)
        assert radios and all(radios), tree
        assert 'progressbar "Your progress"' in tree
        assert all(image.get_attribute("alt") for image in page.locator("img").all())
    assert 'radiogroup "Which image fits the description better?"' in tree


def test_an_item_is_reported_in_words_and_skipped_by_a_key(visit, base, database):
    first, second = campaign(database, "world-bi:size=2", "image-to-text", overlap=1).links
    page = visit(base)
    page.goto(f"{base}{first}/next")
    page.locator(".report summary").click()
    page.locator("#note").press_sequentially("12 us")  # letters and digits, no commands
    assert number_of(page) == 1 and page.locator(".choices input:checked").count() == 0
    page.locator("h1").click()
    with page.expect_navigation():
        page.keyboard.press("s")
    assert number_of(page) == 2
    follow(page, "#undo")
    assert "You have skipped this one" in page.inner_text("main")
    assert page.locator("#note").input_value() == "12 us"
    page.goto(f"{base}{first}/next")
    plain = visit(base, java_script_enabled=False)
    plain.goto(f"{base}{first}/next")
    follow(plain, "#skip")  # although nothing is chosen
    assert number_of(plain) == 3
    assert [(r.skipped, r.note) for r in outcome(database).remarks] == [
        *((True, "12 us"), (True, None))
    ]
    page.goto(f"{base}{second}/next")
    send(page, "1")
    assert len(outcome(database).kept) == 1


def test_an_unanswered_form_stays_where_it_is(visit, base, database):
    [link] = campaign(database, "world-bi:size=2", "image-to-text", people=1, overlap=1).links
    page = visit(base)
    page.goto(f"{base}{link}/next")
    page.keyboard.press("Enter")
    page.wait_for_timeout(200)
    assert number_of(page) == 1 and history(database) == []
    assert page.locator("form").get_attribute("aria-busy") is None


def test_a_page_that_was_left_open_and_sent_twice(visit, base, database):
    """Two tabs show the same item: both answers belong to it, and the last one counts."""
    [link] = campaign(database, "world-bi:size=3", "text-to-image", people=1, overlap=1).links
    page = visit(base)
    page.goto(f"{base}{link}/next")
    tab = page.context.new_page()
    tab.goto(page.url)
    send(page, "1")
    send(tab, "2")
    send(page, "1")
    assert [(number, revision) for _, number, revision in history(database)] == [
        *((1, 0), (1, 1), (2, 0)),
    ]


@pytest.mark.parametrize("script", [True, False], ids=["script", "plain"])
def test_a_campaign_is_made_in_the_browser(visit, base, database, script):
    page = visit(base, viewport=PHONE, java_script_enabled=script)
    page.goto(f"{base}/?token={TOKEN}")
    page.goto(f"{base}/campaigns")
    page.get_by_label("Name").fill("mine")
    page.get_by_label("Made from").fill("world-bi:size=nothing")
    page.get_by_label("What is asked").select_option("image-to-text")
    page.get_by_label("Instructions of your own").fill("Look twice.")
    make = page.get_by_role("button", name="Make the campaign")
    make.click()
    page.get_by_role("alert").wait_for()  # the source is none; what was typed is still there
    page.get_by_label("Made from").fill("world-bi:size=4")
    make.click()
    page.wait_for_url("**/campaigns/mine")
    assert "instructions of its own" in page.inner_text("main")
    link = page.get_by_label("Personal link of annotator 2").input_value()
    page.goto(link)
    assert "Look twice." in page.inner_text("main")


def test_two_texts_are_compared_by_keys(visit, base, database, tmp_path):
    ours, theirs = compared_files(tmp_path)
    made = campaign(
        database, ours, "compare-texts", name="t", people=1, overlap=1, against=theirs, checks=0.1
    )
    page = visit(base)
    page.goto(f"{base}{made.links[0]}")
    assert page.locator(".example").count() == 2
    follow(page, "#start")
    assert page.locator("img").count() == 0 and page.locator("label.choice .words").count() == 2
    assert "on a mat." in page.inner_text(".description")
    while page.locator("form.ask").count():
        words = page.locator("label.choice .words").all_inner_texts()
        right = [n for n, text in enumerate(words, 1) if re.fullmatch(r"A \w+ on a .*\.", text)]
        send(page, str(right[0]) if len(right) == 1 else "b")
    page.goto(f"{base}/?token={TOKEN}")
    page.goto(f"{base}/campaigns/t")
    table = page.locator("table", has_text="commonsense").last.inner_text()
    assert "ours" in table and "theirs" in table and "100 %" in table
    assert page.locator("a", has_text="What was preferred").count() == 1
