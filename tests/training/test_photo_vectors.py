"""Photographs as vectors of the locked trunk (`scripts/photo_vectors.py`), against slow loops."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hf_models
import numpy as np
import polars as pl
import pytest
import torch
from engine_support import build
from hf_models import noise
from PIL import Image
from safetensors.torch import load_file, save_file

import counterpoint
from counterpoint._util.progress import shown
from counterpoint.benchmarks import LoadedBenchmark, find_benchmark, own_cases
from counterpoint.cases import Case, ImageRef
from counterpoint.models.hf.pooling import pool_of
from counterpoint.runs.results import measure
from counterpoint.training.starts import add_pool, open_start, save_start, trunk_of

pytestmark = pytest.mark.slow

MANY = 20  # photographs to find, enough for a gallery
COLOURS, THINGS = ("blue", "red", "green", "striped"), ("ring", "zebra", "star", "bird", "dog")
TEXTS = [
    *(
        [f"a {colour} {thing}", f"the {thing} is {colour}"]
        for thing in THINGS
        for colour in COLOURS
    ),
    ["two birds"],
]
SPLITS = (*["dev"] * MANY, "train")
SUGARCREPE = find_benchmark("sugarcrepe")
WIDTH = 32  # of the outputs of the tiny trunk: the class token and the mean of the patches
TRAINED, HELD = ("val2014/1.jpg", "val2014/2.jpg"), ("coco/val2014/3.jpg", "coco/val2014/4.jpg")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    yield importlib.import_module("photo_vectors")


def towers_in(folder: Path, pool: str) -> str:
    """A tiny model whose pool is trained: its last layer is not zero."""
    id = f"hf:{hf_models.save(folder / 'start', hf_models.dinov2_bert)}"
    start = open_start(id, "cpu")
    add_pool(id, start, {"kind": pool, "heads": 1}, 0)
    torch.nn.init.normal_(pool_of(start.model).out.weight, generator=torch.manual_seed(1))
    (folder / pool).mkdir()
    save_start(folder / pool, id, start, start.model.state_dict(), {})
    return f"hf:{folder / pool}"


@pytest.fixture
def given(script: ModuleType, tmp_path: Path) -> Path:
    """A data root with two photographs to train on, and two more beside what was made of it."""
    root, made = tmp_path / "root", tmp_path / "made"
    for name in (*(f"root/coco/{name}" for name in TRAINED), *(f"made/eval/{n}" for n in HELD)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        noise(40, 36, seed=len(list(tmp_path.rglob("*.jpg")))).save(tmp_path / name)
    rows = [
        {"image": f"{n}.jpg", "captions": texts, "split": split}
        for n, (texts, split) in enumerate(zip(TEXTS, SPLITS, strict=True))
    ]
    (root / "flickr8k").mkdir()
    (root / "flickr8k/captions.json").write_text(json.dumps(rows))
    vectors = torch.randn(MANY + 1, WIDTH, generator=torch.Generator().manual_seed(0))
    save_file({"vectors": vectors}, root / script.FLICKR8K / script.FLICKR8K_VECTORS)
    images = [*TRAINED, TRAINED[0], "flickr8k/20.jpg"]
    pl.DataFrame({"image": images}).write_parquet(made / "train.parquet")
    return tmp_path


def saved(script: ModuleType, given: Path, pool: str = "mean") -> str:
    towers = towers_in(given, pool)
    start = given / "start"
    with shown(None) as progress:
        script.save_vectors(f"hf:{start}", given / "root", given / "made", progress)
    return towers


def names_in(folder: Path) -> list[str]:
    lines = (folder / "images.jsonl").read_text().splitlines()
    return [json.loads(line)["name"] for line in lines]


def test_no_image_is_both_trained_on_and_evaluated(script: ModuleType, given: Path) -> None:
    towers = saved(script, given)
    trained, evaluated = (names_in(given / "made/vectors" / side) for side in ("train", "eval"))
    assert trained == [*TRAINED, "flickr8k/20.jpg"]
    assert evaluated == [*HELD, *(f"flickr8k/{n}.jpg" for n in range(MANY))]
    [known] = load_file(given / "root/flickr8k" / script.FLICKR8K_VECTORS).values()
    trunk = trunk_of(open_start(towers, "cpu"))
    for side, root, own, rows in (
        ("train", "root/coco", TRAINED, [MANY]),
        ("eval", "made/eval", HELD, [*range(MANY)]),
    ):
        [found] = load_file(given / f"made/vectors/{side}/images.safetensors").values()
        photographs = [Image.open(given / root / name) for name in own]
        seen = trunk.encode_images([trunk.preprocess(one) for one in photographs])
        assert found.shape == (len(own) + len(rows), WIDTH)
        assert np.allclose(found[: len(own)], seen.reshape(len(own), WIDTH), atol=1e-2)
        assert np.ptp(seen, axis=0).max() > 0.1  # the photographs differ by more
        assert torch.equal(found[len(own) :], known[rows].half())


def case(image: str, *captions: str) -> Case:
    """The first caption is the true one."""
    truth = tuple(number == 0 for number, _ in enumerate(captions))
    return Case(image, (ImageRef(image),), captions, (truth,))


def some_cases(script: ModuleType, root: Path) -> list[LoadedBenchmark]:
    texts = ("a blue ring", "zebra", "two birds")
    cases = build(*(case(name, *texts) for name in HELD), root=root / "made/eval")
    pairs = pl.DataFrame(
        {
            "image": ["flickr8k/2.jpg", "flickr8k/0.jpg", "flickr8k/0.jpg"],
            "caption": ["two birds", "a ring", "a ring"],
            "text": ["zebra", "zebra", "a ring"],
        }
    )
    pairs.write_parquet(root / "pairs.parquet")
    return [
        own_cases(cases, "photographs"),
        script.retrieval(root / "root", "dev", "flickr8k-dev"),
        script.against_negatives(root / "pairs.parquet", "flickr8k-negatives"),
    ]


def test_scores_of_vectors_are_those_of_photographs(script: ModuleType, given: Path) -> None:
    towers = saved(script, given)
    benchmarks = some_cases(script, given)
    opened = script.from_vectors(
        given / "made/vectors/eval", towers, benchmarks, None, given / "new"
    )
    run = counterpoint.evaluate(opened, benchmarks, device="cpu")
    assert run.model == towers
    known = counterpoint.evaluate(towers, benchmarks[0], device="cpu")
    [part] = known.parts.values()
    assert np.ptp(part.scores) > 0.01
    assert np.allclose(run.parts["photographs"].scores, part.scores, atol=2e-3)


def by_loops(script: ModuleType, given: Path, towers: str) -> dict[str, dict[str, list[Any]]]:
    """The metrics of Flickr8k, from the model's own parts."""
    dual = hf_models.load("hf", Path(towers.removeprefix("hf:")))
    start = open_start(towers, "cpu")
    trunk = trunk_of(start)
    [known] = load_file(given / "root/flickr8k" / script.FLICKR8K_VECTORS).values()
    with torch.inference_mode():
        seen = trunk.head(start.model, known.half().float().reshape(-1, *trunk.shape)).numpy()
    seen /= np.linalg.norm(seen, axis=1, keepdims=True)

    def scores(texts: list[str]) -> np.ndarray:
        found = dual.encode_captions(texts)
        return seen @ (found / np.linalg.norm(found, axis=1, keepdims=True)).T

    owners = [n for n in range(MANY) for _ in TEXTS[n]]
    table = scores([text for n in range(MANY) for text in TEXTS[n]])
    both = scores(["two birds", "zebra", "a ring"])
    return {
        "flickr8k-dev": {
            "image_to_text_recall@1": [owners[int(table[n].argmax())] == n for n in range(MANY)],
            "text_to_image_recall@1": [
                int(table[:MANY, j].argmax()) == n for j, n in enumerate(owners)
            ],
        },
        "flickr8k-negatives": {  # a tie is wrong
            "original_accuracy": [both[2, 0] > both[2, 1], both[0, 2] > both[0, 1], False],
        },
    }


