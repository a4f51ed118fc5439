"""Batches from stored samples: which texts and images a sample gives in an epoch.

A sample whose image cannot be read is replaced by another one, drawn from all, and counted with the
reason. Ten such samples in a row are an error: then the folder is wrong. (The next sample in the
file would often be another caption of the same image.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
import torch
from open_clip import SimpleTokenizer
from PIL import Image
from torch import Tensor

from counterpoint._util.errors import CounterpointError, DataError, ImageError
from counterpoint._util.random_numbers import fold, key, part, take, uniforms
from counterpoint._util.untrusted import shortened
from counterpoint.generation import exchanged
from counterpoint.images import Picture
from counterpoint.models import split_transform
from counterpoint.models.openclip import CaptionTokens
from counterpoint.training.batches import Batch, cut_padding
from counterpoint.training.data.loading import (
    NO_IMAGE,
    UNREADABLE,
    Parcel,
    Problems,
    Setting,
    TrainingData,
    seeded,
)
from counterpoint.training.data.table import Record, SampleTable, open_picture
from counterpoint.training.losses.terms import MASKS
from counterpoint.world import Tokenize

_PATIENCE: Final = 10
Seen = TypeVar("Seen")
# Streams of a sample's choices.
_POSITIVE, _NEGATIVE, _PICTURED, _DENSE, _HARD, _HARD_ROW, _AUGMENT, _STAND_IN = range(201, 209)
_PARTNER, _EXCHANGE = 209, 210


@dataclass(slots=True)
class _Drawn:
    """One sample as it goes into the batch; what it lacks is None, or not there."""

    number: int
    image: Tensor
    caption: str
    texts: dict[str, list[Any]] = field(default_factory=dict)  # by field of the batch
    negative_image: Tensor | None = None


class Samples(TrainingData):
    """Training data of a source's samples."""

    def __init__(self, setting: Setting, source: SampleTable, problems: Counter[str]) -> None:
        super().__init__(setting, source.size, source.name)
        self.problems.counts.update(problems)
        if (setting.config.hard_images or setting.config.joined) and source.size < 2:
            raise DataError(
                "E-SAMPLES-FEW",
                f"{source.name}: hard images and joined ones need more samples than one.",
            )
        self.source = source
        with seeded():
            probe = setting.preprocess(Image.new("RGB", (64, 64)))
        self.side = max(probe.shape[-2:])
        # A preprocessing in two parts, the second on the device: images then travel as whole
        # levels, which are a quarter as large. (A CPU would only do it later.)
        late = setting.on_gpu() and setting.see is None
        self.split = split_transform(setting.preprocess) if late else None
        self.contents = source.contents()
        self.seen = None if setting.see is None else setting.see(source.pictures())
        if self.seen is not None and self.seen.vectors:
            self.contents["vectors"] = self.seen.vectors
        self.tokenize = _quick(setting.tokenize)
        self._stream: torch.cuda.Stream | None = None
        config = setting.config
        widths = {"positives": int(config.positives), "negatives": config.negatives}
        widths |= {"dense": config.dense, "dense_negatives": config.dense}
        self.widths = {name: width for name, width in widths.items() if width}
        self.keys = {n: key(n, setting.seed) for n in range(_POSITIVE, _EXCHANGE + 1)}

    def prepare(self, epoch: int, step: int) -> Parcel:
        setting, problems = self.setting, Problems()
        start = step * setting.batch
        numbers = self.source.order(setting.seed, epoch)[start : start + setting.batch]
        mine = part(numbers, setting.rank, setting.world_size).tolist()
        joined = setting.config.joined
        with seeded() as seed:
            draw = _Sampler(self, epoch, seed, problems)
            if joined and not (epoch * self.steps_per_epoch + step) % 2:
                drawn = draw.joined(mine)
            else:
                drawn = [draw(number) for number in mine]
            hard = None
            if setting.config.hard_images:
                hard = [draw(draw.hard(sample.number), stream=1) for sample in drawn]
        texts, masks = zip(
            *(_texts(some, self.widths) for some in (drawn, hard) if some), strict=True
        )
        tokens = self._tokenised(texts)
        batch = _batch(drawn, {**tokens[0], **masks[0]}, setting.config.negative_images)
        if hard:
            batch.hard = _batch(hard, {**tokens[1], **masks[1]}, False)
        return Parcel(batch, problems)

    def finish(self, content: Any) -> Batch:
        batch: Batch = content
        if self.seen is not None:
            _change_images(batch, self.seen.take)
        if self.split is not None:
            with self._beside():
                batch = batch.to(torch.device(self.setting.device))
                _change_images(batch, self.split[1])
        self._hand_over(batch)
        return batch

    def all_texts(self) -> Iterator[list[str]]:
        return self.source.all_texts()

    def all_photographs(self) -> list[Picture]:
        return self.source.pictures() if self.source.lists_pictures else []

    def _beside(self) -> AbstractContextManager[Any]:
        """The device copies and prepares this batch while it still works on the last."""
        if not self.setting.on_gpu():
            return nullcontext()
        if self._stream is None:
            self._stream = torch.cuda.Stream(  # type: ignore[no-untyped-call]
                self.setting.device
            )
        return torch.cuda.stream(self._stream)

    def _hand_over(self, batch: Batch) -> None:
        """Work on the batch waits until it is there; its memory is not reused before that work."""
        if self._stream is None:
            return
        working = torch.cuda.current_stream(self._stream.device)
        working.wait_stream(self._stream)
        for tensor in batch.tensors():
            tensor.record_stream(working)

    def _tokenised(self, fields: Sequence[dict[str, np.ndarray]]) -> list[dict[str, Tensor]]:
        """All texts at once, cut to the longest of them."""
        arrays = [texts for named in fields for texts in named.values()]
        tokens = self.tokenize([text for texts in arrays for text in texts.ravel().tolist()])
        if self.setting.cut:
            tokens = cut_padding(tokens, self.setting.pad)
        pieces = iter(torch.split(tokens, [texts.size for texts in arrays]))
        return [
            {name: next(pieces).reshape(*texts.shape, -1) for name, texts in named.items()}
            for named in fields
        ]


