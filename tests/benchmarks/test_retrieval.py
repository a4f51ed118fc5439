"""Retrieval: one case of all images and captions, shuffles of either, and all true matches."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from benchmark_fixtures import absent, load, needs_real_files, real, write, write_json
from errors import raises
from models_for_tests import noise
from support import part, run_of

from counterpoint.benchmarks import retrieval
from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.benchmarks.word_order import TaggedCaption
from counterpoint.cases import asked, without_images
from counterpoint.cases.table import Absent, Case, ImageRef
from counterpoint.evaluation.evaluating import evaluate, prepare
from counterpoint.images.pictures import Picture
from counterpoint.metrics.protocols import PROTOCOLS
from counterpoint.runs import columns_of, rows

FILES = {"coco": "coco/coco_karpathy_test.json", "flickr30k": "flickr30k/flickr30k_test.json"}
COCO = "retrieval/coco"


def text(image: int, number: int) -> str:
    return f"mole{image} wears hat{number} near old owl by tall tree"


def write_split(root: Path, *counts: int, name: str = "coco") -> None:
    """Images with so many captions each."""
    images = [
        {"image": f"val/{i}.jpg", "caption": [text(i, n) for n in range(count)]}
        for i, count in enumerate(counts)
    ]
    write_json(root / FILES[name], images)


def whole(root: Path, options: str = "") -> Case:
    [case] = load(f"{COCO}{options}", root)
    return case


@pytest.mark.parametrize("name", FILES)
def test_the_split_is_one_case_of_first_five_captions(name: str, tmp_path: Path) -> None:
    write_split(tmp_path, 5, 7, 3, 6, name=name)
    [case] = load(f"retrieval/{name}", tmp_path)
    counts = (5, 5, 3, 5)
    assert case.id == "0"
    assert case.images == tuple(ImageRef(f"{name}/val/{i}.jpg") for i in range(4))
    assert case.captions == tuple(text(i, n) for i, many in enumerate(counts) for n in range(many))
    owners = [i for i, many in enumerate(counts) for _ in range(many)]
    assert case.truth == tuple(
        tuple(owner == image for owner in owners) for image in range(len(counts))
    )
    assert (case.groups, case.cluster) == ((), name)


def test_recalls_are_those_of_a_sorted_list(tmp_path: Path) -> None:
    write_split(tmp_path, *[5] * 9)
    cases = load_benchmark(COCO, tmp_path).cases
    scores = np.random.default_rng(0).permutation(9 * 45).reshape(9, 45).astype(float)
    owner = np.repeat(np.arange(9), 5)
    expected = {}
    for k in (1, 5, 10):
        best = np.argsort(-scores, axis=1)[:, :k]
        expected[f"image_to_text_recall@{k}"] = np.mean(
            [image in owner[best[image]] for image in range(9)]
        )
        best = np.argsort(-scores, axis=0)[:k]
        expected[f"text_to_image_recall@{k}"] = np.mean(
            [owner[caption] in best[:, caption] for caption in range(45)]
        )
    found = rows(run_of(part(cases, scores.reshape(-1), "retrieval")), resamples=10)
    assert {r.metric: r.value for r in found if r.metric in expected} == pytest.approx(expected)


# --- options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "option", "value", "says"),
    [
        (":captions=al", "captions", "al", "Did you mean 'all'?"),
        (":images=row", "images", "row", "Did you mean 'rows'?"),
        (":images=trigrams", "images", "trigrams", ""),
        (":captions=patches", "captions", "patches", ""),
        (":seed=one", "seed", "one", ""),
        (":seed=-1", "seed", "-1", ""),
        (":seed=", "seed", "", ""),
    ],
)
def test_wrong_values_of_options_are_explained(
    options: str, option: str, value: str, says: str, tmp_path: Path
) -> None:
    write_split(tmp_path, 5)
    with raises("E-OPTION-INVALID", option, value) as caught:
        load(f"{COCO}{options}", tmp_path)
    assert says in str(caught.value)


def test_an_unknown_option_is_explained(tmp_path: Path) -> None:
    write_split(tmp_path, 5)
    with raises("E-OPTION-UNKNOWN", COCO, "caption") as caught:
        load(f"{COCO}:caption=all", tmp_path)
    assert "Did you mean 'captions'?" in str(caught.value)


def test_plain_is_the_default(tmp_path: Path) -> None:
    write_split(tmp_path, 5, 5)
    assert whole(tmp_path, ":captions=plain,images=plain,seed=9") == whole(tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with raises("E-FILE-MISSING", tmp_path / "coco/coco_karpathy_test.json", "retrieval/coco"):
        load(COCO, tmp_path)


# --- shuffled captions -------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["within-trigrams", "trigrams", "all"])
def test_captions_are_shuffled_each_in_its_place(how: str, tmp_path: Path) -> None:
    write_split(tmp_path, 5, 5, 5)
    plain, found = whole(tmp_path), whole(tmp_path, f":captions={how}")
    assert (found.images, found.truth) == (plain.images, plain.truth)
    pairs = list(zip(plain.captions, found.captions, strict=True))
    assert all(sorted(a.split()) == sorted(b.split()) for a, b in pairs)
    assert sum(a != b for a, b in pairs) > len(pairs) / 2
    orders = {tuple(a.split().index(word) for word in b.split()) for a, b in pairs}
    assert len(orders) > 1  # not one permutation for all


def test_shuffled_captions_follow_the_seed(tmp_path: Path) -> None:
    write_split(tmp_path, 5, 5)
    assert whole(tmp_path, ":captions=all") == whole(tmp_path, ":captions=all,seed=1")
    other = whole(tmp_path, ":captions=all,seed=2")
    assert other.captions != whole(tmp_path, ":captions=all").captions
    state = np.random.RandomState(2)
    plain = whole(tmp_path).captions
    assert other.captions == tuple(" ".join(state.permutation(c.split(" "))) for c in plain)


def test_one_stream_of_trigrams_runs_through_the_file(tmp_path: Path) -> None:
    write_split(tmp_path, 5, 5)
    state, expected = random.Random(4), []
    for caption in whole(tmp_path).captions:
        words = caption.split()
        threes = [words[:3], words[3:6], words[6:]]
        for three in threes:
            state.shuffle(three)
        expected.append(" ".join(word for three in threes for word in three))
    assert list(whole(tmp_path, ":captions=within-trigrams,seed=4").captions) == expected


@pytest.mark.parametrize(
    ("how", "needs_tags"),
    [("nouns-adjectives", True), ("other-words", True), ("trigrams", False), ("all", False)],
)
def test_captions_are_tagged_only_if_that_is_needed(
    how: str, needs_tags: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def read(captions: list[str], *, tagged: bool) -> list[TaggedCaption]:
        asked.append(tagged)
        return [TaggedCaption(c, c.split(), ["NN", "DT", "JJ"] * 3) for c in captions]

    monkeypatch.setattr(retrieval, "tag_captions", read)
    write_split(tmp_path, 5, 5)
    found = whole(tmp_path, f":captions={how}")
    assert asked == [needs_tags]
    assert sorted(found.captions[0].split()) == sorted(text(0, 0).split())


# --- shuffled images ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["rows", "columns", "patches"])
def test_images_are_shuffled_each_in_its_own_order(how: str, tmp_path: Path) -> None:
    write_split(tmp_path, *[5] * 6)
    plain, found = whole(tmp_path), whole(tmp_path, f":images={how}")
    assert (found.captions, found.truth) == (plain.captions, plain.truth)
    assert [image.path.rpartition(":")[2] for image in found.images] == [
        image.path for image in plain.images
    ]
    seeds = [image.path.split(":")[1] for image in found.images]
    assert len(set(seeds)) == 6
    again = whole(tmp_path, f":images={how},seed=1")
    assert again == found
    other = whole(tmp_path, f":images={how},seed=2")
    assert {image.path.split(":")[1] for image in other.images}.isdisjoint(seeds)


def test_an_images_order_does_not_depend_on_the_others(tmp_path: Path) -> None:
    write_split(tmp_path / "few", *[5] * 2)
    write_split(tmp_path / "many", *[5] * 7)
    few, many = (whole(tmp_path / name, ":images=rows").images for name in ("few", "many"))
    assert many[:2] == few


def test_shuffled_images_can_be_opened_and_differ(tmp_path: Path) -> None:
    write_split(tmp_path, *[5] * 5)
    (tmp_path / "coco/val").mkdir()
    for number in range(5):
        noise(0, (12, 12)).save(tmp_path / f"coco/val/{number}.jpg", quality=95)
    found = whole(tmp_path, ":images=patches")
    pixels = [np.asarray(Picture(image, tmp_path).open()) for image in found.images]
    assert len({p.tobytes() for p in pixels}) == 5  # of one and the same picture
    plain = np.asarray(Picture(ImageRef("coco/val/0.jpg"), tmp_path).open())
    for shown in pixels:
        assert sorted(map(tuple, shown.reshape(-1, 3))) == sorted(map(tuple, plain.reshape(-1, 3)))


def test_both_sides_may_be_shuffled(tmp_path: Path) -> None:
    write_split(tmp_path, *[5] * 3)
    both = whole(tmp_path, ":captions=all,images=rows,seed=3")
    assert both.captions == whole(tmp_path, ":captions=all,seed=3").captions
    assert both.images == whole(tmp_path, ":images=rows,seed=3").images


# --- several seeds -----------------------------------------------------------------------------


def test_every_seed_is_a_gallery_of_its_own(tmp_path: Path) -> None:
    write_split(tmp_path, *[5] * 6)
    cases = load_benchmark(f"{COCO}:captions=all,images=rows,seeds=3", tmp_path).cases
    assert cases.ids.to_list() == ["1/0", "2/0", "3/0"]
    for row, seed in enumerate((1, 2, 3)):
        found, one = cases.case(row), whole(tmp_path, f":captions=all,images=rows,seed={seed}")
        assert (found.captions, found.images, found.truth) == (one.captions, one.images, one.truth)
        assert found.groups == (f"seed {seed}",)
    # A picture that is shuffled in three ways is one source image: one cluster.
    p = part(cases, np.random.default_rng(0).permutation(3 * 6 * 30).astype(float), "retrieval")
    assert len(set(columns_of(p, "wrong").clusters)) == 6


def test_several_seeds_need_something_to_draw(tmp_path: Path) -> None:
    write_split(tmp_path, 5, 5)
    with raises("E-OPTION-INVALID", "seeds", 3):
        load(f"{COCO}:seeds=3", tmp_path)


# --- as ARO does -------------------------------------------------------------------------------


def test_aro_cleans_and_cuts_all_captions_before_it_shuffles(tmp_path: Path) -> None:
    """By the authors' code: pre_caption(caption, 30) into one list, which is then shuffled."""
    long = " ".join(f"Word{n}" for n in range(40))
    captions = [["A (Red) mole!", long, "c", "d", "e", "One  more: f"], ["Two owls."]]
    images = [{"image": f"{i}.jpg", "caption": texts} for i, texts in enumerate(captions)]
    write_json(tmp_path / FILES["coco"], images)
    cleaned = ["a red mole", long.lower().rsplit(" ", 10)[0], "c", "d", "e", "one more f"]
    cleaned.append("two owls")
    loaded = load_benchmark(COCO, tmp_path, protocol="aro-retrieval")
    case = loaded.cases.case(0)
    assert case.captions == tuple(cleaned)
    assert case.truth == ((True,) * 6 + (False,), (False,) * 6 + (True,))
    shuffled = load_benchmark(f"{COCO}:captions=all,seed=4", tmp_path, protocol="aro-retrieval")
    state = np.random.RandomState(4)
    expected = [" ".join(state.permutation(text.split(" "))) for text in cleaned]
    assert prepare(shuffled.cases, PROTOCOLS["aro-retrieval"], None).case(0).captions == tuple(
        expected
    )