def test_flickr8k_from_vectors(script: ModuleType, given: Path) -> None:
    towers = saved(script, given)
    _, *benchmarks = some_cases(script, given)
    opened = script.from_vectors(
        given / "made/vectors/eval", towers, benchmarks, None, given / "new"
    )
    run = counterpoint.evaluate(opened, benchmarks, device="cpu")
    for name, of_cases in by_loops(script, given, towers).items():
        columns = measure(run.parts[name]).columns
        metrics = [metric.name for metric in columns.metrics]
        for metric, expected in of_cases.items():
            values = columns.values[:, metrics.index(metric)]
            assert np.nanmean(values) == pytest.approx(np.mean(expected)), metric


def test_a_model_that_pools_all_patches_needs_the_photographs(
    script: ModuleType, given: Path
) -> None:
    """It finds those of saved cases; Flickr8k's are nowhere, and nothing of it is measured."""
    towers = saved(script, given, "attention")
    made = some_cases(script, given)
    saved_cases(
        script, given, [LoadedBenchmark("sugarcrepe", SUGARCREPE, made[0].cases), *made[1:]]
    )
    names = ("sugarcrepe", *(one.name for one in made[1:]))
    benchmarks = [script.read_benchmark(given / "cases", given / "made/eval", n) for n in names]
    opened = script.from_vectors(
        given / "made/vectors/eval", towers, benchmarks, None, given / "new"
    )
    assert opened[0] == towers and not (given / "new").exists()
    run = counterpoint.evaluate(opened, benchmarks, device="cpu")
    known = counterpoint.evaluate(towers, made[0], device="cpu").parts["photographs"]
    assert np.array_equal(run.parts["sugarcrepe"].scores, known.scores)
    assert not any(len(run.parts[name].cases) for name in names[1:])


def test_only_the_captions_of_a_trial_are_read(script: ModuleType, given: Path) -> None:
    towers = saved(script, given)
    benchmarks = some_cases(script, given)[2:]
    script.from_vectors(given / "made/vectors/eval", towers, benchmarks, 1, given / "new")
    lines = (given / "new/captions.jsonl").read_text().splitlines()
    whole = benchmarks[0].cases.frame["captions"].explode().unique()
    assert 0 < len(lines) < len(whole)


def saved_cases(script: ModuleType, given: Path, benchmarks: list[LoadedBenchmark]) -> None:
    script.save_benchmarks(benchmarks, given / "made/vectors/eval", given / "cases")


def test_cases_without_a_vector_are_left_out(script: ModuleType, given: Path) -> None:
    saved(script, given)
    extra = build(*(case(name, "a ring", "zebra") for name in (HELD[0], f"coco/{TRAINED[0]}")))
    given_back = [LoadedBenchmark("sugarcrepe", SUGARCREPE, extra), *some_cases(script, given)[1:]]
    saved_cases(script, given, given_back)
    root = given / "made/eval"
    first, *others = (script.read_benchmark(given / "cases", root, one.name) for one in given_back)
    assert first.cases.ids.to_list() == [HELD[0]]
    assert (first.name, first.benchmark, first.cases.root) == ("sugarcrepe", SUGARCREPE, root)
    for found, known in zip(others, given_back[1:], strict=True):
        assert found.cases.frame.equals(known.cases.frame) and found.name == known.name
        assert found.read_by(None) == known.read_by(None)
