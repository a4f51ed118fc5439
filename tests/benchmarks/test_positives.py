"""`+hp`: positives of a file, added to any benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import pytest
from benchmark_fixtures import IDENTITY, load, write, write_json, write_table
from errors import raises
from hypothesis import given, settings, strategies as st

from counterpoint.benchmarks.positives import add_positives
from counterpoint.benchmarks.registry import base_id, find_benchmark, published_files
from counterpoint.cases.table import Case, Cases, ImageRef, caption_case
from counterpoint.evaluation.evaluating import evaluate
from counterpoint.runs import Row, rows

HP = "sugarcrepe+hp"
SUBSETS = tuple(published_files("sugarcrepe"))
MINE = [
    {"case_id": "add_att/0", "text": "a mole over a newt 0"},
    {"case_id": "swap_obj/1", "text": "one mole above a newt 1"},
    {"case_id": "add_att/0", "text": "one mole over a newt 0"},
]


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """SugarCrepe, four cases a subset."""
    for subset in SUBSETS:
        rows_of = {
            str(n): {
                "filename": f"{n}.jpg",
                "caption": f"a mole above a newt {n}",
                "negative_caption": f"a newt above a mole {subset} {n}",
            }
            for n in range(4)
        }
        write_json(tmp_path / f"sugarcrepe/{subset}.json", rows_of)
    return tmp_path


def write_positives(path: Path, found: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        return write_table(path, found)
    if path.suffix == ".parquet":
        pl.DataFrame(found).write_parquet(path)
        return path
    return write(path, "\n".join(json.dumps(row) for row in found))


# --- the file ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_positives_stand_behind_the_original(ending: str, root: Path) -> None:
    write_positives(root / f"positives/sugarcrepe.{ending}", MINE)
    plain, found = load("sugarcrepe", root), load(HP, root)
    by_id = {case.id: case for case in found}
    assert by_id["add_att/0"].captions == (
        "a mole above a newt 0",
        "a mole over a newt 0",
        "one mole over a newt 0",
        "a newt above a mole add_att 0",
    )
    assert by_id["add_att/0"].truth == ((True, True, True, False),)
    assert by_id["swap_obj/1"].truth == ((True, True, False),)
    changed = {"add_att/0", "swap_obj/1"}
    assert [case for case in found if case.id not in changed] == [
        case for case in plain if case.id not in changed
    ]
    for before, after in zip(plain, found, strict=True):
        assert (before.id, before.images, before.groups, before.cluster) == (
            after.id,
            after.images,
            after.groups,
            after.cluster,
        )


def test_the_file_may_be_named(root: Path) -> None:
    path = write_positives(root / "elsewhere/mine.csv", MINE)
    write_positives(root / "positives/sugarcrepe.jsonl", MINE[:1])
    named = load(f"{HP}:positives={path}", root)
    assert sum(len(case.captions) > 2 for case in named) == 2
    assert sum(len(case.captions) > 2 for case in load(HP, root)) == 1


def test_a_comma_in_the_name_of_the_file(root: Path) -> None:
    path = write_positives(root / "mine, and yours, v=2.csv", MINE)
    assert sum(len(c.captions) > 2 for c in load(f"{HP}:positives={path}", root)) == 2
    first = load("world-swap:size=6", root)[0].id
    path = write_positives(root / "a,b.csv", [{"case_id": first, "text": "x"}])
    found = load(f"world-swap+hp:positives={path},size=6", root)
    assert [len(case.captions) for case in found] == [4] + [3] * 5


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_named_file_with_the_ending_of_a_case_file(ending: str, root: Path) -> None:
    path = write_positives(root / f"mine.{ending}", MINE)
    assert sum(len(c.captions) > 2 for c in load(f"{HP}:positives={path}", root)) == 2


def test_other_options_stay(root: Path) -> None:
    benchmark = find_benchmark("world-swap+hp:size=6,seed=2,positives=x.jsonl")
    own = {"positives", "doubtful"}
    assert set(benchmark.defaults) == find_benchmark("world-swap").defaults.keys() | own
    write_positives(
        root / "p.csv", [{"case_id": load("world-swap:size=6", root)[0].id, "text": "x"}]
    )
    found = load("world-swap+hp:size=6,positives=p.csv", root)
    assert [len(case.captions) for case in found] == [4] + [3] * 5


def test_a_slash_of_the_name_is_a_dash(root: Path) -> None:
    with raises("E-POSITIVES-MISSING", "aro/vg-relation"):
        load("aro/vg-relation+hp", root)


def test_what_it_is_called_and_says(root: Path) -> None:
    plain, found = find_benchmark("sugarcrepe"), find_benchmark(HP)
    assert found.id == HP
    assert base_id(f"{HP}:positives=x") == base_id(HP) == "sugarcrepe"
    assert (found.protocol, found.paper, found.count) == (plain.protocol, plain.paper, 7511)
    assert plain.summary in found.summary and found.summary != plain.summary


def test_an_unknown_benchmark_with_positives_is_explained(root: Path) -> None:
    with raises("E-BENCHMARK-UNKNOWN", "sugarcrep") as caught:
        load("sugarcrep+hp", root)
    assert "Did you mean 'sugarcrepe'?" in str(caught.value)


# --- what is wrong with it ---------------------------------------------------------------------


def test_no_file_is_explained(root: Path) -> None:
    with raises("E-POSITIVES-MISSING", "bivlc"):
        load("bivlc+hp", root)


def test_a_named_file_that_is_not_there(root: Path) -> None:
    with raises("E-FILE-MISSING", Path("nowhere.csv")):
        load(f"{HP}:positives=nowhere.csv", root)


def test_unknown_ids_are_counted_and_the_first_is_named(root: Path) -> None:
    bad = [{"case_id": id, "text": "x"} for id in ("swap_obj/9", "add_att/9", "add_att/0")]
    write_positives(root / "positives/sugarcrepe.jsonl", bad)
    with raises("E-CASE-UNKNOWN", 2, "add_att/9"):
        load(HP, root)


def test_a_row_without_a_value_is_named(root: Path) -> None:
    for bad in [{"text": ""}, {"text": "  "}, {"text": None}, {"case_id": None}]:
        write_positives(root / "positives/sugarcrepe.jsonl", [MINE[0], MINE[1] | bad])
        with raises("E-ROW-MALFORMED"):
            load(HP, root)


def test_a_missing_column_is_named(root: Path) -> None:
    for missing in ["case_id", "text"]:
        found = [{k: v for k, v in row.items() if k != missing} for row in MINE]
        write_positives(root / "positives/sugarcrepe.csv", found)
        with raises("E-COLUMN-MISSING", missing):
            load(HP, root)


def test_a_caption_that_is_not_true_cannot_be_reworded(root: Path) -> None:
    for caption in [1, 2, -1]:
        write_positives(root / "positives/sugarcrepe.jsonl", [MINE[0] | {"caption": caption}])
        with raises("E-CAPTION-UNKNOWN", "add_att/0", caption):
            load(HP, root)


def test_a_caption_that_is_no_number_is_named(root: Path) -> None:
    for ending, caption in (("csv", "first"), ("csv", "0.7"), ("jsonl", "first"), ("jsonl", 0.7)):
        path = write_positives(root / f"mine.{ending}", [MINE[0] | {"caption": caption}])
        with raises("E-VALUE-INVALID", path):
            load(f"{HP}:positives={path}", root)


# --- cases of two images -----------------------------------------------------------------------


def squares() -> Cases:
    images = (ImageRef("0.jpg"), ImageRef("1.jpg"))
    made = [
        Case(str(n), images, (f"a above b {n}", f"b above a {n}"), IDENTITY, ("swap",))
        for n in range(2)
    ]
    return Cases.build(made, source="test")


def test_the_caption_that_is_reworded_is_named_by_number(tmp_path: Path) -> None:
    mine = [
        {"case_id": "1", "text": "below a is b", "caption": 1},
        {"case_id": "1", "text": "b is under a", "caption": 0},
    ]
    for ending in ("jsonl", "csv"):
        cases = add_positives(squares(), write_positives(tmp_path / f"mine.{ending}", mine))
        assert cases.case(0) == squares().case(0)
        found = cases.case(1)
        assert found.captions == ("a above b 1", "b above a 1", "below a is b", "b is under a")
        assert found.truth == ((True, False, False, True), (False, True, True, False))


def test_without_a_number_the_first_caption_is_meant(tmp_path: Path) -> None:
    path = write_positives(tmp_path / "mine.csv", [{"case_id": "0", "text": "b is under a"}])
    assert add_positives(squares(), path).case(0).truth == (
        (True, False, True),
        (False, True, False),
    )
    path = write(tmp_path / "mine.csv", "case_id,text,caption\n0,b is under a,\n0,under b is a,1\n")
    assert add_positives(squares(), path).case(0).truth == (
        (True, False, True, False),
        (False, True, False, True),
    )


def test_a_negative_that_stands_first_stays_there(tmp_path: Path) -> None:
    """The original is the first true caption, wherever it stands."""
    case = Case("0", (ImageRef("0.jpg"),), ("wrong", "right", "bad"), ((False, True, False),))
    path = write_positives(
        tmp_path / "mine.csv", [{"case_id": "0", "text": "correct", "caption": 1}]
    )
    found = add_positives(Cases.build([case], source="test"), path).case(0)
    assert found.captions == ("wrong", "right", "correct", "bad")
    assert found.truth == ((False, True, True, False),)


def test_ids_that_look_like_numbers_stay_texts(tmp_path: Path) -> None:
    cases = [caption_case(id, ImageRef("0.jpg"), ["a"], ["b"]) for id in ("007", "7")]
    path = write(tmp_path / "mine.csv", "case_id,text\n007,aa\n")
    found = add_positives(Cases.build(cases, source="test"), path)
    assert [len(found.case(row).captions) for row in range(2)] == [3, 2]


# --- numbers -----------------------------------------------------------------------------------


class Letters:
    """A score of a text's letters; few values, so that some tie."""

    fingerprint = "letters"

    def score_captions(self, captions: list[str]) -> np.ndarray:
        found = [sum((i + 3) * ord(c) for i, c in enumerate(text)) % 11 for text in captions]
        return np.array(found, dtype=np.float32)


