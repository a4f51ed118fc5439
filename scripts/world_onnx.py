"""Write the ONNX graphs of a world model beside its weights, so that it runs without torch.

    python scripts/world_onnx.py src/counterpoint/world/checkpoints/base

A folder of open_clip (a plain CLIP with a vision transformer) gets `vision_model.onnx` and
`text_model.onnx`, which take their weights from its safetensors file, and the tokenizer and the
preprocessing in the forms that exports of the Hub have: `tokenizer.json`,
`preprocessor_config.json`. Needs the packages onnx and tokenizers.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

WEIGHTS = "open_clip_model.safetensors"
MERGES = "bpe_merges.txt.gz"
OPSET = 20  # the first with Gelu
_KINDS = {"F16": TensorProto.FLOAT16, "F32": TensorProto.FLOAT}
_RESAMPLE = {"bilinear": 2, "bicubic": 3}


class Graph:
    """Nodes of one tower, whose weights stay in the safetensors file."""

    def __init__(self, weights: Path) -> None:
        with weights.open("rb") as file:
            [length] = struct.unpack("<Q", file.read(8))
            self._header = json.loads(file.read(length))
        self._begin = 8 + length
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def numbers(self, *values: int) -> str:
        """Whole numbers, as shapes and places are given."""
        return self.constant("i_" + "_".join(map(str, values)), np.array(values, dtype=np.int64))

    def number(self, value: float) -> str:
        return self.constant(f"f_{value}", np.array(value, dtype=np.float32))

    def constant(self, name: str, value: np.ndarray) -> str:
        self.initializers[name] = numpy_helper.from_array(value, name)
        return name

    def shape(self, name: str) -> list[int]:
        found: list[int] = self._header[name]["shape"]
        return found

    def weight(self, name: str) -> str:
        """A weight in float32."""
        about = self._header[name]
        if name not in self.initializers:
            start, end = about["data_offsets"]
            place = {"location": WEIGHTS, "offset": self._begin + start, "length": end - start}
            tensor = TensorProto(name=name, data_type=_KINDS[about["dtype"]], dims=about["shape"])
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
            self.initializers[name] = tensor
        return name if about["dtype"] == "F32" else self.add("Cast", name, to=TensorProto.FLOAT)

    def norm(self, x: str, name: str) -> str:
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.add("LayerNormalization", x, scale, bias, epsilon=1e-5)

    def linear(self, x: str, weight: str, bias: str) -> str:
        turned = self.add("Transpose", self.weight(weight), perm=[1, 0])
        return self.add("Add", self.add("MatMul", x, turned), self.weight(bias))

    def attention(self, x: str, name: str, heads: int, mask: str) -> str:
        width = self.shape(f"{name}.out_proj.weight")[0]
        both = self.linear(x, f"{name}.in_proj_weight", f"{name}.in_proj_bias")
        apart = self.add("Reshape", both, self.numbers(0, 0, 3, heads, width // heads))
        turned = self.add("Transpose", apart, perm=[2, 0, 3, 1, 4])
        query, key, value = (
            self.add("Gather", turned, self.constant(f"which_{n}", np.array(n)), axis=0)
            for n in range(3)
        )
        keys = self.add("Transpose", key, perm=[0, 1, 3, 2])
        scores = self.add("MatMul", query, keys)
        scores = self.add("Div", scores, self.number(math.sqrt(width // heads)))
        if mask:
            scores = self.add("Add", scores, mask)
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), value)
        rows = self.add("Transpose", mixed, perm=[0, 2, 1, 3])
        joined = self.add("Reshape", rows, self.numbers(0, 0, width))
        return self.linear(joined, f"{name}.out_proj.weight", f"{name}.out_proj.bias")

    def blocks(self, x: str, prefix: str, layers: int, heads: int, mask: str = "") -> str:
        for layer in range(layers):
            at = f"{prefix}transformer.resblocks.{layer}"
            seen = self.attention(self.norm(x, f"{at}.ln_1"), f"{at}.attn", heads, mask)
            x = self.add("Add", x, seen)
            wide = self.linear(
                self.norm(x, f"{at}.ln_2"), f"{at}.mlp.c_fc.weight", f"{at}.mlp.c_fc.bias"
            )
            narrow = f"{at}.mlp.c_proj"
            thought = self.linear(self.add("Gelu", wide), f"{narrow}.weight", f"{narrow}.bias")
            x = self.add("Add", x, thought)
        return x

    def save(self, path: Path, given: Any, result: str, output: str, size: int) -> None:
        self.nodes.append(helper.make_node("Identity", [result], [output]))
        value = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", size])
        weights = [*self.initializers.values()]
        graph = helper.make_graph(self.nodes, path.stem, [given], [value], weights)
        opset = [helper.make_opsetid("", OPSET)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def write_vision(folder: Path, config: dict[str, Any]) -> None:
    graph, about = Graph(folder / WEIGHTS), config["vision_cfg"]
    size, patch, width = about["image_size"], about["patch_size"], about["width"]
    shape = ["batch", 3, size, size]
    given = helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, shape)
    patches = graph.add(
        "Conv", "pixel_values", graph.weight("visual.conv1.weight"), strides=[patch, patch]
    )
    rows = graph.add("Reshape", patches, graph.numbers(0, width, -1))
    rows = graph.add("Transpose", rows, perm=[0, 2, 1])
    first = graph.add("Slice", graph.add("Shape", rows), graph.numbers(0), graph.numbers(1))
    shape_of_one = graph.add("Concat", first, graph.numbers(1, width), axis=0)
    own = graph.add("Expand", graph.weight("visual.class_embedding"), shape_of_one)
    x = graph.add("Concat", own, rows, axis=1)
    x = graph.add("Add", x, graph.weight("visual.positional_embedding"))
    x = graph.norm(x, "visual.ln_pre")
    x = graph.blocks(x, "visual.", about["layers"], width // about["head_width"])
    x = graph.add("Gather", x, graph.constant("which_0", np.array(0)), axis=1)
    x = graph.add("MatMul", graph.norm(x, "visual.ln_post"), graph.weight("visual.proj"))
    graph.save(folder / "vision_model.onnx", given, x, "image_embeds", config["embed_dim"])


def write_text(folder: Path, config: dict[str, Any]) -> None:
    graph, about = Graph(folder / WEIGHTS), config["text_cfg"]
    given = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])
    length = graph.add("Slice", graph.add("Shape", "input_ids"), graph.numbers(1), graph.numbers(2))
    x = graph.add("Gather", graph.weight("token_embedding.weight"), "input_ids", axis=0)
    places = graph.weight("positional_embedding")
    here = graph.add("Slice", places, graph.numbers(0), length, graph.numbers(0))
    x = graph.add("Add", x, here)
    square = graph.add("Concat", length, length, axis=0)
    later = helper.make_tensor("later", TensorProto.FLOAT, [1], [-1e9])
    full = graph.add("ConstantOfShape", square, value=later)
    above = graph.add("Trilu", full, graph.constant("which_1", np.array(1)), upper=1)
    x = graph.blocks(x, "", about["layers"], about["heads"], above)
    x = graph.norm(x, "ln_final")
    # The end of the text has the highest number of all tokens.
    end = graph.add("ArgMax", "input_ids", axis=1, keepdims=1)
    end = graph.add("Unsqueeze", end, graph.numbers(2))
    count = graph.add("Slice", graph.add("Shape", "input_ids"), graph.numbers(0), graph.numbers(1))
    wide = graph.add("Concat", count, graph.numbers(1, about["width"]), axis=0)
    x = graph.add("GatherElements", x, graph.add("Expand", end, wide), axis=1)
    x = graph.add("Squeeze", x, graph.numbers(1))
    x = graph.add("MatMul", x, graph.weight("text_projection"))
    graph.save(folder / "text_model.onnx", given, x, "text_embeds", config["embed_dim"])


def write_tokenizer(folder: Path, context: int) -> None:
    """CLIP's byte-pair tokenizer with the merges of the folder."""
    lines = gzip.decompress((folder / MERGES).read_bytes()).decode().split("\n")[1:]
    merges = [(left, right) for left, right in (line.split() for line in lines if line)]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*letters, *(f"{one}</w>" for one in letters), *map("".join, merges)]
    ends = ("<|startoftext|>", "<|endoftext|>")
    known = {word: number for number, word in enumerate([*words, *ends])}
    made = Tokenizer(
        models.BPE(known, merges, end_of_word_suffix="</w>", unk_token=ends[1], fuse_unk=False)
    )
    blanks = normalizers.Replace(Regex(r"\s+"), " ")
    made.normalizer = normalizers.Sequence(
        [normalizers.NFC(), blanks, normalizers.Strip(), normalizers.Lowercase()]
    )
    words_of = Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+")
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(words_of, "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    pair = [(end, known[end]) for end in ends]
    made.post_processor = processors.TemplateProcessing(
        single=f"{ends[0]} $A {ends[1]}", special_tokens=pair
    )
    made.decoder = decoders.BPEDecoder(suffix="</w>")
    made.enable_truncation(context)
    made.enable_padding(pad_id=0, pad_token=words[0], length=context)
    made.save(str(folder / "tokenizer.json"), pretty=False)


def write_preprocessing(folder: Path, config: dict[str, Any], about: dict[str, Any]) -> None:
    size = config["vision_cfg"]["image_size"]
    if about.get("resize_mode") != "squash":
        raise SystemExit(f"{folder}: resize_mode {about.get('resize_mode')} is not written yet.")
    values = {
        "do_resize": True,
        "size": {"height": size, "width": size},
        "resample": _RESAMPLE[about["interpolation"]],
        "do_center_crop": False,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": about["mean"],
        "image_std": about["std"],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(values, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="+")
    for folder in parser.parse_args().folder:
        config = json.loads((folder / "open_clip_config.json").read_text())
        model = config["model_cfg"]
        write_vision(folder, model)
        write_text(folder, model)
        write_tokenizer(folder, model["text_cfg"]["context_length"])
        write_preprocessing(folder, model, config["preprocess_cfg"])


if __name__ == "__main__":
    main()
