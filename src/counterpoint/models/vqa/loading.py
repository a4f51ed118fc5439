"""Opening generative vision-language models of transformers, and saying what went wrong."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch

from counterpoint._util.errors import (
    CounterpointError,
    MissingExtraError,
    ModelError,
)
from counterpoint._util.untrusted import described
from counterpoint.models import torch_models
from counterpoint.models.hf import bars
from counterpoint.models.hub import find_source, guarded, hub_or_cache, pretrained
from counterpoint.models.registry import LoadOptions
from counterpoint.models.torch_models import Runtime, plain

try:
    transformers: Any = import_module("transformers")  # its types are incomplete
except ImportError:
    raise MissingExtraError("a vqa: or lm: model", "vlm") from None

_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}
_ELSEWHERE: Final = ("_name_or_path", "transformers_version", "dtype", "architectures")


def open_model(family: str, where: str, runtime: Runtime, options: LoadOptions) -> tuple[Any, Any]:
    """The model on its device, and its processor.

    Half precisions load the weights in half: these models are published in bfloat16, and the
    larger ones fit no other way.
    """
    name = f"{family}:{where}"
    source = find_source(name, where)
    try:
        with quiet(), hub_or_cache(name, source), guarded(name, source, options):
            config = pretrained(transformers.AutoConfig, source, options)
            _refuse_other_kinds(name, config, options)
            processor = pretrained(transformers.AutoProcessor, source, options)
            model, found = pretrained(
                transformers.AutoModelForImageTextToText,
                source,
                options,
                dtype=_DTYPES.get(runtime.precision, torch.float32),
                output_loading_info=True,
                weights_only=True,
            )
            _refuse_missing_weights(name, sorted(found["missing_keys"]))
            model = model.to(runtime.device)
    except CounterpointError:
        raise
    except Exception as error:  # transformers and its loaders raise anything
        raise ModelError(
            "E-MODEL-BROKEN", f"{name} cannot be loaded: {described(error)}."
        ) from None
    for module in model.modules():  # a copy of a folder is the same model
        if hasattr(module, "name_or_path"):
            module.name_or_path = ""
    if getattr(processor, "tokenizer", None) is None:
        raise ModelError(
            "E-PROCESSOR-MISSING", f"{name}: its folder holds no processor of images and text."
        )
    return model, processor


def read_option(family: str, rest: str, name: str, default: str) -> tuple[str, str]:
    """`PATH` or `PATH?NAME=VALUE` as the path and a text; a value that is a file is its content."""
    where, found, value = rest.partition("?")
    if not found:
        return where, default
    key, _, text = value.partition("=")
    if key != name or not text:
        raise ModelError(
            "E-OPTION-INVALID", f"{family}:{rest}: after the ? there should be {name}=TEXT_OR_FILE."
        )
    content = _content(family, rest, text)
    return where, text if content is None else content


def read_lines(family: str, rest: str, name: str) -> tuple[str, list[str]]:
    """`PATH?NAME=FILE` as the path and the file's lines, each once, without empty ones."""
    where, _, file = rest.partition(f"?{name}=")
    lines = [line for line in (_content(family, rest, file) or "").splitlines() if line.strip()]
    if not lines:
        raise ModelError(
            "E-OPTION-INVALID",
            f"{family}:{rest}: after {name}= there should be a text file, one per line.",
        )
    return where, list(dict.fromkeys(lines))


def _content(family: str, rest: str, path: str) -> str | None:
    """The text of a file; None if there is no such file."""
    try:
        if Path(path).expanduser().is_file():
            return Path(path).expanduser().read_text(encoding="utf-8").strip("\n")
    except OSError:
        return None
    except UnicodeDecodeError:
        raise ModelError(
            "E-TEXT-ENCODING", f"{family}:{rest}: {path} is not a text file in UTF-8."
        ) from None
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


def _refuse_missing_weights(name: str, missing: list[str]) -> None:
    """transformers would go on with random numbers in their place."""
    if missing:
        raise ModelError(
            "E-WEIGHTS-MISSING",
            f"{name}: {len(missing)} weights are missing, for instance {missing[0]}.",
        )


def identity(processor: Any, model: Any) -> tuple[Any, ...]:
    """What outputs depend on beyond weights and prompt: configuration, preprocessing, tokenizer."""
    inner = getattr(processor.tokenizer, "backend_tokenizer", None)
    words = inner.to_str() if inner is not None else sorted(processor.tokenizer.get_vocab().items())
    images = processor.image_processor
    return (
        _json(_without_place(model.config.to_dict())),
        type(images).__name__,
        _json(_without_place(images.to_dict())),
        plain(processor),
        type(processor.tokenizer).__name__,
        words,
    )


def _without_place(value: Any) -> Any:
    """Without what says where a model came from and not what it computes."""
    if isinstance(value, dict):
        return {k: _without_place(v) for k, v in value.items() if k not in _ELSEWHERE}
    return value


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def versions() -> dict[str, str]:
    return {"transformers": transformers.__version__, "torch": str(torch.__version__)}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' log lines, warnings and bars away: what matters is an error here."""
    with bars(shown=False), torch_models.quiet():
        yield
