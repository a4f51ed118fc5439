"""BLIP, BLIP-2 and FLAVA by their matching heads, and BLIP by its contrastive head.

`blip-itm` and `flava-itm` score by the probability of a match, `blip-itc` by a cosine. The
contrastive score of FLAVA is `hf:`. `blip-itm:...?score=aro` is BLIP as the authors of ARO (and
BLIP's own retrieval) score it: the logit of a match, read with [ENC] in front of the caption, plus
the cosine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch

from counterpoint._util.errors import ModelError
from counterpoint._util.registry import read_options
from counterpoint._util.store import digest
from counterpoint.images import Picture
from counterpoint.models.hf.dual import (
    PROBES,
    HfDual,
    HfModel,
    Tensors,
    open_model,
    probe_images,
)
from counterpoint.models.hf.loading import explained
from counterpoint.models.registry import ARO, LoadOptions
from counterpoint.models.torch_models import memory_errors, unit
from counterpoint.scoring import in_threads, once

Compare = Callable[[Tensors, list[int], Sequence[str]], np.ndarray]
_MATCH: Final = 1  # of the matching head's two logits
_CLASSES: Final = {
    "blip": ("BlipForImageTextRetrieval", "text_encoder"),
    "blip-2": ("Blip2ForImageTextRetrieval", "embeddings"),
}

# In the loss of FlavaForPreTraining, labels other than 0 mark the pairs that belong together
# (`pos_pairs = itm_labels.ne(0)`) and are the targets of a cross entropy over the two logits.
_FLAVA_MATCH: Final = 1
_FLAVA_CLASSES: Final = {"flava": ("FlavaForPreTraining", "flava.text_model")}
_NEEDED: Final = ("flava.", "itm_head.")


class Blip:
    """BLIP's parts. `seen` is what its image tower makes of images: (n, patches, width)."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def see(self, pixels: Tensors) -> torch.Tensor:
        seen: torch.Tensor = self.model.vision_model(**pixels).last_hidden_state
        return seen

    def match(self, seen: torch.Tensor, tokens: Tensors) -> torch.Tensor:
        """Logits (n, 2) of n images and their captions."""
        # As transformers does it: [CLS] stands first, unless `with_enc` has put [ENC] there.
        read = self.model.text_encoder(**tokens, encoder_hidden_states=seen)
        logits: torch.Tensor = self.model.itm_head(read.last_hidden_state[:, 0])
        return logits

    def project(self, seen: torch.Tensor) -> torch.Tensor:
        """The images' vectors (n, q, d): one of each here, one of each query in BLIP-2."""
        vectors: torch.Tensor = self.model.vision_proj(seen[:, :1])
        return vectors

    def read(self, tokens: Tensors) -> torch.Tensor:
        """The captions' vectors (n, d)."""
        read = self.model.text_encoder(**tokens).last_hidden_state
        vectors: torch.Tensor = self.model.text_proj(read[:, 0])
        return vectors


class Blip2(Blip):
    """BLIP-2's parts: learned queries look at the image, alone or together with the caption."""

    def match(self, seen: torch.Tensor, tokens: Tensors) -> torch.Tensor:
        queries = self._queries(len(seen))
        words, mask = tokens["input_ids"], tokens["attention_mask"]
        ask = self.model.qformer(
            query_embeds=self.model.embeddings(input_ids=words, query_embeds=queries),
            query_length=queries.shape[1],
            attention_mask=torch.cat([mask.new_ones(queries.shape[:2]), mask], dim=1),
            encoder_hidden_states=seen,
        )
        answers = ask.last_hidden_state[:, : queries.shape[1]]
        logits: torch.Tensor = self.model.itm_head(answers).mean(dim=1)
        return logits

    def project(self, seen: torch.Tensor) -> torch.Tensor:
        ask = self.model.qformer(query_embeds=self._queries(len(seen)), encoder_hidden_states=seen)
        vectors: torch.Tensor = self.model.vision_projection(ask.last_hidden_state)
        return vectors

    def read(self, tokens: Tensors) -> torch.Tensor:
        read = self.model.qformer(
            query_embeds=self.model.embeddings(input_ids=tokens["input_ids"]),
            query_length=0,
            attention_mask=tokens["attention_mask"],
        )
        vectors: torch.Tensor = self.model.text_projection(read.last_hidden_state[:, 0])
        return vectors

    def _queries(self, count: int) -> torch.Tensor:
        queries: torch.Tensor = self.model.query_tokens.expand(count, -1, -1)
        return queries


class PairModel:
    """A PairScorer: each image of a call is opened and seen once, whatever its captions.

    `compare` takes images, each caption's place among them, and the captions.
    """

    def __init__(self, opened: HfModel, compare: Compare) -> None:
        self.opened, self.compare, self.fingerprint = opened, compare, opened.fingerprint

    @memory_errors
    def score_pairs(self, pictures: Sequence[Picture], captions: Sequence[str]) -> np.ndarray:
        images, places = once(pictures)
        pixels = list(in_threads(lambda picture: self.opened.preprocess(picture.open()), images))
        with self.opened.runtime.running():
            return self.compare(self.opened.stack(pixels), places, captions)

    def describe(self) -> Mapping[str, Any]:
        return self.opened.describe()

    def tried(self) -> PairModel:
        """Itself, if it runs."""
        with explained(self.opened.id, "does not run"), self.opened.runtime.running():
            pixels = [self.opened.preprocess(image) for image in probe_images()]
            self.compare(self.opened.stack(pixels), [0, 1], PROBES)
        return self


