"""The pages without a browser: what they answer, to whom, and what they refuse."""

from __future__ import annotations

import html
import re

import pytest
from annotate_support import BASE, TOKEN, at, client, database, form_of
from campaigns import answer_all, campaign, outcome, rightly
from PIL import Image
from sqlalchemy import select

from counterpoint.cases.files import write_cases
from counterpoint.cases.table import Cases, ImageRef, caption_case
from counterpoint.studio.annotate.pages import share
from counterpoint.studio.database import Answer, Showing

__all__ = ["client", "database"]  # fixtures
MARKUP = '<script>window.caught = 1</script> & <b>"red"</b> {{ 7 * 7 }}'


def answers(database):
    with database.reading() as session:
        return session.execute(
            select(Showing.number, Answer.revision, Answer.value)
            .join(Answer, Answer.showing_id == Showing.id)
            .order_by(Showing.number, Answer.revision)
        ).all()


@pytest.mark.slow
def test_a_campaign_from_the_first_page_to_the_last(client, database):
    made = campaign(database, "world-replace:size=2", "rank", people=1, overlap=1)
    [link] = made.links
    welcome = client.get(link).text
    assert "Rank the captions" in welcome and f'href="{link}/next"' in welcome
    for number in (1, 2):
        place, page = at(client, link)
        assert place == f"{link}/{number}" and f"{number - 1} of 2" in page
        said = {"rank0": "1", "rank1": "1", "rank2": "2"}
        sent = client.post(place, data={**form_of(page), **said})
        assert (sent.status_code, sent.headers["location"]) == (303, f"{link}/next")
    assert client.get(f"{link}/next").headers["location"] == f"{link}/done"
    assert "That was all" in client.get(f"{link}/done").text
    assert len(answers(database)) == 2


def test_sent_twice_is_kept_once_and_a_change_is_kept_behind_it(client, database):
    [link] = campaign(database, "world-bi:size=2", "image-to-text", people=1, overlap=1).links
    place, page = at(client, link)
    form = form_of(page)
    for answer in ("0", "0", "1"):
        assert client.post(place, data={**form, "answer": answer}).status_code == 303
    rows = answers(database)
    assert [(number, revision) for number, revision, _ in rows] == [(1, 0), (1, 1)]
    assert {value for *_, value in rows} == {"0", "1"}
    again = client.get(place).text  # undo leads here
    assert re.search(r'value="1" required checked', again)
    assert "You have answered this one" in again
    assert client.get(f"{link}/next").headers["location"] == f"{link}/2"
    assert f'id="undo" href="{place}"' in client.get(f"{link}/2").text


@pytest.mark.slow
def test_a_form_without_an_answer_is_shown_again(client, database):
    [link] = campaign(database, "world-bi:size=2", "image-to-text", people=1, overlap=1).links
    place, page = at(client, link)
    for answer in ({}, *({"answer": a} for a in ("", "7", "both", "x", "-1", "9" * 5000, "²"))):
        said = client.post(place, data={**form_of(page), **answer})
        assert said.status_code == 422 and "Choose one of the answers first." in said.text
    assert answers(database) == []


def test_forms_that_our_pages_did_not_make_are_refused(client, database):
    """As those of the playground, of which tests/studio/test_studio.py holds every way."""
    [link] = campaign(database, "world-bi:size=2", "image-to-text", people=1, overlap=1).links
    place, page = at(client, link)
    assert client.post(place, data={"answer": "0", "csrf": "made up"}).status_code == 403
    too_long = {"answer": "0" * 100_000, **form_of(page)}
    assert client.post(place, data=too_long).status_code == 413
    assert answers(database) == []


@pytest.mark.slow
def test_annotators_see_their_own_items_and_nothing_else(client, database):
    first = campaign(database, "world-bi:size=2", "image-to-text", name="one", overlap=1)
    other = campaign(database, "world-bi:size=2", "rank", name="secret", overlap=1)
    mine, theirs = first.links[0], other.links[0]
    place, _ = at(client, mine)
    at(client, theirs)
    number = place.rpartition("/")[2]
    for path in (
        f"{mine}/2",  # not shown yet
        f"{mine}/0",
        f"{mine}/-1",
        f"{mine}/x",
        f"{mine}/{2**31}",  # beyond the integers of PostgreSQL
        f"{mine}/{2**63}",  # of SQLite
        f"{mine}/{'9' * 5000}",
        f"{mine}/{number}/picture/{2**64}",
        f"{mine}/{number}/picture/1",  # one image is shown
        f"{mine}/{number}/picture/-1",
        f"{first.links[1]}/1",  # another annotator has asked for nothing
        "/a/nobody",
        "/a/nobody/next",
        "/a/nobody/1",
        "/a/nobody/1/picture/0",
        f"{mine}x/1",
    ):
        assert client.get(path).status_code == 404, path
    for path in ("/campaigns", "/campaigns/one", "/campaigns/one/answers.csv", "/browse"):
        assert client.get(path).status_code == 403, path
    assert client.post("/campaigns/one/annotators", data={"count": "1"}).status_code == 403
    page = client.get(mine).text
    assert "secret" not in page and "/campaigns" not in page


