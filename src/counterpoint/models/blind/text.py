"""Text models that see no image: is a caption grammatical, plausible, likely?

`blind:grammar` and `blind:plausible` are the two that SugarCrepe was refined against: a model that
beats them there has to look at the image. `blind:lm` is any causal language model. A model is a
folder, a repository of the hub, or (for `blind:lm`) a GGUF file.
"""

from __future__ import annotations

import contextlib
import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from counterpoint._util.errors import ModelError, NotFoundError
from counterpoint._util.processes import Switch
from counterpoint.models.hf.loading import (
    PASSING,
    explained,
    load_weights,
    opening,
    refuse_other_tokenizer,
    transformers,
)
from counterpoint.models.hub import find_source, pretrained
from counterpoint.models.registry import LoadOptions
from counterpoint.models.torch_models import Runtime, fingerprint, memory_errors, plain

_LOGITS: Final = 2**27  # of a language model, kept at a time: half a GiB in float32
_GOOD: Final = ("label_1", "acceptable", "grammatical")  # names of the class that is counted


class TextModel(ABC):
    """What the three share: tokens with a mask, so that padding changes no score."""

    kind: str
    scored: str  # what a score is, for the record
    limit: int  # tokens; what is beyond is cut
    notes: tuple[str, ...] = ()

    def __init__(self, id: str, model: Any, tokenizer: Any, runtime: Runtime) -> None:
        self.model, self.tokenizer, self.runtime = model.eval(), tokenizer, runtime
        tokenizer.truncation_side = "right"
        self.limit = _limit(model, tokenizer)
        self.prepare(id)
        self.fingerprint = fingerprint(model, self.kind, *self._identity())
        self.model = model.to(runtime.device)

    @abstractmethod
    def prepare(self, id: str) -> None:
        """Check that the model is of this kind, and take from it what scores need."""

    def tokens(self, captions: Sequence[str]) -> list[list[int]]:
        found = self.tokenizer(list(captions), truncation=True, max_length=self.limit)
        return list(found["input_ids"])

    @abstractmethod
    def scores(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """A score for each row (n,); ids are padded on the right."""

    @memory_errors
    def score_captions(self, captions: Sequence[str]) -> np.ndarray:
        if not captions:
            return np.zeros(0, dtype=np.float32)
        rows = [torch.tensor(row, dtype=torch.long) for row in self.tokens(captions)]
        ids = pad_sequence(rows, batch_first=True).to(self.runtime.device)
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        with self.runtime.running():
            found = self.scores(ids, mask.to(self.runtime.device))
        return found.float().cpu().numpy()

    def describe(self) -> Mapping[str, Any]:
        return {
            **self.runtime.describe(self.model),
            "class": type(self.model).__name__,
            "tokenizer": type(self.tokenizer).__name__,
            "context_length": self.limit,
            "score": self.scored,
            "versions": {name: version(name) for name in ("torch", "transformers")},
            "notes": list(self.notes),
        }

    def _identity(self) -> tuple[Any, ...]:
        config = self.model.config.to_dict()
        kept = sorted((k, repr(v)) for k, v in config.items() if k not in PASSING)
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        words = backend.to_str() if backend else (plain(self.tokenizer), self.tokenizer.get_vocab())
        return kept, words, self.limit, self.scored, self.runtime.precision


class Grammar(TextModel):
    """A sequence classifier trained on CoLA: the probability of its acceptable class."""

    kind = "blind:grammar 1"

    def prepare(self, id: str) -> None:
        config = self.model.config
        if config.num_labels != 2:
            raise _unsuitable(f"{id} has {config.num_labels} classes; a grammar model has two.")
        names = {str(name).lower(): int(number) for number, name in config.id2label.items()}
        self.good = next((names[name] for name in _GOOD if name in names), 1)
        self.scored = f"P({config.id2label[self.good]})"

    def scores(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        logits = self.model(input_ids=ids, attention_mask=mask).logits
        return logits.float().softmax(-1)[:, self.good]


class Plausible(TextModel):
    """Vera (Liu et al. 2023): how plausible a statement is, a calibrated probability.

    The published files are a T5 encoder. The rest of the model is hidden in rows of its embedding
    that no token uses: a linear head, its bias, and a temperature.
    """

    kind = "blind:plausible 1"
    scored = "sigmoid(logit / temperature)"
    _WEIGHT, _BIAS, _TEMPERATURE = 32099, 32098, 32097

    def prepare(self, id: str) -> None:
        rows = self.model.shared.weight.detach()
        if len(rows) <= self._WEIGHT:
            raise _unsuitable(
                f"{id} has {len(rows)} rows of embedding and Vera's head is in row "
                f"{self._WEIGHT}; use Vera's weights, liujch1998/vera."
            )
        self.head, self.bias = rows[self._WEIGHT].clone(), float(rows[self._BIAS, 0])
        self.temperature = float(rows[self._TEMPERATURE, 0])
        if not self.temperature > 0:
            raise _unsuitable(
                f"{id} has the temperature {self.temperature:g}, and Vera's is above 0."
            )
        self.limit = min(self.limit, 128)  # as SugarCrepe's authors cut

    def scores(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        last = hidden[torch.arange(len(ids)), mask.sum(dim=1) - 1]  # the end-of-text token
        return torch.sigmoid((last @ self.head.to(last.device) + self.bias) / self.temperature)


class CausalModel(TextModel):
    """A causal language model: the mean log-likelihood of a caption's tokens, in nats.

    The mean and not the sum, which would prefer short captions. The first token counts as well,
    after the tokenizer's start token (or its end token, where it has no other). A caption without
    tokens has nothing to be unlikely: 0.
    """

    kind = "blind:lm 1"
    scored = "mean log-likelihood of a token"

    def prepare(self, id: str) -> None:
        ends = (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id)
        start = next((int(token) for token in ends if token is not None), None)
        if start is None:
            raise _unsuitable(f"{id}: its tokenizer has neither a start nor an end token.")
        self.start = start
        # transformers also opens BERT as a causal model, though it looks ahead.
        with torch.inference_mode():
            first, second = self.model(input_ids=torch.tensor([[0, 0, 0], [0, 0, 1]])).logits[:, :2]
        if not torch.allclose(first, second, atol=1e-4):
            raise _unsuitable(
                f"{id} looks ahead, so that it has no likelihoods; use a causal model."
            )

    def tokens(self, captions: Sequence[str]) -> list[list[int]]:
        # verbose: or it complains of long captions, which are cut here
        found = self.tokenizer(list(captions), add_special_tokens=False, verbose=False)["input_ids"]
        return [[self.start, *row[: self.limit - 1]] for row in found]

    def scores(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        rows = max(1, _LOGITS // (ids.shape[1] * self.model.config.get_text_config().vocab_size))
        parts = zip(torch.split(ids, rows), torch.split(mask, rows), strict=True)
        return torch.cat([self._likelihood(*part) for part in parts])

    def _likelihood(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        logits = self.model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1]
        targets = ids[:, 1:]
        chosen = logits.gather(-1, targets[..., None])[..., 0].float()
        each = (chosen - logits.float().logsumexp(-1)) * mask[:, 1:]
        return each.sum(dim=1) / mask[:, 1:].sum(dim=1).clamp(min=1)


def _unsuitable(why: str) -> ModelError:
    return ModelError("E-MODEL-UNSUITABLE", why)


def _limit(model: Any, tokenizer: Any) -> int:
    places = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return int(min(tokenizer.model_max_length, places or 2**16, 2**16))


_COLA: Final = "textattack/distilbert-base-uncased-CoLA"
_KINDS: Final[dict[str, tuple[type[TextModel], str, str]]] = {
    "grammar": (Grammar, "AutoModelForSequenceClassification", _COLA),
    "plausible": (Plausible, "T5EncoderModel", "liujch1998/vera"),
    "lm": (CausalModel, "AutoModelForCausalLM", ""),
}


# The library shows a progress bar of its own for every tensor of a GGUF file.
_no_stderr: Final = Switch(lambda: contextlib.redirect_stderr(io.StringIO()))


def load(name: str, rest: str, options: LoadOptions) -> TextModel:
    """`grammar`, `plausible` or `lm`, each with a folder or ORG/REPO; lm also with a GGUF file."""
    kind, class_name, default = _KINDS[name]
    id, runtime = f"blind:{name}:{rest or default}", Runtime(options)
    where, more = _where(id, rest or default, gguf=name == "lm")
    no_bars = _no_stderr if more else contextlib.nullcontext
    with opening(id, where, options), no_bars():
        with explained(id, "cannot be loaded"):
            chosen = getattr(transformers, class_name)
            how: dict[str, Any] = {"dtype": torch.float32, **more}
            model = load_weights(id, where, chosen, options, **how)
        with explained(id, "has no tokenizer that can be loaded"):
            tokenizer = pretrained(transformers.AutoTokenizer, where, options, **more)
    refuse_other_tokenizer(id, tokenizer, model.get_input_embeddings().num_embeddings)
    with explained(id, "does not run"):
        scorer = kind(id, model, tokenizer, runtime)
        if more:
            scorer.notes = (f"weights of {more['gguf_file']}, made float32 from what it holds.",)
        scorer.score_captions(["a", "two red birds"])
    return scorer


def _where(id: str, rest: str, *, gguf: bool) -> tuple[str, dict[str, str]]:
    """A folder or repository, and the file in it if it is one of llama.cpp's."""
    if not rest:
        raise NotFoundError(
            "E-MODEL-ID-INVALID", f"{id} needs a model: {id}FOLDER or {id}ORG/REPO."
        )
    more = {}
    if gguf and rest.endswith(".gguf"):
        joint = ":" if ":" in rest else "/"
        rest, _, file = rest.rpartition(joint)
        more = {"gguf_file": file}
        rest = rest or "."
    folder = Path(rest).expanduser()
    if folder.is_dir():
        if more and not (folder / file).is_file():
            raise NotFoundError("E-MODEL-MISSING", f"{id}: there is no file {file} in {folder}.")
        files = sorted(path.name for path in folder.glob("*.gguf"))
        if files and gguf and not more and not (folder / "config.json").is_file():
            raise NotFoundError(
                "E-MODEL-ID-INVALID", f"{id} needs the name of a file, as in {id}:{files[0]}."
            )
        return str(folder), more
    find_source(id, rest)
    return rest, more