def numbers(found: list[Row], group: str = "all") -> dict[str, tuple[float, int]]:
    return {r.metric: (r.value, r.n) for r in found if r.group == group}


@pytest.mark.slow
def test_augmented_accuracy_and_brittleness_are_those_of_a_loop(root: Path) -> None:
    ids = [case.id for case in load("sugarcrepe", root)]
    mine = [
        {"case_id": id, "text": f"{word} mole over {id}"}
        for number, id in enumerate(ids)
        for word in ("a", "one", "this")[: number % 4]
    ]
    write_positives(root / "positives/sugarcrepe.jsonl", mine)
    model = Letters()
    plain, augmented = (
        evaluate([("letters", model)], id, data=root, out=root / f"run-{n}")[0]
        for n, id in enumerate(("sugarcrepe", HP))
    )
    before, found = (numbers(rows(run, resamples=10)) for run in (plain, augmented))
    rest = numbers(rows(augmented, resamples=10), "without positives")
    original, alone, all_above, brittle, tied = [], [], [], [], 0
    for case in load(HP, root):
        *positives, negative = model.score_captions(list(case.captions)).tolist()
        (original if len(positives) > 1 else alone).append(positives[0] > negative)
        if len(positives) > 1:
            all_above.append(all(p > negative for p in positives))
            apart = negative not in positives
            tied += not apart
            brittle.append(apart and min(positives) < negative < max(positives))
    assert 0 < len(all_above) == len(original) < len(ids) == len(original) + len(alone)
    assert 0 < sum(all_above) < len(all_above) and any(brittle) and tied
    assert found["original_accuracy"] == (pytest.approx(np.mean(original)), len(original))
    assert found["augmented_accuracy"] == (pytest.approx(np.mean(all_above)), len(all_above))
    assert found["brittleness"] == (pytest.approx(np.mean(brittle)), len(brittle))
    # Cases without a positive are counted apart, and have no brittleness.
    assert rest["original_accuracy"] == (pytest.approx(np.mean(alone)), len(alone))
    assert "augmented_accuracy" not in rest and "brittleness" not in rest
    both = np.mean(original + alone)
    assert before["original_accuracy"] == (pytest.approx(both), len(ids))
    assert "augmented_accuracy" not in before and "brittleness" not in before


