"""The world as training data: scenes, captions and edits drawn on the fly.

Every sample has a number and never comes again: epoch e holds the samples e * size to
(e + 1) * size - 1. Workers draw scenes as tables and texts as token ids. The process that trains
paints the pictures on the device (on a CPU, the workers paint them).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from counterpoint._util.random_numbers import fold, key, part, uniforms
from counterpoint.training.batches import Batch, cut_padding
from counterpoint.training.data.loading import (
    Parcel,
    Preprocess,
    Problems,
    Setting,
    TrainingData,
    seeded,
)
from counterpoint.world import (
    PIXELS,
    SCENE_DRAWS,
    STATEMENT_DRAWS,
    Edits,
    Scenes,
    WorldTokens,
    draw_edits,
    draw_false,
    draw_plain,
    draw_scenes,
    draw_statements,
    exchanged_words,
    holds_each,
    joined_words,
    paint,
    reworded,
    statement_words,
)

# --- pictures of scenes as the model's input -----------------------------------------------------


_LEVEL: Final = 1 / 255
_BLOCK: Final = 64  # scenes that NumPy paints at once: as many as stay in a core's cache


class WorldPictures:
    """The model's preprocessing for pictures of the world, as a few tensor operations.

    What it does to a black and a white picture gives size, mean and deviation; whether that is all
    is tried on scenes. If it is not (it augments, say), `on_device` is False, and pictures go
    through `preprocess` one by one.
    """

    def __init__(self, preprocess: Preprocess) -> None:
        self.preprocess = preprocess
        with seeded() as seed:  # what augments draws, and must not change training's chance
            seed(0)
            black, white = (
                preprocess(Image.new("RGB", (PIXELS, PIXELS), c)) for c in ("black", "white")
            )
            self.side = black.shape[-1]
            self.low = black.mean(dim=(1, 2))
            self.gain = white.mean(dim=(1, 2)) - self.low
            self.on_device = black.shape == (3, self.side, self.side) and self._agrees()

    def tensors(self, *tables: torch.Tensor) -> torch.Tensor:
        """Scenes as `Scenes.table` gives them to (n, 3, side, side), on their device; with a second
        table, those of both side by side."""
        painted = [
            paint(*tables[i : i + 2], pixels=PIXELS, xp=torch) for i in (0, 2)[: len(tables) // 2]
        ]
        pictures = painted[0] if len(painted) == 1 else _beside(painted, torch)
        return self._scaled(pictures.permute(0, 3, 1, 2))

    def prepared(self, *scenes: Scenes) -> torch.Tensor:
        """The same on the CPU."""
        painted = [
            np.concatenate(
                [
                    paint(*some[start : start + _BLOCK].table(), pixels=PIXELS, xp=np)
                    for start in range(0, len(some.counts), _BLOCK)
                ]
            )
            for some in scenes
        ]
        pictures = painted[0] if len(painted) == 1 else _beside(painted, np)
        if self.on_device:
            return self._scaled(torch.from_numpy(pictures).permute(0, 3, 1, 2))
        return torch.stack([self.preprocess(Image.fromarray(picture)) for picture in pictures])

    def _scaled(self, pictures: torch.Tensor) -> torch.Tensor:
        values = pictures.float()
        if self.side != PIXELS:
            # As Pillow does: across, then down, in whole levels after each.
            for size in ((PIXELS, self.side), (self.side, self.side)):
                values = torch.nn.functional.interpolate(
                    values, size=size, mode="bicubic", antialias=True
                )
                values = values.clamp(0, 255).round()
        low, gain = (v.to(values.device)[:, None, None] for v in (self.low, self.gain))
        return (values * _LEVEL * gain + low).contiguous()

    def _agrees(self) -> bool:
        scenes = draw_scenes(uniforms(fold(key(0), np.arange(8)), SCENE_DRAWS))
        pictures = paint(*scenes.table(), pixels=PIXELS, xp=np)
        wanted = torch.stack([self.preprocess(Image.fromarray(picture)) for picture in pictures])
        found = self._scaled(torch.from_numpy(pictures).permute(0, 3, 1, 2))
        # Pillow scales in whole numbers: a level or two of 255, here and there, are its rounding.
        allowed = 1e-4 if self.side == PIXELS else 2.5 * _LEVEL
        return bool(((wanted - found).abs() / self.gain.abs()[:, None, None]).max() < allowed)


def _beside(painted: Sequence[Any], xp: Any) -> Any:
    """Pictures (n, side, side, 3) of which each shows two at half their width: of two columns the
    mean."""
    wide = [one.astype(np.int32) if xp is np else one.int() for one in painted]
    halves = [(one[:, :, ::2] + one[:, :, 1::2]) // 2 for one in wide]
    if xp is np:
        return np.concatenate(halves, axis=2).astype(np.uint8)
    return torch.cat(halves, 2).to(painted[0].dtype)


# Streams of the seed, beside that of the edits.
_PLAIN, _DENSE, _AUGMENT, _DISGUISE, _JOINED = range(101, 106)
_PARTNERS: Final = 2**40  # samples from here on are seen beside those that are drawn
_FALSE_DRAWS: Final = 10
Words = dict[str, np.ndarray]  # word numbers, (B, words) or (B, m, words)


class WorldData(TrainingData):
    """Training data of endless scenes."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, setting.config.size, "the world (size)")
        self.pictures = WorldPictures(setting.preprocess)
        self.tokens = WorldTokens(setting.tokenize, setting.pad)
        self.paints_late = setting.on_gpu() and self.pictures.on_device

    def samples(self, epoch: int, step: int) -> np.ndarray:
        """This rank's samples of a step, by number."""
        setting = self.setting
        start = epoch * setting.config.size + step * setting.batch
        return part(np.arange(start, start + setting.batch), setting.rank, setting.world_size)

    def edits(self, samples: np.ndarray) -> Edits:
        only = cast(Any, self.setting.config.only)  # the configuration allows nothing else
        return draw_edits(self.setting.seed, samples, only, self.setting.config.synonym)

    def prepare(self, epoch: int, step: int) -> Parcel:
        samples = self.samples(epoch, step)
        edits = self.edits(samples)
        config = self.setting.config
        scenes: dict[str, tuple[Scenes, ...]] = {"images": (edits.scenes,)}
        if config.joined and not (epoch * self.steps_per_epoch + step) % 2:
            words, masks, scenes["images"] = self._joined(samples, edits)
        else:
            words, masks = self.texts(samples, edits)
        content: dict[str, Any] = {**self._tokenised(words), **masks, "samples": samples.tolist()}
        if config.negative_images:
            scenes["negative_images"] = (edits.negative_scenes,)
        for name, drawn in scenes.items():
            if self.paints_late:
                tables = (table for some in drawn for table in some.table())
                content[name] = tuple(torch.from_numpy(table) for table in tables)
            else:
                content[name] = self._painted(samples, *drawn)
        return Parcel(content, Problems())

    def _joined(
        self, samples: np.ndarray, edits: Edits
    ) -> tuple[Words, dict[str, Tensor], tuple[Scenes, Scenes]]:
        """Each scene beside another one, and texts of both (CLIC): one after the other, in the
        other order, and with a word of each exchanged."""
        others = self.edits(samples + _PARTNERS)
        first, second = edits.words()[0], others.words()[0]
        draws = uniforms(fold(key(_JOINED, self.setting.seed), samples), 3)
        wrong, false, there = exchanged_words(first, second, draws[:, 0])
        turned = draws[:, 1:] < 0.5  # the negative; the pictures
        ahead, behind = joined_words(wrong, false), joined_words(false, wrong)
        words = {
            "captions": joined_words(first, second),
            "positives": joined_words(second, first),
            "negatives": np.where(turned[:, :1], behind, ahead)[:, None],
        }
        masks = {
            "has_positive": torch.ones(len(samples), dtype=torch.bool),
            "has_negative": torch.from_numpy(there)[:, None],
        }
        order = np.argsort(np.stack([turned[:, 1], ~turned[:, 1]], axis=1), axis=1)
        both = Scenes.joined([edits.scenes, others.scenes])
        size = len(samples)
        left, right = (both[np.arange(size) + size * order[:, side]] for side in (0, 1))
        return words, masks, (left, right)

    def finish(self, content: Any) -> Batch:
        for name in ("images", "negative_images"):
            if isinstance(scenes := content.get(name), tuple | list):  # a pinned tuple is a list
                tables = (t.to(self.setting.device, non_blocking=True) for t in scenes)
                content[name] = self.pictures.tensors(*tables)
        return Batch(**content)

    def texts(self, samples: np.ndarray, edits: Edits) -> tuple[Words, dict[str, Tensor]]:
        """The texts of a batch as word numbers, and the masks of what samples have."""
        config, seed = self.setting.config, self.setting.seed
        originals, positives, negatives = edits.words()
        words = {"captions": originals}
        plain = np.zeros(len(samples), dtype=bool)
        if config.plain:
            stream = fold(key(_PLAIN, seed), samples)
            plain = uniforms(stream, 1)[:, 0] < config.plain
            drawn = draw_plain(edits.scenes, fold(stream, 1), config.grammar, config.synonym)
            gap = drawn.shape[1] - words["captions"].shape[1]
            edited = np.pad(words["captions"], ((0, 0), (0, gap)), constant_values=-1)
            words["captions"] = np.where(plain[:, None], drawn, edited)
        has = torch.from_numpy(~plain)
        if config.joined:  # a batch of single images has no texts but captions
            has = torch.zeros_like(has)
        masks = {}
        if config.positives:
            words["positives"] = positives
            masks["has_positive"] = has
        if config.negatives:
            if config.disguised:  # as of rule-made negatives some are true
                drawn = uniforms(fold(key(_DISGUISE, seed), samples), 1)
                negatives = np.where(drawn < config.disguised, positives, negatives)
            words["negatives"] = negatives[:, None]
            masks["has_negative"] = has[:, None]
        if config.negative_images:
            masks["has_negative_image"] = has
        if config.phrases:
            self._add_phrases(originals, words, masks)
        elif config.dense:
            self._add_dense(samples, edits.scenes, words, masks)
        return words, masks

    def _add_phrases(self, said: np.ndarray, words: Words, masks: dict[str, Tensor]) -> None:
        """The two noun phrases of a statement, before and after its joint."""
        each = self.setting.config.dense
        phrases = np.stack([said[:, :5], said[:, 6:]], axis=1)
        words["dense"] = phrases[:, np.arange(each) % 2]
        masks["has_dense"] = (torch.arange(each) < 2).expand(len(said), -1).clone()

    def _add_dense(
        self, samples: np.ndarray, scenes: Scenes, words: Words, masks: dict[str, Tensor]
    ) -> None:
        """Statements about any two objects, each with one that a word makes false."""
        each = self.setting.config.dense
        stream = fold(fold(key(_DENSE, self.setting.seed), samples)[:, None], np.arange(each))
        draws = uniforms(stream.ravel(), STATEMENT_DRAWS + _FALSE_DRAWS)
        every = scenes[np.repeat(np.arange(len(samples)), each)]
        true = draw_statements(every, draws)
        false = draw_false(true, draws[:, STATEMENT_DRAWS:])
        none = reworded(np.full(len(true), -1))
        shape = (len(samples), each, -1)
        words["dense"] = statement_words(true, none).reshape(shape)
        words["dense_negatives"] = statement_words(false, none).reshape(shape)
        wrong = torch.from_numpy(~holds_each(false, every)).view(len(samples), each)
        masks |= {"has_dense": torch.ones_like(wrong), "has_dense_negative": wrong}

    def _tokenised(self, words: Words) -> dict[str, Tensor]:
        """All texts at once, cut to the longest of them."""
        most = max(part.shape[-1] for part in words.values())
        flat = [
            np.pad(
                rows := part.reshape(-1, part.shape[-1]),
                ((0, 0), (0, most - rows.shape[1])),
                constant_values=-1,
            )
            for part in words.values()
        ]
        tokens = self.tokens(np.concatenate(flat))
        if self.setting.cut:
            tokens = cut_padding(tokens, self.setting.pad)
        pieces = torch.split(tokens, [len(rows) for rows in flat])
        return {
            name: piece.reshape(*part.shape[:-1], -1)
            for (name, part), piece in zip(words.items(), pieces, strict=True)
        }

    def _painted(self, samples: np.ndarray, *scenes: Scenes) -> Tensor:
        if self.pictures.on_device:
            return self.pictures.prepared(*scenes)
        states = fold(key(_AUGMENT, self.setting.seed), samples)
        with seeded() as seed:
            pictures = []
            for row, state in enumerate(states.tolist()):
                seed(state >> 1)  # torch takes 63 bits
                pictures.append(self.pictures.prepared(*(some[row : row + 1] for some in scenes)))
        return torch.cat(pictures)