def test_a_run_of_aros_captions_is_one_of_its_own_protocol(tmp_path: Path) -> None:
    write_split(tmp_path, *[7] * 6)
    blind = ("letters", Letters())
    options = {"data": tmp_path, "store": tmp_path / "store"}
    run = evaluate(blind, COCO, protocol="aro-retrieval", out=tmp_path / "a", **options)
    assert len(run.parts[COCO].cases.case(0).captions) == 42
    assert rows(run, PROTOCOLS["aro-retrieval"], resamples=10) == rows(run, resamples=10)
    with raises("E-PROTOCOL-MISFIT", "retrieval"):
        rows(run, PROTOCOLS["retrieval"])
    usual = evaluate(blind, COCO, out=tmp_path / "b", **options)
    assert len(usual.parts[COCO].cases.case(0).captions) == 30
    with raises("E-PROTOCOL-MISFIT", "aro-retrieval"):
        rows(usual, PROTOCOLS["aro-retrieval"])


class Letters:
    """Sees no image."""

    fingerprint = "letters"

    def score_captions(self, captions: list[str]) -> np.ndarray:
        return np.array([sum(map(ord, caption)) % 101 for caption in captions], dtype=np.float32)


def test_a_protocol_of_the_loader_needs_a_benchmark_that_knows_it(tmp_path: Path) -> None:
    write_split(tmp_path, *[5] * 6)
    loaded = load_benchmark(COCO, tmp_path)  # under its own protocol
    for benchmark in (loaded, "world-swap:size=10"):
        with raises("E-PROTOCOL-MISFIT", "aro-retrieval"):
            evaluate(
                ("letters", Letters()),
                benchmark,
                protocol="aro-retrieval",
                data=tmp_path,
                out=tmp_path / "run",
            )