def _change_images(batch: Batch, change: Callable[[Tensor], Tensor]) -> None:
    for one in filter(None, (batch, batch.hard)):
        one.images = change(one.images)
        if one.negative_images is not None:
            one.negative_images = change(one.negative_images)


def _quick(tokenize: Tokenize) -> Tokenize:
    """The same ids sooner, where the tokenizer is open_clip's own."""
    if not isinstance(tokenize, SimpleTokenizer):
        return tokenize
    tokens = CaptionTokens(tokenize)
    return lambda texts: torch.from_numpy(tokens.ids(texts, cut=False))


class _Sampler:
    """Draws what an epoch takes of a sample."""

    def __init__(self, data: Samples, epoch: int, seed: Any, problems: Problems) -> None:
        self.data, self.epoch, self.seed, self.problems = data, epoch, seed, problems
        self.config, self.source = data.setting.config, data.source

    def take(self, stream: int, number: int, size: int, count: int) -> list[int]:
        return take(self.data.keys[stream], number, self.epoch, size, count)

    def __call__(self, number: int, stream: int = 0) -> _Drawn:
        """A sample; `stream` 1 is for hard images, whose augmentation is their own."""
        number, record, image = self._readable(number, partial(self._image, stream=stream))
        if self.config.joined:  # of single images, captions alone
            return _Drawn(number, image, record.caption)
        chosen = self._negatives(number, record)
        positives = self.take(_POSITIVE, number, len(record.positives), 1)
        dense = self.take(_DENSE, number, len(record.dense), self.config.dense)
        pictured = self.config.negative_images and not stream and bool(chosen)
        texts: dict[str, list[Any]] = {
            "positives": [record.positives[i] for i in positives],
            "negatives": [record.negatives[i] for i in chosen],
            "dense": [record.dense[i] for i in dense],
            "dense_negatives": [record.dense_negatives[i] for i in dense if record.dense_negatives],
        }
        negative_image = self._negative_image(number, record, chosen[0]) if pictured else None
        return _Drawn(number, image, record.caption, texts, negative_image)

    def joined(self, numbers: Sequence[int]) -> list[_Drawn]:
        """Samples whose image is theirs beside that of another sample (CLIC), with texts of both:
        one after the other, in the other order, and with a word of each exchanged."""
        found, captions = [], []
        for number in numbers:
            other = self.take(_PARTNER, number, self.source.size - 1, 1)[0]
            parts = [self._readable(n, self._picture) for n in (number, other + (other >= number))]
            turned = self._uniform(number, 0) < 0.5
            pictures = [picture for *_, picture in parts]
            picture = side_by_side(*(pictures[::-1] if turned else pictures))
            captions.append((parts[0][1].caption, parts[1][1].caption))
            image = self._preprocessed(picture, number, 1)
            said, turned_round = (joined_text(*captions[-1][::way]) for way in (1, -1))
            both: dict[str, list[Any]] = {"positives": [turned_round], "negatives": []}
            found.append(_Drawn(parts[0][0], image, said, both))
        draws = [[self._uniform(n, place) for place in (1, 2, 3)] for n in numbers]
        for sample, pair in zip(found, exchanged(captions, draws), strict=True):
            if pair is not None:
                first = self._uniform(sample.number, 4) < 0.5
                sample.texts["negatives"].append(joined_text(*(pair if first else pair[::-1])))
        return found

    def _picture(self, number: int) -> Image.Image:
        return self.source.image(number, self.data.side)

    def _uniform(self, number: int, place: int) -> float:
        state = fold(fold(self.data.keys[_EXCHANGE], number), self.epoch)
        return float(uniforms(state, place + 1)[0, place])

    def hard(self, number: int) -> int:
        """A sample of one of the nearest images; any other sample where there is none."""
        near = self.source.neighbours(number, self.config.hard_images)
        if not near:
            self.problems.add("samples without a near image in the data: any other is taken")
            other = self.take(_HARD, number, self.source.size - 1, 1)[0]
            return other + (other >= number)
        rows = near[self.take(_HARD, number, len(near), 1)[0]]
        return rows[self.take(_HARD_ROW, number, len(rows), 1)[0]]

    def _negatives(self, number: int, record: Record) -> list[int]:
        """Which negatives: first, if images of them are asked for, one that has an image."""
        count, size = self.config.negatives, len(record.negatives)
        first: list[int] = []
        if self.config.negative_images:
            pictured = [i for i, path in enumerate(record.negative_images) if path is not None]
            first = [pictured[i] for i in self.take(_PICTURED, number, len(pictured), 1)]
        others = [i for i in range(size) if i not in first]
        return first + [
            others[i] for i in self.take(_NEGATIVE, number, len(others), count - len(first))
        ]

    def _readable(self, number: int, opened: Callable[[int], Seen]) -> tuple[int, Record, Seen]:
        last: CounterpointError | None = None
        for tried in range(_PATIENCE):
            candidate = self._stand_in(number, tried) if tried else number
            try:
                record = self.source.record(candidate)
                image = opened(candidate)
            except (ImageError, DataError) as error:
                self.problems.add(UNREADABLE, shortened(error))
                last = error
                continue
            return candidate, record, image
        raise DataError(
            "E-DATA-UNREADABLE", f"{_PATIENCE} samples in a row cannot be read; the last: {last}"
        )

    def _image(self, number: int, stream: int) -> Tensor:
        """As a tensor; of a locked trunk the number of its features."""
        if self.data.seen is not None:
            return self.data.seen.row(self.source.picture(number))
        return self._preprocessed(self.source.image(number, self.data.side), number, stream)

    def _stand_in(self, number: int, tried: int) -> int:
        state = fold(fold(fold(self.data.keys[_STAND_IN], number), self.epoch), tried)
        return int(state[0] % np.uint64(self.source.size))

    def _negative_image(self, number: int, record: Record, chosen: int) -> Tensor | None:
        path = record.negative_images[chosen] if record.negative_images else None
        if path is None:
            return None
        try:
            if self.data.seen is not None:
                return self.data.seen.row(self.source.picture_at(path))
            image = open_picture(self.source.picture_at(path), self.data.side)
        except ImageError as error:
            self.problems.add(NO_IMAGE, shortened(error))
            return None
        return self._preprocessed(image, number, 2 + chosen)

    def _preprocessed(self, image: Image.Image, number: int, stream: int) -> Tensor:
        state = fold(fold(fold(self.data.keys[_AUGMENT], number), self.epoch), stream)
        self.seed(int(state[0] >> np.uint64(1)))  # torch takes 63 bits
        if self.data.split is None:
            return self.data.setting.preprocess(image)
        return torch.from_numpy(self.data.split[0](image)).permute(2, 0, 1)


