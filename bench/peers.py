"""Whole runs against clip-benchmark and a plain loop, on the same cases, images and weights.

    PYTHONPATH=src python bench/peers.py --data FOLDER --cases 300 --threads 2

The annotation files are the authors' own (`counterpoint data get sugarcrepe` and
`hard-positives/replace`, or --data); a photograph that is not there is drawn as a 640 x 480 JPEG.
The model is ViT-B-32 with random weights, saved as a folder: speed does not depend on what weights
are. A run begins when the libraries are imported and ends with the verdict of the last case: the
model is loaded, images are decoded, captions encoded. `ours` also writes a run and its intervals.

- `plain`: one case at a time, captions padded to the context.
- `clip-benchmark`: its image_caption_selection, float32, batches of 64, two reading processes. A
  case of hard-positives is two of its instances: original and negative, positive and negative.
- `ours`: `counterpoint.evaluate` with an empty store; `second` is another benchmark over the same
  images (other captions), and `again` is the same run once more.

With --cases N, whole images are drawn with all their cases until there are N, so that an image has
as many cases as in the full benchmark. Everybody gets the same cases.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import open_clip
import torch
from clip_benchmark.datasets.builder import image_captions_collate_fn
from clip_benchmark.metrics import image_caption_selection
from PIL import Image
from safetensors.torch import save_file

import counterpoint
from counterpoint.benchmarks import load_benchmark
from counterpoint.cases import Cases

NAME = "ViT-B-32"
SIZE = (640, 480)
BENCHMARKS = ("sugarcrepe", "hard-positives/replace")
CLOSE = 1e-5  # scores nearer than this may be ordered by rounding


class Result(NamedTuple):
    """Seconds, and each case's score of every true caption above that of the negative."""

    seconds: float
    margins: np.ndarray  # (cases, true captions)


class Stage(NamedTuple):
    """A model, the chosen cases of a benchmark, and their photographs."""

    model: Path
    cases: Cases
    images: list[Path]
    captions: list[list[str]]  # the true ones, then the negative


# --- what is compared ----------------------------------------------------------------------------


def load(stage: Stage) -> tuple[Any, Any, Any]:
    model, transform = open_clip.create_model_from_pretrained(f"local-dir:{stage.model}")
    return model.eval(), transform, open_clip.get_tokenizer(f"local-dir:{stage.model}")


@torch.inference_mode()
def plain(stage: Stage) -> Result:
    start = time.perf_counter()
    model, transform, tokenizer = load(stage)
    margins = []
    for path, captions in zip(stage.images, stage.captions, strict=True):
        image = transform(Image.open(path).convert("RGB"))[None]
        image_vector = model.encode_image(image, normalize=True)
        text_vectors = model.encode_text(tokenizer(captions), normalize=True)
        scores = (image_vector @ text_vectors.T)[0]
        margins.append((scores[:-1] - scores[-1]).tolist())
    return Result(time.perf_counter() - start, np.array(margins))


class Instances(torch.utils.data.Dataset[Any]):
    """Images with a true caption and the negative, as clip-benchmark takes them."""

    def __init__(self, stage: Stage, transform: Any) -> None:
        rows = zip(stage.images, stage.captions, strict=True)
        self.rows = [(path, [true, texts[-1]]) for path, texts in rows for true in texts[:-1]]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, list[str]]:
        path, captions = self.rows[number]
        return self.transform(Image.open(path).convert("RGB")), captions


