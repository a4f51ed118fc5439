"""Photographs changed without a change of what their captions say: checks, pixels, case files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from cli_support import Command, counterpoint, own_place
from hypothesis import given, strategies as st
from PIL import Image
from support import FEW

from counterpoint.cases.files import read_cases
from counterpoint.cases.table import ImageRef
from counterpoint.generation.images.backends import DrawnImage, ImageFolder, Want
from counterpoint.generation.images.renderings import (
    CHANGES,
    DRAWN,
    PhotoChanges,
    Rendered,
    Scenery,
    _draw,
    record_of,
    refusal,
)
from counterpoint.generation.pairs import Rejection
from counterpoint.images.pictures import Picture

__all__ = ["counterpoint", "own_place"]  # fixtures

PLAIN = "a dog sits on a sofa"


def photograph(path: Path, seed: int = 0, size: tuple[int, int] = (96, 64)) -> Path:
    """Smooth colours that differ everywhere, so that every change shows."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
    path.parent.mkdir(parents=True, exist_ok=True)
    small.resize(size, Image.Resampling.BICUBIC).save(path)
    return path


# --- checks --------------------------------------------------------------------------------------


REFUSED = {
    "flip": [
        *("a dog to the left of a cat", "A Right-handed batter", "the car on the west side"),
        *("a sign that forbids parking", 'a shirt with "hello" on it', "a tower with a clock"),
        *("a bus with 42 on its front", "a wall full of graffiti"),
    ],
    "crop": [
        *("three dogs on a sofa", "2 dogs on a sofa", "a couple of dogs"),
        *("a dog in the background", "a bird in the corner", "a group of people"),
    ],
    "colour": [
        *("a red car", "a navy blue car", "a girl in a Crimson dress", "a cream-coloured wall"),
        *("a colorful kite", "a blonde woman"),
    ],
    "brightness": [
        *("a dark room", "a street at night", "brightly lit shops", "a sunny beach", "a black cat"),
    ],
    "compression": ["a blurry photo of a dog"],
}
KEPT = {
    "flip": "two dogs on a red sofa",
    "crop": "a red dog at night",
    "colour": "two dogs to the left of a clock",
    "brightness": "a green car on the left",
    "compression": "two red dogs at night",
}


def test_a_change_of_what_a_caption_says_is_refused() -> None:
    for change, texts in REFUSED.items():
        for caption in texts:
            for captions in ([caption], [PLAIN, caption], [caption, PLAIN]):
                found = refusal(change, captions)
                assert found is not None and found.reason.startswith(change), caption


def test_a_change_that_no_word_speaks_of_is_not_refused() -> None:
    for change in CHANGES:
        assert refusal(change, [PLAIN, "A cat and a mouse."]) is None
        assert refusal(change, [KEPT[change]]) is None


def test_with_a_box_a_crop_keeps_what_is_named() -> None:
    assert refusal("crop", ["three dogs"]) is not None
    assert refusal("crop", ["three dogs"], boxed=True) is None


# --- pixels --------------------------------------------------------------------------------------


def rendered(tmp_path: Path, change: str, box: tuple | None = None, seed: int = 1) -> Rendered:
    photograph(tmp_path / "a.png")
    changes = PhotoChanges(ImageFolder(tmp_path / "made", tmp_path), seed)
    found = changes.render(change, Picture(ImageRef("a.png", box), tmp_path), [PLAIN])
    assert isinstance(found, Rendered)
    return found


def pixels(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path)).astype(int)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_what_its_record_says(tmp_path: Path, change: str) -> None:
    found = rendered(tmp_path, change)
    before, after = pixels(tmp_path / "a.png"), pixels(tmp_path / found.path)
    said = found.settings
    if change == "flip":
        assert np.array_equal(after, before[:, ::-1])
    elif change == "crop":
        left, top, right, bottom = said["window"]
        assert np.array_equal(after, before[top:bottom, left:right])
        assert all(0.85 < share < 0.96 for share in np.divide(after.shape, before.shape)[:2])
    elif change == "brightness":
        assert (after.mean() > before.mean()) == (said["brightness"] > 1)
    elif change == "colour":
        spread = [
            abs(image - image.mean(axis=2, keepdims=True)).mean() for image in (before, after)
        ]
        assert (spread[1] > spread[0]) == (said["saturation"] > 1)
    else:
        assert 0 < abs(after - before).mean() < 12 and said["quality"] < 30
    assert rendered(tmp_path, change) == found  # the same again