def write_pairs_file(path: Path, found: list[tuple[str, str, str, str, str]]) -> Path:
    columns = ("source", "caption", "text", "kind", "refused")
    pl.DataFrame(found, schema=columns, orient="row").write_parquet(path)
    return path


def test_a_pairs_file_gives_one_positive_a_case(root: Path, tmp_path: Path) -> None:
    caption = "a mole above a newt 0"
    path = write_pairs_file(
        tmp_path / "pairs.parquet",
        [
            ("add_att/0", caption, "one mole above a newt 0", "positive", ""),
            ("add_att/0", caption, "a mole over a newt 0", "positive", ""),
            ("add_att/0", caption, "a mole over the newt 0", "positive", "meaning: number"),
            ("add_att/1", "a mole above a newt 1", "a newt above a mole 1", "negative", ""),
        ],
    )
    cases = load(f"{HP}:positives={path}", root)
    extended = {case.id: case for case in cases}
    assert len(extended["add_att/0"].captions) == 3
    assert extended["add_att/0"].captions[1] in ("one mole above a newt 0", "a mole over a newt 0")
    assert len(extended["add_att/1"].captions) == 2
    assert load(f"{HP}:positives={path}", root) == cases


def test_a_pairs_file_rewords_both_sides_of_a_two_image_case(tmp_path: Path) -> None:
    cases = Cases.build(
        [Case("x", (ImageRef("a"), ImageRef("b")), ("a dog", "a cat"), IDENTITY)], source="here"
    )
    path = write_pairs_file(
        tmp_path / "pairs.parquet",
        [
            ("x#1", "a cat", "one cat", "positive", ""),
            ("x#0", "a dog", "one dog", "positive", ""),
        ],
    )
    case = add_positives(cases, path).case(0)
    truth = dict(zip(case.captions, zip(*case.truth, strict=True), strict=True))
    assert truth["one dog"] == truth["a dog"] == (True, False)
    assert truth["one cat"] == truth["a cat"] == (False, True)