class Recorded:
    """clip-benchmark returns means only: its vectors are kept on their way."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.images: list[torch.Tensor] = []
        self.texts: list[torch.Tensor] = []

    def encode_image(self, images: torch.Tensor) -> torch.Tensor:
        self.images.append(self.model.encode_image(images))
        return self.images[-1]

    def encode_text(self, tokens: torch.Tensor) -> torch.Tensor:
        self.texts.append(self.model.encode_text(tokens))
        return self.texts[-1]


def clip_benchmark(stage: Stage) -> Result:
    start = time.perf_counter()
    model, transform, tokenizer = load(stage)
    instances, recorded = Instances(stage, transform), Recorded(model)
    loader = torch.utils.data.DataLoader(
        instances, batch_size=64, num_workers=2, collate_fn=image_captions_collate_fn
    )
    found = image_caption_selection.evaluate(recorded, loader, tokenizer, "cpu", amp=False)
    seconds = time.perf_counter() - start
    images, texts = (
        torch.nn.functional.normalize(torch.cat(vectors), dim=-1)
        for vectors in (recorded.images, recorded.texts)
    )
    scores = torch.einsum("nd,nkd->nk", images, texts.view(len(images), 2, -1))
    margins = (scores[:, 0] - scores[:, 1]).view(len(stage.images), -1).numpy()
    if abs(float((margins > 0).mean()) - found["text_acc"]) > 2 / len(instances):
        raise SystemExit(f"clip-benchmark says {found}: its vectors were not recorded rightly")
    return Result(seconds, margins)


def ours(stage: Stage, store: Path) -> Result:
    start = time.perf_counter()
    run = counterpoint.evaluate(
        f"open_clip:local-dir:{stage.model}",
        stage.cases,
        out=store / "run",
        store=store,
        device="cpu",
        overwrite=True,
        progress=None,
    )
    run.results()
    seconds = time.perf_counter() - start
    [part] = run.parts.values()
    scores = part.scores.reshape(len(stage.images), -1)
    return Result(seconds, scores[:, :-1] - scores[:, -1:])


# --- cases, photographs and weights --------------------------------------------------------------


def choose(cases: Cases, count: int, rng: np.random.Generator) -> Cases:
    """Whole images with all their cases, until there are enough."""
    names = np.array([case.images[0].path for case in map(cases.case, range(len(cases)))])
    unique = rng.permutation(np.unique(names))
    rows = {name: np.flatnonzero(names == name) for name in unique[:count]}
    kept, chosen = 0, np.zeros(len(cases), dtype=bool)
    for mine in rows.values():
        if kept >= count:
            break
        chosen[mine], kept = True, kept + len(mine)
    return cases.keep(chosen)


def photographs(cases: Cases, data: Path, folder: Path, rng: np.random.Generator) -> None:
    """Under the names of the benchmark: those that are there, and drawn ones for the others."""
    for name in {case.images[0].path for case in map(cases.case, range(len(cases)))}:
        target, real = folder / name, data / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            continue
        if real.is_file():
            target.symlink_to(real.resolve())
        else:
            coarse = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize(SIZE, Image.Resampling.BICUBIC).save(target)


def stage_of(cases: Cases, model: Path, root: Path) -> Stage:
    rows = [cases.case(row) for row in range(len(cases))]
    images = [root / row.images[0].path for row in rows]
    return Stage(model, Cases(cases.frame, root), images, [list(row.captions) for row in rows])


def reworded(stage: Stage) -> Stage:
    """Another benchmark over the same images: no caption is the same."""
    from counterpoint.cases import ImageRef, caption_case

    texts = [[f"{text}, seen today" for text in captions] for captions in stage.captions]
    rows = (
        caption_case(str(n), ImageRef(str(path)), captions[:-1], captions[-1:])
        for n, (path, captions) in enumerate(zip(stage.images, texts, strict=True))
    )
    cases = Cases.build(rows, root=Path("/"), source="bench")
    return stage._replace(cases=cases, captions=texts)


def save_weights(folder: Path) -> Path:
    torch.manual_seed(0)
    model = open_clip.create_model(NAME, load_weights=False)
    folder.mkdir()
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / "open_clip_model.safetensors")
    config = {
        "model_cfg": open_clip.get_model_config(NAME),
        "preprocess_cfg": dict(model.visual.preprocess_cfg),
    }
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    return folder


# --- comparing -----------------------------------------------------------------------------------


def compare(mine: Result, other: Result) -> str:
    """In how many cases the verdicts differ, and how near the scores of those are."""
    differ = ((mine.margins > 0) != (other.margins > 0)).any(axis=1)
    apart = float(np.abs(mine.margins - other.margins).max())
    if not differ.any():
        return f"same verdict in all {len(differ):,} cases; margins differ by {apart:.0e} at most"
    nearest = np.abs(mine.margins[differ]).min(axis=1).max()
    if nearest > CLOSE:
        raise SystemExit(f"verdicts differ although scores lie {nearest:.0e} apart")
    return (
        f"{differ.sum()} of {len(differ):,} verdicts differ, margins of these below {nearest:.0e}"
    )


def row(name: str, seconds: float, cases: int, note: str = "") -> None:
    print(f"  {name:16}{seconds:>9.2f} s {cases / seconds:>10.1f} cases/s  {note}", flush=True)


@contextmanager
def image_part() -> Iterator[Callable[[], float]]:
    """Seconds that the engine spends on images inside."""
    engine: Any = import_module("counterpoint.scoring.engine")
    spent, encode = 0.0, engine.encode_images

    def timed(*args: Any) -> Any:
        nonlocal spent
        start = time.perf_counter()
        try:
            return encode(*args)
        finally:
            spent += time.perf_counter() - start

    engine.encode_images = timed
    try:
        yield lambda: spent
    finally:
        engine.encode_images = encode


def bench(name: str, args: argparse.Namespace, model: Path, folder: Path) -> None:
    rng = np.random.default_rng(args.seed)
    _, everything = load_benchmark(name, args.data)
    cases = choose(everything, args.cases, rng) if args.cases else everything
    photographs(cases, args.data, folder, rng)
    stage = stage_of(cases, model, folder)
    number, store = len(stage.images), folder / f"store-{name.replace('/', '-')}"
    print(
        f"{name}: {number:,} of {len(everything):,} cases, {len(set(stage.images)):,} images",
        flush=True,
    )
    with image_part() as images:
        mine = ours(stage, store)
        first = images()
    row("ours", mine.seconds, number, f"images {first:.2f} s")
    slow = plain(stage)
    row("plain", slow.seconds, number)
    theirs = clip_benchmark(stage)
    row("clip-benchmark", theirs.seconds, number)
    with image_part() as images:
        second = ours(reworded(stage), store)
        later = images()
    row("ours, second", second.seconds, number, f"images {later:.2f} s")
    again = ours(stage, store)
    row("ours, again", again.seconds, number)
    if (again.margins != mine.margins).any():
        raise SystemExit("a second run has other scores")
    print(f"  plain / ours               {slow.seconds / mine.seconds:8.1f} x")
    print(f"  clip-benchmark / ours      {theirs.seconds / mine.seconds:8.1f} x")
    print(f"  images: first / second     {first / later:8.1f} x")
    print(f"  plain / ours, again        {slow.seconds / again.seconds:8.1f} x")
    print(f"  plain:          {compare(mine, slow)}")
    print(f"  clip-benchmark: {compare(mine, theirs)}")
    if number < len(everything):
        whole = len(everything) / number
        print(
            "  all cases, extrapolated from these: "
            f"plain {whole * slow.seconds / 60:,.0f} min, "
            f"clip-benchmark {whole * theirs.seconds / 60:,.0f} min, "
            f"ours {whole * mine.seconds / 60:,.0f} min"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Whole runs beside clip-benchmark and a loop")
    parser.add_argument("--data", type=Path, required=True, help="data root with the annotations")
    parser.add_argument("--cases", type=int, default=0, help="of each benchmark; 0: all of them")
    parser.add_argument("--benchmark", action="append", choices=BENCHMARKS)
    parser.add_argument("--threads", type=int, default=2, help="of torch")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    logging.disable(logging.WARNING)  # open_clip warns that the weights are random: they shall be
    with tempfile.TemporaryDirectory() as folder:
        model = save_weights(Path(folder) / "model")
        for name in args.benchmark or BENCHMARKS:
            bench(name, args, model, Path(folder))


if __name__ == "__main__":
    main()
