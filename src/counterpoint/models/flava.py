"""FLAVA by its matching head (`flava-itm`); its contrastive score is `hf:`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch

from counterpoint.models import LoadOptions
from counterpoint.models.blip import PairModel, probability
from counterpoint.models.hf_opening import Tensors, open_model

# In the loss of FlavaForPreTraining, labels other than 0 mark the pairs that belong together
# (`pos_pairs = itm_labels.ne(0)`) and are the targets of a cross entropy over the two logits.
_MATCH: Final = 1
_CLASSES: Final = {"flava": ("FlavaForPreTraining", "flava.text_model")}
_NEEDED: Final = ("flava.", "itm_head.")


def load(rest: str, options: LoadOptions) -> PairModel:
    """`ORG/REPO` on the hub, or a folder; scored by the probability of a match."""
    opened = open_model("flava-itm", rest, options, _CLASSES, _NEEDED)
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
        return probability(head(fused.last_hidden_state), _MATCH)

    return PairModel(opened, compare).tried()
