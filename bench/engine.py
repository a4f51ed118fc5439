"""What the engine saves: padding that is not computed, images not encoded twice, runs not repeated,
photographs not decoded again for every crop.

    PYTHONPATH=src python bench/engine.py
    PYTHONPATH=src python bench/engine.py --only crops --photographs FOLDER
    PYTHONPATH=src python bench/engine.py --only staging --threads 16

The model is open_clip's ViT-B-32 with random weights: speed does not depend on what they are. The
table is shaped like SugarCrepe's: one image, two captions, several cases to an image. Crops are
read and preprocessed for the model, and not encoded.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import open_clip
import torch
from PIL import Image

from counterpoint._util.progress import Quiet
from counterpoint._util.store import Store
from counterpoint.cases.table import Cases, ImageRef, caption_case
from counterpoint.images import Picture, decode as decode_image, schemes
from counterpoint.models.openclip.adapter import CaptionTokens, OpenClip
from counterpoint.models.openclip.ids import OpenClipSource
from counterpoint.models.registry import LoadOptions
from counterpoint.models.torch_models import Runtime, stacked
from counterpoint.scoring import encode_images
from counterpoint.scoring.engine import score
from counterpoint.scoring.kinds import Work

NAME = "ViT-B-32"
PARTS = ("tokens", "padding", "reuse", "crops", "staging")
SIZE = (640, 480)  # of a COCO photograph
WORDS = (
    *("a", "the", "two", "of", "on", "in", "near", "old", "red", "green", "small", "man", "woman"),
    *("dog", "cat", "horse", "table", "chair", "street", "bus", "bench", "plate", "pizza", "kite"),
    *("standing", "sitting", "riding", "holding", "next", "to", "with", "behind", "and"),
)


class Counted:
    """A dual encoder that counts what its towers are given."""

    def __init__(self, model: OpenClip) -> None:
        self.model = model
        self.fingerprint, self.context_length = model.fingerprint, model.context_length
        self.preprocess, self.count_tokens = model.preprocess, model.count_tokens
        self.images = self.captions = 0

    def encode_images(self, images: Sequence[Any]) -> np.ndarray:
        self.images += len(images)
        return self.model.encode_images(images)

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        self.captions += len(captions)
        return self.model.encode_captions(captions)


class Timed(NamedTuple):
    seconds: float
    images: int
    captions: int


def load(seed: int) -> OpenClip:
    torch.manual_seed(seed)
    logging.disable(logging.WARNING)  # open_clip warns that the weights are random: they shall be
    model = open_clip.create_model(NAME, pretrained=None)
    return OpenClip(
        OpenClipSource(NAME, NAME, None),
        model,
        open_clip.get_tokenizer(NAME),
        Runtime(LoadOptions("cpu")),
    )


def caption(rng: np.random.Generator) -> str:
    """As long as SugarCrepe's: about eleven words."""
    return " ".join(rng.choice(WORDS, int(rng.integers(8, 15))).tolist())


def table(folder: Path, cases: int, images: int, rng: np.random.Generator) -> Cases:
    """`cases` cases over `images` photographs of noise; cases of one image share its caption."""
    for number in range(images):
        coarse = rng.integers(0, 256, (12, 16, 3)).astype(np.uint8)  # noise in blocks: small files
        Image.fromarray(coarse).resize(SIZE, Image.Resampling.NEAREST).save(
            folder / f"{number}.jpg"
        )
    originals = [caption(rng) for _ in range(images)]
    rows = (
        caption_case(
            str(n), ImageRef(f"{n % images}.jpg"), [originals[n % images]], [f"{caption(rng)} {n}"]
        )
        for n in range(cases)
    )
    return Cases.build(rows, root=folder, source="bench")


def encode(model: OpenClip, texts: Sequence[str], cut: bool) -> tuple[np.ndarray, float]:
    """The captions' vectors, and the seconds they took."""
    model.cuts_padding = cut
    start = time.perf_counter()
    return model.encode_captions(texts), time.perf_counter() - start


