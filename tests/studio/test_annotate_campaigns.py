"""From a source to questions, and from answers to a run and to files."""

from __future__ import annotations

import csv
import io
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from campaigns import answer_all, campaign, compared_files, database, outcome, rightly
from errors import raises
from PIL import Image
from sqlalchemy import select
from support import part, run_of, square

from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.cases.files import read_cases, write_cases
from counterpoint.cases.table import Cases, ImageRef, caption_case
from counterpoint.evaluation.verifying import published
from counterpoint.generation.pairs import Pair, read_about, read_pairs, tabulate, write_pairs
from counterpoint.metrics.definitions import image_to_text, text_to_image
from counterpoint.runs import compare, load_run, rows, save_run
from counterpoint.studio.annotate import answers_csv, export, find_campaign
from counterpoint.studio.annotate.human import both_ways, direction_by_direction, human_run
from counterpoint.studio.annotate.questions import (
    ASKS,
    BEST,
    RANK,
    SAME,
    TO_TEXT,
    WHICH,
    AnnotationQuestion,
)
from counterpoint.studio.annotate.results import ComparisonRow, comparison
from counterpoint.studio.database import Item

__all__ = ["database"]  # a fixture


def picture(path: Path, colour: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), colour).save(path)


def pairs_file(folder: Path, *, images: bool = True) -> Path:
    """Three captions with a negative and a positive each, candidates for the negatives."""
    made, candidates, chosen = [], [], []
    for number, word in enumerate(("cat", "dog", "bird")):
        picture(folder / f"photos/{word}.png", "white")
        about = (f"s{number}", ImageRef(f"{word}.png"), f"a {word} on a mat")
        made.append(
            Pair(*about, f"a {word} under a mat", "negative", "replace", "rel", "m", "1", 0)
        )
        made.append(Pair(*about, f"a {word} upon a mat", "positive", "replace", "rel", "m", "1", 0))
        names = [f"made/{word}-{n}.png" for n in range(3)]
        for name in names:
            picture(folder / name, "black")
        candidates += [[{"path": n, "seed": 0, "score": None} for n in names] if images else [], []]
        chosen += [names[0] if images else None, None]
    frame = tabulate(made).with_columns(
        pl.Series("text_images", candidates, dtype=tabulate(made).schema["text_images"]),
        pl.Series("text_image", chosen, dtype=pl.String()),
    )
    path = folder / "pairs.parquet"
    write_pairs(path, [frame], {"root": str(folder / "photos")})
    return path


def questions(database):
    with database.reading() as session:
        items = session.scalars(select(Item).where(~Item.is_check).order_by(Item.id)).all()
    return [(item.key, AnnotationQuestion.of(item.question)) for item in items]


# --- answers -----------------------------------------------------------------------------------


def test_answers_are_read_into_their_one_form():
    for ask, value, options, kept in (
        (BEST, "3", 4, "3"),
        (BEST, "none", 4, "none"),
        (BEST, "4", 4, None),
        (BEST, "both", 4, None),
        (BEST, "-1", 4, None),
        (BEST, "²", 4, None),
        (WHICH, "both", 2, "both"),
        (WHICH, "none", 2, None),
        (TO_TEXT, "", 2, None),
        (RANK, "1,1,2", 3, "1,1,2"),
        (RANK, "3,3,3", 3, "1,1,1"),
        (RANK, "2,3,2", 3, "1,2,1"),
        (RANK, "1,2", 3, None),
        (RANK, "1,,2", 3, None),
        (RANK, "0,1,2", 3, None),
    ):
        if kept is None:
            with raises("E-ANSWER-MISSING"):
                ask.read(value, options)
        else:
            assert ask.read(value, options) == kept


def test_what_is_right_and_what_is_accepted():
    assert TO_TEXT.is_right("1", (1,)) and not TO_TEXT.is_right("0", (1,))
    assert not WHICH.is_right("both", (0,)) and WHICH.accepts("0", (0,))
    assert BEST.accepts("2", (0,)) and not BEST.accepts("none", (0,))
    assert BEST.is_right("none", ())  # of an attention check
    assert RANK.is_right("1,2,3", (0, 1)) and RANK.is_right("1,1,2", (0, 1))
    assert not RANK.is_right("1,2,2", (0, 1)) and not RANK.is_right("1,1,1", (0, 1))
    assert RANK.is_right("1,1,1", (0, 1, 2))