def test_a_pairs_file_of_other_captions_is_refused(root: Path, tmp_path: Path) -> None:
    row = ("add_att/0", "a newt", "one newt", "positive", "")
    path = write_pairs_file(tmp_path / "pairs.parquet", [row])
    with raises("E-CAPTION-UNKNOWN", tmp_path / "pairs.parquet", "add_att/0", "a newt"):
        load(f"{HP}:positives={path}", root)


def test_shipped_positives_serve_a_part_of_the_benchmark(root: Path) -> None:
    """Theirs are four cases a subset, of which the shipped file has some."""
    extended = [case for case in load(HP, root) if len(case.captions) == 3]
    assert 0 < len(extended) < 4 * len(SUBSETS)


# --- what is not used --------------------------------------------------------------------------

WORDS = ["a", "an", "mole", "newt", "and", "over", "The"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
WRITTEN = st.sampled_from([str.upper, str.title, "{}.".format, " {} ".format, str])


def plain(text: str) -> list[str]:
    """The words of a text, found another way than the code does; a and an are one."""
    words = text.lower().replace(".", " ").split()
    return ["a" if word == "an" else word for word in words]


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(TEXTS, st.lists(TEXTS, min_size=1, max_size=4), WRITTEN), min_size=1, max_size=6
    )
)
def test_no_positive_is_a_negative_of_its_case(found: list[tuple[str, list[str], Any]]) -> None:
    """Whatever the file says; every other positive is used."""
    cases, mine = [], []
    for number, (positive, negatives, written) in enumerate(found):
        id = str(number)
        cases.append(caption_case(id, ImageRef(f"{id}.jpg"), [f"original {id}"], negatives))
        mine.append({"case_id": id, "text": written(positive)})
    with TemporaryDirectory() as folder:
        path = write_positives(Path(folder) / "mine.jsonl", mine)
        extended = add_positives(Cases.build(cases, source="test"), path)
    for row, (positive, negatives, written) in enumerate(found):
        used = plain(positive) not in map(plain, negatives)
        expected = (f"original {row}", *([written(positive)] if used else []), *negatives)
        assert extended.case(row).captions == expected


