"""The authors' own files, where a folder of them is named: what is known of them is found.

COUNTERPOINT_TEST_DATA is a data root. A benchmark that is not in it is skipped.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from benchmark_fixtures import REAL, group_counts, needs_real_files

from counterpoint._util.errors import DataError
from counterpoint.benchmarks import BENCHMARKS, SYNONYMS, load_benchmark
from counterpoint.benchmarks.retrieval import UNKNOWN_TEXT
from counterpoint.cases import Cases
from counterpoint.data import damaged_files
from counterpoint.evaluation import Health, evaluate, examine, prepare
from counterpoint.evaluation.doctor import find_defects
from counterpoint.generation.drafts import MADE, TextSettings, make_by_rules
from counterpoint.generation.inputs.captions import open_captions
from counterpoint.generation.pairs import Kind
from counterpoint.generation.registry import RULES
from counterpoint.metrics import BEYOND_FIRST, NO_IMAGE, PROTOCOLS
from counterpoint.runs import rows

pytestmark = needs_real_files
ROOT = Path(REAL or "").absolute()
REPLACE = "hard-positives/replace"


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@cache
def cases_of(id: str) -> Cases | None:
    """None if its files are not in the folder; what is there must be readable."""
    try:
        return load_benchmark(id, ROOT).cases
    except DataError as error:
        if error.code != "E-FILE-MISSING":
            raise
        return None


def real(id: str) -> Cases:
    cases = cases_of(id)
    if cases is None:
        pytest.skip(f"{id} is not in {ROOT}")
    return cases


@cache
def health(id: str) -> Health:
    real(id)
    return examine(id, ROOT, images=False)


# Those whose count is known, and which take no minute to load.
COUNTED = [
    name
    for name in BENCHMARKS.names()
    if not name.startswith(("world-", "classification/", "aro/coco-order", "aro/flickr30k-order"))
]


@pytest.mark.parametrize("id", COUNTED)
def test_as_many_cases_as_were_published(id: str) -> None:
    cases = real(id)
    expected = BENCHMARKS.get(id).count
    if expected is None:
        pytest.skip(f"the number of cases of {id} is unknown")
    unknown = sum(one.cases or 0 for one in cases.absent if one.reason == UNKNOWN_TEXT)
    assert len(cases) + unknown == expected


@pytest.mark.parametrize("id", ["sugarcrepe", REPLACE, "retrieval/coco"])
def test_the_files_are_the_published_ones(id: str) -> None:
    real(id)
    assert damaged_files(id, ROOT) == ()


# --- hard positives ----------------------------------------------------------------------------

# With the rows in which a part of a word was replaced ("covecrimson"): these are red, too.
REPLACED = {
    "relations": "in 6173, behind 1057, on top of 683, near 657, next to 621, under 467, by 394, "
    "above 298, wearing 3591, wears 385, holding 950, sitting 639, hanging 382, walking 288, "
    "riding 245, riding on 38",
    "attributes": "white 2742, black 1790, blue 1253, brown 947, red 828, green 755, silver 242, "
    "large 571, small 358, long 271, big 146, huge 31, standing 153, sitting 88, walking 64, "
    "eating 41, hanging 29, looking 27, wet 64, smiling 50, old 46, clear 43, young 36",
}


@pytest.mark.parametrize("kind", REPLACED)
def test_every_row_is_in_the_group_of_its_word(kind: str) -> None:
    counts = group_counts(real(REPLACE))
    expected = {}
    for entry in REPLACED[kind].split(", "):
        word, _, count = entry.rpartition(" ")
        expected[f"{kind}/{word}"] = int(count)
    assert {k: v for k, v in counts.items() if k.startswith(kind)} == expected
    assert {word.partition("/")[2] for word in expected} == set(SYNONYMS[kind])
    assert sum(expected.values()) == {"relations": 16_868, "attributes": 10_575}[kind]


def test_defects_of_hard_positives() -> None:
    cases = real(REPLACE)
    found = {what: np.flatnonzero(marks) for what, marks in find_defects(cases, REPLACE).items()}
    assert {what: len(rows_of) for what, rows_of in found.items()} == {
        "a negative equals the original": 15,
        "a negative equals another positive": 1,
        "repeats an earlier case": 1589,
        "part of a word replaced in the positive": 10,
    }
    assert max(found["a negative equals the original"]) < 16_868  # all are relations
    assert found["a negative equals another positive"].tolist() == [16_868 + 10_157]
    unique = {repr(row) for row in cases.frame.select("images", "captions").iter_rows()}
    assert len(unique) == 27_443 - 1589 == 10_389 + 15_465


def test_the_cases_whose_photographs_are_there() -> None:
    found = health(REPLACE)
    folder = ROOT / "visual_genome"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    there = {f"visual_genome/{p.parent.name}/{p.name}" for p in folder.glob("VG_100K*/*")}
    groups = real(REPLACE).frame["groups"].list.first().to_list()
    paths = real(REPLACE).frame["images"].list.first().struct.field("path").to_list()
    counts = Counter(
        group.partition("/")[0] for group, path in zip(groups, paths, strict=True) if path in there
    )
    assert found.images.needed == 8041
    assert found.cases - found.images.cases_without == counts.total()
    if counts.total() != 27_443:  # the copies in hand
        assert counts == {"relations": 7741, "attributes": 4817}


# --- SugarCrepe --------------------------------------------------------------------------------

SUGARCREPE = {"add/att": 692, "add/obj": 2062, "replace/att": 788, "replace/obj": 1652}
SUGARCREPE |= {"replace/rel": 1406, "swap/att": 666, "swap/obj": 245}


def test_the_subsets_of_sugarcrepe() -> None:
    assert group_counts(real("sugarcrepe")) == SUGARCREPE
    found = health("sugarcrepe")
    assert (found.images.needed, found.gaps) == (1560, ("swap_obj/108",))


def test_what_the_captions_of_sugarcrepe_give_away() -> None:
    blind = {found.group: found for found in health("sugarcrepe").blind}
    assert round(100 * blind["add/att"].length, 1) == 99.6
    assert round(100 * blind["add/obj"].length, 1) == 98.8
    assert round(100 * blind["add/obj"].length_half, 1) == 99.0
    for subset in SUGARCREPE:
        assert 0.62 <= blind[subset].format_half <= 0.675, subset
    for subset in ("swap/att", "swap/obj"):
        assert 0.215 <= blind[subset].length <= 0.265, subset


def test_pairs_of_the_same_words() -> None:
    """An issue counts 572, with other rules for what is a word."""
    blind = {found.group: found for found in health("sugarcrepe").blind}
    assert 569 <= blind["all"].same_bag <= 572
    assert blind["all"].bow_ceiling == pytest.approx(1 - blind["all"].same_bag / 7511 / 2)
    assert round(blind["all"].bow_ceiling, 3) == 0.962
    for subset, share in (("swap/obj", 0.669), ("swap/att", 0.613)):
        assert blind[subset].same_bag / blind[subset].n == pytest.approx(share, abs=0.01)


def test_the_doctor_and_an_evaluation_agree(tmp_path: Path) -> None:
    real("sugarcrepe")
    run = evaluate("blind:length", "sugarcrepe", data=ROOT, out=tmp_path / "run")
    blind = {found.group: found.length for found in health("sugarcrepe").blind}
    evaluated = {
        row.group: row.value for row in rows(run, resamples=5) if row.metric == "original_accuracy"
    }
    assert evaluated == pytest.approx(blind)


# --- VL-CheckList ------------------------------------------------------------------------------

VG_FILES = {
    "Attribute/vg/action": 1892,
    "Attribute/vg/color": 11_569,
    "Attribute/vg/material": 2470,
    "Attribute/vg/size": 2695,
    "Attribute/vg/state": 941,
    "Relation/vg/action": 12_733,
    "Relation/vg/spatial": 30_650,
}


def file_of(id: str) -> str:
    """Relation/vg/action/7, Relation/vg/vg_action/7 and Relation/vg_action/7 are of one file."""
    kind, *folders, name, _ = id.split("/")
    if kind != "Relation":
        return "/".join([kind, *folders, name])
    data_set, _, aspect = name.rpartition("_")
    return "/".join([kind, data_set or folders[0], aspect])


def test_the_files_of_vl_checklist() -> None:
    cases = real("vl-checklist")
    counts = Counter(file_of(id) for id in cases.ids)
    assert {name: counts[name] for name in VG_FILES} == VG_FILES
    scored = prepare(cases, PROTOCOLS["vl-checklist"], None)
    paths = cases.frame["images"].list.first().struct.field("path")
    there = [(cases.root / path).is_file() for path in paths]
    held = Counter(file_of(id) for id, here in zip(cases.ids, there, strict=True) if here)
    expected = {name: min(1000, held[name] or count) for name, count in counts.items()}
    assert Counter(file_of(id) for id in scored.ids) == expected
    labels = cases.frame["groups"].list
    skipped = (labels.contains(BEYOND_FIRST) | labels.contains(NO_IMAGE)).sum()
    assert skipped == len(cases) - len(scored)


def test_captions_of_vl_checklist_that_equal_their_negative() -> None:
    cases = real("vl-checklist")
    marks = find_defects(cases, "vl-checklist")["a negative equals the original"]
    counts = Counter(file_of(id) for id, marked in zip(cases.ids, marks, strict=True) if marked)
    assert counts["Attribute/vg/color"] == 66
    assert counts["Relation/vg/action"] == 28


# --- COCO --------------------------------------------------------------------------------------


def test_retrieval_on_coco() -> None:
    cases = real("retrieval/coco")
    case = cases.frame.row(0, named=True)
    assert (len(case["images"]), len(case["captions"]), len(case["truth"])) == (
        5000,
        25_000,
        25_000,
    )
    owners = Counter(cell // 25_000 for cell in case["truth"])
    assert set(owners.values()) == {5}
    images = health("retrieval/coco").images
    there = sum((ROOT / image["path"]).is_file() for image in case["images"])
    assert images.needed == 5000
    assert len(images.missing) == 5000 - there
    if there not in (0, 5000):  # the copies in hand
        assert (there, len(images.missing)) == (4407, 593)


def test_coco_order() -> None:
    """Takes a minute the first time: 25,010 captions are tagged."""
    cases = real("aro/coco-order")
    assert len(cases) == BENCHMARKS.get("aro/coco-order").count == 25_010
    assert set(cases.caption_counts.tolist()) == {5}
    captions = cases.frame["captions"].to_list()
    whole = [sorted("".join(texts[0].split())) for texts in captions[:500]]
    for letters, texts in zip(whole, captions, strict=False):
        for shuffle in texts[1:3]:  # spaCy's tokens are the caption's letters
            assert sorted("".join(shuffle.split())) == letters
    unchanged = np.mean([[text == texts[0] for text in texts[1:]] for texts in captions])
    assert 0 < unchanged < 0.2 and not math.isnan(unchanged)


@pytest.mark.parametrize("kind", ["negative", "positive"])
def test_every_rule_takes_real_captions(kind: Kind) -> None:
    """A part of each source, spread over the whole of it: noun phrases in mixed case are among
    them. Every rule makes something of one source at least."""
    names = tuple(name for name in RULES.names() if RULES.get(name).kind == kind)
    counts: Counter[str] = Counter()
    for source in ("sugarcrepe", "aro/coco-order", "vl-checklist"):
        captions = list(open_captions(source, ROOT))
        made = make_by_rules(captions[:: len(captions) // 400], TextSettings(kind, names))
        counts.update({name: made.counts[name, MADE] for name in names})
        for pair in made.pairs:
            assert pair.text.split() != pair.caption.split()
    assert not set(names) - set(+counts)


@pytest.mark.parametrize(
    ("id", "least"), [("sugarcrepe", 0.5), ("aro/coco-order", 0.5), ("vl-checklist", 0.25)]
)
def test_shipped_positives_fit_their_benchmark(id: str, least: float) -> None:
    _, plain = load_benchmark(id, ROOT)
    _, extended = load_benchmark(f"{id}+hp", ROOT)
    assert len(plain) == len(extended)
    more = extended.caption_counts - plain.caption_counts
    assert set(more.tolist()) == {0, 1}
    assert more.mean() > least
