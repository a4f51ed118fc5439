"""VTAB: its 20 tasks, how folders and tables become labels, and the mean over tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from benchmark_fixtures import load, write
from errors import raises
from PIL import Image
from test_classification import classes, whole, write_folders, write_hub

from counterpoint.benchmarks.benchmark import Size
from counterpoint.benchmarks.classification import _key, vtab_tasks
from counterpoint.benchmarks.completeness import absent_from
from counterpoint.benchmarks.registry import find_benchmark, load_benchmark, published_files
from counterpoint.cases.table import PROMPTS
from counterpoint.evaluation.evaluating import evaluate
from counterpoint.evaluation.verifying import published
from counterpoint.metrics.protocols import PROTOCOLS
from counterpoint.runs import rows

VTAB = "classification/vtab"
TASKS = {  # classes, prompts and test images
    "caltech101": (102, 34, 6084),
    "cifar10": (10, 18, 10_000),
    "cifar100": (100, 18, 10_000),
    "clevr_closest_object_distance": (6, 1, 15_000),
    "clevr_count_all": (8, 1, 15_000),
    "diabetic_retinopathy": (5, 1, 42_670),
    "dmlab": (6, 1, 22_735),
    "dsprites_label_orientation": (40, 4, 73_728),
    "dsprites_label_x_position": (32, 1, 73_728),
    "dsprites_label_y_position": (32, 80, 73_728),
    "dtd": (47, 8, 1880),
    "eurosat": (10, 3, 5400),
    "flowers": (102, 1, 6149),
    "kitti_closest_vehicle_distance": (4, 1, 711),
    "pcam": (2, 2, 32_768),
    "pets": (37, 1, 3669),
    "resisc45": (45, 4, 6300),
    "smallnorb_label_azimuth": (18, 4, 12_150),
    "smallnorb_label_elevation": (9, 4, 12_150),
    "svhn": (10, 6, 26_032),
}


# --- the data file -----------------------------------------------------------------------------


def test_the_twenty_tasks() -> None:
    found = {
        name: (len(task.classes), len(task.captions()[0].split(PROMPTS)), task.images)
        for name, task in vtab_tasks().items()
    }
    assert found == TASKS
    assert published_files(VTAB) == {
        name: Size(1, images, classes) for name, (classes, _, images) in TASKS.items()
    }


def test_a_task_is_sound() -> None:
    for name in TASKS:
        task = vtab_tasks()[name]
        assert task.category in ("natural", "specialized", "structured") and task.needs
        keys = [_key(one) for one in (*task.classes, *task.also)]
        assert len(keys) == len(set(keys))  # a folder's name means one class
        assert set(task.also.values()) <= set(task.classes)
        assert isinstance(task.prompts, str) or all("{}" in prompt for prompt in task.prompts)
        found = find_benchmark(f"{VTAB}/{name}")
        assert found.paper and found.licence and found.images and found.protocol == "classification"


def test_a_wrong_name_is_told_the_nearest() -> None:
    with raises("E-BENCHMARK-UNKNOWN", "eurosatt") as caught:
        find_benchmark(f"{VTAB}/eurosatt")
    assert "eurosat" in str(caught.value)


def test_the_published_means_are_of_this_benchmark() -> None:
    said = published().filter(published()["benchmark"] == VTAB)
    assert len(said) == 8 and set(said["protocol"]) == {find_benchmark(VTAB).protocol}
    assert set(said["average"]) == {PROTOCOLS["vtab"].average}


# --- labels ------------------------------------------------------------------------------------


def test_folders_of_the_archive_and_of_class_names(tmp_path: Path) -> None:
    files = ["SeaLake/1.jpg", "AnnualCrop/2.jpg", "forest/3.jpg", "Highway or_road/4.jpg"]
    write_folders(tmp_path, *files, name="vtab/eurosat")
    found = whole(f"{VTAB}/eurosat", tmp_path)
    assert [Path(image.path).name for image in found.images] == ["2.jpg", "4.jpg", "1.jpg", "3.jpg"]
    assert classes(found) == [0, 3, 9, 1]
    assert found.captions[9].split(PROMPTS) == [
        "a centered satellite photo of lake or sea.",
        "a centered satellite photo of a lake or sea.",
        "a centered satellite photo of the lake or sea.",
    ]


def test_folders_of_labels_are_numbers(tmp_path: Path) -> None:
    """As text, 10 comes before 2."""
    write_folders(tmp_path, "10/a.png", "2/b.png", "007/c.png", name="vtab/smallnorb_label_azimuth")
    found = whole(f"{VTAB}/smallnorb_label_azimuth", tmp_path)
    assert [Path(image.path).name for image in found.images] == ["c.png", "a.png", "b.png"]
    assert classes(found) == [7, 10, 2]
    assert found.captions[10].split(PROMPTS)[0] == "an object rotated at 10"


def test_a_table_with_its_classes_in_another_order(tmp_path: Path) -> None:
    names = ["truck", "cat", "airplane"]
    write_hub(tmp_path / "classification/cifar10/test-0.parquet", [0, 1, 2, 2], names)
    found = whole(f"{VTAB}/cifar10", tmp_path)  # images that are there for other uses do
    assert classes(found) == [9, 3, 0, 0] and len(found.captions) == 10


def test_a_table_without_names_has_labels(tmp_path: Path) -> None:
    write_hub(tmp_path / "classification/vtab/pcam/test-0.parquet", [1, 0, 1])
    assert classes(whole(f"{VTAB}/pcam", tmp_path)) == [1, 0, 1]


@pytest.mark.parametrize(("folder", "name"), [("owl", "owl"), ("10", "10")])
def test_a_class_that_the_task_has_not_is_refused(folder: str, name: str, tmp_path: Path) -> None:
    write_folders(tmp_path, f"{folder}/1.jpg", name="vtab/svhn")
    with raises("E-CLASS-UNKNOWN", "svhn", name):
        load(f"{VTAB}/svhn", tmp_path)


def test_a_task_that_is_not_there(tmp_path: Path) -> None:
    for id in (VTAB, f"{VTAB}/dtd"):
        with raises("E-FILE-MISSING", VTAB):
            load_benchmark(id, tmp_path)


# --- the whole ---------------------------------------------------------------------------------


LEVELS = {"zero": 0, "nine": 255, "containing metastatic tumor": 255}


class Brightness:
    """A dual encoder whose captions are as bright as their numbers say; others are black."""

    fingerprint = "brightness"
    context_length = None

    def preprocess(self, image: Image.Image) -> float:
        return float(np.asarray(image).mean())

    def encode_images(self, images: Sequence[float]) -> np.ndarray:
        angles = np.asarray(images) / 255 * np.pi / 2
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    def count_tokens(self, captions: Sequence[str]) -> np.ndarray:
        return np.array([len(caption.split()) for caption in captions])

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        found = [next((n for w, n in LEVELS.items() if w in c), 128) for c in captions]
        return self.encode_images(found)


def test_the_mean_is_over_tasks_and_names_the_absent(tmp_path: Path) -> None:
    def paint(task: str, label: int, number: int, level: int) -> None:
        path = tmp_path / VTAB / task / str(label) / f"{number}.png"
        write(path, b"")
        Image.new("L", (4, 4), level).save(path)

    for number in range(9):  # nine images: all right
        paint("svhn", 9, number, 247 + number % 3)
    for number in range(3):  # three images: one right
        paint("pcam", 1, number, 250 if number == 0 else number)
    cases = load_benchmark(VTAB, tmp_path).cases
    assert set(cases.ids) == {"pcam/0", "svhn/0"}
    run = evaluate(
        ("bright", Brightness()), VTAB, data=tmp_path, out=tmp_path / "run", store=tmp_path / "s"
    )
    found = {(row.group, row.metric): row.value for row in rows(run, resamples=20)}
    assert found["all", "accuracy@1"] == pytest.approx((1 + 1 / 3) / 2)  # and not 10 of 12
    assert found["natural/svhn", "accuracy@1"] == found["natural", "accuracy@1"] == 1
    assert found["specialized", "accuracy@1"] == pytest.approx(1 / 3)
    assert found["all", "accuracy@5"] == found["natural/svhn", "accuracy@5"]
    assert ("specialized/pcam", "accuracy@5") not in found  # two classes
    absent = {one.what: one.cases for one in run.parts[VTAB].absent}
    assert absent == {
        name: images - {"svhn": 9, "pcam": 3}.get(name, 0) for name, (_, _, images) in TASKS.items()
    }
    assert absent_from(VTAB, cases, PROTOCOLS["vtab"]) == run.parts[VTAB].absent
