"""ECCV Caption: COCO's test split, in which some images and captions have all their matches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmark_fixtures import absent, load, needs_real_files, real, write, write_json
from errors import raises

from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.cases import asked, without_images
from counterpoint.cases.table import Absent

# Five images of two captions each: those of image n are 10 n and 10 n + 5, in this order.
IMAGES = range(1, 6)


def write_split(root: Path) -> None:
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
    write_split(tmp_path)
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
    write_split(tmp_path)
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


@pytest.mark.parametrize("name", MALFORMED)
def test_another_layout_is_refused(name: str, tmp_path: Path) -> None:
    write_split(tmp_path)
    path = write(tmp_path / "eccv_caption" / name, MALFORMED[name])
    with raises("E-FILE-MALFORMED" if name == "eccv_image_to_caption.json" else "E-ROW-MALFORMED"):
        load("eccv-caption", tmp_path)
    path.unlink()
    with raises("E-FILE-MISSING", path):
        load("eccv-caption", tmp_path)


def test_an_image_without_ids_is_named(tmp_path: Path) -> None:
    write_split(tmp_path)
    write_json(tmp_path / "eccv_caption/original_image_to_caption.json", {"1": [10, 15]})
    with raises("E-FILE-MALFORMED", 2):
        load("eccv-caption", tmp_path)


@needs_real_files
def test_the_authors_files() -> None:
    cases = real("eccv-caption")
    marks = asked(cases, 0)
    images = int(cases.image_counts[0])
    # Three of 1,332 captions are of images with six texts, whose ids cannot be told apart.
    assert (images, marks[:images].sum(), marks[images:].sum()) == (5_000, 1_261, 1_329)
