"""Classification: folders and tables of labelled images, class names and prompts; VTAB's tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmark_fixtures import hub_image, load, write
from errors import raises
from PIL import Image

from counterpoint.benchmarks.benchmark import Size
from counterpoint.benchmarks.classification import _key, vtab_tasks
from counterpoint.benchmarks.completeness import absent_from
from counterpoint.benchmarks.registry import (
    BENCHMARKS,
    find_benchmark,
    load_benchmark,
    published_files,
)
from counterpoint.cases.table import PROMPTS, Case
from counterpoint.evaluation.evaluating import evaluate
from counterpoint.evaluation.verifying import published
from counterpoint.metrics.protocols import PROTOCOLS
from counterpoint.runs import rows

PETS = "classification/pets"


def write_folders(root: Path, *files: str, name: str = "pets", below: str = "") -> Path:
    folder = root / "classification" / name
    for file in files:
        write(folder / below / file, b"a picture")
    return folder


def write_hub(
    path: Path,
    labels: list[Any],
    names: list[str] | None = None,
    columns: tuple[str, str] = ("image", "label"),
) -> Path:
    """As `datasets` writes it: class names are in the metadata of the schema."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    images = pa.array([hub_image(str(i)) for i in range(len(labels))], kind)
    table = pa.table({columns[0]: images, columns[1]: pa.array(labels, pa.int64())})
    features: dict[str, Any] = {columns[0]: {"_type": "Image"}}
    features[columns[1]] = {"_type": "ClassLabel"} | ({"names": names} if names else {})
    about = json.dumps({"info": {"features": features}})
    pq.write_table(table.replace_schema_metadata({"huggingface": about}), path)
    return path


def whole(id: str, root: Path) -> Case:
    [case] = load(id, root)
    return case


def classes(case: Case) -> list[int]:
    """The class of each image, which must have one."""
    assert all(sum(line) == 1 for line in case.truth)
    return [line.index(True) for line in case.truth]


# --- folders -----------------------------------------------------------------------------------


def test_a_folder_a_class(tmp_path: Path) -> None:
    write_folders(tmp_path, "newt/2.jpg", "newt/1.png", "grey_owl/a.JPEG", "mole/deep/down/b.webp")
    found = whole(PETS, tmp_path)
    assert (found.id, found.groups, found.cluster) == ("0", (), "pets")
    assert [image.path for image in found.images] == [
        "classification/pets/grey_owl/a.JPEG",
        "classification/pets/mole/deep/down/b.webp",
        "classification/pets/newt/1.png",
        "classification/pets/newt/2.jpg",
    ]
    assert found.captions == ("a photo of a grey owl.", "a photo of a mole.", "a photo of a newt.")
    assert classes(found) == [0, 1, 2, 2]


def test_hidden_files_and_those_that_are_no_images_do_not_count(tmp_path: Path) -> None:
    write_folders(
        tmp_path, "owl/1.jpg", "owl/notes.txt", "owl/._1.jpg", "mole/2.jpg", "mole/3.json"
    )
    write_folders(tmp_path, "top.jpg", ".cache/3.jpg")
    found = whole(PETS, tmp_path)
    assert [Path(image.path).name for image in found.images] == ["2.jpg", "1.jpg"]
    assert len(found.captions) == 2


def test_images_may_be_below_a_folder_of_the_split(tmp_path: Path) -> None:
    """The test split comes first, then validation."""
    write_folders(tmp_path, "owl/3.jpg", "mole/4.jpg", below="train")
    for split in ("validation", "val", "test"):
        write_folders(tmp_path, "owl/1.jpg", "mole/2.jpg", below=split)
        found = whole(PETS, tmp_path)
        assert [image.path for image in found.images] == [
            f"classification/pets/{split}/mole/2.jpg",
            f"classification/pets/{split}/owl/1.jpg",
        ]
        assert found.captions == ("a photo of a mole.", "a photo of a owl.")


# --- names and prompts -------------------------------------------------------------------------


def test_class_names_and_templates_of_files(tmp_path: Path) -> None:
    folder = write_folders(tmp_path, "n01/1.jpg", "n02/2.jpg")
    write(folder / "classes.txt", "wise_owl\r\n\nold mole\n")
    write(folder / "templates.txt", "a {} sits.\n\nthe {} and the {}.\n")
    assert whole(PETS, tmp_path).captions == (
        PROMPTS.join(["a wise_owl sits.", "the wise_owl and the wise_owl."]),
        PROMPTS.join(["a old mole sits.", "the old mole and the old mole."]),
    )


def test_as_many_names_as_classes(tmp_path: Path) -> None:
    for names in ["owl\n", "owl\nmole\nnewt\n"]:
        folder = write_folders(tmp_path, "n01/1.jpg", "n02/2.jpg")
        write(folder / "classes.txt", names)
        count = len(names.split())
        with raises("E-CLASSES-MISMATCH", tmp_path / "classification/pets", 2, count):
            load(PETS, tmp_path)