def test_a_negative_among_the_positives_is_counted(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = {"case_id": "add_att/1", "text": "A newt above a mole ADD_ATT 1."}
    write_positives(root / "positives/sugarcrepe.jsonl", [*MINE, wrong])
    found = {case.id: len(case.captions) for case in load(HP, root)}
    assert (found["add_att/0"], found["add_att/1"], found["swap_obj/1"]) == (4, 2, 3)
    assert "1 of its positives left out: a negative of the case has the same words" in caplog.text


def test_a_positive_of_one_image_is_no_caption_of_the_other(tmp_path: Path) -> None:
    mine = [
        {"case_id": "1", "text": "B above a 1", "caption": 0},
        {"case_id": "1", "text": "one text", "caption": 0},
        {"case_id": "1", "text": "One text.", "caption": 1},
    ]
    found = add_positives(squares(), write_positives(tmp_path / "mine.csv", mine)).case(1)
    assert found.captions == ("a above b 1", "b above a 1", "one text")


DOUBTFUL = [
    ("add_att/0", "a mole above a newt 0", "a newt above a mole add_att 0", "positive", "", ""),
    ("add_att/0", "a mole above a newt 0", "a mole over a newt 0", "positive", "", ""),
    ("add_att/0", "a mole above a newt 0", "a crimson mole 0", "positive", "", "narrower"),
    ("add_att/1", "a mole above a newt 1", "a crimson mole 1", "positive", "", "narrower"),
]


def test_the_next_positive_of_a_pairs_file_is_taken(root: Path, tmp_path: Path) -> None:
    columns = ("source", "caption", "text", "kind", "refused", "doubt")
    pl.DataFrame(DOUBTFUL, schema=columns, orient="row").write_parquet(tmp_path / "pairs.parquet")
    for option, second in (("", ()), (",doubtful=1", ("a crimson mole 1",))):
        cases = load(f"{HP}:positives={tmp_path / 'pairs.parquet'}{option}", root)
        extended = {case.id: case.captions for case in cases}
        assert extended["add_att/0"][1:-1] == ("a mole over a newt 0",)
        assert extended["add_att/1"][1:-1] == second


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_doubtful_positives_are_used_if_asked_for(
    ending: str, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = [{**MINE[0], "doubt": "narrower"}, {**MINE[1], "doubt": ""}]
    write_positives(root / f"positives/sugarcrepe.{ending}", mine)
    assert sum(len(case.captions) > 2 for case in load(HP, root)) == 1
    assert "1 of its positives left out as doubtful; the option doubtful=1 adds them" in caplog.text
    assert sum(len(case.captions) > 2 for case in load(f"{HP}:doubtful=1", root)) == 2
