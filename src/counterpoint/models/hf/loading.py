"""Opening models of transformers for every family that uses them: weights, tokenizer, processor.

Whatever the library logs or shows is kept quiet, and its errors become one sentence.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from counterpoint._util.errors import CounterpointError, MissingExtraError, ModelError
from counterpoint._util.processes import Switch
from counterpoint._util.untrusted import described
from counterpoint.models.hub import guarded, hub_or_cache, pretrained
from counterpoint.models.registry import LoadOptions
from counterpoint.models.torch_models import quiet

try:
    transformers: Any = import_module("transformers")  # its types are incomplete
except ImportError:
    raise MissingExtraError("a model of transformers", "vlm") from None

# Entries of a configuration that say where a model came from, not what it computes.
PASSING: Final = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
_EXTRA: Final = ("accelerate", "sentencepiece")  # what `vlm` brings besides transformers


@contextlib.contextmanager
def opening(id: str, source: str, options: LoadOptions) -> Iterator[None]:
    """Open a model inside: from the hub or its cache, and without running code that it brings."""
    shown = not Path(source).is_dir()
    with hub_or_cache(id, source), guarded(id, source, options), bars(shown=shown):
        yield


def load_weights(
    id: str,
    source: str,
    kind: Any,
    options: LoadOptions,
    needed: tuple[str, ...] = ("",),
    **more: Any,
) -> Any:
    """What `kind` makes of a folder or repository, less the parts whose names do not begin with one
    of `needed`. All weights of the others have to be there."""
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")  # or the hub is asked to convert
    how = {"output_loading_info": True, "weights_only": True}
    model, report = pretrained(kind, source, options, **how, **more)
    # What is missing, transformers makes up: at random, and with no more than a warning.
    missing = sorted(key for key in report["missing_keys"] if key.startswith(needed))
    if missing:
        raise ModelError(
            "E-WEIGHTS-MISSING",
            f"{id}: its weights, of {model.config.architectures}, lack {len(missing)} tensors of "
            f"{type(model).__name__}, for instance {missing[0]}; use another head or model.",
        )
    for part, _ in list(model.named_children()):
        if not f"{part}.".startswith(needed):
            setattr(model, part, None)
    for module in model.modules():
        if hasattr(module, "name_or_path"):
            module.name_or_path = ""  # a copy in another folder has the same fingerprint
    return model.eval()


def refuse_other_tokenizer(id: str, tokenizer: Any, words: int) -> None:
    """Unless it fits a text tower of so many words: transformers makes one up where none is."""
    if not words / 2 <= tokenizer.vocab_size <= words:
        raise ModelError(
            "E-TOKENIZER-MISMATCH",
            f"{id}: its tokenizer has {tokenizer.vocab_size} tokens and its text tower {words}; "
            "put the model's own tokenizer beside its weights.",
        )


def as_text(content: Any) -> str:
    """A configuration as text, without what does not change an output."""

    def kept(part: Any) -> Any:
        if isinstance(part, dict):
            return {str(k): kept(v) for k, v in part.items() if k not in PASSING}
        return part

    return json.dumps(kept(content), sort_keys=True, default=str)


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
        raise ModelError("E-MODEL-BROKEN", f"{id} {what}: {described(error)}.") from None


def bars(*, shown: bool) -> contextlib.AbstractContextManager[None]:
    """Progress bars of transformers, which are worth their lines while something is downloaded."""
    return contextlib.nullcontext() if shown else _no_bars()


@Switch
@contextlib.contextmanager
def _no_bars() -> Iterator[None]:
    bars: Any = transformers.logging
    before = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if before:
            bars.enable_progress_bar()
