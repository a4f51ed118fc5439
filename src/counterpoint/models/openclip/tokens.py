"""Tokens of captions for open_clip's towers: the ids of its own tokenizers, several times as fast.

open_clip repairs every caption (ftfy, HTML entities) before it splits it. Plain captions, printable
ASCII without `&`, have nothing to repair: there only the rest of the cleaning is done. A byte-pair
tokenizer splits at blanks, so the ids of a word are remembered and a caption is put together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from itertools import chain
from typing import Any, Final

import numpy as np
from open_clip import SimpleTokenizer
from open_clip.tokenizer import canonicalize_text, get_clean_fn

Clean = Callable[[str], str]

# What is left of each way of cleaning where nothing has to be repaired.
_PLAIN: Final[dict[Clean, Clean]] = {
    get_clean_fn("lower"): lambda text: " ".join(text.split()).lower(),
    get_clean_fn("whitespace"): lambda text: " ".join(text.split()),
    get_clean_fn("canonicalize"): canonicalize_text,
}
_ENDS: Final = 2  # start and end of text: the only special tokens of a plain tokenizer


def is_plain(caption: str) -> bool:
    return caption.isascii() and caption.isprintable() and "&" not in caption


class _Words(dict[str, list[int]]):
    """The ids of words between blanks."""

    def __init__(self, tokenizer: SimpleTokenizer) -> None:
        super().__init__()
        self.tokenizer = tokenizer

    def __missing__(self, word: str) -> list[int]:
        found: list[int] = self.tokenizer.encode(word)
        self[word] = found
        return found


class CaptionTokens:
    """Counts and ids of captions, for one tokenizer of open_clip."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = copy(tokenizer)  # the model's own is part of its fingerprint
        clean = getattr(tokenizer, "clean_fn", str)
        self._rest = _PLAIN.get(clean)
        self._clean = self._tokenizer.clean_fn = self._quick(clean)
        self._simple = isinstance(tokenizer, SimpleTokenizer)
        # Other special tokens may hold blanks.
        by_words = self._simple and self._rest and len(tokenizer.all_special_ids) == _ENDS
        self._words = _Words(self._tokenizer) if by_words else None

    def _quick(self, clean: Clean) -> Clean:
        rest = self._rest
        if rest is None:
            return clean
        return lambda text: rest(text) if is_plain(text) else clean(text)

    def count(self, captions: Sequence[str]) -> np.ndarray:
        """How many tokens each caption has, special ones included, before anything is cut."""
        if self._simple:
            counts = [len(ids) + _ENDS for ids in self._rows(captions)]
        elif captions:  # a tokenizer of transformers
            texts = [self._clean(caption) for caption in captions]
            counts = [len(ids) for ids in self._tokenizer.tokenizer(texts)["input_ids"]]
        else:
            counts = []
        return np.array(counts, dtype=np.int64)

    def ids(self, captions: Sequence[str], *, cut: bool) -> np.ndarray:
        """One line per caption (int64); what is beyond the context is cut.

        Lines are padded to the context, or with `cut` to the longest caption.
        """
        if not self._simple or self._tokenizer.reduction_fn is not None:
            found: np.ndarray = self._tokenizer(list(captions)).numpy()
            return found
        context = self._tokenizer.context_length
        start, end = self._tokenizer.sot_token_id, self._tokenizer.eot_token_id
        rows = [[start, *ids[: context - _ENDS], end] for ids in self._rows(captions)]
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        width = lengths.max(initial=0) if cut else context
        out = np.zeros((len(rows), width), dtype=np.int64)
        places = np.arange(out.shape[1]) < lengths[:, None]
        out[places] = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))
        return out

    def _rows(self, captions: Sequence[str]) -> list[list[int]]:
        """The ids of each caption without start and end."""
        words, rest = self._words, self._rest
        if words is None or rest is None:
            return [self._tokenizer.encode(caption) for caption in captions]
        return [
            list(chain.from_iterable(map(words.__getitem__, rest(caption).split())))
            if is_plain(caption)
            else self._tokenizer.encode(caption)
            for caption in captions
        ]
