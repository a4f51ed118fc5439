"""The benchmarks of the synthetic world, and the bundled models on them."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from errors import raises
from safetensors import safe_open

import counterpoint
from counterpoint.benchmarks.registry import BENCHMARKS, load_benchmark
from counterpoint.cases.table import PROMPTS, Cases
from counterpoint.evaluation.evaluating import evaluate
from counterpoint.models.registry import LoadOptions, load_model
from counterpoint.runs import rows
from counterpoint.training.reading import load_recipe
from counterpoint.training.recipe import Recipe
from counterpoint.world.grammar import holds, read
from counterpoint.world.renderings import CHANGES
from counterpoint.world.scenes import KINDS, read_scene

pytestmark = pytest.mark.slow

WORLDS = ("world-replace", "world-swap", "world-bi")
MODELS = ("base", "hn", "hp-hn", "counterpoint")
BASE = Path(counterpoint.__file__).parent / "world" / "checkpoints" / "base"


@cache
def cases_of(id: str) -> Cases:
    return load_benchmark(id).cases


def images_of(id: str) -> list[str]:
    return [image["path"] for images in cases_of(id).frame["images"] for image in images]


def groups_of(id: str) -> Counter[str]:
    return Counter(label for labels in cases_of(id).frame["groups"].to_list() for label in labels)


# --- sizes, shapes, groups ---------------------------------------------------------------------


def test_the_default_size_is_2000():
    for name in WORLDS:
        assert len(cases_of(name)) == 2000
        assert BENCHMARKS.get(name).defaults == {"size": 2000, "seed": 1}


def test_the_shape_is_the_one_that_is_announced():
    for name, images, captions, truth in [
        ("world-replace", 1, 3, [0, 1]),
        ("world-swap", 1, 3, [0, 1]),
        ("world-bi", 2, 2, [0, 3]),
        ("world-images:size=240", 3, 3, [0, 1, 3, 4, 8]),
    ]:
        cases = cases_of(name)
        assert set(cases.image_counts.tolist()) == {images}
        assert set(cases.caption_counts.tolist()) == {captions}
        assert cases.frame["truth"].to_list() == [truth] * len(cases)
        assert BENCHMARKS.get(name.partition(":")[0]).shape == f"{images} x {captions}"


def test_replace_changes_each_kind_of_word_in_turn():
    groups = groups_of("world-replace")
    kinds = ("attributes/size", "attributes/colour", "attributes/texture")
    assert {kind: groups[kind] for kind in kinds} == dict.fromkeys(kinds, 500)
    assert groups["relations/horizontal"] + groups["relations/vertical"] == 500
    assert groups["usual"] + groups["unusual"] == 2000
    assert 900 < groups["usual"] < 1100
    assert len(groups) == 7


def test_swap_is_half_of_one_kind():
    groups = groups_of("world-swap")
    same = [groups[f"attributes/{kind}"] for kind in ("size", "colour", "texture")]
    assert sum(same) == 1000
    assert min(same) > 200
    assert groups["attributes/mixed"] == 500
    assert groups["relations/horizontal"] + groups["relations/vertical"] == 500
    assert groups["usual"] + groups["unusual"] == 1500  # no order is usual where it says something
    assert len(groups) == 8


def test_bi_is_half_replaced_and_half_swapped():
    kinds = Counter(label.partition("/")[0] for label in groups_of("world-bi").elements())
    assert kinds == {"replace": 1000, "swap": 1000}
    labels = {label.partition("/")[2] for label in groups_of("world-bi")}
    others = set(groups_of("world-replace")) | set(groups_of("world-swap"))
    assert labels == others - {"usual", "unusual"}


def test_images_have_every_change_with_every_kind_of_edit():
    cases = cases_of("world-images:size=240")
    pairs = Counter(
        (change, edit.rpartition("/")[0]) for change, edit in cases.frame["groups"].to_list()
    )
    changes = Counter(change for change, _ in pairs.elements())
    assert changes == dict.fromkeys(CHANGES, 40)
    for kind, count in (("replace/attributes", 15), ("swap/attributes", 15)):
        assert {pairs[change, kind] for change in CHANGES} == {count}
    assert not set(images_of("world-images:size=240")) & set(images_of("world-bi"))


@pytest.mark.parametrize("name", [*WORLDS, "world-images:size=240"])
def test_every_caption_is_true_of_just_the_images_that_the_table_says(name):
    cases = cases_of(name)
    for row in range(0, len(cases), 4):
        case = cases.case(row)
        scenes = [read_scene(image.path.removeprefix("world:")) for image in case.images]
        statements = [read(caption) for caption in case.captions]
        judged = tuple(tuple(holds(s, scene) for s in statements) for scene in scenes)
        assert judged == case.truth
        assert len(set(case.captions)) == len(case.captions)


def test_swapped_captions_have_the_words_of_the_original():
    for original, positive, negative in cases_of("world-swap").frame["captions"].to_list():
        assert sorted(original.split()) == sorted(negative.split())
        assert positive != original


# --- seeds and sizes ---------------------------------------------------------------------------


def test_a_benchmark_is_the_same_every_time():
    for name in WORLDS:
        again = load_benchmark(f"{name}:size=2000,seed=1").cases
        assert again.content_hash() == cases_of(name).content_hash()


def test_a_smaller_size_is_the_beginning():
    for name in [*WORLDS, "world-images"]:
        small = cases_of(f"{name}:size=40")
        assert len(small) == 40
        assert small.frame.equals(cases_of(name).frame[:40])


def test_another_seed_draws_other_scenes():
    for name in WORLDS:
        options = "size=300,seed=8"
        assert not set(images_of(f"{name}:{options}")) & set(images_of(name))
        assert len(cases_of(f"{name}:seed=8,size=300")) == 300  # in any order


def test_bi_shares_no_image_with_the_others():
    replace, swap, bi = (set(images_of(name)) for name in WORLDS)
    assert len(bi & (replace | swap)) == 0


def test_replace_and_swap_share_no_image():
    """benchmarks/world.py says that the three share no scene."""
    assert len(set(images_of("world-replace")) & set(images_of("world-swap"))) == 0


@pytest.mark.parametrize("name", WORLDS[:2])
def test_one_image_benchmarks_have_an_image_a_case(name):
    assert len(set(images_of(name))) == 2000
    assert cases_of(name).frame["cluster"].n_unique() == 2000


# --- retrieval ---------------------------------------------------------------------------------


def test_retrieval_is_one_gallery_and_true_wherever_a_sentence_holds():
    [case] = [cases_of("world-retrieval:size=60").case(0)]
    assert (len(case.images), BENCHMARKS.get("world-retrieval").shape) == (60, "N x M")
    assert 55 < len(case.captions) <= 60
    assert len(set(case.captions)) == len(case.captions)
    scenes = [read_scene(image.path.removeprefix("world:")) for image in case.images]
    said = [read(caption) for caption in case.captions]
    assert case.truth == tuple(tuple(holds(s, scene) for s in said) for scene in scenes)
    assert all(map(any, case.truth)) and all(map(any, zip(*case.truth, strict=True)))


def test_classification_is_of_single_objects_by_all_that_they_are():
    [case] = [cases_of("world-classification:size=100").case(0)]
    scenes = [read_scene(image.path.removeprefix("world:")) for image in case.images]
    assert (len(scenes), len(case.captions)) == (100, 2 * 9 * 4 * 8)
    assert all(len(scene.things) == 1 for scene in scenes)
    for scene, row in zip(scenes, case.truth, strict=True):
        [said] = [prompts for prompts, true in zip(case.captions, row, strict=True) if true]
        # the grammar's own reading of the first prompt, joined to itself, for it reads two
        the = said.split(PROMPTS)[0]
        assert read(f"{the} and {the}").first.fits(scene.things[0])
        assert all(getattr(read(f"{the} and {the}").first, kind) for kind in KINDS)
        assert len(said.split(PROMPTS)) == 3


# --- options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "code", "says"),
    [
        ("world-swap:sise=3", "E-OPTION-UNKNOWN", "Did you mean 'size'?"),
        ("world-swap:size=0", "E-OPTION-INVALID", "size of at least 1"),
        ("world-bi:size=0", "E-OPTION-INVALID", "size of at least 1"),
        ("world-classification:size=99", "E-OPTION-INVALID", "size of at least 100"),
        ("world-swap:size=abc", "E-OPTION-INVALID", "size"),
        ("world-swap:size=-3", "E-OPTION-INVALID", "size"),
        ("world-swap:size", "E-OPTION-INVALID", "size"),
        ("world-swap:size=", "E-OPTION-INVALID", "size"),
        ("world-swap:size=3;seed=2", "E-OPTION-INVALID", "size"),
        ("world-swop", "E-BENCHMARK-UNKNOWN", "Did you mean 'world-swap'?"),
    ],
)
def test_wrong_options_are_refused_in_a_line(id, code, says):
    with raises(code) as caught:
        load_benchmark(id)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


# --- the bundled model -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[tuple[str, str, str], float]:
    folder = tmp_path_factory.mktemp("bundled")
    models = [f"world:{name}" for name in MODELS]
    runs = evaluate(
        models,
        ["world-swap:size=120", "world-replace:size=120"],
        out=folder / "runs",
        store=folder / "store",
        device="cpu",
    )
    return {
        (row.model, row.benchmark.split(":")[0], row.metric): 100 * row.value
        for run in runs
        for row in rows(run, groups=False, resamples=10)
    }


def test_the_base_model_hardly_tells_swapped_words_apart(found):
    assert 55 < found["world:base", "world-swap", "original_accuracy"] < 75


def test_the_base_model_sees_most_replaced_words(found):
    assert 65 < found["world:base", "world-replace", "original_accuracy"] < 85


def test_the_bundled_models_show_the_finding(found):
    """Negatives alone make oversensitive, positives less so, and `counterpoint` least of all."""
    brittle = {m: found[f"world:{m}", "world-replace", "brittleness"] for m in MODELS}
    assert brittle["counterpoint"] + 5 < brittle["hp-hn"] < brittle["hn"] - 10
    augmented = {m: found[f"world:{m}", "world-replace", "augmented_accuracy"] for m in MODELS}
    assert max(augmented, key=augmented.__getitem__) == "counterpoint"
    swapped = [found[f"world:{m}", "world-swap", "augmented_accuracy"] for m in MODELS]
    assert swapped[0] + 3 < min(swapped[1:])  # every recipe teaches binding


def test_a_checkpoint_is_small_half_precision_and_no_pickle():
    for name in MODELS:
        folder = BASE.with_name(name)
        files = {path.name: path.stat().st_size for path in folder.iterdir()}
        assert set(files) == {
            "README.md" if name == "base" else "training.json",
            "bpe_merges.txt.gz",
            "open_clip_config.json",
            "open_clip_model.safetensors",
            *("vision_model.onnx", "text_model.onnx"),  # without weights of their own
            *("tokenizer.json", "preprocessor_config.json"),
        }
        assert sum(files.values()) < 10_000_000
        with safe_open(folder / "open_clip_model.safetensors", framework="numpy") as file:
            kinds = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
        assert kinds == {"F16"}


def test_the_checkpoint_is_an_open_clip_folder_like_any_other():
    config = json.loads((BASE / "open_clip_config.json").read_text())
    assert set(config) == {"model_cfg", "preprocess_cfg"}
    assert "scripts/train_world_base.py" in (BASE / "README.md").read_text()


@pytest.mark.parametrize("name", MODELS[1:])
def test_a_tuned_checkpoint_was_made_by_its_recipe_as_it_stands(name):
    """`counterpoint train NAME --world` trains it again: from this base, with these values."""
    made = json.loads((BASE.with_name(name) / "training.json").read_text())
    recipe = load_recipe(name, world=True)
    assert Recipe.model_validate(made["recipe"]).settled() == recipe.settled()
    assert made["steps"] == recipe.steps
    assert made["start"]["id"] == "world:base"
    start = load_model("world:base", LoadOptions(device="cpu", torch=True))
    assert made["start"]["fingerprint"] == start.fingerprint