@FEW
@given(st.integers(0, 60), st.integers(0, 30), st.integers(5, 36), st.integers(5, 34))
def test_a_crop_holds_all_of_the_box(x: int, y: int, width: int, height: int) -> None:
    image = Image.fromarray(np.zeros((64, 96, 3), dtype=np.uint8))
    rng = np.random.default_rng(x + y)
    _, said = CHANGES["crop"](image, (x, y, width, height), rng)
    left, top, right, bottom = said["window"]
    assert 0 <= left <= x and 0 <= top <= y
    assert x + width <= right <= 96 and y + height <= bottom <= 64


def test_what_cannot_be_changed_is_refused(tmp_path: Path) -> None:
    Image.new("RGB", (64, 64), (90, 90, 90)).save(tmp_path / "flat.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "tiny.png")
    changes = PhotoChanges(ImageFolder(tmp_path / "made", tmp_path), 1)

    def reason(change: str, path: str, box: tuple | None = None) -> str:
        found = changes.render(change, Picture(ImageRef(path, box), tmp_path), [PLAIN])
        assert isinstance(found, Rejection)
        return found.reason

    assert "stays as it is" in reason("flip", "flat.png")
    assert "stays as it is" in reason("colour", "flat.png")
    assert "too small" in reason("flip", "tiny.png")
    assert "no such file" in reason("flip", "absent.png")
    assert "whole image" in reason("crop", "flat.png", (0, 0, 64, 64))
    assert not (tmp_path / "made").exists()


# --- case files ----------------------------------------------------------------------------------

CAPTIONS = [
    {"image": "0.png", "caption": ["a dog on a sofa", "a hound on a couch"]},
    {"image": "1.png", "caption": ["a cat on the left", "a kitten"]},
    {"image": "2.png", "caption": ["a red bus", "a bus in red"]},
    {"image": "3.png", "caption": ["a horse"]},
    {"image": "4.png", "caption": ["a dog on a sofa", "a pup"]},  # a caption of 0.png
]
NEAR = {"0.png": ["4.png", "1.png"], "1.png": ["0.png"], "2.png": ["9.png"], "3.png": ["0.png"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(5):
        photograph(tmp_path / "photos" / f"{number}.png", number)
    (tmp_path / "photos" / "captions.json").write_text(json.dumps(CAPTIONS))
    near = {"image": list(NEAR), "neighbours": list(NEAR.values())}
    pl.DataFrame(near).write_parquet(tmp_path / "near.parquet")
    return tmp_path


def make(command: Command, folder: Path, *more: str) -> dict[str, dict[str, int]]:
    words = ["generate", "renderings", str(folder / "photos" / "captions.json")]
    words += ["-o", str(folder / "out" / "cases.parquet"), "--json"]
    found = command(*words, "--neighbours", str(folder / "near.parquet"), *more)
    assert found.code == 0, found.err
    [counts] = json.loads(found.out)
    return counts


def test_captions_and_neighbours_become_cases(counterpoint: Command, folder: Path) -> None:
    counts = make(counterpoint, folder, "--change", "flip", "--change", "colour")
    cases = read_cases(folder / "out" / "cases.parquet")
    found = {case.id: case for case in (cases.case(row) for row in range(len(cases)))}
    # 0 has the neighbour 1, since 4 has one of its captions. 1 names a side. 2 has no neighbour.
    assert set(found) == {"0#0/colour", "1#0/colour", "3/flip", "3/colour"}
    case = found["0#0/colour"]
    assert case.captions == ("a dog on a sofa", "a hound on a couch", "a cat on the left")
    assert case.truth == ((True, True, False), (True, True, False), (False, False, True))
    assert case.groups == ("colour",) and case.cluster == case.images[0].path
    assert [Path(image.path).name for image in (case.images[0], case.images[2])] == [
        "0.png",
        "1.png",
    ]
    single = found["3/flip"]  # no rewording: one caption
    assert single.captions == ("a horse",) and single.truth == ((True,), (True,), (False,))
    for case in found.values():
        assert all(Picture(image, cases.root).open().size == (96, 64) for image in case.images)
    assert counts["cases"] == {"flip": 1, "colour": 3}
    assert counts["refused"] == {"flip: a side is named": 2}
    assert sum(counts["left_out"].values()) == 2


def test_the_negative_caption_is_checked_too(counterpoint: Command, folder: Path) -> None:
    """0.png is not flipped: its negative, a caption of 1.png, names a side."""
    make(counterpoint, folder, "--change", "flip")
    ids = read_cases(folder / "out" / "cases.parquet").ids.to_list()
    assert ids == ["3/flip"]


def test_every_change_is_recorded_and_nothing_is_written_twice(
    counterpoint: Command,
    folder: Path,
) -> None:
    counts = make(counterpoint, folder)
    out = folder / "out" / "cases.parquet"
    rows = [json.loads(line) for line in record_of(out).read_text().splitlines()]
    assert len(rows) == sum(counts["cases"].values()) == len(read_cases(out))
    assert {row["change"] for row in rows} == set(CHANGES)
    files = {path: path.stat().st_mtime_ns for path in out.parent.rglob("*.png")}
    assert {str(path.relative_to(out.parent)) for path in files} == {row["changed"] for row in rows}
    originals = {path: path.read_bytes() for path in (folder / "photos").glob("*.png")}
    before = out.read_bytes()
    assert make(counterpoint, folder) == counts
    assert {path: path.stat().st_mtime_ns for path in out.parent.rglob("*.png")} == files
    assert {path: path.read_bytes() for path in originals} == originals
    assert read_cases(out).frame.equals(pl.read_parquet(before))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--change", "rotate"], "none of crop, flip"),
        (["-o", "cases.jsonl"], ".parquet"),
        (["--limit", "0"], "greater than or equal to 1"),
    ],
)
def test_wrong_options_are_refused(
    counterpoint: Command,
    folder: Path,
    more: list[str],
    says: str,
) -> None:
    words = ["generate", "renderings", str(folder / "photos" / "captions.json")]
    words += ["-o", "cases.parquet", "--neighbours", str(folder / "near.parquet")]
    found = counterpoint(*words, *more)
    assert found.code in (1, 2)
    assert says in found.err


def test_false_images_are_needed(counterpoint: Command, folder: Path) -> None:
    words = ["generate", "renderings", str(folder / "photos" / "captions.json")]
    found = counterpoint(*words, "-o", "cases.parquet")
    assert found.code == 2 and "--neighbours" in found.err


# --- drawn again ---------------------------------------------------------------------------------


class FakeBackend:
    """Gives each text a file: its own, or one that was drawn before."""

    fingerprint = "fake"

    def __init__(self, paths: dict[str, str]) -> None:
        self.paths = paths

    def draw(self, wants: list[Want]) -> list[list[DrawnImage | Rejection]]:
        drawn = (self.paths.get(want.text) for want in wants)
        return [[DrawnImage(path, 7) if path else Rejection("held back")] for path in drawn]

    def describe(self) -> dict[str, str]:
        return {}


def test_the_same_drawing_is_no_rerendering(tmp_path: Path) -> None:
    for name, seed in (("a.png", 0), ("b.png", 0), ("c.png", 1)):
        photograph(tmp_path / name, seed)
    backend = FakeBackend({"same": "b.png", "other": "c.png"})
    some = [
        Scenery(text, ImageRef("a.png"), (text,), ImageRef("c.png"), None)
        for text in ("same", "other", "unsafe")
    ]
    same, other, unsafe = _draw(some, backend, tmp_path)
    assert isinstance(same, Rejection) and "--seed" in same.reason
    assert other == Rendered("c.png", {"seed": 7})
    assert unsafe == Rejection("held back")
    assert DRAWN not in CHANGES