def probability(logits: torch.Tensor, index: int) -> np.ndarray:
    """Of one of two logits (n, 2), in float32."""
    return logits.float().softmax(dim=-1)[:, index].cpu().numpy()


def load_itm(rest: str, options: LoadOptions) -> PairModel:
    """`ORG/REPO` on the hub, or a folder; scored by the probability of a match.

    With `?score=aro` behind it, BLIP is scored as in ARO.
    """
    where, _, options_of = rest.partition("?")
    asked = read_options("blip-itm", options_of, ARO)
    opened, blip = _open("blip-itm", where, options)
    if asked["score"]:
        return _as_in_aro(opened, blip).tried()

    def compare(pixels: Tensors, places: list[int], captions: Sequence[str]) -> np.ndarray:
        seen = blip.see(pixels)
        return probability(blip.match(seen[places], opened.tokens(captions)), _MATCH)

    return PairModel(opened, compare).tried()


def _as_in_aro(opened: HfModel, blip: Blip) -> PairModel:
    if isinstance(blip, Blip2):
        raise ModelError(
            "E-MODEL-UNSUITABLE", f"{opened.id}: score=aro is a rule for BLIP, and this is BLIP-2."
        )
    first = _enc_token(opened)

    def compare(pixels: Tensors, places: list[int], captions: Sequence[str]) -> np.ndarray:
        seen, tokens = blip.see(pixels), opened.tokens(captions)
        images, words = unit(blip.project(seen)[:, 0]), unit(blip.read(tokens))
        cosines: np.ndarray = np.einsum("nd,nd->n", images[places], words)
        marked = tokens["input_ids"].clone()
        marked[:, 0] = first
        logits = blip.match(seen[places], {**tokens, "input_ids": marked})
        matches: np.ndarray = logits[:, _MATCH].float().cpu().numpy()
        return matches + cosines

    named = replace(opened, fingerprint=digest("score=aro", opened.fingerprint).hex())
    return PairModel(named, compare)


def _enc_token(opened: HfModel) -> int:
    """BLIP's own [ENC]. Tokenizers of transformers lack it; it is the last row of the embedding."""
    known = opened.tokenizer.get_vocab().get("[ENC]")
    if known is not None:
        return int(known)
    last = int(opened.model.config.text_config.vocab_size) - 1
    if last < len(opened.tokenizer):
        raise ModelError(
            "E-TOKENIZER-MISMATCH",
            f"{opened.id}: its vocabulary has no [ENC], and no room for it behind the "
            f"{len(opened.tokenizer)} tokens of its tokenizer; score=aro cannot be computed.",
        )
    return last


def load_itc(rest: str, options: LoadOptions) -> HfDual | PairModel:
    """`ORG/REPO` on the hub, or a folder; scored by cosine, in BLIP-2 by the best query's."""
    opened, blip = _open("blip-itc", rest, options)
    if not isinstance(blip, Blip2):
        return HfDual(
            opened, lambda pixels: blip.project(blip.see(pixels))[:, 0], blip.read
        ).tried()

    def compare(pixels: Tensors, places: list[int], captions: Sequence[str]) -> np.ndarray:
        texts, numbers = once(captions)
        images = unit(blip.project(blip.see(pixels)))
        words = unit(blip.read(opened.tokens(texts)))
        best: np.ndarray = np.einsum("nqd,nd->nq", images[places], words[numbers]).max(axis=1)
        return best

    return PairModel(opened, compare).tried()


def _open(family: str, rest: str, options: LoadOptions) -> tuple[HfModel, Blip]:
    opened = open_model(family, rest, options, _CLASSES)
    parts = Blip if opened.model.config.model_type == "blip" else Blip2
    return opened, parts(opened.model)


def load_flava(rest: str, options: LoadOptions) -> PairModel:
    """`ORG/REPO` on the hub, or a folder; scored by the probability of a match."""
    opened = open_model("flava-itm", rest, options, _FLAVA_CLASSES, _NEEDED)
    flava, head = opened.model.flava, opened.model.itm_head
    own = int(flava.multimodal_model.use_cls_token)

    def compare(pixels: Tensors, places: list[int], captions: Sequence[str]) -> np.ndarray:
        # In training, some patches and words were hidden from this head; here none are.
        tokens = opened.tokens(captions)
        # The multimodal encoder takes what the towers' last layers say, before their final norm.
        seen = flava.image_model(**pixels, output_hidden_states=True).hidden_states[-1]
        read = flava.text_model(**tokens, output_hidden_states=True).hidden_states[-1]
        images = flava.image_to_mm_projection(seen)[places]
        words = flava.text_to_mm_projection(read)
        # The encoder's own [CLS] and the image stand before the words.
        mask = tokens["attention_mask"]
        ahead = mask.new_ones(len(mask), images.shape[1] + own)
        fused = flava.multimodal_model(
            torch.cat([images, words], dim=1), attention_mask=torch.cat([ahead, mask], dim=1)
        )
        return probability(head(fused.last_hidden_state), _FLAVA_MATCH)

    return PairModel(opened, compare).tried()