def side_by_side(first: Image.Image, second: Image.Image) -> Image.Image:
    """Two pictures as one square one: beside each other, or wide ones one above the other, as CLIC
    has it (Peleg et al. 2025). The first says which; each is squeezed to its half."""
    side = max(first.size)
    wide = first.width >= first.height
    half = (side, side // 2) if wide else (side // 2, side)
    joined = Image.new("RGB", (half[0], 2 * half[1]) if wide else (2 * half[0], half[1]))
    for place, picture in enumerate((first, second)):
        part = picture.convert("RGB").resize(half, Image.Resampling.BICUBIC)
        joined.paste(part, (0, place * half[1]) if wide else (place * half[0], 0))
    return joined


# --- texts and batches ---------------------------------------------------------------------------


def joined_text(*captions: str) -> str:
    """Captions as sentences, each with a full stop."""
    stripped = (caption.strip() for caption in captions)
    return " ".join(text if text.endswith(".") else f"{text}." for text in stripped)


def _texts(
    drawn: list[_Drawn], widths: dict[str, int]
) -> tuple[dict[str, np.ndarray], dict[str, Tensor]]:
    """The texts of a batch by field, and the masks; a missing text is the caption again."""
    captions = [sample.caption for sample in drawn]
    texts, masks = {"captions": np.array(captions, dtype=object)}, {}
    for name, width in widths.items():
        rows = [(sample.texts.get(name, []) + [None] * width)[:width] for sample in drawn]
        both = zip(captions, rows, strict=True)
        filled = [[caption if t is None else t for t in row] for caption, row in both]
        texts[name] = np.array(filled, dtype=object)
        masks[MASKS[name]] = torch.tensor([[text is not None for text in row] for row in rows])
    if "positives" in widths:  # one, without a place of its own
        texts["positives"], mask = texts["positives"][:, 0], MASKS["positives"]
        masks[mask] = masks[mask][:, 0]
    return texts, masks


def _batch(drawn: list[_Drawn], content: dict[str, Any], pictured: bool) -> Batch:
    content["images"] = _stacked([sample.image for sample in drawn])
    if pictured:
        content["negative_images"] = _stacked(
            [s.image if s.negative_image is None else s.negative_image for s in drawn]
        )
        content["has_negative_image"] = torch.tensor([s.negative_image is not None for s in drawn])
    return Batch(**content, samples=[sample.number for sample in drawn])


def _stacked(images: list[Tensor]) -> Tensor:
    """(n, 3, H, W). Levels lie pixel by pixel and stay so: to sort them by colour takes ten times
    as long as to copy them, and the device does it in no time (`split_transform`)."""
    if all(image.is_contiguous() for image in images):
        return torch.stack(images)
    return torch.stack([image.permute(1, 2, 0) for image in images]).permute(0, 3, 1, 2)
