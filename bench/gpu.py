"""How close encoding comes to what a device can do.

    PYTHONPATH=src python bench/gpu.py [--device cuda] [--images 8192] [--cases cases.jsonl]

For random weights of true architectures, in one run: the device's bf16 ceiling (a matrix product);
images per second of the bare tower on images that lie in its memory, of our adapter on bytes in
the host's memory, and of the engine on JPEG files (decoded exactly, and on the GPU); what the cores
decode, in threads and in processes; captions per second. The share of the ceiling counts the
multiplications of the tower's matrices and attention. A stall is the share of the engine's time
that the tower would not have needed.

With `--cases` (lines with `images`, `captions`: the first caption is the true one), verdicts in
every precision, and with both decoders, are compared with those of float32 on the CPU.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
from PIL import Image

from counterpoint._util.progress import Quiet
from counterpoint._util.store import Store
from counterpoint.cases import ImageRef
from counterpoint.images import Picture
from counterpoint.models import LoadOptions, load_model
from counterpoint.models.openclip.adapter import OpenClip
from counterpoint.models.openclip.ids import OpenClipSource
from counterpoint.models.torch_models import Runtime
from counterpoint.scoring import Work, encode_captions, encode_images, stored

SIZE = (640, 480)
WORDS = ("a red dog", "the small cat", "two trees", "stands near", "sits under", "and a house")
MODELS = "ViT-B-32,ViT-L-14,ViT-SO400M-14-SigLIP"


class SmallVocabulary(open_clip.SimpleTokenizer):  # type: ignore[misc]
    """CLIP's tokenizer for a tower of fewer words: its own cannot be had without a network."""

    words = 32_000

    def encode(self, text: str) -> list[int]:
        return [id % (self.words - 2) + 1 for id in super().encode(text)]


def build(name: str, options: LoadOptions) -> OpenClip:
    torch.manual_seed(0)
    model = open_clip.create_model(name, load_weights=False, pretrained_text=False)
    context = model.context_length
    tokenizer: Any = open_clip.SimpleTokenizer(context_length=context)
    if model.vocab_size < tokenizer.vocab_size:
        tokenizer = SmallVocabulary(context_length=context)
        tokenizer.sot_token_id, tokenizer.eot_token_id = 1, 1
    runtime = Runtime(options)
    return OpenClip(OpenClipSource(name, name, None), model.to(runtime.device), tokenizer, runtime)


def photo(number: int) -> bytes:
    """A JPEG of the size and weight of COCO's (about 120 kB): shapes with some noise."""
    rng = np.random.default_rng(number)
    shapes = Image.fromarray(rng.integers(0, 255, (12, 16, 3), dtype=np.uint8)).resize(SIZE)
    pixels = np.asarray(shapes) + rng.normal(0, 12, (SIZE[1], SIZE[0], 3))
    buffer = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def photos(folder: Path, count: int, cores: int) -> list[Picture]:
    """Files of different content, of a few hundred images: making them takes long."""
    with ProcessPoolExecutor(cores) as pool:
        made = list(pool.map(photo, range(min(count, 512)), chunksize=16))
    for number in range(count):
        data = made[number % len(made)]
        comment = b"\xff\xfe\x00\x0a" + f"{number:08d}".encode()  # makes another file of it
        (folder / f"{number}.jpg").write_bytes(data[:2] + comment + data[2:])
    return [Picture(ImageRef(f"{number}.jpg"), folder) for number in range(count)]


def captions_of(count: int) -> list[str]:
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 6, count)
    return [f"{' '.join(rng.choice(WORDS, n))} {i}" for i, n in enumerate(lengths)]


# --- rates ---------------------------------------------------------------------------------------


def repeated(work: Callable[[], object], device: str, seconds: float = 1.5) -> float:
    """Calls per second."""
    wait: Any = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    for _ in range(2):
        work()
    wait()
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        work()
        calls += 1
        if calls % 4 == 0:
            wait()
    wait()
    return calls / (time.perf_counter() - start)


def ceiling(device: str) -> float:
    side = 8192 if device.startswith("cuda") else 1024
    left, right = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    return 2 * side**3 * repeated(lambda: left @ right, device)


