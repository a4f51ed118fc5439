"""WiSE-FT: the models on the line between a model and what finetuning made of it.

    theta(alpha) = (1 - alpha) * base + alpha * tuned, weight by weight, in float32

alpha 0 is the base, 1 the tuned model. Between them there is often a model that keeps most of what
was gained and most of what the base could do (Wortsman et al. 2022, "Robust fine-tuning of
zero-shot models").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from PIL import Image

from counterpoint._util.errors import DataError, ModelError
from counterpoint._util.store import digest
from counterpoint._util.untrusted import parse_json
from counterpoint._util.writing import whole_folder
from counterpoint.evaluation.evaluating import evaluate, slug
from counterpoint.evaluation.trained_on import copy_records
from counterpoint.models import LoadOptions, load_model, plain
from counterpoint.models.openclip import ABOUT, OpenClip, OpenClipSource, fill_folder, load
from counterpoint.runs import Run

FAMILIES: Final = ("open_clip", "world", "checkpoint")  # those that load as an `OpenClip`
ALPHAS: Final = tuple(step / 10 for step in range(11))
_ASKED: Final = ("data", "limit", "protocol", "batch_size")  # options that make another question
_WISE: Final = "wise"
_FOLDERS: Final = ("open_clip:local-dir:", "world:")


class Line:
    """The models on the line between two models of one architecture.

    One network takes the weights of whatever alpha is asked for, so memory holds three sets of
    weights, not one for each alpha. The ends are the two models themselves, bit for bit.
    """

    def __init__(self, base: str, tuned: str, options: LoadOptions | None = None) -> None:
        self.base, self.tuned, self.options = base, tuned, options or LoadOptions()
        one, two = (_load(id, self.options) for id in (base, tuned))
        refuse_unlike(one, two, base, tuned)
        self.fingerprints = one.fingerprint, two.fingerprint
        self.preprocess, self.context_length = one.preprocess, one.context_length
        self._first, self._start = one, dict(one.model.named_parameters())
        self._end = {name: w.detach().clone() for name, w in two.model.named_parameters()}
        self._runtime, self._network, self._tokenizer = two.runtime, two.model, two.tokenizer
        both = ((one.notes, two.notes), (one.training_records, two.training_records))
        self._said = tuple(tuple(dict.fromkeys((*first, *second))) for first, second in both)
        self._here: tuple[float, OpenClip] = (1.0, two)

    def at(self, alpha: float) -> OpenClip:
        """The model of one alpha. It is good until another alpha is asked for."""
        if not 0 <= alpha <= 1:
            raise ModelError("E-OPTION-INVALID", f"alpha must be between 0 and 1, not {alpha:g}.")
        if alpha == 0:
            return self._first
        if self._here[0] != alpha:
            with torch.no_grad():
                for name, weight in self._network.named_parameters():
                    weight.copy_(mix_weights(self._start[name], self._end[name], alpha))
            name, (notes, records) = self.name(alpha), self._said
            source = OpenClipSource(name, "", None, notes=notes, records=records)
            self._here = alpha, OpenClip(source, self._network, self._tokenizer, self._runtime)
        return self._here[1]

    def name(self, alpha: float) -> str:
        """What the model of one alpha is called in runs: `hn@0.3` for `runs/hn/model`."""
        return f"{self.short}@{alpha:g}"

    @property
    def short(self) -> str:
        """The tuned model without its family and path."""
        parts = [part for part in self.tuned.replace(":", "/").split("/") if part]
        # Training puts every model into a folder `model`, below one that says which it is.
        return parts[-2] if parts[-1] == "model" and len(parts) > 1 else parts[-1]


def mix_weights(start: torch.Tensor, end: torch.Tensor, alpha: float) -> torch.Tensor:
    """(1 - alpha) * start + alpha * end, in float32."""
    if alpha == 1:
        return end  # not computed: 0 * x + -0.0 is not -0.0
    return (1 - alpha) * start.float() + alpha * end.float()


class Point:
    """The dual encoder of one alpha of a line."""

    def __init__(self, line: Line, alpha: float) -> None:
        self.line, self.alpha, self.context_length = line, alpha, line.context_length

    @property
    def fingerprint(self) -> str:
        return self.line.at(self.alpha).fingerprint

    def preprocess(self, image: Image.Image) -> Any:
        return self.line.preprocess(image)  # in threads: no weights are touched

    def encode_images(self, images: Sequence[Any]) -> np.ndarray:
        return self.line.at(self.alpha).encode_images(images)

    def count_tokens(self, captions: Sequence[str]) -> np.ndarray:
        return self.line.at(self.alpha).count_tokens(captions)

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        return self.line.at(self.alpha).encode_captions(captions)

    def describe(self) -> Mapping[str, Any]:
        ends = {"base": self.line.base, "tuned": self.line.tuned}
        return {**self.line.at(self.alpha).describe(), "wise": {**ends, "alpha": self.alpha}}


def evaluate_line(
    line: Line,
    benchmarks: Sequence[str],
    alphas: Sequence[float] = ALPHAS,
    *,
    out: Path | None = None,
    **options: Any,
) -> list[Run]:
    """A run for each alpha, in a folder of its own below `out`; `options` are `evaluate`'s.

    Without `out` they go to `runs/`, into the same place for the same question.
    """
    asked = repr((list(benchmarks), sorted((k, str(v)) for k, v in options.items() if k in _ASKED)))
    own = f"wise-{slug(line.short)}-{digest(*line.fingerprints, asked).hex()[:8]}"
    folder = Path("runs") / own if out is None else out
    points: list[Any] = [(line.name(alpha), Point(line, alpha)) for alpha in dict.fromkeys(alphas)]
    if len(points) == 1:  # `evaluate` puts a single model's run into the folder itself
        folder = folder / slug(points[0][0])
    return evaluate(
        points,
        benchmarks,
        out=folder,
        device=line.options.device,
        precision=line.options.precision,
        **options,
    )


# --- what can be mixed -------------------------------------------------------------------------


def refuse_unlike(base: OpenClip, tuned: OpenClip, base_id: str, tuned_id: str) -> None:
    """Raise a ModelError that names the first difference between two models besides weights."""
    if why := unlike(base, tuned):
        raise ModelError("E-MODELS-DIFFER", f"{base_id} and {tuned_id} cannot be mixed: {why}.")


def unlike(base: OpenClip, tuned: OpenClip) -> str:
    """The first difference between two models besides trained weights; empty if there is none.

    Fingerprints are stricter: a mean that is a tuple in open_clip's table of architectures is a
    list in a config file, and no other mean.
    """
    if _as_tuples(repr(base.transform)) != _as_tuples(repr(tuned.transform)):
        return "they preprocess images differently (preprocess_cfg in their configs)"
    if base._tokenizer_identity() != tuned._tokenizer_identity():
        return "their tokenizers differ"
    return _unlike_modules(base.model, tuned.model) or _unlike_tensors(base.model, tuned.model)


def _as_tuples(text: str) -> str:
    return text.replace("[", "(").replace("]", ")")


def _unlike_modules(base: torch.nn.Module, tuned: torch.nn.Module) -> str:
    """Activations, numbers of heads, pooling: what weights do not show."""
    one, two = (dict(model.named_modules()) for model in (base, tuned))
    if alone := sorted(one.keys() ^ two.keys()):
        return f"only one of them has a module {alone[0]!r}, so their architectures differ"
    for name, module in one.items():
        called = name or "the model"
        kinds = [type(m).__name__ for m in (module, two[name])]
        if kinds[0] != kinds[1]:
            return f"{called} is {kinds[0]} in the base and {kinds[1]} in the tuned one"
        left, right = _attributes(module), _attributes(two[name])
        for key in sorted(left.keys() | right.keys()):
            if left.get(key) != right.get(key):
                values = f"{left.get(key)} in the base and {right.get(key)} in the tuned one"
                return f"{key} of {called} is {values}"
    return ""


def _attributes(module: torch.nn.Module) -> dict[str, str]:
    """Simple values and lists of them, which `plain` leaves out."""
    simple = (bool, int, float, str)
    lists = {
        name: _as_tuples(repr(tuple(value)))
        for name, value in vars(module).items()
        if isinstance(value, list | tuple) and all(isinstance(v, simple) for v in value)
    }
    return {**{name: repr(value) for name, value in plain(module)}, **lists}


def _unlike_tensors(base: torch.nn.Module, tuned: torch.nn.Module) -> str:
    one, two = (
        {**dict(model.named_buffers()), **dict(model.named_parameters())} for model in (base, tuned)
    )
    if alone := sorted(one.keys() ^ two.keys()):
        return f"only one of them has the weights {alone[0]!r}"
    trained = {name for name, weight in base.named_parameters() if weight.is_floating_point()}
    for name, value in one.items():
        other = two[name]
        if value.shape != other.shape:
            return f"{name} is {_shape(value)} in the base and {_shape(other)} in the tuned one"
        if name not in trained and not torch.equal(value, other):
            return f"{name} differs, and only trained weights can be mixed"
        if name in trained and not (value.isfinite().all() and other.isfinite().all()):
            whose = "tuned one" if value.isfinite().all() else "base"
            return f"{name} of the {whose} holds non-finite values"
    return ""


def _shape(value: torch.Tensor) -> str:
    return " x ".join(map(str, value.shape)) or "a single number"


def _load(id: str, options: LoadOptions) -> OpenClip:
    family = id.partition(":")[0]
    model = load_model(id, replace(options, torch=True)) if family in FAMILIES else None
    if not isinstance(model, OpenClip):
        known = ", ".join(f"{name}:" for name in FAMILIES)
        raise ModelError(
            "E-MODEL-UNSUITABLE", f"{id} cannot be mixed: only models of {known} can be."
        )
    return model


# --- saving ------------------------------------------------------------------------------------


def save_mixed(line: Line, alpha: float, folder: Path) -> None:
    """Write the model of one alpha: float32 safetensors, config, tokenizer, how it was made.

    The folder is loaded again before it takes its place: it must be the same model, bit for bit.
    """
    refuse_other_model(folder, line)
    model = line.at(alpha)
    about = {_WISE: {"alpha": alpha, **_ends(line)}, "notes": list(model.notes)}
    # Of two that are alike but for their weights, the one that brings its config and tokenizer.
    id = next((id for id in (line.tuned, line.base) if id.startswith(_FOLDERS)), line.tuned)
    with whole_folder(folder, ModelError) as draft:
        fill_folder(draft, id, model, model.model.state_dict(), about)
        copy_records(model.training_records, draft)
        if why := _other(model, load(f"local-dir:{draft}", line.options)):
            raise ModelError(
                "E-MODEL-CHANGED",
                f"{line.name(alpha)} cannot be saved as an open_clip folder: loaded again it is "
                f"another model: {why}.",
            )


def _other(model: OpenClip, again: OpenClip) -> str:
    """The first difference between a saved model and the same model loaded again."""
    if why := unlike(model, again):
        return why
    found = again.model.state_dict()
    for name, value in model.model.state_dict().items():
        if not torch.equal(value, found[name]):
            return f"{name} has changed"
    return ""


def _ends(line: Line) -> dict[str, dict[str, str]]:
    ids = {"base": line.base, "tuned": line.tuned}
    return {
        name: {"id": id, "fingerprint": found}
        for (name, id), found in zip(ids.items(), line.fingerprints, strict=True)
    }


def refuse_other_model(folder: Path, line: Line) -> None:
    """Raise if the folder holds something other than a mix of the two models of the line."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        about = parse_json((folder / ABOUT).read_bytes(), ABOUT)
    except (OSError, DataError):
        about = {}
    made = about.get(_WISE) if isinstance(about, dict) else None
    if not isinstance(made, dict):
        raise ModelError(
            "E-OUTPUT-EXISTS",
            f"{folder} exists and was not made by wise; choose another --save folder.",
        )
    if any(made.get(name) != end for name, end in _ends(line).items()):
        raise ModelError(
            "E-OUTPUT-EXISTS",
            f"{folder} holds a mix of other models; choose another --save folder.",
        )