def test_captions_are_text_wherever_they_come(client, database, tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    made = caption_case("<i>id</i>", ImageRef("a.png"), [MARKUP], ["<img src=x onerror=alert(1)>"])
    write_cases(Cases.build([made], root=tmp_path, source="t"), tmp_path / "hostile.parquet")
    [link] = campaign(
        database, tmp_path / "hostile.parquet", "image-to-text", people=1, overlap=1
    ).links
    _, page = at(client, link)
    assert html.escape(MARKUP, quote=False).replace('"', "&#34;") in page
    assert "<script>window" not in page and "<img src=x" not in page
    assert "{{ 7 * 7 }}" in page  # shown, not computed
    answer_all(database, rightly)
    client.get(f"/?token={TOKEN}")
    results = client.get("/campaigns/c")
    assert results.status_code == 200 and "<i>" not in results.text


def test_pictures_are_served_by_place_and_errors_tell_no_path(client, database, tmp_path):
    for name in ("a", "b"):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{name}.png")
    cases = [caption_case(n, ImageRef(f"{n}.png"), [f"{n} is"], [f"{n} not"]) for n in ("a", "b")]
    write_cases(Cases.build(cases, root=tmp_path, source="t"), tmp_path / "c.parquet")
    [link] = campaign(database, tmp_path / "c.parquet", "image-to-text", people=1, overlap=1).links
    place, page = at(client, link)
    assert f'src="{place}/picture/0"' in page and ".png" not in page
    shown = client.get(f"{place}/picture/0")
    assert shown.headers["content-type"] == "image/png"
    place, page = at(client, link)
    client.post(place, data={**form_of(page), "answer": "0"})
    place, _ = at(client, link)
    for path in (tmp_path / "a.png", tmp_path / "b.png"):
        path.unlink()
    gone = client.get(f"{place}/picture/0")
    assert gone.status_code == 404 and str(tmp_path) not in gone.text


@pytest.mark.slow
def test_the_admin_sees_results_links_and_files(client, database):
    made = campaign(database, "world-bi:size=6", "both-ways", checks=0.2)
    answer_all(database, lambda p, item: rightly(p, item) if p == 1 else "1")
    client.get(f"/?token={TOKEN}")
    assert "48 of 48" in client.get("/campaigns").text
    page = client.get("/campaigns/c").text
    for link in made.links:
        assert f"{BASE}{link}" in page
    [measure] = outcome(database).agreement
    assert f'<td class="num kappa-mean">{measure.mean:.3f}</td>' in page
    assert "image to text" in page and "group" in page
    table = client.get("/campaigns/c/answers.csv")
    assert table.headers["content-disposition"] == 'attachment; filename="c-answers.csv"'
    assert table.text.count("\n") == 1 + len(answers(database))
    counted = client.get("/campaigns/c?least=90%25").text
    assert "not counted" in counted
    whole = client.get("/campaigns/c/accepted.parquet?least=0.9")
    assert whole.content[:4] == b"PAR1"
    more = client.post("/campaigns/c/annotators", data={**form_of(page), "count": "2"})
    assert more.status_code == 303
    assert client.get("/campaigns/c").text.count("/a/") == 4
    assert client.get("/campaigns/nothing").status_code == 404
    for count in ("many", "0", "1001", "9" * 5000, "²"):
        odd = client.post("/campaigns/c/annotators", data={**form_of(page), "count": count})
        assert odd.status_code == 400


def test_a_result_page_before_any_answer(client, database):
    campaign(database, "world-replace:size=3", "rank")
    client.get(f"/?token={TOKEN}")
    page = client.get("/campaigns/c").text
    assert "No two annotators have judged the same item yet." in page
    assert client.get("/campaigns/c/accepted.parquet").status_code == 400


def test_a_share_of_a_form() -> None:
    shares = {"0.8": 0.8, "80": 0.8, "80%": 0.8, "1%": 0.01, "2 %": 0.02, "0.5%": 0.005}
    shares |= {"100%": 1.0, **dict.fromkeys(("", "x", "-1", "101%", "nan", "inf"), 0.0)}
    for text, value in shares.items():
        assert share(text) == pytest.approx(value), text
