"""The doctor: images, defects, gaps, damaged files, and what the captions alone give away."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tracemalloc
from collections import Counter
from dataclasses import fields
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from benchmark_fixtures import load, write, write_json
from models_for_tests import noise
from PIL import Image
from typer.testing import CliRunner

from counterpoint.benchmarks import load_benchmark
from counterpoint.benchmarks.registry import published_files
from counterpoint.cases import Absent, Case
from counterpoint.cli.app import app
from counterpoint.data import sources as health_file
from counterpoint.data.sources import Catalogue, File, FileSource, Needs
from counterpoint.evaluation import Health, examine
from counterpoint.evaluation.doctor import BlindAccuracy
from counterpoint.models.blind.baselines import FOLDS


def row(captions: list[str], image: str = "0.jpg") -> dict[str, str]:
    return {"filename": image, "caption": captions[0], "negative_caption": captions[1]}


PAIRS = [
    ["a red mole", "a red newt"],
    ["the mole sees a newt.", "The newt sees a mole."],
    ["a wet mole ", "A wet mole in a very old hat."],
    ["two  owls", "Two owls and a mole."],
    ["A mole sleeps.", "A mole is awake now."],
    ["a newt's red hat", "A red newt's hat."],
    ["owl", "no"],
    ["a mole on a log", "a log on a mole"],
    ["an old owl, a young mole", "a young owl, an old mole"],
]


@pytest.fixture
def sugarcrepe(tmp_path: Path) -> Path:
    """Nine cases a subset, in another order in each; four images for all."""
    root = tmp_path / "data"
    for number, subset in enumerate(published_files("sugarcrepe")):
        turned = PAIRS[number:] + PAIRS[:number]
        cases = {str(n): row(pair, f"{n % 4}.jpg") for n, pair in enumerate(turned)}
        if subset == "swap_obj":
            cases["10"] = row(["a mole digs", "a mole digs"], "4.jpg")  # there is no 9
        write_json(root / f"sugarcrepe/{subset}.json", cases)
    return root


def write_lines(path: Path, *cases: dict[str, Any]) -> str:
    defaults = {"images": ["0.jpg"], "captions": ["a", "b"], "truth": [[True, False]]}
    lines = [json.dumps({"id": str(n), **defaults, **case}) for n, case in enumerate(cases)]
    path.write_text("\n".join(lines))
    return str(path)


# --- images ------------------------------------------------------------------------------------


def test_images_are_looked_for_and_opened(sugarcrepe: Path) -> None:
    folder = sugarcrepe / "coco/val2017"
    folder.mkdir(parents=True)
    noise(0, (64, 64)).save(folder / "0.jpg")
    noise(1, (64, 64)).save(folder / "1.jpg")
    whole = (folder / "1.jpg").read_bytes()
    (folder / "1.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "2.jpg").write_text("not a picture")
    (folder / "3.jpg").mkdir()
    found = examine("sugarcrepe", sugarcrepe).images
    assert found.needed == 5
    assert set(found.missing) == {"coco/val2017/3.jpg", "coco/val2017/4.jpg"}
    assert set(found.unreadable) == {"coco/val2017/1.jpg", "coco/val2017/2.jpg"}
    assert "truncated" in found.unreadable["coco/val2017/1.jpg"]
    assert "not an image" in found.unreadable["coco/val2017/2.jpg"]
    bad = set(found.missing) | set(found.unreadable)
    cases = load("sugarcrepe", sugarcrepe)
    assert found.cases_without == sum(case.images[0].path in bad for case in cases)
    assert 0 < found.cases_without < len(cases)
    found = examine("sugarcrepe", sugarcrepe, images=False).images
    assert (found.needed, len(found.missing), found.unreadable) == (5, 2, {})


def test_it_works_without_any_image(sugarcrepe: Path) -> None:
    found = examine("sugarcrepe", sugarcrepe)
    assert (len(found.images.missing), found.images.cases_without) == (5, 64)
    assert (found.cases, found.expected, found.folder) == (64, 7511, str(sugarcrepe))
    assert len(found.blind) == 1 + 3 + 7


def test_drawn_images_are_not_files() -> None:
    found = examine("world-bi:size=6")
    assert (found.images.needed, found.images.missing, found.images.cases_without) == (0, {}, 0)
    assert found.blind == ()  # two images a case: captions do not compete alone


def test_images_in_a_table_are_looked_at_too(tmp_path: Path) -> None:
    whole = tmp_path / "whole.png"
    noise(1).save(whole)
    images = [{"bytes": data, "path": "a"} for data in (whole.read_bytes(), b"no picture")]
    pl.DataFrame({"image": images}).write_parquet(tmp_path / "t.parquet")
    names = ["parquet:t.parquet#image/0", "parquet:t.parquet#image/1", "parquet:u.parquet#image/0"]
    file = write_lines(tmp_path / "mine.jsonl", *({"images": [name]} for name in names))
    found = examine(file).images
    assert found.needed == 3
    assert (set(found.unreadable), set(found.missing)) == ({names[1]}, {names[2]})


def test_a_path_that_leads_out_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    noise(1).save(tmp_path / "secret.png")
    file = write_lines(tmp_path / "inside/mine.jsonl", {"images": ["../secret.png"]})
    [why] = examine(file).images.unreadable.values()
    assert "leads out" in why


def test_a_case_lacks_an_image_once(tmp_path: Path) -> None:
    noise(1).save(tmp_path / "there.png")
    both = [[True, False], [False, True]]
    file = write_lines(
        tmp_path / "mine.jsonl",
        {"images": ["x.png", "y.png"], "truth": both},
        {"images": ["there.png", "x.png"], "truth": both},
        {"images": ["there.png"]},
    )
    found = examine(file).images
    assert (found.needed, len(found.missing), found.cases_without) == (3, 2, 2)


# --- files, defects, gaps ----------------------------------------------------------------------


def known_file(root: Path, name: str, *, right: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue knows one file, by its real sha256 or by another."""
    data = (root / "sugarcrepe" / name).read_bytes() + (b"" if right else b" ")
    files = (File(name, sha256=hashlib.sha256(data).hexdigest()), File("absent.json", sha256="0"))
    source = FileSource(id="s", what="annotations", target="sugarcrepe", files=files)
    listed = Catalogue({"s": source}, {"sugarcrepe": Needs((source,))})
    monkeypatch.setattr(health_file, "catalogue", lambda: listed)