# --- sources -----------------------------------------------------------------------------------


def test_both_ways_asks_four_questions_of_a_case(database):
    made = campaign(database, "world-bi:size=3", "both-ways")
    _, cases = load_benchmark("world-bi:size=3")
    case = cases.case(0)
    asked = dict(questions(database)[:4])
    assert made.items == 12
    places = ("image 0", "image 1", "caption 0", "caption 1")
    assert list(asked) == [f"{case.id} {place}" for place in places]
    first, second, third, fourth = asked.values()
    assert first.captions == second.captions == case.captions
    assert [q.right for q in asked.values()] == [(0,), (1,), (0,), (1,)]
    assert third.captions == case.captions[:1] and fourth.captions == case.captions[1:]
    assert tuple(image.ref for image in third.images) == case.images


def test_a_limit_draws_a_random_sample_by_the_seed(database, tmp_path):
    """As the papers drew theirs; a fixed spacing would be the same sample for every seed."""
    _, cases = load_benchmark("world-replace:size=40")
    write_cases(cases, tmp_path / "file.parquet")
    scores = np.zeros(int(cases.pair_offsets[-1]))
    save_run(run_of(part(cases, scores, name="world-replace")), tmp_path / "run")
    ids = list(cases.ids)
    for source in ("world-replace:size=40", tmp_path / "file.parquet", tmp_path / "run"):
        chosen = []
        for number, seed in enumerate((0, 0, 1)):
            name = f"{Path(source).stem[:5]}{number}"
            assert campaign(database, source, "rank", name=name, limit=10, seed=seed).items == 10
            subjects = outcome(database, name).subjects.values()
            chosen.append([subject.case.id for subject in subjects])
        assert chosen[0] == chosen[1] != chosen[2]
        places = [ids.index(id) for id in chosen[0]]
        assert places == sorted(places) and len(set(np.diff(places))) > 2  # not evenly spaced


def test_an_id_that_a_database_cannot_keep_is_left_out(database, tmp_path):
    picture(tmp_path / "a.png", "red")
    ids = ("a\0b", "fine")
    cases = [caption_case(id, ImageRef("a.png"), ["a\0cat"], ["b"]) for id in ids]
    write_cases(Cases.build(cases, root=tmp_path, source="t"), tmp_path / "c.parquet")
    made = campaign(database, tmp_path / "c.parquet", "image-to-text")
    reason = "cases: the id holds a NUL character, which no database keeps"
    assert (made.items, made.left_out) == (1, {reason: 1})


def test_what_cannot_be_asked_is_counted_and_named(database, tmp_path):
    mixed = [square(1), caption_case("c", ImageRef("none.jpg"), ["a"], ["b"])]
    for ref in mixed[0].images:
        picture(tmp_path / ref.path, "red")
    write_cases(Cases.build(mixed, root=tmp_path, source="t"), tmp_path / "mixed.parquet")
    made = campaign(database, tmp_path / "mixed.parquet", "text-to-image")
    assert made.items == 2 and made.left_out == {"cases: an image is missing": 1}
    with raises("E-CAMPAIGN-EMPTY", "which-image"):
        campaign(database, "world-replace:size=3", "which-image", name="d")
    with raises("E-CAMPAIGN-INVALID", "fixed"):
        campaign(database, "world-bi:size=4", "both-ways", name="e", people=3, fixed=True)


@pytest.mark.parametrize(
    ("kind", "items", "images", "captions"),
    [
        ("best-image", 3, 3, ("a cat under a mat",)),
        ("which-image", 3, 2, ("a cat on a mat",)),
        ("image-to-text", 3, 1, ("a cat on a mat", "a cat under a mat")),
        ("text-to-image", 6, 2, ("a cat on a mat",)),
        ("both-ways", 12, 1, ("a cat on a mat", "a cat under a mat")),
        ("rank", 3, 1, ("a cat on a mat", "a cat upon a mat", "a cat under a mat")),
    ],
)
def test_every_kind_is_made_from_pairs(database, tmp_path, kind, items, images, captions):
    made = campaign(database, pairs_file(tmp_path), kind)
    assert made.items == items
    _, first = questions(database)[0]
    assert (len(first.images), first.captions) == (images, captions)
    assert all(image.picture().open().size == (8, 8) for image in first.images)
    expected = {} if kind == "rank" else {"pairs: positives": 3}
    assert made.left_out == expected


