"""The recipes on photographs: locked-image tuning from one base, several seeds, all benchmarks.

    python scripts/photo_data.py --data DATA --out FOLDER
    python scripts/photo_study.py --data FOLDER --photographs DATA --towers hf:dino-minilm --out OUT
    python scripts/photo_tables.py OUT

The base comes first, from two towers that have never met (examples/build_dino_minilm.py).
Every row starts from it: see `study.py`. The image trunk is locked in all of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path
from typing import Final

from flickr8k import RECALLS, recalls
from study import BASE, Study, add_arguments, run_study, training

from counterpoint.metrics.statistics import ALL

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
ROWS: Final[dict[str, list[str]]] = {
    "clip-ft": ["clip-ft"],
    "hn": ["hn"],
    "hp": ["hp"],
    "hp-hn": ["hp-hn"],
    "counterpoint": ["counterpoint"],
    # Other people's captions of the same photograph as the positives, instead of rewordings.
    "hp-hn-people": ["hp-hn", PEOPLE],
    "hp-people": ["hp", PEOPLE],
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_arguments(parser, ROWS)
    parser.add_argument("--data", type=Path, required=True, help="made by photo_data.py")
    parser.add_argument("--photographs", type=Path, required=True, help="the data root")
    parser.add_argument("--towers", required=True, help="the model that the base starts from")
    parser.add_argument("--first", nargs="*", default=[], help="for both stages of the base")
    given = parser.parse_args()
    study = study_of(given)
    os.environ["COUNTERPOINT_DATA"] = str(study.data)  # where data.keep_out finds benchmarks
    for stage in () if given.score else STAGES:
        if not (given.out / stage / "seed-0" / "model").is_dir():
            given.out.mkdir(parents=True, exist_ok=True)
            subprocess.run(training(study, stage, 0, given), check=True)
    run_study(study, given)


if __name__ == "__main__":
    main()