def tokens(model: OpenClip, count: int, rng: np.random.Generator) -> None:
    """Captions that the text tower has not seen, by open_clip's tokenizer and by ours."""
    texts = [caption(rng) for _ in range(count)]
    theirs, ours = model.tokenizer, CaptionTokens(model.tokenizer)
    start = time.perf_counter()
    expected = theirs(texts).numpy()
    slow = time.perf_counter() - start
    start = time.perf_counter()
    counts = ours.count(texts)
    counting = time.perf_counter() - start
    start = time.perf_counter()
    found = ours.ids(texts, cut=True)
    fast = time.perf_counter() - start
    if (found != expected[:, : counts.max()]).any() or expected[:, counts.max() :].any():
        raise SystemExit("the ids differ: the times would mean nothing")
    print(f"tokens of {count:,} captions")
    row("open_clip", count / slow, "captions/s", ",.0f")
    row("ours, ids", count / fast, "captions/s", ",.0f")
    row("ours, counts", count / counting, "captions/s", ",.0f")
    row("ratio", slow / fast, "x")


def padding(model: OpenClip, count: int, batch: int, rng: np.random.Generator) -> None:
    """Captions sorted by length, as the engine gives them, with padding cut and without."""
    if not model.cuts_padding:
        raise SystemExit("this tower does not cut padding: there is nothing to measure")
    texts = [caption(rng) for _ in range(count)]
    lengths = model.count_tokens(texts)
    texts = [texts[i] for i in np.argsort(lengths, kind="stable")]
    seconds, difference = {True: 0.0, False: 0.0}, 0.0
    encode(model, texts[:batch], cut=False)  # once to warm up
    for first in range(0, count, batch):  # in turns, so that other work on the machine slows both
        chosen = texts[first : first + batch]
        (short, fast), (full, slow) = (encode(model, chosen, cut) for cut in (True, False))
        seconds = {True: seconds[True] + fast, False: seconds[False] + slow}
        difference = max(difference, float(np.abs(short - full).max()))
    model.cuts_padding = True
    print(f"captions of {lengths.mean():.1f} tokens on average, context {model.context_length}")
    row("padding cut", count / seconds[True], "captions/s")
    row("full context", count / seconds[False], "captions/s")
    row("ratio", seconds[False] / seconds[True], "x")
    row("largest difference", difference, "", ".1e")


def timed(model: Counted, cases: Cases, store: Path, batch: int) -> Timed:
    before = model.images, model.captions
    start = time.perf_counter()
    with Store(store) as opened:
        score(model, {"bench": cases}, {"bench": "leave out"}, Work(opened, batch, Quiet()))
    seconds = time.perf_counter() - start
    return Timed(seconds, model.images - before[0], model.captions - before[1])


def reuse(model: OpenClip, cases: Cases, store: Path, batch: int) -> None:
    counted = Counted(model)
    cold, warm = (timed(counted, cases, store, batch) for _ in range(2))
    if warm.images or warm.captions:
        raise SystemExit("the second run encoded something again: the times would mean nothing")
    images, captions = int(cases.image_counts.sum()), int(cases.caption_counts.sum())
    print(f"{len(cases)} cases of one image and two captions")
    row("images asked for", images, "", ",.0f")
    row("images encoded", cold.images, "", ",.0f")
    row("ratio", images / cold.images, "x")
    row("captions asked for", captions, "", ",.0f")
    row("captions encoded", cold.captions, "", ",.0f")
    row("ratio", captions / cold.captions, "x")
    row("cold run", cold.seconds, "s", ".2f")
    row("warm run", warm.seconds, "s", ".3f")
    row("ratio", cold.seconds / warm.seconds, "x", ",.0f")


class Reads:
    """A dual encoder that computes nothing of its images."""

    fingerprint, context_length = "reads", None

    def __init__(self, model: OpenClip) -> None:
        self.preprocess = model.preprocess

    def encode_images(self, images: Sequence[Any]) -> np.ndarray:
        return np.stack([np.asarray(image).ravel()[::997] for image in images]).astype(np.float32)