@pytest.mark.parametrize(
    "kind", [name for name, ask in ASKS.items() if not ask.compares and ask is not SAME]
)
def test_checks_are_beyond_doubt(database, tmp_path, kind):
    """The right option is the item's own, and all others are of another image."""
    campaign(database, pairs_file(tmp_path), kind, checks=0.5)
    with database.reading() as session:
        checks = session.scalars(select(Item).where(Item.is_check)).all()
    assert checks
    for check in checks:
        question = AnnotationQuestion.of(check.question)
        words = [caption.split()[1] for caption in question.captions]
        names = [Path(image.ref.path).stem.partition("-")[0] for image in question.images]
        if kind == "best-image":
            assert question.right == () and words[0] not in names
        elif ASKS[kind].options == "images":
            assert question.right == (0,) and words[0] == names[0] != names[1]
        else:
            assert question.right == (0,) and words[0] == names[0] not in words[1:]


def test_a_rerendering_is_asked_of_its_caption_beside_the_image(database):
    made = campaign(database, "world-images:size=12", "renderings", checks=0.5)
    assert made.items == 12 and made.left_out == {}
    cases = load_benchmark("world-images:size=12").cases
    for row, (_, question) in enumerate(questions(database)[:12]):
        case = cases.case(row)
        assert question.captions == case.captions[:1] and question.right == ()
        assert [image.ref for image in question.images] == list(case.images[:2])
    with database.reading() as session:
        checks = session.scalars(select(Item).where(Item.is_check)).all()
    images = {cases.case(row).captions[0]: cases.case(row).images for row in range(12)}
    for check in checks:  # the caption's own image, and one of another caption
        question = AnnotationQuestion.of(check.question)
        [caption] = question.captions
        assert question.right == (0,) and question.images[0].ref == images[caption][0]
        assert question.images[1].ref not in images[caption]
    with raises("E-CAMPAIGN-EMPTY", "renderings"):
        campaign(database, "world-bi:size=3", "renderings", name="d")


def test_renderings_that_most_people_accept_are_exported(database, tmp_path):
    """Two of three say "both": accepted. Two of three see a difference: not accepted."""
    campaign(database, "world-images:size=12", "renderings", people=3, overlap=3)

    def says(person, item):
        if item.id <= 8:
            return "1" if person == 1 and item.id % 2 else "both"
        return "both" if person == 1 else "0"

    answer_all(database, says)
    found = outcome(database)
    assert (found.tally.judged, found.tally.accepted) == (12, 8)
    [agreement] = found.agreement
    assert agreement.what == "the answer" and len(agreement.pairs) == 3
    assert next(p.kappa for p in agreement.pairs if (p.a, p.b) == (2, 3)) == 1.0
    export(found, tmp_path / "accepted.parquet")
    kept = read_cases(tmp_path / "accepted.parquet")
    whole = load_benchmark("world-images:size=12").cases
    assert kept.ids.to_list() == whole.ids.to_list()[:8]
    assert kept.frame["truth"].to_list() == whole.frame["truth"].to_list()[:8]
    with raises("E-CAMPAIGN-NO-TRUTH"):
        human_run(found)


# --- people as a model -------------------------------------------------------------------------


def values(run):
    return {row.metric: row.value for row in rows(run, groups=False, resamples=10)}


@pytest.mark.slow
def test_people_who_are_right_get_everything_right(database, tmp_path):
    campaign(database, "world-bi:size=6", "both-ways", checks=0.1)
    answer_all(database, rightly)
    run = save_run(human_run(outcome(database)), tmp_path / "human")
    found = values(load_run(tmp_path / "human"))
    assert run.model == "human" and run.left_out == 0
    assert found["image_to_text"] == found["text_to_image"] == found["group"] == 1.0
    known, cases = load_benchmark("world-bi:size=6")
    model = run_of(part(cases, np.tile([0, 1, 1, 0], 6), known.protocol, "world-bi:size=6"))
    gaps = {d.metric: d.difference for d in compare(run, model, resamples=50)}
    assert gaps["group"] == 1.0