def operations(model: Any) -> float:
    """Of one image: two for each weight of a matrix and each place, and attention's own."""
    tower = model.visual
    side = tower.image_size[0] if isinstance(tower.image_size, tuple) else tower.image_size
    config = getattr(tower, "patch_size", None) or tower.trunk.patch_embed.patch_size
    patch = config[0] if isinstance(config, tuple) else config
    blocks = tower.transformer.resblocks if hasattr(tower, "transformer") else tower.trunk.blocks
    places = (side // patch) ** 2 + hasattr(tower, "class_embedding")
    weights = sum(p.numel() for block in blocks for p in block.parameters() if p.ndim == 2)
    width = next(p.shape[-1] for p in blocks[0].parameters() if p.ndim == 2)
    return 2.0 * places * weights + 4.0 * len(blocks) * places**2 * width


def bare(model: OpenClip, batch: int, half: torch.dtype | None) -> float:
    """The tower alone, on images in the device's memory."""
    size = model.model.visual.image_size
    sides = size if isinstance(size, tuple) else (size, size)
    device = model.runtime.device
    images = torch.randn(batch, 3, *sides, device=device, dtype=half or torch.float32)

    def run() -> None:
        with torch.inference_mode():
            model.model.encode_image(images)

    return batch * repeated(run, device)


def in_lanes(model: OpenClip, method: str, items: list[Any], seconds: float = 3.0) -> float:
    """The adapter on prepared items, several batches at a time as in the engine."""
    encode = getattr(model, method)
    with ThreadPoolExecutor(max(1, model.lanes)) as pool:
        list(pool.map(encode, [items] * 4))
        start, done = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            done += sum(len(found) for found in pool.map(encode, [items] * 8))
        return done / (time.perf_counter() - start)


def from_files(model: OpenClip, pictures: list[Picture]) -> float:
    """The engine, from JPEG files to committed vectors: images per second."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store:
        work = Work(store, None, Quiet())
        encode_images(model, pictures[:1], work)  # finds the batch size
        start = time.perf_counter()
        encode_images(model, pictures[1:], work)
        return (len(pictures) - 1) / (time.perf_counter() - start)


def from_texts(model: OpenClip, captions: list[str]) -> tuple[float, float]:
    """The engine, from texts to committed vectors; and counting tokens alone."""
    start = time.perf_counter()
    lengths = model.count_tokens(captions)
    counted = len(captions) / (time.perf_counter() - start)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store:
        work = Work(store, None, Quiet())
        encode_captions(model, captions[:1], lengths[:1], work)
        start = time.perf_counter()
        encode_captions(model, captions, lengths, work)
        return len(captions) / (time.perf_counter() - start), counted


_decoding: dict[str, Any] = {}


def decode_one(path: str) -> int:
    """Read, decode, resize and crop: what a core has to do for one image."""
    if "pixels" not in _decoding:
        from open_clip.transform import PreprocessCfg, image_transform_v2

        from counterpoint.models.torch_models import TowerPixels

        _decoding["pixels"] = TowerPixels(
            image_transform_v2(PreprocessCfg(), is_train=False), "cpu"
        )
    return len(_decoding["pixels"].prepare(Picture(ImageRef(path)).open()))


def decoding(pool: Executor, pictures: list[Picture]) -> float:
    paths = [str(picture.path()) for picture in pictures]
    list(pool.map(decode_one, paths[:256], chunksize=8))
    start = time.perf_counter()
    list(pool.map(decode_one, paths, chunksize=8))
    return len(paths) / (time.perf_counter() - start)


# --- verdicts ------------------------------------------------------------------------------------


def verdicts(id: str, options: LoadOptions, cases: list[Any], root: Path) -> np.ndarray:
    """Of each case and false caption: whether the true caption has the higher score."""
    model: Any = load_model(id, options)
    pictures = [Picture(ImageRef(case["images"][0]), root) for case in cases]
    texts = sorted({text for case in cases for text in case["captions"]})
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store:
        work = Work(store, None, Quiet())
        images = stored(encode_images(model, pictures, work).keys, store)
        keys = encode_captions(model, texts, model.count_tokens(texts), work)
        vectors = dict(zip(texts, stored(keys, store), strict=True))
    found = []
    for image, case in zip(images, cases, strict=True):
        first, *others = (float(image @ vectors[text]) for text in case["captions"])
        found.append([first > other for other in others])
    return np.array(found)


def as_jpegs(cases: list[Any], folder: Path) -> list[Any]:
    """The same cases with their images as JPEG files of a photograph's size."""
    for number, case in enumerate(cases):
        image = (
            Picture(ImageRef(case["images"][0])).open().resize((512, 512), Image.Resampling.LANCZOS)
        )
        image.save(folder / f"{number}.jpg", quality=90)
    return [{**case, "images": [f"{n}.jpg"]} for n, case in enumerate(cases)]


def flips(models: Iterable[str], file: Path, device: str) -> None:
    cases = [json.loads(line) for line in file.read_text().splitlines()]
    print(f"\nflips, of {len(cases):,} cases ({file.name}), against fp32 on the CPU:")
    with tempfile.TemporaryDirectory() as folder:
        filed, root = as_jpegs(cases, Path(folder)), Path(folder)
        for id in models:
            exact = verdicts(id, LoadOptions("cpu"), filed, root)
            rows = [("fp32", "exact"), ("tf32", "exact"), ("fp16", "exact"), ("bf16", "exact")]
            rows += [("fp32", "gpu"), ("fp16", "gpu")] if device.startswith("cuda") else []
            for precision, decode in rows:
                options = LoadOptions(device, precision, decode=decode)
                found = verdicts(id, options, filed, root)
                changed = int((found != exact).any(axis=1).sum())
                share = changed / len(cases)
                print(f"  {id:20} {precision} {decode:6} {changed:5} {share:8.2%}", flush=True)


def measure(name: str, args: argparse.Namespace, pictures: list[Picture], top: float) -> None:
    model = build(name, LoadOptions(args.device, args.precision))
    work = operations(model.model)
    memory = max(bare(model, batch, model.runtime.half) for batch in args.batches)
    print(f"\n{name}: {work / 1e9:.1f} GFLOP an image, {args.precision}")

    def row(what: str, rate: float, of: float | None = None) -> None:
        stall = f"  stalled {1 - rate / memory:5.1%}" if of else ""
        share = f"{rate * work / top:6.1%} of the ceiling" if work else ""
        print(f"  {what:44}{rate:10,.0f}/s  {share}{stall}", flush=True)

    row("bare tower, images in the device's memory", memory)
    batch = [model.preprocess(pictures[0].open())] * max(args.batches)
    row("adapter, bytes in the host's memory", in_lanes(model, "encode_images", batch))
    row("engine, JPEG files, exact", from_files(model, pictures), memory)
    if args.device.startswith("cuda"):
        runtime = Runtime(LoadOptions(args.device, args.precision, decode="gpu"))
        model = OpenClip(OpenClipSource(name, name, None), model.model, model.tokenizer, runtime)
        row("engine, JPEG files, decoded on the GPU", from_files(model, pictures), memory)
    texts = captions_of(args.captions)
    engine, counted = from_texts(model, texts)
    middle = sorted(texts, key=len)[len(texts) // 2]
    adapter = in_lanes(model, "encode_captions", [middle] * (2048 if model.lanes else 64))
    print(f"  {'captions: adapter':44}{adapter:10,.0f}/s")
    print(f"  {'captions: engine, with the store':44}{engine:10,.0f}/s")
    print(f"  {'captions: counting tokens':44}{counted:10,.0f}/s", flush=True)


def arguments() -> argparse.Namespace:
    gpu = torch.cuda.is_available()  # without one, a short run that only shows that it works
    parser = argparse.ArgumentParser(description="How close encoding comes to the hardware")
    parser.add_argument("--models", default=MODELS if gpu else "ViT-B-32")
    parser.add_argument("--device", default="cuda" if gpu else "cpu")
    parser.add_argument("--precision", default="fp16" if gpu else "fp32")
    parser.add_argument("--images", type=int, default=8192 if gpu else 32)
    parser.add_argument("--captions", type=int, default=100_000 if gpu else 200)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--batches", type=int, nargs="*", default=[256, 512] if gpu else [16])
    parser.add_argument("--cases", type=Path, help="for verdicts")
    parser.add_argument("--flips", default="world:base", help="models of --cases")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    top = ceiling(args.device)
    print(f"ceiling: {top / 1e12:.0f} TFLOP/s, a bf16 matrix product")
    with tempfile.TemporaryDirectory() as folder:
        pictures = photos(Path(folder), args.images, args.cores)
        some = pictures[: min(len(pictures), 4096)]
        with ThreadPoolExecutor(args.cores) as pool:
            print(f"decoding, {args.cores} threads: {decoding(pool, some):,.0f}/s")
        with ProcessPoolExecutor(args.cores) as pool:
            print(f"decoding, {args.cores} processes: {decoding(pool, some):,.0f}/s", flush=True)
        for name in filter(None, args.models.split(",")):
            measure(name, args, pictures, top)
    if args.cases:
        flips(args.flips.split(","), args.cases, args.device)


if __name__ == "__main__":
    main()
