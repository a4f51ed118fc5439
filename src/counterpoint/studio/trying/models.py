"""The models that can be tried: loaded when first asked, one question at a time each."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, Final

import numpy as np

from counterpoint.cases import Cases, ImageRef, caption_case
from counterpoint.errors import ModelError
from counterpoint.models import load_model
from counterpoint.scoring.kinds import (
    BlindScorer,
    DualEncoder,
    Model,
    PairScorer,
    TableScorer,
)
from counterpoint.studio.trying.uploads import AnyPicture

_BATCH: Final = 64


class Models:
    """Models by id. `asked` are those that have been loaded, or could not be."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = tuple(dict.fromkeys(ids))
        self._locks = {id: Lock() for id in self.ids}
        self._loaded: dict[str, Model] = {}
        self.asked: set[str] = set()

    def scores(self, id: str, picture: AnyPicture, captions: Sequence[str]) -> np.ndarray:
        """The model's score of each caption with the picture; a CounterpointError if it cannot."""
        with self._locks[id]:
            if id not in self._loaded:
                try:
                    self._loaded[id] = load_model(id)
                finally:
                    self.asked.add(id)
            try:
                found = _scores(self._loaded[id], picture, captions)
            except MemoryError:
                raise ModelError(f"{id}: there is not enough memory for this.") from None
        if found.shape != (len(captions),) or not np.isfinite(found).all():
            raise ModelError(f"{id} did not return one finite score for each caption.")
        return found


def _scores(model: Model, picture: Any, captions: Sequence[str]) -> np.ndarray:
    """By what the model is; see `scoring.kinds`."""
    if isinstance(model, DualEncoder):
        [image] = model.encode_images([model.preprocess(picture.open())])
        parts = [captions[i : i + _BATCH] for i in range(0, len(captions), _BATCH)]
        return np.concatenate([model.encode_captions(part) for part in parts]) @ image
    if isinstance(model, PairScorer):
        return np.asarray(model.score_pairs([picture] * len(captions), captions))
    if isinstance(model, BlindScorer):
        return np.asarray(model.score_captions(captions))
    if isinstance(model, TableScorer):
        case = caption_case("tried", ImageRef(picture.ref.path), captions[:1], captions[1:])
        return np.asarray(model.score_cases(Cases.build([case], source="this page")))
    raise ModelError("this model scores whole benchmarks, no single image.")