def test_a_template_needs_a_place_for_the_name(tmp_path: Path) -> None:
    folder = write_folders(tmp_path, "n01/1.jpg", "n02/2.jpg")
    write(folder / "templates.txt", "a {}.\na photo.\n")
    with raises(
        "E-TEMPLATE-INVALID",
        tmp_path / "classification/pets/templates.txt",
        "a photo.",
    ):
        load(PETS, tmp_path)


def test_class_names_that_are_no_utf8_are_named(tmp_path: Path) -> None:
    folder = write_folders(tmp_path, "n01/1.jpg", "n02/2.jpg")
    write(folder / "classes.txt", b"ch\xeatre\nmole\n")
    with raises("E-TEXT-ENCODING", tmp_path / "classification/pets/classes.txt"):
        load(PETS, tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_has_eighteen_prompts(name: str, tmp_path: Path) -> None:
    label = "label" if name == "cifar10" else "fine_label"
    columns = ("img", label)
    path = tmp_path / f"classification/{name}/plain_text/test-00000-of-00001.parquet"
    write_hub(path, [1, 0, 1], ["owl", "pine_tree"], columns)
    found = whole(f"classification/{name}", tmp_path)
    prompts = found.captions[1].split(PROMPTS)
    assert len(prompts) == len(set(prompts)) == 18
    assert {"a photo of a pine tree.", "a blurry photo of the pine tree."} <= set(prompts)
    assert {"a photo of the big pine tree.", "a photo of a small pine tree."} <= set(prompts)
    assert sum(" the " in prompt for prompt in prompts) == 9
    assert found.captions[0] == found.captions[1].replace("pine tree", "owl")


@pytest.mark.slow
def test_imagenet_has_a_thousand_names_and_eighty_prompts(tmp_path: Path) -> None:
    from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES

    folders = [f"n{number:08}/1.JPEG" for number in range(1000)]
    write_folders(tmp_path, *folders, name="imagenet", below="val")
    found = whole("classification/imagenet", tmp_path)
    assert len(found.captions) == len(found.images) == 1000
    prompts = [caption.split(PROMPTS) for caption in found.captions]
    assert {len(of_class) for of_class in prompts} == {80}
    assert all(
        name in prompt
        for name, of_class in zip(IMAGENET_CLASSNAMES, prompts, strict=True)
        for prompt in of_class
    )
    assert classes(found) == list(range(1000))
    assert prompts[0][0] == "a bad photo of a tench."


def test_imagenet_with_a_folder_too_few_is_refused(tmp_path: Path) -> None:
    write_folders(tmp_path, "n01/1.JPEG", name="imagenet")
    with raises("E-CLASSES-MISMATCH", tmp_path / "classification/imagenet", 1, 1000):
        load("classification/imagenet", tmp_path)


# --- tables of the hub -------------------------------------------------------------------------


def test_a_table_of_the_hub(tmp_path: Path) -> None:
    name = "classification/pets/data/test-0.parquet"
    write_hub(tmp_path / name, [2, 0, 0, 1], ["owl", "old_mole", "newt"])
    found = whole(PETS, tmp_path)
    assert [image.path for image in found.images] == [f"parquet:{name}#image/{i}" for i in range(4)]
    assert found.captions == ("a photo of a owl.", "a photo of a old mole.", "a photo of a newt.")
    assert classes(found) == [2, 0, 0, 1]


def test_of_several_tables_those_of_the_test_count(tmp_path: Path) -> None:
    folder = tmp_path / "classification/pets"
    names = ["owl", "mole"]
    write_hub(folder / "train-0.parquet", [0] * 5, names)
    write_hub(folder / "test-0.parquet", [1, 0], names)
    write_hub(folder / "test-1.parquet", [1], names)
    found = whole(PETS, tmp_path)
    assert [image.path.partition("/pets/")[2] for image in found.images] == [
        "test-0.parquet#image/0",
        "test-0.parquet#image/1",
        "test-1.parquet#image/0",
    ]
    assert classes(found) == [1, 0, 1]


def test_tables_without_names_have_numbers(tmp_path: Path) -> None:
    path = tmp_path / "classification/pets/all.parquet"
    write_hub(path, [1, 0, 2])
    assert whole(PETS, tmp_path).captions == tuple(f"a photo of a {n}." for n in range(3))
    write(path.parent / "classes.txt", "owl\nmole\nnewt\n")
    assert whole(PETS, tmp_path).captions[2] == "a photo of a newt."


def test_a_table_needs_its_columns(tmp_path: Path) -> None:
    for columns in [("picture", "label"), ("image", "target")]:
        write_hub(tmp_path / "classification/pets/test.parquet", [0, 1], columns=columns)
        with raises("E-COLUMN-MISSING", tmp_path / "classification/pets/test.parquet"):
            load(PETS, tmp_path)


def test_metadata_without_class_names(tmp_path: Path) -> None:
    for about in [b"[]", b'{"info": 5}', b'{"info": {"features": []}}']:
        path = write_hub(tmp_path / "classification/pets/test.parquet", [0, 1])
        pq.write_table(pq.read_table(path).replace_schema_metadata({"huggingface": about}), path)
        assert whole("classification/pets", tmp_path).captions == (
            "a photo of a 0.",
            "a photo of a 1.",
        )


def test_metadata_that_is_nested_too_deeply(tmp_path: Path) -> None:
    path = write_hub(tmp_path / "classification/pets/test.parquet", [0, 1])
    deep = pq.read_table(path).replace_schema_metadata({"huggingface": b"[" * 50_000})
    pq.write_table(deep, path)
    with raises("E-JSON-INVALID"):
        load("classification/pets", tmp_path)


def test_a_label_beyond_the_names_is_refused(tmp_path: Path) -> None:
    """-1 is how the hub writes that it is not told."""
    for labels in [[0, 2, 1], [0, -1, 1]]:
        write_hub(tmp_path / "classification/pets/test.parquet", labels, ["owl", "mole"])
        with raises("E-CLASSES-MISMATCH", tmp_path / "classification/pets/test.parquet", 2):
            load(PETS, tmp_path)


def test_a_malformed_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "classification/pets/test.parquet"
    for labels, code in (([0, None, 1], "E-ROW-MALFORMED"), ([], "E-FILE-EMPTY")):
        write_hub(path, labels, ["owl", "mole"])
        with raises(code, path):
            load(PETS, tmp_path)
    path.write_bytes(b"PAR1")
    with raises("E-FILE-MALFORMED", path):
        load(PETS, tmp_path)


# --- errors ------------------------------------------------------------------------------------


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with raises("E-FILE-MISSING", tmp_path / "classification/pets", "classification/pets"):
        load(PETS, tmp_path)
    write_folders(tmp_path, "owl/notes.txt", "mole/notes.txt")
    with raises("E-IMAGE-MISSING", tmp_path / "classification/pets"):
        load(PETS, tmp_path)


def test_an_id_names_a_folder_and_no_path(tmp_path: Path) -> None:
    for name in ["", ".", "..", "a/b", "../pets", "/etc", "pets/..", "a/../pets"]:
        write_folders(tmp_path, "owl/1.jpg", "mole/2.jpg")
        with raises("E-BENCHMARK-UNKNOWN", f"classification/{name}"):
            load_benchmark(f"classification/{name}", tmp_path)


def test_options_are_refused(tmp_path: Path) -> None:
    write_folders(tmp_path, "owl/1.jpg", "mole/2.jpg")
    with raises("E-OPTION-UNKNOWN", "classification/pets", "seed"):
        load(f"{PETS}:seed=1", tmp_path)


def test_known_sets_say_what_they_are() -> None:
    for name in ["cifar10", "cifar100", "imagenet"]:
        found = find_benchmark(f"classification/{name}")
        assert found is BENCHMARKS.get(f"classification/{name}")
        assert found.paper and found.licence and found.images
        assert found.protocol == find_benchmark(PETS).protocol == "classification"


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


# --- VTAB -----------------------------------------------------------------------------


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


def test_the_published_means_are_of_this_benchmark() -> None:
    said = published().filter(published()["benchmark"] == VTAB)
    assert len(said) == 8 and set(said["protocol"]) == {find_benchmark(VTAB).protocol}
    assert set(said["average"]) == {PROTOCOLS["vtab"].average}


# --- labels of VTAB ------------------------------------------------------------------------------


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


def test_a_class_that_the_task_has_not_is_refused(tmp_path: Path) -> None:
    write_hub(tmp_path / "classification/vtab/pcam/test-0.parquet", [1, 0, 1])  # without names
    assert classes(whole(f"{VTAB}/pcam", tmp_path)) == [1, 0, 1]
    for task, folder in (("svhn", "owl"), ("smallnorb_label_elevation", "10")):
        write_folders(tmp_path, f"{folder}/1.jpg", name=f"vtab/{task}")
        with raises("E-CLASS-UNKNOWN", task, folder):
            load(f"{VTAB}/{task}", tmp_path)


def test_a_task_that_is_not_there(tmp_path: Path) -> None:
    for id in (VTAB, f"{VTAB}/dtd"):
        with raises("E-FILE-MISSING", VTAB):
            load_benchmark(id, tmp_path)
    with raises("E-BENCHMARK-UNKNOWN", "eurosatt", "eurosat'"):
        find_benchmark(f"{VTAB}/eurosatt")


# --- the whole of VTAB ---------------------------------------------------------------------------


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
