"""Opening generative vision-language models of transformers, and saying what went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch

from counterpoint._util.errors import ModelError
from counterpoint.models.hf.loading import (
    as_text,
    explained,
    load_weights,
    opening,
    transformers,
)
from counterpoint.models.hub import find_source, pretrained
from counterpoint.models.registry import LoadOptions
from counterpoint.models.torch_models import Runtime, plain

_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}


def open_model(family: str, where: str, runtime: Runtime, options: LoadOptions) -> tuple[Any, Any]:
    """The model on its device, and its processor.

    Half precisions load the weights in half: these models are published in bfloat16, and the
    larger ones fit no other way.
    """
    id = f"{family}:{where}"
    source = find_source(id, where)
    kind = transformers.AutoModelForImageTextToText
    dtype = _DTYPES.get(runtime.precision, torch.float32)
    with opening(id, source, options), explained(id, "cannot be loaded"):
        _refuse_other_kinds(id, pretrained(transformers.AutoConfig, source, options), options)
        processor = pretrained(transformers.AutoProcessor, source, options)
        model = load_weights(id, source, kind, options, dtype=dtype).to(runtime.device)
    if getattr(processor, "tokenizer", None) is None:
        raise ModelError(
            "E-PROCESSOR-MISSING", f"{id}: its folder holds no processor of images and text."
        )
    return model, processor


def read_text(id: str, value: str) -> str:
    """The value of an option: a text, or the content of a file."""
    content = _content(id, value)
    return value if content is None else content


def read_lines(id: str, file: str) -> list[str]:
    """The lines of a file, each once, without empty ones."""
    lines = [line for line in (_content(id, file) or "").splitlines() if line.strip()]
    if not lines:
        raise ModelError(
            "E-OPTION-INVALID", f"{id}: after templates= there should be a text file, one per line."
        )
    return list(dict.fromkeys(lines))


def _content(id: str, path: str) -> str | None:
    """The text of a file; None if there is no such file."""
    try:
        if Path(path).expanduser().is_file():
            return Path(path).expanduser().read_text(encoding="utf-8").strip("\n")
    except OSError:
        return None
    except UnicodeDecodeError:
        raise ModelError("E-TEXT-ENCODING", f"{id}: {path} is not a text file in UTF-8.") from None
    return None


def _refuse_other_kinds(name: str, config: Any, options: LoadOptions) -> None:
    own = options.trust_remote_code and hasattr(config, "auto_map")
    if type(config) not in transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING and not own:
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"{name}: a {config.model_type} model does not answer in words to an image and a text; "
            "give a generative vision-language model (LLaVA, Qwen-VL, ...).",
        )
    inner = config.get_text_config()
    if config.is_encoder_decoder or inner.is_encoder_decoder:
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"{name}: {config.model_type} has an encoder for its text; not supported.",
        )


def identity(processor: Any, model: Any) -> tuple[Any, ...]:
    """What outputs depend on beyond weights and prompt: configuration, preprocessing, tokenizer."""
    inner = getattr(processor.tokenizer, "backend_tokenizer", None)
    words = inner.to_str() if inner is not None else sorted(processor.tokenizer.get_vocab().items())
    images = processor.image_processor
    return (
        as_text(model.config.to_dict()),
        type(images).__name__,
        as_text(images.to_dict()),
        plain(processor),
        type(processor.tokenizer).__name__,
        words,
    )


def versions() -> dict[str, str]:
    return {"transformers": transformers.__version__, "torch": str(torch.__version__)}