def test_four_scores_stand_as_the_answers_say_unless_those_run_in_a_circle():
    circles = 0
    for wanted in product((-1, 0, 1), repeat=4):
        found = both_ways(wanted)
        a, b, c, d = wanted  # s00-s01, s10-s11, s00-s10, s01-s11
        if found is None:
            circles += 1
            # s00-s01 + s01-s11 = s00-s10 + s10-s11: a sum of signs that cannot be equal
            left, right = {a, d} - {0}, {c, b} - {0}
            assert left != right or len(left) < 2
            continue
        s00, s01, s10, s11 = found
        assert wanted == tuple(
            int(np.sign(g)) for g in (s00 - s01, s10 - s11, s00 - s10, s01 - s11)
        )
    strict = [w for w in product((-1, 1), repeat=4) if both_ways(w) is None]
    assert strict == [(-1, 1, 1, -1), (1, -1, -1, 1)] and circles > 2


@pytest.mark.slow
def test_answers_in_a_circle_are_right_or_wrong_in_each_direction():
    """For every pattern of answers, ties included: what the answers to each direction say."""
    truth = ((True, False), (False, True))
    for wanted in product((-1, 0, 1), repeat=4):
        found = both_ways(wanted) or direction_by_direction(wanted, truth)
        block = np.array(found).reshape(1, 2, 2), np.array([truth])
        assert image_to_text(*block).item() == (wanted[:2] == (1, -1)), wanted
        assert text_to_image(*block).item() == (wanted[2:] == (1, -1)), wanted
        if both_ways(wanted):
            assert direction_by_direction(wanted, truth) == both_ways(wanted)


def wrong_if(condition):
    """The known answer, but where the condition holds of annotator and item the other one."""
    return lambda person, item: str(abs(int(rightly(person, item)) - condition(person, item.key)))


RANKS = ["1,1,2", "1,3,2", "1,1,1", "2,2,1"]
BOTH = ("image_to_text", "text_to_image", "group")


@pytest.mark.slow
def test_answers_are_measured_in_the_metrics_of_the_benchmark(database):
    ways = "world-bi:size=4"
    tied = {"original_accuracy": 0.5, "tie_rate": 0.5}  # two who disagree, and a tie is wrong
    patterns = dict.fromkeys(("augmented_accuracy", "brittleness", "tied"), 0.25)
    patterns |= {"negative_above_both": 0.25, "original_accuracy": 0.5}
    second = {"text_to_image_0": 1.0, "text_to_image_1": 0.0}
    for number, (kind, source, says, expected) in enumerate(
        (
            # Right about captions, wrong about the images of the second caption.
            (
                *("both-ways", ways, wrong_if(lambda person, key: key.endswith("caption 1"))),
                {**dict(zip(BOTH, (1, 0, 0), strict=True)), **second},
            ),
            # Answers that run in a circle are right in one direction.
            (
                *("both-ways", ways, wrong_if(lambda person, key: "image" not in key.split()[-2])),
                dict(zip(BOTH, (1, 0, 0), strict=True)),
            ),
            (
                *("both-ways", ways, wrong_if(lambda person, key: "image" in key.split()[-2])),
                dict(zip(BOTH, (0, 1, 0), strict=True)),
            ),
            (
                *("image-to-text", ways, wrong_if(lambda n, key: n == 2 and key[-1] != "0")),
                tied,
            ),
            ("rank", "world-replace:size=4", lambda n, item: RANKS[item.id % 4], patterns),
            ("which-image", ways, lambda n, item: "both" if item.id % 2 else "0", {BOTH[1]: 0.5}),
        )
    ):
        campaign(database, source, kind, name=f"c{number}")
        answer_all(database, says, f"c{number}")
        found = outcome(database, f"c{number}")
        run = human_run(found)
        measured = values(run)
        assert {name: measured[name] for name in expected} == expected, number
        circles = {1: 4, 2: 4}.get(number, 0)
        assert run.manifest["model_info"]["circular_cases"] == circles
        if kind == "image-to-text":  # the other way was not asked
            assert list(run.parts) == [f"{ways}/image-to-text"]
            tally = found.tally
            assert (tally.judged, tally.accepted, tally.all_right) == (8, 4, 4)


