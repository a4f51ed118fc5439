"""Train the base model of the world: contrastively, from scratch, on captions like web text.

    python scripts/train_world_base.py --out src/counterpoint/world/checkpoints/base \
        --steps 3000 --batch 1024 --grammar 0.5 --synonym 0.01 --seed 0 --device cuda --workers 4

Writes an open_clip model folder (config, tokenizer merges, fp16 safetensors) and how it was made.
The learning rate stays where it is and the weights saved are an average over the last steps (EMA),
which does for a decay: so training for fewer steps gives the same model as stopping there, and
`--every` looks at the models on the way (and saves them, as OUT-STEP).
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
from safetensors.torch import load_file, save_file

from counterpoint._util.random_numbers import fold, key, uniforms
from counterpoint.world.arrays import (
    OBJECT_DRAWS,
    SCENE_DRAWS,
    Scenes,
    WorldTokens,
    draw_plain,
    draw_scenes,
)
from counterpoint.world.drawing import PIXELS, paint
from counterpoint.world.edits import replacements, swaps
from counterpoint.world.scenes import CANONICAL, Scene

MEAN, STD = 0.5, 0.25
AVERAGED = 0.998  # of the averaged weights at each step; the rest is the newest
CONTEXT = 77  # of the saved model, as CLIP's: captions of the world have at most 24 tokens
_STREAM = 0x6261_7365  # keeps these draws apart from any others of the seed
MODEL = {
    "embed_dim": 128,
    "vision_cfg": {
        "image_size": PIXELS,
        "layers": 4,
        "width": 160,
        "head_width": 32,
        "patch_size": 8,
    },
    "text_cfg": {"context_length": 24, "width": 160, "heads": 5, "layers": 4},
}


def learn_merges(words: list[str]) -> list[tuple[str, str]]:
    """Byte-pair merges (Sennrich et al. 2016) until each word of the world is a single token."""
    symbols = {word: [*word[:-1], word[-1] + "</w>"] for word in words}
    merges: list[tuple[str, str]] = []
    while True:
        counts = Counter(pair for parts in symbols.values() for pair in pairwise(parts))
        if not counts:
            return merges
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        symbols = {word: merge(parts, best) for word, parts in symbols.items()}


def merge(parts: list[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    for part in parts:
        if merged and (merged[-1], part) == pair:
            merged[-1] += part
        else:
            merged.append(part)
    return merged


class Batches(torch.utils.data.IterableDataset[Any]):
    """Scenes as numbers and their tokenised captions, drawn anew for ever."""

    def __init__(self, tokenizer: Any, arguments: argparse.Namespace) -> None:
        self.tokens, self.arguments = WorldTokens(tokenizer, pad=0), arguments

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray, torch.Tensor]]:
        info = torch.utils.data.get_worker_info()
        first, apart = (info.id, info.num_workers) if info else (0, 1)
        for step in count(first, apart):  # workers take turns, so their number changes nothing
            yield self.batch(step)

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray, torch.Tensor]:
        size, asked = self.arguments.batch, self.arguments
        stream = fold(key(_STREAM, asked.seed), np.arange(step * size, (step + 1) * size))
        draws = uniforms(fold(stream, 0), SCENE_DRAWS)
        # Among scenes of the same objects in other places, only places tell a caption's own image.
        leader = np.arange(size) // asked.siblings * asked.siblings
        draws[:, OBJECT_DRAWS] = draws[leader, OBJECT_DRAWS]
        scenes = draw_scenes(draws)
        words = draw_plain(scenes, fold(stream, 1), asked.grammar, asked.synonym)
        return *scenes.table(), self.tokens(words)


def pixels(things: Any, grounds: Any, device: str) -> torch.Tensor:
    things, grounds = (torch.as_tensor(t).to(device) for t in (things, grounds))
    pictures = paint(things, grounds, pixels=PIXELS, xp=torch)
    return (pictures.permute(0, 3, 1, 2).float() / 255 - MEAN) / STD


def learning_rate(step: int, peak: float, warmup: int = 200) -> float:
    return peak * min(1.0, (step + 1) / warmup)


def train(
    model: Any, batches: Iterator[Any], arguments: argparse.Namespace, look: Callable[..., None]
) -> Any:
    """The averaged model; `look(it, step)` is called every so many steps."""
    averaged = copy.deepcopy(model)
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-6)
    for step, (things, grounds, tokens) in enumerate(islice(batches, arguments.steps)):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, arguments.rate)
        images = pixels(things, grounds, arguments.device)
        with torch.autocast("cuda", torch.bfloat16, enabled=arguments.device == "cuda"):
            image, text, scale = model(images, tokens.to(arguments.device))
            logits = scale * image @ text.T
        target = torch.arange(len(logits), device=logits.device)
        both = (logits.float(), logits.float().T)
        loss = torch.stack([torch.nn.functional.cross_entropy(x, target) for x in both]).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(100))
            keep = min(AVERAGED, (step + 1) / (step + 10))
            torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - keep)
        done = step + 1
        if done % 200 == 0:
            print(f"step {done:5d}  loss {loss.item():.3f}  scale {scale.item():.1f}", flush=True)
        if arguments.every and done % arguments.every == 0 and done < arguments.steps:
            look(averaged, done)
    return averaged


@torch.no_grad()
def evaluate(model: Any, tokenizer: Any, device: str, size: int = 2000) -> dict[str, float]:
    """Quick look at original accuracy, augmented accuracy and brittleness."""
    model.eval()
    found: dict[str, float] = {}
    for name, edits in (("replace", replacements(1)), ("swap", swaps(1))):
        cases = list(islice(edits, size))
        image = model.encode_image(scene_pixels([e.scene for e in cases], device), normalize=True)
        c, p, n = (
            (image * model.encode_text(tokenizer(captions).to(device), normalize=True)).sum(-1)
            for captions in zip(*((e.original, e.positive, e.negative) for e in cases), strict=True)
        )
        found[f"{name} original"] = float((c > n).float().mean())
        found[f"{name} augmented"] = float(((c > n) & (p > n)).float().mean())
        found[f"{name} brittleness"] = float(((c > n) != (p > n)).float().mean())
        groups = [
            (e.group, "" if e.usual is None else ("unusual", "usual")[e.usual]) for e in cases
        ]
        for group in sorted({g for two in groups for g in two if g}):
            rows = torch.tensor([group in two for two in groups], device=device)
            found[f"{name} original {group}"] = float((c > n)[rows].float().mean())
    return {key: round(value, 4) for key, value in found.items()}


def scene_pixels(scenes: list[Scene], device: str) -> torch.Tensor:
    return pixels(*Scenes.of(scenes).table(), device)


def save(model: Any, folder: Path, config: dict[str, Any], merges: bytes, note: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.half().contiguous().cpu() for name, value in model.state_dict().items()}
    # Positions beyond those that were trained repeat the last one: longer captions can be read, and
    # what is made of them means no more than the model knows.
    table = weights["positional_embedding"]
    more = table[-1:].expand(CONTEXT - len(table), -1)
    weights["positional_embedding"] = torch.cat([table, more])
    config["model_cfg"]["text_cfg"]["context_length"] = CONTEXT
    save_file(weights, folder / "open_clip_model.safetensors", metadata={"format": "pt"})
    (folder / "open_clip_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "bpe_merges.txt.gz").write_bytes(merges)
    (folder / "README.md").write_text(note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="model folder to write")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=1e-3, help="peak learning rate")
    parser.add_argument("--grammar", type=float, default=0.1, help="share of grammatical captions")
    parser.add_argument("--synonym", type=float, default=0.03, help="share of rarer words")
    parser.add_argument("--siblings", type=int, default=1, help="scenes with the same objects")
    parser.add_argument("--start", type=Path, help="weights to go on from: a folder made by this")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--every", type=int, default=0, help="look at the model, and save it")
    arguments = parser.parse_args()
    start = time.monotonic()

    torch.manual_seed(arguments.seed)
    words = sorted(
        {part for word in CANONICAL for part in word.split()} | {"the", "a", "an", "and"}
    )
    lines = ["#version: counterpoint world", *(" ".join(m) for m in learn_merges(words))]
    merges = gzip.compress("\n".join(lines).encode(), mtime=0)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "bpe_merges.txt.gz").write_bytes(merges)
    tokenizer = open_clip.SimpleTokenizer(
        str(arguments.out / "bpe_merges.txt.gz"),
        context_length=MODEL["text_cfg"]["context_length"],  # type: ignore[index]
    )
    cfg = {**MODEL, "text_cfg": {**MODEL["text_cfg"], "vocab_size": tokenizer.vocab_size}}  # type: ignore[dict-item]
    model = open_clip.CLIP(**cfg).to(arguments.device)
    if arguments.start:
        weights = load_file(arguments.start / "open_clip_model.safetensors")
        weights["positional_embedding"] = weights["positional_embedding"][: model.context_length]
        model.load_state_dict(weights)
    loader = torch.utils.data.DataLoader(
        Batches(tokenizer, arguments), batch_size=None, num_workers=arguments.workers
    )
    preprocess = {
        "mean": [MEAN] * 3,
        "std": [STD] * 3,
        "interpolation": "bicubic",
        "resize_mode": "squash",
    }
    device = torch.cuda.get_device_name() if arguments.device == "cuda" else arguments.device

    def finish(model: Any, steps: int, folder: Path | None = None) -> None:
        found = evaluate(model, tokenizer, arguments.device)
        minutes = (time.monotonic() - start) / 60
        where = f"{minutes:.1f} minutes on {device}, torch {torch.__version__}"
        note = how_it_was_made(arguments, steps, found, where)
        folder = folder or arguments.out.with_name(f"{arguments.out.name}-{steps}")
        save(model, folder, {"model_cfg": cfg, "preprocess_cfg": preprocess}, merges, note)
        print(f"{folder}, {minutes:.1f} minutes: {json.dumps(found)}", flush=True)

    finish(train(model, iter(loader), arguments, finish), arguments.steps, arguments.out)


def how_it_was_made(
    arguments: argparse.Namespace, steps: int, found: dict[str, float], where: str
) -> str:
    names = ("batch", "rate", "grammar", "synonym", "siblings", "seed", "device", "workers")
    start = [f"--start {arguments.start}"] if arguments.start else []
    given = [f"--{name} {getattr(arguments, name)}" for name in names]
    options = " ".join([f"--steps {steps}", *start, *given])
    rows = "\n".join(f"| {key} | {100 * value:.1f} |" for key, value in found.items())
    return (
        "# The base model of the world\n\nMade by\n\n"
        f"    python scripts/train_world_base.py --out FOLDER {options}\n\n"
        f"in {where}.\n\nAt the end of training, on 2,000 cases each (seed 1), in per cent:\n\n"
        f"| | |\n|---|---|\n{rows}\n"
    )


if __name__ == "__main__":
    main()