@pytest.mark.slow
def test_a_file_that_is_not_the_published_one(
    sugarcrepe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_file(sugarcrepe, "add_obj.json", right=True, monkeypatch=monkeypatch)
    assert examine("sugarcrepe", sugarcrepe).damaged == ()
    known_file(sugarcrepe, "add_obj.json", right=False, monkeypatch=monkeypatch)
    [(file, why)] = examine("sugarcrepe", sugarcrepe).damaged
    assert file == "sugarcrepe/add_obj.json" and "sha256 differs" in why
    write(sugarcrepe / "positives/sugarcrepe.csv", "case_id,text\nadd_att/0,x\n")
    assert len(examine("sugarcrepe+hp", sugarcrepe).damaged) == 1


def test_defects_are_counted_and_the_first_are_named(tmp_path: Path) -> None:
    equal = {"captions": ["a", "a"]}
    three = {"truth": [[True, True, False]]}
    file = write_lines(
        tmp_path / "mine.jsonl",
        *({**equal, "images": [f"{n}.jpg"]} for n in range(7)),
        {"captions": ["a", "b", "b"], **three},
        {"captions": ["a", "a", "b"], **three},
        {"images": ["9.jpg"]},
        {"images": ["9.jpg"]},
        {"images": ["10.jpg"]},
        {"images": ["10.jpg"], "groups": ["a group is no difference"]},
        {"images": ["11.jpg"], "captions": ["a", "a "]},
        {"images": ["11.jpg"], "captions": ["A", "a"]},
    )
    found = {d.what: (d.cases, d.first) for d in examine(file).defects}
    assert found == {
        "a negative equals the original": (7, ("0", "1", "2", "3", "4")),
        "a negative equals another positive": (1, ("7",)),
        "a positive equals the original": (1, ("8",)),
        "repeats an earlier case": (2, ("10", "12")),
    }


GAPS = {
    "none": (["0", "1", "2"], []),
    "from any number on": (["5", "6", "8"], ["7"]),
    "in any order": (["3", "0", "1"], ["2"]),
    "behind folders": (["a/0", "a/2", "b/0", "b/1", "a/b/4", "a/b/6"], ["a/1", "a/b/5"]),
    "numbers that do not count up": (["10", "20", "30"], []),
    "no numbers": (["x", "y", "a/z"], []),
    "some numbers": (["x", "0", "2", "y1"], ["1"]),
}


@pytest.mark.slow
def test_gaps_in_the_ids(tmp_path: Path, sugarcrepe: Path) -> None:
    for what, (ids, gaps) in GAPS.items():
        file = write_lines(tmp_path / "mine.jsonl", *({"id": id} for id in ids))
        assert list(examine(file).gaps) == gaps, what
    assert examine("sugarcrepe", sugarcrepe).gaps == ("swap_obj/9",)


def test_numbers_of_images_in_ids_may_have_gaps(tmp_path: Path) -> None:
    sets = {"set-a": {"0": "a mole", "2": "a newt", "3": "a hat"}}
    write_json(tmp_path / "imagecode/valid_data.json", sets)
    health = examine("imagecode", tmp_path)
    assert health.cases == 3 and health.gaps == ()


@pytest.mark.parametrize(("split", "count"), [("random", 2_195), ("zeroshot", 1_222)])
def test_the_published_number_of_cases_is_that_of_the_option(
    split: str, count: int, tmp_path: Path
) -> None:
    place = "train2017/000000050403.jpg"
    row = {"image": Path(place).name, "image_link": f"http://images.cocodataset.org/{place}"}
    row |= {"caption": "The mole is under the hat.", "relation": "under"}
    path = tmp_path / f"vsr/splits/{split}/test.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row | {"label": label}) + "\n" for label in (0, 1)))
    health = examine(f"vsr:split={split}", tmp_path)
    assert (health.cases, health.expected) == (2, count)
    assert health.absent == (Absent("vsr", "rows missing", count - 2),)


@pytest.mark.slow
def test_large_numbers_in_ids_cost_no_memory(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "mine.jsonl", {"id": "0"}, {"id": "1000000"})
    tracemalloc.start()
    try:
        assert examine(file).gaps == ()
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


# --- blind baselines ---------------------------------------------------------------------------


def groups_of(case: Case) -> list[str]:
    parts = case.groups[0].split("/")
    return ["all", *("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))]


def compared(cases: list[Case], score: Any) -> dict[str, dict[str, float]]:
    """By group: how often the positive scores higher; ties wrong, and ties half."""
    found: dict[str, list[tuple[bool, float]]] = {}
    for case in cases:
        positive, negative = (score(case, text) for text in case.captions)
        value = positive > negative, (positive > negative) + 0.5 * (positive == negative)
        for group in groups_of(case):
            found.setdefault(group, []).append(value)
    return {
        group: {"wrong": np.mean([w for w, _ in values]), "half": np.mean([h for _, h in values])}
        for group, values in found.items()
    }


def neatness(case: Case, caption: str) -> int:
    """A point less for a capital first, for a full stop last, for no stray blanks."""
    del case
    neat = 0
    if re.match(r"\s*[A-Z]", caption):
        neat += 1
    if re.search(r"\.\s*$", caption):
        neat += 1
    if not re.search(r"^\s|\s$|  ", caption):
        neat += 1
    return -neat


def naive_bayes(cases: list[Case]) -> Any:
    """Counts of words in true and in false captions of the images in the other folds."""
    clusters = sorted({case.cluster for case in cases})
    shuffled = np.random.default_rng(0).permutation(len(clusters))
    fold = {cluster: shuffled[n] % FOLDS for n, cluster in enumerate(clusters)}
    words = {w for case in cases for text in case.captions for w in tokens(text)}

    def score(case: Case, caption: str) -> float:
        counts = {True: Counter(words), False: Counter(words)}  # one each
        for other in cases:
            if fold[other.cluster] != fold[case.cluster]:
                for text, is_true in zip(other.captions, other.truth[0], strict=True):
                    counts[is_true].update(tokens(text))
        totals = {kind: sum(found.values()) for kind, found in counts.items()}
        odds = [
            math.log(counts[True][w] / totals[True]) - math.log(counts[False][w] / totals[False])
            for w in sorted(tokens(caption))
        ]
        return round(sum(odds), 5)  # equal bags are equal, whatever the rounding

    return score


def tokens(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower())


@pytest.fixture
def blind(sugarcrepe: Path) -> dict[str, BlindAccuracy]:
    return {found.group: found for found in examine("sugarcrepe", sugarcrepe).blind}


@pytest.mark.slow
def test_baselines_are_those_of_plain_loops(
    blind: dict[str, BlindAccuracy], sugarcrepe: Path
) -> None:
    cases = load("sugarcrepe", sugarcrepe)
    length = compared(cases, lambda _, text: -len(text))
    form = compared(cases, neatness)
    bow = compared(cases, naive_bayes(cases))
    assert set(blind) == set(length)
    for group, found in blind.items():
        assert found.n == sum(group in groups_of(case) for case in cases)
        assert found.length == pytest.approx(length[group]["wrong"])
        assert found.length_half == pytest.approx(length[group]["half"])
        assert found.format == pytest.approx(form[group]["wrong"])
        assert found.format_half == pytest.approx(form[group]["half"])
        assert found.bow == pytest.approx(bow[group]["wrong"])
    everything = blind["all"]
    assert len({everything.length, everything.length_half, everything.format_half}) == 3
    assert 0 < everything.bow < 1


def test_a_tie_is_told_and_is_no_safety(
    blind: dict[str, BlindAccuracy], sugarcrepe: Path, tmp_path: Path
) -> None:
    """Swaps tie for a bag of words; here, neighbouring words give every one of them away."""
    colours = ("red", "wet", "big", "old")
    rows = [
        {"captions": [f"a {a} dog and a {b} cat", f"{a} a dog and {b} a cat"], "cluster": f"{n}"}
        for n, (a, b) in enumerate(permutations(colours, 2))
    ]
    [found] = examine(write_lines(tmp_path / "swaps.jsonl", *rows), images=False).blind
    assert found.ties == {"length": 12, "format": 12, "bow": 12, "ngram": 0}
    assert (found.bow, found.ngram, found.ngram_where_bow_ties) == (0, 1, 1)
    done = CliRunner().invoke(app, ["doctor", str(tmp_path / "swaps.jsonl"), "--no-images"])
    assert "Ties, of 12 cases: length 12, format 12, bow 12." in done.stdout
    assert "Where bow ties it says nothing: ngram is right in 100.0 % of those" in done.stdout
    lengths = [[len(text) for text in case.captions] for case in load("sugarcrepe", sugarcrepe)]
    assert blind["all"].ties["length"] == sum(a == b for a, b in lengths)


def test_the_ceiling_of_a_bag_of_words(blind: dict[str, BlindAccuracy], sugarcrepe: Path) -> None:
    cases = load("sugarcrepe", sugarcrepe)
    same = [sorted(tokens(c.captions[0])) == sorted(tokens(c.captions[1])) for c in cases]
    assert (blind["all"].n, blind["all"].same_bag) == (64, sum(same)) == (64, 29)
    for group, found in blind.items():
        alike = sum(s for s, case in zip(same, cases, strict=True) if group in groups_of(case))
        assert found.same_bag == alike
        # Half of the pairs that look alike, and at most all of the others.
        assert found.bow_ceiling == pytest.approx((0.5 * alike + found.n - alike) / found.n)


def test_any_negative_of_the_same_words_counts(tmp_path: Path) -> None:
    truth = {"truth": [[True, True, False, False]]}
    file = write_lines(
        tmp_path / "mine.jsonl",
        {"captions": ["a b", "c", "d", "B, a!"], **truth},
        {"captions": ["a b", "c d", "d", "d c"], **truth},  # the positive's, not the original's
        {"captions": ["a b", "c", "a b a", "d"], **truth},
    )
    [found] = examine(file).blind
    assert (found.n, found.same_bag, found.bow_ceiling) == (3, 1, pytest.approx(5 / 6))


def test_cases_of_several_images_are_not_counted(tmp_path: Path) -> None:
    two = {"images": ["0.jpg", "1.jpg"], "truth": [[True, False], [False, True]]}
    file = write_lines(tmp_path / "mine.jsonl", {"groups": ["g"]}, two, {})
    assert [(found.group, found.n) for found in examine(file).blind] == [("all", 2), ("g", 1)]


@pytest.mark.parametrize("more", [0, 1])
def test_a_text_in_place_of_the_image_is_no_crash(more: int, tmp_path: Path) -> None:
    texts = {"images": ["text:a mole"], "groups": ["texts"]}
    file = write_lines(tmp_path / "mine.jsonl", texts, *[{}] * more)
    found = examine(file)
    assert found.images.needed == more
    assert all(not math.isnan(number.length) for number in found.blind)


# --- the command -------------------------------------------------------------------------------


def no_nan(name: str) -> float:
    raise AssertionError(f"{name} is not JSON")


@pytest.mark.slow
def test_json_is_valid_and_complete(sugarcrepe: Path) -> None:
    done = CliRunner().invoke(app, ["doctor", "sugarcrepe", "--data", str(sugarcrepe), "--json"])
    assert done.exit_code == 3  # there are 64 of 7,511 cases, and they lack images
    [found] = json.loads(done.stdout, parse_constant=no_nan)
    assert list(found) == [field.name for field in fields(Health)]
    expected = examine("sugarcrepe", sugarcrepe)
    assert found["images"] == {
        "needed": 5,
        "missing": expected.images.missing,
        "unreadable": {},
        "cases_without": 64,
    }
    assert [list(defect) for defect in found["defects"]] == [["what", "cases", "first"]] * 2
    assert {b["group"]: b["length"] for b in found["blind"]} == pytest.approx(
        {b.group: b.length for b in expected.blind}, rel=1e-5
    )
    assert list(found["blind"][0]) == [field.name for field in fields(BlindAccuracy)]
    assert found["gaps"] == ["swap_obj/9"]
    assert (found["cases"], found["expected"]) == (64, 7511)
    assert {"what": "add_obj", "reason": "rows missing"}.items() <= found["absent"][1].items()
    assert found["damaged"] == [list(damage) for damage in expected.damaged]


@pytest.mark.slow
def test_missing_and_unreadable_images_are_listed_in_a_file(sugarcrepe: Path) -> None:
    write(sugarcrepe / "coco/val2017/2.jpg", "not a picture")
    command = ["doctor", "sugarcrepe", "--data", str(sugarcrepe)]
    done = CliRunner().invoke(app, [*command, "--list", "bad.txt"])
    assert done.exit_code == 3
    found = examine("sugarcrepe", sugarcrepe).images
    listed = dict(line.split("\t") for line in Path("bad.txt").read_text().splitlines())
    assert listed == {**found.missing, **found.unreadable}
    assert len(listed) == 5
    assert "5 images are listed in bad.txt" in done.stderr


@pytest.mark.slow
def test_cases_that_lack_images_are_an_exit_status(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "mine.jsonl", {"images": ["1.png"]})
    for options in ([], ["--no-images"]):
        assert CliRunner().invoke(app, ["doctor", file, *options]).exit_code == 3
    Image.new("RGB", (4, 4)).save(tmp_path / "1.png")
    assert CliRunner().invoke(app, ["doctor", file]).exit_code == 0


def test_nothing_is_listed_where_nothing_lacks() -> None:
    done = CliRunner().invoke(app, ["doctor", "world-swap:size=6", "--list", "bad.txt"])
    assert done.exit_code == 0
    assert "listed" not in done.stderr
    assert not Path("bad.txt").exists()


@pytest.mark.slow
def test_a_list_that_cannot_be_written_is_one_line(sugarcrepe: Path) -> None:
    command = ["doctor", "sugarcrepe", "--data", str(sugarcrepe), "--list", "a/bad.txt"]
    Path("a").write_text("a file, where a folder should be")
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, SystemExit)
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].startswith("error: ")


@pytest.mark.slow
def test_the_report_says_everything(sugarcrepe: Path) -> None:
    write(sugarcrepe / "coco/val2017/2.jpg", "not a picture")
    before = sorted(Path().rglob("*"))
    done = CliRunner().invoke(app, ["doctor", "sugarcrepe", "--data", str(sugarcrepe)])
    assert "5 images missing or unreadable; --list FILE names them" in done.stderr
    assert sorted(Path().rglob("*")) == before
    lines = done.stdout.splitlines()
    assert lines[0] == f"sugarcrepe in {sugarcrepe}"
    assert "  cases        64 of 7,511 published" in lines
    [images] = [line for line in lines if line.startswith("  images ")]
    assert re.findall(r"\d+", images) == ["1", "5", "1", "64"]  # there, of, unreadable, cases
    assert "  ids          1 missing, as swap_obj/9" in lines
    assert "  defect       a negative equals the original: 1 case, as swap_obj/10" in lines
    assert sum(line.startswith("  damaged      sugarcrepe/") for line in lines) == 7
    for found in examine("sugarcrepe", sugarcrepe, images=False).blind:
        numbers = [found.length, found.length_half, found.format, found.format_half, found.bow]
        cells = [f"{100 * n:.1f}" for n in numbers] + [str(found.same_bag)]
        cells += [f"{100 * found.bow_ceiling:.1f}", f"{100 * found.ngram:.1f}"]
        pattern = rf"│ {found.group} +│ +{found.n} │ +" + r" │ +".join(map(re.escape, cells))
        assert re.search(pattern, done.stdout), found.group


def test_a_sound_benchmark_has_no_defect(tmp_path: Path) -> None:
    noise(1).save(tmp_path / "0.jpg")
    done = CliRunner().invoke(app, ["doctor", write_lines(tmp_path / "mine.jsonl", {})])
    assert "  defect       none found" in done.stdout.splitlines()
    assert "  images       1 of 1 there, 0 unreadable; 0 cases without" in done.stdout


@pytest.mark.slow
def test_errors_are_one_line() -> None:
    for arguments, code in (
        (["sugarcrep"], "E-BENCHMARK-UNKNOWN"),
        (["sugarcrepe", "--data", "nowhere"], "E-FILE-MISSING"),
    ):
        done = CliRunner().invoke(app, ["doctor", *arguments])
        assert (done.exit_code, done.stdout) == (1, "")
        [line] = done.stderr.splitlines()
        assert line.startswith("error: ") and line.endswith(f"[{code}]")


def test_progress_is_told(sugarcrepe: Path) -> None:
    steps: list[tuple[str, int]] = []

    class Count:
        def start(self, what: str, total: int) -> Any:
            steps.append((what, total))
            return lambda done: steps.append((what, -done))

    examine("sugarcrepe", sugarcrepe, progress=Count())
    assert steps[0] == ("images", 5)
    assert sum(count for _, count in steps) == 0


@pytest.mark.slow
def test_the_whole_benchmark_is_examined_whatever_the_protocol(tmp_path: Path) -> None:
    """VL-CheckList scores the first 1,000 of a file; defects may be anywhere."""
    entries = [["VG_100K/1.jpg", {"POS": [f"wet {n}"], "NEG": [f"dry {n}"]}] for n in range(1001)]
    entries.append(["VG_100K/1.jpg", {"POS": ["a"], "NEG": ["a"]}])
    write_json(tmp_path / "vl_checklist/Attribute/vg/state.json", entries)
    found = examine("vl-checklist", tmp_path, images=False)
    assert found.cases == len(load_benchmark("vl-checklist", tmp_path).cases) == 1002
    assert [d.first for d in found.defects] == [("Attribute/vg/state/1001",)]