def test_cases_without_all_their_answers_are_left_out_and_named(database):
    campaign(database, "world-bi:size=3", "both-ways", overlap=1)
    with raises("E-CAMPAIGN-UNANSWERED"):
        human_run(outcome(database))
    answer_all(database, rightly)
    found = outcome(database)
    lost = found.kept.pop()
    run = human_run(found)
    [part] = run.parts.values()
    assert [case for case, _ in part.left_out] == [found.subjects[lost.subject].case.id]
    assert len(part.cases) == 2


@pytest.mark.slow
def test_who_fails_the_checks_can_be_left_out(database):
    campaign(database, "world-bi:size=10", "both-ways", checks=0.2)

    def says(person, item):
        right = int(rightly(person, item))
        return str(right if person == 1 else 1 - right)

    answer_all(database, says)
    careless = outcome(database, least=0.5)
    assert [(p.excluded, p.failed == p.checks) for p in careless.people] == [
        (False, False),
        (True, True),
    ]
    assert {one.annotator for one in careless.kept} == {1}
    assert values(human_run(careless))["group"] == 1.0
    assert {one.annotator for one in outcome(database).kept} == {1, 2}


# --- files -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_accepted_cases_are_a_case_file(database, tmp_path):
    for number in range(3):
        for side in (0, 1):
            picture(tmp_path / f"data/images/{number}-{side}.jpg", "red")
    source = tmp_path / "data/cases.parquet"
    cases = Cases.build([square(n) for n in range(3)], root=tmp_path / "data", source="t")
    write_cases(cases, source)
    campaign(database, source, "both-ways")

    def says(person, item):
        right = int(rightly(person, item))
        return str(1 - right if item.key.startswith("square-1") and person == 2 else right)

    answer_all(database, says)
    written = export(outcome(database), tmp_path / "out/kept.parquet")
    assert written.rows == 2 and written.left_out == {"not accepted by most": 1}
    kept = read_cases(tmp_path / "out/kept.parquet")
    assert kept.ids.to_list() == ["square-0", "square-2"]
    assert kept.frame["truth"].to_list() == [[0, 3], [0, 3]]
    assert all(Path(i["path"]).is_file() for i in kept.frame["images"].explode().to_list())


def test_accepted_pairs_are_a_pairs_file_with_the_chosen_image(database, tmp_path):
    source = pairs_file(tmp_path)
    campaign(database, source, "best-image", people=3, overlap=3)

    def says(person, item):
        if "s1" in item.key:
            return "none" if person < 3 else "0"
        return "2" if person < 3 else "none"

    answer_all(database, says)
    found = outcome(database)
    assert [measure.what for measure in found.agreement] == ["some image or none", "which image"]
    written = export(found, tmp_path / "elsewhere/kept.parquet")
    assert written.rows == 2 and written.left_out == {"not accepted by most": 1}
    kept = read_pairs(tmp_path / "elsewhere/kept.parquet")
    assert kept["text"].to_list() == ["a cat under a mat", "a bird under a mat"]
    assert [Path(path).name for path in kept["text_image"]] == ["cat-2.png", "bird-2.png"]
    assert all(Path(path).is_file() for path in kept["text_image"])
    assert read_about(tmp_path / "elsewhere/kept.parquet")["campaign"]["accepted"] == 2
    source.write_bytes(source.read_bytes() + b"x")
    with raises("E-FILE-CHANGED"):
        export(found, tmp_path / "again.parquet")


def test_ranked_texts_are_accepted_one_by_one(database, tmp_path):
    campaign(database, pairs_file(tmp_path), "rank")
    orders = {"s0": "1,1,2", "s1": "1,2,1", "s2": "1,3,2"}  # caption, positive, negative
    answer_all(database, lambda person, item: orders[item.key[:2]])
    written = export(outcome(database), tmp_path / "kept.parquet")
    kept = read_pairs(tmp_path / "kept.parquet")
    assert kept["text"].to_list() == [
        *("a cat under a mat", "a cat upon a mat", "a bird under a mat")
    ]
    assert written.left_out == {"not accepted by most": 3}


