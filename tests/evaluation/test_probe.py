"""Linear probes: what separable and random classes give, what is encoded, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from errors import raises
from models_for_tests import Towers
from open_clip_models import CLIP, save_model
from PIL import Image

from counterpoint.benchmarks import find_benchmark, load_benchmark
from counterpoint.evaluation import evaluate
from counterpoint.metrics import PROTOCOLS
from counterpoint.runs import Row, Run, load_run, rows
from counterpoint.scoring.probe import STRENGTHS, fit_logistic

COLOURS = {"blue": (20, 30, 220), "green": (30, 200, 40), "red": (210, 40, 30)}


def paint(root: Path, split: str, of: str, number: int, colour: Sequence[int]) -> Path:
    """A small image of about this colour, unlike every other."""
    place = [*COLOURS, "x", "y"].index(of) * 10_000 + number * 10 + (split == "train")
    noise = np.random.default_rng(place).integers(-20, 21, (8, 8, 3))
    path = root / "classification" / "toys" / split / of / f"{number}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.clip(np.asarray(colour) + noise, 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def toys(root: Path, train: int = 10, test: int = 5) -> None:
    for of, colour in COLOURS.items():
        for split, count in (("train", train), ("test", test)):
            for number in range(count):
                paint(root, split, of, number, colour)


def probe(root: Path, model: object, run: str = "run", **options: object) -> Run:
    return evaluate(
        model,
        options.pop("benchmarks", "probe/toys"),
        data=root,
        out=root / run,
        store=root / str(options.pop("store", "store")),
        **options,
    )


def top(run: Run) -> Row:
    [row] = [row for row in rows(run) if row.metric == "accuracy@1"]
    return row


class Means(Towers):
    """A dual encoder that sees the mean colour."""

    def preprocess(self, image: Image.Image) -> np.ndarray:
        return np.asarray(image, dtype=np.float32).mean(axis=(0, 1))

    def encode_images(self, images: Sequence[np.ndarray]) -> np.ndarray:
        found = np.stack(images)
        return found / np.linalg.norm(found, axis=1, keepdims=True)


# --- the fit -----------------------------------------------------------------------------------


@pytest.mark.parametrize("strength", [1.0, 0.01])
def test_the_fit_is_where_its_conditions_hold(strength: float) -> None:
    """At the minimum, penalty and residuals balance, and the shares of the classes are met."""
    draw = np.random.default_rng(1)
    inputs, labels = draw.normal(size=(200, 6)), draw.integers(0, 4, 200)
    weights = fit_logistic(inputs, labels, 4, strength)
    logits = inputs @ weights[:-1] + weights[-1]
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    residuals = np.eye(4)[labels] - chances
    assert weights[:-1] == pytest.approx(inputs.T @ residuals / 200 / strength, abs=2e-3)
    assert chances.mean(axis=0) == pytest.approx(np.bincount(labels) / 200, abs=1e-4)


def test_the_fit_is_that_of_scikit_learn() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    draw = np.random.default_rng(2)
    inputs, labels = draw.normal(size=(150, 5)), draw.integers(0, 3, 150)
    theirs = linear.LogisticRegression(C=1 / (150 * 0.1), tol=1e-8, max_iter=5000)
    theirs.fit(inputs, labels)
    ours = fit_logistic(inputs, labels, 3, 0.1)
    assert pytest.approx(theirs.coef_, abs=1e-3) == ours[:-1].T


# --- numbers -----------------------------------------------------------------------------------


def test_separable_classes_are_told_apart(tmp_path: Path) -> None:
    toys(tmp_path)
    run = probe(tmp_path, ("means", Means()))
    found = top(run)
    assert (found.value, found.n, found.chance) == (1, 15, pytest.approx(1 / 3))
    assert found.ci_low < 1  # of 15 images
    [note] = run.manifest["model_info"]["notes"]
    assert "probe/toys: fitted to 30 images" in note and "6 of 6 held out were right" in note
    again = load_run(tmp_path / "run")
    assert top(again) == found and again.parts["probe/toys"].protocol == PROTOCOLS["probe"]


@pytest.mark.slow
def test_random_labels_give_chance(tmp_path: Path) -> None:
    """Vectors that have nothing to do with the class."""
    for of in ("x", "y"):
        for split, count in (("train", 40), ("test", 60)):
            for number in range(count):
                paint(tmp_path, split, of, number, (90, 90, 90))
    found = top(probe(tmp_path, ("towers", Towers())))
    assert found.n == 120 and found.ci_low <= 0.5 <= found.ci_high


def test_a_model_of_open_clip(tmp_path: Path) -> None:
    toys(tmp_path)
    folder = save_model(tmp_path / "model", CLIP)
    assert top(probe(tmp_path, f"open_clip:local-dir:{folder}", device="cpu")).value == 1


@pytest.mark.slow
def test_two_probes_are_equal(tmp_path: Path) -> None:
    toys(tmp_path)
    one, two = (
        probe(tmp_path, ("t", Towers()), run=name, store=f"of-{name}") for name in ("a", "b")
    )
    assert np.array_equal(one.parts["probe/toys"].scores, two.parts["probe/toys"].scores)


# --- what is encoded ---------------------------------------------------------------------------


@pytest.mark.slow
def test_no_image_is_encoded_twice(tmp_path: Path) -> None:
    toys(tmp_path)
    model, both = Towers(), ["classification/toys", "probe/toys"]
    run = probe(tmp_path, ("t", model), benchmarks=both)
    assert len(model.images) == len(set(model.images)) == 45
    assert list(run.parts) == both and "a photo of a red." in model.captions
    assert "red" not in model.captions  # a probe reads no text
    probe(tmp_path, ("t", model), run="again")
    assert len(model.images) == 45


def test_a_limit_is_for_test_images(tmp_path: Path) -> None:
    toys(tmp_path)
    run = probe(tmp_path, ("means", Means()), limit=6)
    assert top(run).n == 6 and "fitted to 30 images" in run.manifest["model_info"]["notes"][0]


def test_broken_images_of_both_splits_are_left_out_and_named(tmp_path: Path) -> None:
    toys(tmp_path)
    for split in ("train", "test"):
        (tmp_path / f"classification/toys/{split}/red/0.png").write_bytes(b"no image")
    run = probe(tmp_path, ("means", Means()))
    lost = run.parts["probe/toys"].left_out_images
    assert [name for name, _ in lost] == ["0", "training images"] and run.left_out == 2
    assert "train/red/0.png" in lost[1][1] and top(run).n == 14
    assert "fitted to 29 images" in run.manifest["model_info"]["notes"][0]
    assert load_run(tmp_path / "run").parts["probe/toys"].left_out_images == lost


def test_test_images_that_are_training_images_are_counted(tmp_path: Path) -> None:
    toys(tmp_path)
    copy = tmp_path / "classification/toys/train/red/1.png"
    (tmp_path / "classification/toys/test/red/9.png").write_bytes(copy.read_bytes())
    run = probe(tmp_path, ("means", Means()))
    assert run.manifest["model_info"]["notes"][0].endswith("1 test images are training images")


@pytest.mark.slow
def test_other_training_images_are_other_data(tmp_path: Path) -> None:
    toys(tmp_path)
    first = probe(tmp_path, ("means", Means())).parts["probe/toys"]
    paint(tmp_path, "train", "red", 77, COLOURS["red"])
    second = probe(tmp_path, ("means", Means()), run="two").parts["probe/toys"]
    assert first.data_hash != second.data_hash


def test_a_task_of_vtab(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for label, of in enumerate(("blue", "red")):
            for number in range(5):
                made = paint(tmp_path, split, of, number, COLOURS[of])
                place = tmp_path / f"classification/vtab/pcam/{split}/{label}/{made.name}"
                place.parent.mkdir(parents=True, exist_ok=True)
                made.rename(place)
    run = probe(tmp_path, ("means", Means()), benchmarks="probe/vtab/pcam")
    assert top(run).value == 1 and top(run).n == 10


# --- what is refused ---------------------------------------------------------------------------


def test_a_model_without_vectors_is_refused(tmp_path: Path) -> None:
    toys(tmp_path, 2, 1)
    with raises("E-MODEL-UNSUITABLE", "probe/toys"):
        probe(tmp_path, "blind:length")


def test_a_split_that_is_not_there(tmp_path: Path) -> None:
    with raises("E-FILE-MISSING", "probe/toys"):
        load_benchmark("probe/toys", tmp_path)
    for of in ("red", "blue"):
        paint(tmp_path, "train", of, 0, COLOURS[of])
    with raises("E-FILE-MISSING", "classification/toys", "test"):
        load_benchmark("probe/toys", tmp_path)


def test_a_class_without_training_images(tmp_path: Path) -> None:
    toys(tmp_path, 2, 1)
    paint(tmp_path, "test", "x", 0, (0, 0, 0))
    with raises("E-CLASS-UNKNOWN", "x"):
        load_benchmark("probe/toys", tmp_path)


def test_one_image_a_class_leaves_none_to_choose_by(tmp_path: Path) -> None:
    toys(tmp_path, train=1)
    with raises("E-TRAINING-FEW", 3, 3):
        probe(tmp_path, ("means", Means()))


@pytest.mark.parametrize("name", ["", "..", "a/b", "vtab/owls"])
def test_a_probe_names_a_folder(name: str) -> None:
    with raises("E-BENCHMARK-UNKNOWN"):
        find_benchmark(f"probe/{name}")


def test_strengths_go_from_strong_to_weak() -> None:
    assert list(STRENGTHS) == sorted(STRENGTHS, reverse=True)
