"""The recipes in the world: train them with several seeds and evaluate them.

    python studies/world_study.py --out FOLDER --seeds 0 1 2 --parallel 12
    python studies/world_tables.py FOLDER

Every row is one command, `counterpoint train RECIPE --world seed=S ...`: see `study.py`. With
`--base open_clip:local-dir:FOLDER` the rows start from another base than the one that ships.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Final

from study import Study, add_arguments, run_study

from counterpoint.metrics.statistics import ALL

BENCHMARKS: Final = (
    *("world-replace", "world-swap", "world-bi"),
    *("world-retrieval", "world-classification"),
)
GROUPS: Final = (ALL, "attributes", "relations", "replace", "swap", "usual", "unusual")

# `counterpoint` with the images of which its negatives are true.
TWINS: Final = [
    "loss.counterpart.weight=1",
    "data.negative_images=true",
]
# C2LIP's terms for models without a logit bias.
SOFTMAX: Final = [
    "loss.siglip.term=clip",
    "loss.siglip-concepts.term=concepts",
    "loss.siglip-concept-patches.term=concept-patches",
]
# The rows: a name, and what stands behind `counterpoint train`. NegCLIP's published negatives are
# flagged as perhaps true in 12 % of cases (docs/generate/checks.md): hence the share that is
# disguised.
ROWS: Final[dict[str, list[str]]] = {
    "clip-ft": ["clip-ft"],
    "hn": ["hn"],
    "hp-hn": ["hp-hn"],
    "counterpoint": ["counterpoint"],
    "hp": ["hp"],
    "hp-hn-swap": ["hp-hn", "only=swap"],
    "hp-hn-replace": ["hp-hn", "only=replace"],
    "hn-swap": ["hn", "only=swap"],
    "hn-replace": ["hn", "only=replace"],
    "hp-hn-0.25": ["hp-hn", "hn_weight=0.25"],
    "hp-hn-0.5": ["hp-hn", "hn_weight=0.5"],
    "hp-hn-0.75": ["hp-hn", "hn_weight=0.75"],
    "counterpoint-no-listwise": ["counterpoint", "hn_weight=0"],
    "counterpoint-no-agreement": ["counterpoint", "loss.agreement.weight=0"],
    "counterpoint-no-hold": ["counterpoint", "loss.hold.weight=0"],
    "counterpoint-no-analogy": ["counterpoint", "loss.analogy.weight=0"],
    "counterpoint-no-margin": ["counterpoint", "margin=0"],
    "counterpoint-wise": ["counterpoint", "wise=0.75"],
    "counterpoint-twins": ["counterpoint", *TWINS],
    "hp-hn-disguised": ["hp-hn", "data.disguised=0.12"],
    "counterpoint-disguised": ["counterpoint", "data.disguised=0.12"],
    "svlc": ["svlc", "lora=none"],
    "svlc-pos": ["svlc-pos", "lora=none"],
    "dac": ["dac", "lora=none"],
    "trohn-text": ["trohn-text"],
    "trohn-img": ["trohn-img"],
    "ce-clip": ["ce-clip"],
    "tripletclip": ["tripletclip"],
    "fsc-clip": ["fsc-clip"],
    "degla": ["degla"],
    "read-clip": ["read-clip"],
    "clic": ["clic", "freeze=none"],
    "c2lip": ["c2lip", *SOFTMAX],
}
WORLD: Final = Study(ROWS, ["--world"], "world:base", "open_clip:local-dir:", BENCHMARKS, GROUPS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_arguments(parser, ROWS)
    parser.add_argument("--base", default=WORLD.base, help="the model that the rows start from")
    given = parser.parse_args()
    start = [] if given.base == WORLD.base else [f"model={given.base}"]
    run_study(replace(WORLD, base=given.base, shared=[*WORLD.shared, *start]), given)


if __name__ == "__main__":
    main()
