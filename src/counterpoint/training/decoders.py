"""Frozen decoders that say a text from the vector of another one (READ-CLIP, Kwon et al. 2025).

A projection, which is trained, makes a decoder's input of a text's vector. The decoder itself is
frozen: what it cannot say from the vector, the text tower has to put there.

- `world` ships: a small transformer that was trained to say captions of the world from one vector
  (`scripts/train_world_decoder.py`);
- `hf:NAME` or `hf:FOLDER` is an encoder-decoder of transformers, as T5, of which only the decoder
  is used; its input is the projected vector in the place of what its encoder makes of a text.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import counterpoint
from counterpoint._util.errors import ModelError
from counterpoint.models import LoadOptions, find_source, pretrained
from counterpoint.training.towers import Start, Towers

WORLD: Final = Path(counterpoint.__file__).parent / "world" / "decoder"
_CONFIG, _WEIGHTS = "config.json", "decoder.safetensors"


class WordDecoder(nn.Module):
    """A causal transformer that looks at one vector: ids (n, l) to logits (n, l, vocabulary)."""

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(0.02 * torch.randn(context, width))
        layer = nn.TransformerDecoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True,
            norm_first=True,
        )  # fmt: skip
        self.blocks = nn.TransformerDecoder(layer, layers, nn.LayerNorm(width))

    def forward(self, memory: Tensor, ids: Tensor) -> Tensor:
        length = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, ids.device)
        said = self.embedding(ids) + self.places[:length]
        out = self.blocks(said, memory[:, None], tgt_mask=mask, tgt_is_causal=True)
        logits: Tensor = out @ self.embedding.weight.T
        return logits


class Captioner(nn.Module):
    """How well the frozen decoder tells texts from vectors. Only its projection is trained."""

    def __init__(self, decoder: nn.Module, width: int, vectors: int, seed: int) -> None:
        super().__init__()
        self.projection = nn.Linear(vectors, width, bias=False)
        made = torch.Generator().manual_seed(seed)
        drawn = torch.empty(width, vectors).uniform_(-1, 1, generator=made) * vectors**-0.5
        with torch.no_grad():
            self.projection.weight.copy_(drawn)
        self.decoder = decoder.eval().requires_grad_(False)

    def train(self, mode: bool = True) -> Captioner:
        super().train(mode)
        self.decoder.eval()  # its dropout would make a resumed run another one
        return self

    def forward(self, vectors: Tensor, texts: Tensor) -> Tensor:
        """The log loss per word (n, 1) of texts, as token ids of the text tower, from vectors."""
        ids, there = self.ids(texts)
        logits = self.logits(self.projection(vectors), ids)
        losses = cross_entropy(logits[:, :-1].transpose(1, 2).float(), ids[:, 1:], reduction="none")
        counted = there[:, 1:]
        return ((losses * counted).sum(1) / counted.sum(1).clamp_min(1))[:, None]

    def ids(self, texts: Tensor) -> tuple[Tensor, Tensor]:
        """Ids of the decoder, (n, l) beginning with its sign of a start, and which are words."""
        return texts, texts != 0

    def logits(self, memory: Tensor, ids: Tensor) -> Tensor:
        found: Tensor = self.decoder(memory, ids)
        return found


class HfCaptioner(Captioner):
    """With an encoder-decoder of transformers, whose words are others than the text tower's."""

    def __init__(self, opened: tuple[Any, Any], words: Any, vectors: int, seed: int) -> None:
        decoder, self.tokenizer = opened
        self.words = words
        super().__init__(decoder, int(decoder.config.d_model), vectors, seed)

    def ids(self, texts: Tensor) -> tuple[Tensor, Tensor]:
        found = self.tokenizer(self._said(texts), padding=True, return_tensors="pt")
        ids, there = (found[name].to(texts.device) for name in ("input_ids", "attention_mask"))
        first = torch.full_like(ids[:, :1], int(self.decoder.config.decoder_start_token_id))  # type: ignore[union-attr,arg-type]
        return torch.cat((first, ids), 1), torch.cat((torch.ones_like(first), there), 1).bool()

    def _said(self, texts: Tensor) -> list[str]:
        """Without the signs that begin and end a text, and what follows."""
        ends = texts.argmax(1).tolist()
        rows = zip(texts.tolist(), ends, strict=True)
        return [self.words.decode(row[1:end]).strip() for row, end in rows]

    def logits(self, memory: Tensor, ids: Tensor) -> Tensor:
        given = (memory[:, None],)
        found: Tensor = self.decoder(encoder_outputs=given, decoder_input_ids=ids).logits
        return found


def open_captioner(name: str, start: Start, towers: Towers, seed: int) -> Captioner:
    """The decoder of a recipe for the texts of a start, on the CPU."""
    tokenizer: Any = start.tokenizer
    with torch.no_grad():
        probe = start.tokenizer(["a"]).to(next(towers.parameters()).device)
        vectors = int(towers(None, probe)[1].shape[1])
    if name == "world":
        config = json.loads((WORLD / _CONFIG).read_text(encoding="utf-8"))
        if getattr(tokenizer, "vocab_size", None) != config["vocabulary"]:
            raise _unsuitable(name, "reads the words of the world's models; use hf:NAME instead")
        decoder = WordDecoder(**config)
        decoder.load_state_dict({n: w.float() for n, w in load_file(WORLD / _WEIGHTS).items()})
        return Captioner(decoder, config["width"], vectors, seed)
    if not hasattr(tokenizer, "decode"):
        raise _unsuitable(name, "needs a start of open_clip whose tokenizer can say its texts")
    return HfCaptioner(_open_hf(name), tokenizer, vectors, seed)


def _open_hf(name: str) -> tuple[Any, Any]:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    from counterpoint.models.hf import explained, load_weights, opening

    id, options = f"decoder={name}", LoadOptions()
    source = find_source(id, name.removeprefix("hf:"))
    with opening(id, source, options), explained(id, "cannot be opened"):
        model = load_weights(id, source, AutoModelForSeq2SeqLM, options)
        return model, pretrained(AutoTokenizer, source, options)


def _unsuitable(name: str, why: str) -> ModelError:
    return ModelError("E-MODEL-UNSUITABLE", f"decoder={name} {why}.")
