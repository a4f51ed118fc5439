"""transformers as a library: what it says, what it shows, and what identifies its parts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Final

from PIL import Image

from counterpoint.errors import CounterpointError, MissingExtraError, ModelError
from counterpoint.models.torch_models import quiet
from counterpoint.untrusted import shortened

try:
    import transformers
except ImportError:
    raise MissingExtraError("a model of transformers", "vlm") from None

# What a configuration says of its folder and its file, not of the model.
_PASSING: Final = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
_EXTRA: Final = ("accelerate", "sentencepiece")  # what `vlm` brings besides transformers


def reading_identity(tokenizer: Any, processor: Any) -> tuple[str, ...]:
    """What the two are, wherever their files lie."""
    backend, pieces = (getattr(tokenizer, n, None) for n in ("backend_tokenizer", "sp_model"))
    words = backend.to_str() if backend else as_text(tokenizer.get_vocab())
    scores = repr(pieces.serialized_model_proto()) if pieces else ""
    probe = as_text(tokenizer("A Dog &amp; two  CATS, the long-haired ones: don't!")["input_ids"])
    kinds = (type(thing).__name__ for thing in (tokenizer, processor))
    return (*kinds, words, scores, probe, as_text(processor.to_dict()))


def as_text(content: Any) -> str:
    """A configuration as text, without what does not change an output."""

    def kept(part: Any) -> Any:
        if isinstance(part, dict):
            return {str(k): kept(v) for k, v in part.items() if k not in _PASSING}
        return part

    return json.dumps(kept(content), sort_keys=True, default=str)


def probe_images() -> list[Image.Image]:
    """Two shapes: a processor must bring both to one size."""
    return [Image.new("RGB", size, "gray") for size in ((40, 30), (30, 50))]


@contextlib.contextmanager
def explained(id: str, what: str) -> Iterator[None]:
    """No log lines or warnings of the library; whatever it raises becomes one sentence."""
    try:
        with quiet():
            yield
    except CounterpointError:
        raise
    except Exception as error:  # transformers and its loaders raise anything
        if isinstance(error, ImportError) and not all(map(find_spec, _EXTRA)):
            raise MissingExtraError(id, "vlm") from None
        why = shortened(error).rstrip(".")
        raise ModelError(f"{id} {what}: {type(error).__name__}: {why}.") from None


@contextlib.contextmanager
def bars(*, shown: bool) -> Iterator[None]:
    """Progress bars of transformers, which are worth their lines while something is downloaded."""
    bars: Any = transformers.logging
    before = bars.is_progress_bar_enabled()
    if not shown:
        bars.disable_progress_bar()
    try:
        yield
    finally:
        if before:
            bars.enable_progress_bar()