def boxes(files: Sequence[Path], count: int, rng: np.random.Generator) -> list[Picture]:
    """`count` crops of each photograph, the first of all before the second of any."""
    found = []
    for _ in range(count):
        for path in files:
            with Image.open(path) as image:
                size = image.size
            sides = [int(rng.integers(side // 4, side)) for side in size]
            x, y = (int(rng.integers(0, a - b)) for a, b in zip(size, sides, strict=True))
            found.append(Picture(ImageRef(str(path), (x, y, sides[0], sides[1]))))
    return found


def crops(model: OpenClip, pictures: list[Picture], turns: int) -> None:
    """The engine's reading, and the same with every picture opened alone, in turns."""
    counts, seconds, vectors = dict[bool, int](), {True: 0.0, False: 0.0}, dict[bool, Any]()
    for shared in (True, False) * turns:
        sharing = Picture.sharing if shared else lambda picture, _: picture
        with (
            patch.object(schemes, "decode", wraps=decode_image) as decode,
            patch.object(Picture, "sharing", sharing),
            tempfile.TemporaryDirectory() as folder,
            Store(Path(folder)) as store,
        ):
            for picture in pictures:
                picture.key(store)  # not a part of reading
            start = time.process_time()
            work = Work(store, 64, Quiet())
            keys = encode_images(Reads(model), pictures, work).keys  # type: ignore[arg-type]
            seconds[shared] += time.process_time() - start
            counts[shared], vectors[shared] = decode.call_count, store.get(keys)
    if vectors[True] != vectors[False]:
        raise SystemExit("the pixels differ: the times would mean nothing")
    print(f"{len(pictures):,} crops of {len({p.ref.path for p in pictures}):,} photographs")
    row("decoded, alone", counts[False], "", ",.0f")
    row("decoded, shared", counts[True], "", ",.0f")
    row("alone", 1000 * seconds[False] / turns / len(pictures), "ms of a core per crop", ".2f")
    row("shared", 1000 * seconds[True] / turns / len(pictures), "ms of a core per crop", ".2f")
    row("ratio", seconds[False] / seconds[True], "x", ".2f")


def row(name: str, value: float, unit: str, form: str = ",.1f") -> None:
    print(f"  {name:20}{value:>12{form}} {unit}".rstrip())


def staging(batch: int, turns: int) -> None:
    """Batches put together for a GPU, in three threads as in the engine: torch's way and ours."""
    images = [np.full((224, 224, 3), number % 256, np.uint8) for number in range(batch)]
    ways: dict[str, Callable[[int], object]] = {
        "torch.stack": lambda _: torch.stack([torch.as_tensor(image) for image in images]),
        "ours": lambda _: stacked(images, pinned=False),
    }
    with ThreadPoolExecutor(3) as pool:
        for name, way in list(ways.items()) * (turns + 1):  # the first turn is to warm up
            used, clock = time.process_time(), time.perf_counter()
            list(pool.map(way, range(30)))
            each = 1e6 / (30 * batch)
            print(
                f"staging, {name:12} {each * (time.process_time() - used):8.1f} us of processors, "
                f"{each * (time.perf_counter() - clock):8.1f} us of the clock, per image"
            )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What the engine saves, on a random ViT-B-32")
    parser.add_argument("--captions", type=int, default=192, help="to time the text tower with")
    parser.add_argument("--cases", type=int, default=240, help="of the table")
    parser.add_argument("--images", type=int, default=50, help="different ones in the table")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--only", choices=PARTS, help="a part of the measurements")
    parser.add_argument("--crops", type=int, default=6, help="of each photograph")
    parser.add_argument("--photographs", type=Path, help="folder of them, instead of noise")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    rng = np.random.default_rng(args.seed)
    model = load(args.seed)
    if args.only in (None, "tokens"):
        tokens(model, 100 * args.captions, rng)
    if args.only in (None, "padding"):
        padding(model, args.captions, args.batch, rng)
    if args.only in (None, "staging"):
        staging(args.batch, args.turns)
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images"
        images.mkdir()
        cases = table(images, args.cases, args.images, rng)
        if args.only in (None, "reuse"):
            reuse(model, cases, Path(folder) / "store", args.batch)
        if args.only in (None, "crops"):
            files = sorted((args.photographs or images).rglob("*.jpg"))
            crops(model, boxes(files, args.crops, rng), args.turns)


if __name__ == "__main__":
    main()