# --- ECCV Caption --------------------------------------------------------------------------------

# Five images of two captions each: those of image n are 10 n and 10 n + 5, in this order.
IMAGES = range(1, 6)


def write_coco(root: Path) -> None:
    """Image 5 has a third text, so that the texts of its ids are unknown."""
    write_json(
        root / "coco/coco_karpathy_test.json",
        [
            {
                "image": f"val2014/COCO_val2014_{n:012}.jpg",
                "caption": [f"{n} first", f"{n} second", *(["5 third"] if n == 5 else [])],
            }
            for n in IMAGES
        ],
    )
    original = {str(n): [10 * n + 5, 10 * n] for n in IMAGES}
    write_json(root / "eccv_caption/original_image_to_caption.json", original)
    write_json(
        root / "eccv_caption/eccv_image_to_caption.json", {"1": [10, 15, 25], "2": [20, 30, 999]}
    )
    write_json(root / "eccv_caption/eccv_caption_to_image.json", {"10": [1, 3], "50": [5]})


def test_queries_have_all_their_matches(tmp_path: Path) -> None:
    write_coco(tmp_path)
    cases = load_benchmark("eccv-caption", tmp_path).cases
    [case] = load("eccv-caption", tmp_path)
    texts = case.captions
    assert texts == tuple(f"{n} {place}" for n in range(1, 5) for place in ("first", "second"))
    found = {(i + 1, texts[j]) for i, line in enumerate(case.truth) for j in np.flatnonzero(line)}
    assert found == {
        *((1, text) for text in ("1 first", "1 second", "2 second")),  # judged
        *((2, text) for text in ("2 first", "3 first")),  # its own second was judged false
        (3, "1 first"),  # of the caption that was judged
        *((n, f"{n} {place}") for n in (3, 4) for place in ("first", "second")),  # COCO's own
    }
    assert np.flatnonzero(asked(cases, 0)).tolist() == [0, 1, 5]
    unknown = Absent("caption 50", "the caption's text is unknown", 0)
    assert absent("eccv-caption", tmp_path) == (unknown,)


