"""What the commands of ARO's paper must write."""

from __future__ import annotations

from typing import Any

from paper_commands import Expected
from paper_data import CAPTIONS, IMAGES, ROWS
from paper_expectations import page, says, scored, sweep_of, swept, table, trained

from counterpoint.benchmarks.word_order import SHUFFLES
from counterpoint.images import PIECES


def _swapped(row: dict[str, Any]) -> bool:
    """The same words in another order, but for articles."""
    words = [sorted(set(row[side].split()) - {"a", "an"}) for side in ("caption", "text")]
    return row["type"] == "swap" and words[0] == words[1] and row["caption"] != row["text"]


SHUFFLED = [
    f"retrieval/coco:{side}={how},seeds=3"
    for side, ways in (("captions", SHUFFLES), ("images", PIECES))
    for how in ways
]
ARO: dict[str, list[Expected]] = {
    "A.1: making VG-Relation and VG-Attribution": [
        table("vg.parquet", 2, _swapped),
        says("vg-cases.parquet: 2 cases"),
        scored({"vg-cases.parquet": 2}),
    ],
    "Figure 1, Table 2 (relations, attributes)": [
        scored({"aro/vg-relation": ROWS, "aro/vg-attribution": ROWS}),
        says("spatial", "verbs", "holding"),
    ],
    "BLIP in these tables": [scored({"aro/vg-relation": ROWS})],
    "Table 5 (order)": [
        scored(
            {
                "aro/coco-order:seeds=5": 5 * 5 * IMAGES,
                "aro/flickr30k-order:seeds=5": 5 * 5 * IMAGES,
            }
        )
    ],
    "Figure 2, Tables 3 and 4 (shuffled retrieval)": [
        sweep_of(1, {"retrieval/coco": 1, **dict.fromkeys(SHUFFLED, 3)}),
        page("report.html", "Shuffled retrieval"),
    ],
    "retrieval of BLIP": [scored({"retrieval/coco": 1}, shows="I2T R@1")] * 2,
    "Figure 3 (NegCLIP)": [
        table("negatives.parquet", 12, _swapped),
        table("neighbours.parquet", len(CAPTIONS), lambda row: len(row["neighbours"]) == 3),
        table("train.parquet", 8, lambda row: row["negatives"] and row["neighbours"]),
        trained("negclip", "negclip"),
    ],
    "its learning rate": [swept("sweep", 3, "recall")],
    "Table 6 (CLIP-FT, the control)": [
        swept("clip-ft", 3, "recall"),
        trained("clip-ft-aro", "clip"),
    ],
    "Table 6 (evaluation)": [
        scored({"retrieval/coco": 1, "retrieval/flickr30k": 1}, shows="T2I R@1")
    ],
}
ZERO_SHOT: dict[str, list[Expected]] = {
    "VTAB, the mean of 20 tasks (Hard Positives, Table 10)": [
        scored({"classification/vtab": 20}, shows="top-1")
    ],
    "CIFAR-10, CIFAR-100 and ImageNet in ARO's Table 6, which seem to be linear probes": [
        scored(
            dict.fromkeys(("probe/cifar10", "probe/cifar100", "probe/imagenet"), 1), shows="top-1"
        )
    ],
}