def test_the_csv_has_every_answer_and_what_was_shown_where(database):
    campaign(database, "world-bi:size=3", "image-to-text", checks=0.3)
    answer_all(database, rightly)
    with database.reading() as session:
        text = answers_csv(session, find_campaign(session, "c"))
    table = list(csv.DictReader(io.StringIO(text)))
    assert len([row for row in table if row["check"] == "0"]) == 12
    assert {row["layout"] for row in table} == {"[0, 1]", "[1, 0]"}
    assert {(row["counts"], row["right"], row["revision"]) for row in table} == {("1", "1", "0")}


# --- two texts compared ------------------------------------------------------------------------


def better(annotator: int, item: Item) -> str:
    """Ours is better where it replaces; of additions, one finds grammar the same, one does not."""
    question = AnnotationQuestion.of(item.question)
    if item.is_check:
        return "0"
    if item.ask == "better-grammar" and "not" in question.captions[1]:
        return "both" if annotator == 1 else "1"
    return "0"


@pytest.mark.slow
def test_texts_of_the_same_captions_are_compared(database, tmp_path):
    """SugarCrepe's Table 9: counts of better, better and tie, by type and question."""
    ours, theirs = compared_files(tmp_path)
    made = campaign(database, ours, "compare-texts", against=theirs, checks=0.2)
    assert made.items == 16 and made.checks == 4 and not made.left_out
    asked = questions(database)
    assert [key for key, _ in asked[:2]] == ["s0#0 commonsense 0", "s0#0 grammar 0"]
    first = asked[0][1]
    assert first.captions == ("A cat on a chair.", "A cat on an air.") and first.images == ()
    assert first.context == "A cat on a mat."  # though the captions are written in two ways
    with database.reading() as session:
        for check in session.scalars(select(Item).where(Item.is_check)):
            text, jumbled = AnnotationQuestion.of(check.question).captions
            assert sorted(text.split()) == sorted(jumbled.split()) and text != jumbled
    answer_all(database, better)
    found = outcome(database)
    assert comparison(found) == [
        ComparisonRow("add", "commonsense", 4, 0, 0),
        ComparisonRow("add", "grammar", 0, 0, 4),  # one of two is no majority
        ComparisonRow("replace", "commonsense", 4, 0, 0),
        ComparisonRow("replace", "grammar", 4, 0, 0),
    ]
    assert [measure.what for measure in found.agreement] == ["commonsense", "grammar"]
    assert found.agreement[1].pairs[0].same == 0.5
    assert [person.failed for person in found.people] == [0, 0]
    written = export(found, tmp_path / "preferred.csv")
    rows = pl.read_csv(tmp_path / "preferred.csv")
    assert written.rows == len(rows) == 12
    known = published().filter(pl.col("benchmark") == "other/text-comparison")
    mine = rows.filter(pl.col("group") == "replace/grammar")
    assert dict(zip(mine["model"], mine["value"], strict=True)) == {
        "ours": 100, "theirs": 0, "Tie": 0,
    }  # fmt: skip
    assert set(rows["group"]) <= set(known["group"]) and set(rows["metric"]) == set(known["metric"])
    with raises("E-CAMPAIGN-NO-TRUTH"):
        human_run(found)
    with raises("E-FILE-ENDING"):
        export(found, tmp_path / "preferred.parquet")


def test_what_cannot_be_compared_is_counted(database, tmp_path):
    ours, theirs = compared_files(tmp_path)
    made = campaign(database, ours, "compare-texts", against=theirs, limit=2)
    assert made.items == 8  # two of each type
    with raises("E-CAMPAIGN-EMPTY"):
        campaign(database, ours, "compare-texts", name="same", against=ours)
    with raises("E-CAMPAIGN-AGAINST"):
        campaign(database, ours, "compare-texts", name="alone")
    with raises("E-CAMPAIGN-AGAINST"):
        campaign(database, "world-bi:size=2", "both-ways", name="no", against=ours)