def test_queries_stay_those_they_were_if_an_image_is_lost(tmp_path: Path) -> None:
    write_coco(tmp_path)
    cases = load_benchmark("eccv-caption", tmp_path).cases
    kept = without_images(cases, {0: {1}}).cases
    case = kept.case(0)
    assert [image.path[-5] for image in case.images] == ["1", "3", "4", "5"]
    marks = np.flatnonzero(asked(kept, 0)).tolist()
    assert marks[0] == 0 and case.captions[marks[1] - 4] == "1 first" and len(marks) == 2


MALFORMED = {
    "eccv_image_to_caption.json": "[1]",
    "eccv_caption_to_image.json": '{"a": [1]}',
    "original_image_to_caption.json": '{"1": []}',
}


def test_another_layout_is_refused(tmp_path: Path) -> None:
    for name, content in MALFORMED.items():
        write_coco(tmp_path)
        path = write(tmp_path / "eccv_caption" / name, content)
        with raises("E-FILE-MALFORMED" if content == "[1]" else "E-ROW-MALFORMED"):
            load("eccv-caption", tmp_path)
        path.unlink()
        with raises("E-FILE-MISSING", path):
            load("eccv-caption", tmp_path)


def test_an_image_without_ids_is_named(tmp_path: Path) -> None:
    write_coco(tmp_path)
    write_json(tmp_path / "eccv_caption/original_image_to_caption.json", {"1": [10, 15]})
    with raises("E-FILE-MALFORMED", 2):
        load("eccv-caption", tmp_path)


@needs_real_files
def test_the_authors_queries() -> None:
    cases = real("eccv-caption")
    marks = asked(cases, 0)
    images = int(cases.image_counts[0])
    # Three of 1,332 captions are of images with six texts, whose ids cannot be told apart.
    assert (images, marks[:images].sum(), marks[images:].sum()) == (5_000, 1_261, 1_329)
