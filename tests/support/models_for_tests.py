"""Tiny models that keep a record of what they are asked, for the tests of store and engine.

Their vectors come from hashes of pixels and words, through a matrix product as a real tower's do,
so that batches of different sizes round differently. No torch.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from counterpoint._util.progress import Quiet
from counterpoint._util.store import Store
from counterpoint.cases.table import Case, Cases, ImageRef, caption_case
from counterpoint.images import Picture
from counterpoint.models.registry import LoadOptions
from counterpoint.scoring.engine import Scored, score
from counterpoint.scoring.kinds import Work

FEATURES, WIDTH = 48, 16
_WEIGHTS = np.random.default_rng(0).normal(size=(FEATURES, WIDTH))


# --- models ------------------------------------------------------------------------------------


def features(content: str) -> np.ndarray:
    seed = int.from_bytes(hashlib.blake2b(content.encode(), digest_size=8).digest())
    return np.random.default_rng(seed).normal(size=FEATURES)


def naive_vector(content: str) -> np.ndarray:
    """One item's unit vector in float64, alone: what any batch must come close to."""
    vector = features(content) @ _WEIGHTS
    return vector / np.linalg.norm(vector)


def pixels(image: Image.Image) -> str:
    """A name for what an image shows."""
    data = f"{image.mode} {image.size}".encode() + image.tobytes()
    return hashlib.blake2b(data, digest_size=8).hexdigest()


class Towers:
    """A DualEncoder. `context` counts a start and an end token, as CLIP's does."""

    def __init__(self, name: str = "towers", context: int | None = None) -> None:
        self.fingerprint = name
        self.context_length = context
        self.image_batches: list[list[str]] = []
        self.caption_batches: list[list[str]] = []

    @property
    def images(self) -> list[str]:
        """Everything the image tower was given, in order."""
        return [image for batch in self.image_batches for image in batch]

    @property
    def captions(self) -> list[str]:
        return [caption for batch in self.caption_batches for caption in batch]

    def preprocess(self, image: Image.Image) -> str:
        return pixels(image)

    def encode_images(self, images: Sequence[str]) -> np.ndarray:
        self.image_batches.append(list(images))
        return self._encode(images)

    def count_tokens(self, captions: Sequence[str]) -> np.ndarray:
        return np.array([len(caption.split()) + 2 for caption in captions])

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        self.caption_batches.append(list(captions))
        return self._encode([self.cut(caption) for caption in captions])

    def cut(self, caption: str) -> str:
        words = caption.split()
        return " ".join(words if self.context_length is None else words[: self.context_length - 2])

    def _encode(self, contents: Sequence[str]) -> np.ndarray:
        stacked = np.stack([features(content) for content in contents]).astype(np.float32)
        vectors = stacked @ _WEIGHTS.astype(np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class SlowTowers(Towers):
    """Takes its time, and appends a line for every item to a file that survives a kill."""

    def __init__(self, log: Path, pause: float) -> None:
        super().__init__("slow towers")
        self.log, self.pause = log, pause

    def _encode(self, contents: Sequence[str]) -> np.ndarray:
        time.sleep(self.pause)
        vectors = super()._encode(contents)
        lines = "".join(f"{content}\n" for content in contents).encode()
        file = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, lines)  # one call, so that a kill cannot leave half of it
        os.close(file)
        return vectors


class Judge:
    """A PairScorer."""

    fingerprint = "judge"

    def __init__(self) -> None:
        self.batches: list[list[tuple[str, str]]] = []

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [pair for batch in self.batches for pair in batch]

    def score_pairs(self, pictures: Sequence[Picture], captions: Sequence[str]) -> np.ndarray:
        contents = [pixels(picture.open()) for picture in pictures]
        self.batches.append(list(zip(contents, captions, strict=True)))
        return np.array([naive_pair(*pair) for pair in self.batches[-1]], dtype=np.float32)


def naive_pair(content: str, caption: str) -> float:
    return float(features(f"{content} {caption}")[0])


class Reader:
    """A BlindScorer."""

    fingerprint = "reader"

    def __init__(self) -> None:
        self.captions: list[str] = []

    def score_captions(self, captions: Sequence[str]) -> np.ndarray:
        self.captions.extend(captions)
        return np.array([features(caption)[0] for caption in captions], dtype=np.float32)


class Counter:
    """A TableScorer: the number of each pair."""

    fingerprint = "counter"

    def score_cases(self, cases: Cases) -> np.ndarray:
        return np.arange(cases.pair_offsets[-1], dtype=np.float32)


def load(rest: str, options: LoadOptions) -> SlowTowers:
    """A model family: `slow:LOG,SECONDS`."""
    del options
    log, _, pause = rest.rpartition(",")
    return SlowTowers(Path(log), float(pause))


# --- tables and pictures -----------------------------------------------------------------------


def noise(seed: int, size: tuple[int, int] = (9, 7)) -> Image.Image:
    """A small picture unlike any other seed's."""
    values = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3))
    return Image.fromarray(values.astype(np.uint8))


def write_images(folder: Path, *names: str) -> None:
    """A different picture under each name; the same name has the same picture in any folder."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        noise(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest())).save(
            folder / name
        )


def choice(id: str, image: str | ImageRef, *captions: str) -> Case:
    """One image, one true caption, the rest false."""
    ref = image if isinstance(image, ImageRef) else ImageRef(image)
    return caption_case(id, ref, captions[:1], captions[1:])


def ragged(folder: Path, count: int = 12, seed: int = 0) -> Cases:
    """Cases of many shapes that share images and captions, and their files."""
    rng = np.random.default_rng(seed)
    names = [f"{n}.png" for n in range(8)]
    texts = [" ".join(["word"] * (1 + n % 7) + [str(n)]) for n in range(20)]
    write_images(folder, *names)
    made = []
    for number in range(count):
        k, m = int(rng.integers(1, 4)), int(rng.integers(2, 6))
        images = tuple(ImageRef(str(name)) for name in rng.choice(names, k))
        captions = tuple(str(text) for text in rng.choice(texts, m, replace=False))
        truth = tuple(tuple(i * m + j == number % (k * m) for j in range(m)) for i in range(k))
        made.append(Case(f"case-{number}", images, captions, truth))
    return Cases.build(made, root=folder, source="test")


def run_engine(
    model: object, benchmarks: dict[str, Cases], store: Path, batch: int = 4, overlong: str = "cut"
) -> dict[str, Scored]:
    with Store(store) as opened:
        policies = dict.fromkeys(benchmarks, overlong)
        return score(model, benchmarks, policies, Work(opened, batch, Quiet()))  # type: ignore


def is_sentence(text: object) -> bool:
    """One line with one full stop at its end: what an error message should be."""
    line = str(text)
    return line.endswith(".") and not line.endswith("..") and "\n" not in line
