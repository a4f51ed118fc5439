"""ONNX graphs: exports of real classes score as transformers, the world's models as open_clip."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hf_models
import numpy as np
import onnx
import onnxruntime.quantization
import pytest
import torch
import transformers
from errors import raises
from hf_models import CAPTIONS, CONTEXT, DUALS, OVERLONG, noise

from counterpoint.benchmarks import load_benchmark
from counterpoint.evaluation import check_precision, evaluate
from counterpoint.models import LoadOptions, bounded, load_model

pytestmark = pytest.mark.slow
IMAGES = [noise(32, 32, seed) for seed in range(4)]  # another size is resized by other libraries
TORCH = LoadOptions("cpu", torch=True)
WORLDS = ("world:base", "world:hn", "world:hp-hn", "world:counterpoint")


class Tower(torch.nn.Module):
    """One side of a model, with the inputs and the output of its export."""

    def __init__(self, model: Any, side: str) -> None:
        super().__init__()
        self.model, self.side = model, side

    def forward(self, *given: torch.Tensor) -> Any:
        features = getattr(self.model, f"get_{self.side}_features")(*given)
        return getattr(features, "pooler_output", features)


class Both(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, pixels: torch.Tensor, mask: torch.Tensor) -> Any:
        found = self.model(input_ids=ids, pixel_values=pixels, attention_mask=mask)
        return found.text_embeds, found.image_embeds


def export(module: Any, path: Path, inputs: dict[str, torch.Tensor], outputs: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    axes = {name: {0: "batch"} for name in inputs}
    for name in {"input_ids", "attention_mask"} & inputs.keys():
        axes[name] = {0: "texts", 1: "length"}
    with hf_models.quiet():
        torch.onnx.export(
            module.eval(),
            (*inputs.values(),),
            str(path),
            input_names=[*inputs],
            output_names=outputs,
            dynamic_axes=axes,
            opset_version=18,
            dynamo=False,
        )


IDS, PIXELS = torch.ones(2, 7, dtype=torch.long), torch.zeros(2, 3, 32, 32)


def write_towers(folder: Path, model: Any, output: str, *masked: str) -> None:
    """Two graphs, of which that of captions has a mask or not."""
    texts = {"input_ids": IDS, **dict.fromkeys(masked, torch.ones_like(IDS))}
    texts_out = "text_embeds" if output == "image_embeds" else output
    export(
        Tower(model, "image"), folder / "onnx/vision_model.onnx", {"pixel_values": PIXELS}, [output]
    )
    export(Tower(model, "text"), folder / "onnx/text_model.onnx", texts, [texts_out])


def siglip() -> tuple[Any, Any, Any]:
    """With a fast tokenizer: the first SigLIP's own is one of sentencepiece."""
    tokenizer = hf_models.siglip2_tokenizer()
    tokenizer.model_max_length = CONTEXT
    words = hf_models.text(tokenizer, projection_size=16)
    config = transformers.SiglipConfig(text_config=words, vision_config=hf_models.VISION)
    _, _, processor = hf_models.siglip()
    return transformers.SiglipModel(config), tokenizer, processor


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Exports as the Hub has them: two graphs or one, with a mask of the padding or without."""
    found = {}
    for name in ("clip", "siglip", "vit-bert"):
        found[name] = folder = tmp_path_factory.mktemp(name)
        hf_models.save(folder, siglip if name == "siglip" else DUALS[name])
        with hf_models.quiet():
            model = transformers.AutoModel.from_pretrained(folder).eval()
        if name == "clip":
            write_towers(folder, model, "image_embeds")
        elif name == "siglip":
            write_towers(folder, model, "pooler_output")
        else:
            inputs = {
                "input_ids": IDS,
                "pixel_values": PIXELS,
                "attention_mask": torch.ones_like(IDS),
            }
            export(Both(model), folder / "model.onnx", inputs, ["text_embeds", "image_embeds"])
    return found


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """The folder of a bundled model, as `onnx:` reads it."""
    from counterpoint.models.registry import world_folder

    return Path(shutil.copytree(world_folder("base"), tmp_path / "world"))


def refused(code: str, id: str, options: LoadOptions | None = None, say: str = "") -> None:
    with raises(code, say):
        load_model(id, options)


# --- the same vectors ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["clip", "siglip", "vit-bert"])
def test_an_export_of_the_hub_has_the_vectors_of_its_model(
    name: str, folders: dict[str, Path]
) -> None:
    ours, theirs = (load_model(f"{kind}:{folders[name]}") for kind in ("onnx", "hf"))
    assert ours.context_length == theirs.context_length == CONTEXT
    texts = [*CAPTIONS, OVERLONG]
    assert ours.count_tokens(texts).tolist() == theirs.count_tokens(texts).tolist()
    vectors = ours.encode_captions(texts)
    np.testing.assert_allclose(vectors, theirs.encode_captions(texts), atol=1e-5)
    alone = np.concatenate([ours.encode_captions([text]) for text in texts])
    np.testing.assert_allclose(alone, vectors, atol=1e-5)
    images = ours.encode_images([ours.preprocess(image) for image in IMAGES])
    expected = theirs.encode_images([theirs.preprocess(image) for image in IMAGES])
    np.testing.assert_allclose(images, expected, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(images, axis=1), 1, atol=1e-6)
    loose = load_model(f"onnx:{folders[name]}", LoadOptions(unit=False))
    assert loose.fingerprint != ours.fingerprint
    lengths = np.linalg.norm(loose.encode_captions(CAPTIONS), axis=1)
    normalised = name == "vit-bert"  # by its graph, as a whole model's is
    assert (abs(lengths - 1).max() < 1e-6) == normalised


def test_captions_see_their_padding_only_where_the_model_was_trained_so(
    folders: dict[str, Path],
) -> None:
    cut = {
        name: load_model(f"onnx:{path}").describe()["padding_cut"] for name, path in folders.items()
    }
    assert cut == {"clip": True, "siglip": False, "vit-bert": True}


@pytest.mark.parametrize("id", WORLDS)
def test_a_world_model_scores_as_with_torch(id: str) -> None:
    cases = load_benchmark("world-swap:size=40", None).cases
    found = [
        evaluate((id, load_model(id, options)), cases, out=None, store=None, progress=None)
        for options in (LoadOptions("cpu"), TORCH)
    ]
    one, two = (run.parts["cases"].scores for run in found)
    np.testing.assert_allclose(one, two, atol=1e-5)
    texts = ["a  Red, checkered STAR isn't left of it & two 12 blue rings", "x" * 300]
    ours, theirs = load_model(id, LoadOptions("cpu")), load_model(id, TORCH)
    assert ours.count_tokens(texts).tolist() == theirs.count_tokens(texts).tolist()


def test_the_world_is_evaluated_where_torch_cannot_be_imported(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "for name in ('torch', 'open_clip', 'scipy', 'transformers'): sys.modules[name] = None\n"
        "from counterpoint.__main__ import main\n"
        "main()\n"
    )
    words = ("demo", "--size", "20", "--out", "runs")
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "world:counterpoint" in done.stdout
    assert {path.name for path in (tmp_path / "runs").iterdir()} >= {"world-base", "random"}


# --- variants ------------------------------------------------------------------------------------


def test_a_variant_is_another_model_whose_changed_verdicts_are_counted(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(folders["clip"], tmp_path / "clip"))
    for tower in ("vision_model", "text_model"):
        path = folder / "onnx" / f"{tower}.onnx"
        onnxruntime.quantization.quantize_dynamic(path, path.with_stem(f"{tower}_int8"))
    ids = f"onnx:{folder}", f"onnx:{folder}?variant=int8"
    plain, int8 = map(load_model, ids)
    assert plain.fingerprint != int8.fingerprint
    apart = np.abs(plain.encode_captions(CAPTIONS) - int8.encode_captions(CAPTIONS)).max()
    assert 0 < apart < 0.1
    benchmark, cases = load_benchmark("world-swap:size=30", None)
    tables = {"swap": (cases, benchmark_protocol(benchmark))}
    # Captions beyond the context of the tiny tower are left out.
    [flips] = check_precision(ids[1], tables, LoadOptions("cpu"), store=tmp_path / "store")
    assert flips.precision == "variant=int8" and flips.cases > 9 and flips.largest > 0
    [none] = check_precision(ids[0], tables, LoadOptions("cpu"), store=tmp_path / "store")
    assert (none.flipped, none.largest) == (0, 0)
    refused("E-OPTION-INVALID", f"onnx:{folder}?variant=int9", say="int8")
    for tower in ("vision_model", "text_model"):
        (folder / "onnx" / f"{tower}.onnx").unlink()
    refused("E-MODEL-MISSING", ids[0], say="?variant=int8")


def benchmark_protocol(benchmark: Any) -> Any:
    from counterpoint.metrics import get_protocol

    return get_protocol(benchmark.protocol)


# --- what is refused -----------------------------------------------------------------------------


def test_all_that_vectors_depend_on_is_in_the_fingerprint(world: Path) -> None:
    """The weights that the graphs name and the context; no file of another variant."""
    before = load_model(f"onnx:{world}").fingerprint
    (world / "text_model_int8.onnx_data").write_bytes(b"of another variant")
    assert load_model(f"onnx:{world}").fingerprint == before
    (world / "config.json").write_text(json.dumps({"text_config": {"max_position_embeddings": 9}}))
    shorter = load_model(f"onnx:{world}")
    assert shorter.context_length == 9 and shorter.fingerprint != before
    (world / "config.json").unlink()
    weights = world / "open_clip_model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    assert load_model(f"onnx:{world}").fingerprint != before


def broken(world: Path) -> Iterator[tuple[str, str]]:
    """A harm is done to the folder; yields the code and a word of the sentence."""
    graph, config = world / "text_model.onnx", world / "preprocessor_config.json"
    whole, said = graph.read_bytes(), json.loads(config.read_text())
    graph.write_bytes(whole[: len(whole) // 2])
    yield "E-MODEL-BROKEN", "cannot be used"
    graph.write_bytes(b"no graph at all")
    yield "E-MODEL-BROKEN", "cannot be used"
    outside = onnx.load_model_from_string(whole)
    for tensor in outside.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../secret.safetensors"
    shutil.copy(world / "open_clip_model.safetensors", world.parent / "secret.safetensors")
    graph.write_bytes(outside.SerializeToString())
    yield "E-MODEL-BROKEN", "External data path"
    graph.write_bytes((world / "vision_model.onnx").read_bytes())
    yield "E-MODEL-UNSUITABLE", "text_embeds"
    graph.write_bytes(whole)
    for change in ({"size": "large"}, {"image_mean": [0.5]}, {"do_resize": False}):
        config.write_text(json.dumps(said | change))
        yield "E-CONFIG-INVALID", "preprocessor_config.json"
    crop = {"do_center_crop": True, "crop_size": 80}
    config.write_text(json.dumps(said | crop))
    yield "E-CONFIG-INVALID", "cropped"
    config.unlink()
    yield "E-CONFIG-MISSING", "preprocessor_config.json"


def test_a_damaged_export_is_one_sentence(world: Path) -> None:
    for code, word in broken(world):
        refused(code, f"onnx:{world}", say=word)


def endless() -> onnx.GraphProto:
    """A loop of 2^62 rounds behind the vectors of captions."""
    kind, helper = onnx.TensorProto, onnx.helper
    turn = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Abs", ["x"], ["y"])],
        "turn",
        [
            helper.make_tensor_value_info("i", kind.INT64, []),
            helper.make_tensor_value_info("go", kind.BOOL, []),
            helper.make_tensor_value_info("x", kind.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", kind.BOOL, []),
            helper.make_tensor_value_info("y", kind.FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["begin"], to=kind.FLOAT),
        helper.make_node("Loop", ["rounds", "yes", "begin"], ["text_embeds"], body=turn),
    ]
    constants = [
        helper.make_tensor("rounds", kind.INT64, [], [2**62]),
        helper.make_tensor("yes", kind.BOOL, [], [True]),
    ]
    return _text_graph(nodes, constants)


def enormous() -> onnx.GraphProto:
    kind, helper = onnx.TensorProto, onnx.helper
    value = helper.make_tensor("one", kind.FLOAT, [1], [1.0])
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["much"], value=value),
        helper.make_node("ReduceSum", ["much"], ["sum"]),
        helper.make_node("Cast", ["input_ids"], ["ids"], to=kind.FLOAT),
        helper.make_node("Add", ["sum", "ids"], ["text_embeds"]),
    ]
    return _text_graph(nodes, [helper.make_tensor("shape", kind.INT64, [2], [10**6, 10**6])])


def _text_graph(nodes: list[Any], constants: list[Any]) -> onnx.GraphProto:
    ids = onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["b", "n"])
    out = onnx.helper.make_tensor_value_info("text_embeds", onnx.TensorProto.FLOAT, ["b", "n"])
    return onnx.helper.make_graph(nodes, "text", [ids], [out], constants)


@pytest.mark.parametrize("graph", [endless, enormous])
def test_a_graph_that_does_not_end_or_fills_the_memory_is_refused(
    graph: Callable[[], onnx.GraphProto], world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "SECONDS", 8)
    opset = [onnx.helper.make_opsetid("", 20)]
    model = onnx.helper.make_model(graph(), opset_imports=opset, ir_version=9)
    onnx.save(model, world / "text_model.onnx")
    refused("E-MODEL-BROKEN", f"onnx:{world}", say="a graph of its folder")


def test_what_a_graph_cannot_do_is_said_before_it_is_loaded(world: Path, tmp_path: Path) -> None:
    for options in (LoadOptions(precision="bf16"), LoadOptions(decode="gpu"), TORCH):
        refused("E-MODEL-UNSUITABLE", f"onnx:{world}", options, say="variant")
    refused("E-DEVICE-MISSING", f"onnx:{world}", LoadOptions("cuda"), say="cpu")
    refused("E-MODEL-MISSING", f"onnx:{tmp_path / 'nowhere'}")
    (tmp_path / "empty").mkdir()
    for name in ("tokenizer.json", "preprocessor_config.json"):
        shutil.copy(world / name, tmp_path / "empty" / name)
    refused("E-MODEL-MISSING", f"onnx:{tmp_path / 'empty'}", say="vision_model.onnx")
