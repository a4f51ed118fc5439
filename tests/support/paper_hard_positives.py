"""What the commands of the Hard Positives paper must write."""

from __future__ import annotations

from collections import Counter

import polars as pl
from paper_commands import Done, Expected
from paper_data import CAPTIONS, ROWS
from paper_expectations import (
    answered,
    asked,
    page,
    page_of_studio,
    says,
    scored,
    swept,
    table,
    trained,
)

REPLACE, SWAP = "hard-positives/replace", "hard-positives/swap"
BOTH = {REPLACE: 2 * ROWS, SWAP: ROWS}
MEANS = [f'"mean_score_{kind}"' for kind in ("original", "positive", "negative")]


def _as_many_relations_as_attributes(_: Done) -> None:
    made = pl.concat(pl.read_parquet(f"{name}.parquet") for name in ("replace", "relations"))
    kinds = dict(made.select("text", "subtype").iter_rows())
    kept = pl.read_parquet("equal.parquet")["positives"].explode().drop_nulls()
    counts = Counter(kinds[text] for text in kept)
    assert counts["att"] == counts["rel"] > 2, counts


HARD_POSITIVES: dict[str, list[Expected]] = {
    "Table 1": [scored(BOTH, models=2), page("report.html", "brittleness", REPLACE, SWAP)],
    "Tables 2 and 9 (mean scores)": [says(*MEANS)],
    "Tables 7 and 8": [scored({REPLACE: 2 * ROWS}), scored(BOTH)],
    "3.4, A.1, Tables 4 to 6 (making REPLACE)": [
        table("benchmark.parquet", 2 * ROWS, lambda row: len(row["captions"]) == 3),
        scored({"benchmark.parquet": 2 * ROWS}),
    ],
    "C.2 (positives)": [
        table("swap.parquet", 2, lambda row: row["type"] == "swap"),
        table("replace.parquet", 8, lambda row: row["type"] == "replace" and row["image"]),
        table("theirs.parquet", len(CAPTIONS) - 2, lambda row: "one " in row["text"]),
    ],
    "C.2 (negatives, by CREPE's procedure)": [
        table("negatives.parquet", 12, lambda row: row["type"] in ("replace", "swap"))
    ],
    "training data": [
        table("train.parquet", 8, lambda row: row["image"].startswith("IMAGES/")),
    ],
    "training of HN, HP, HP+HN and of the control (Table 10)": [
        trained("hn", "clip", "negatives"),
        trained("hp", "clip", "analogy"),
        trained("hp-hn", "clip", "negatives", "analogy"),
        trained("clip-ft-hp", "clip"),
    ],
    "Table 1, swap-only and replace-only": [
        trained("hp-hn", "clip", "negatives", "analogy", only="swap"),
        trained("hp-hn", "clip", "negatives", "analogy", only="replace"),
    ],
    "Table 3 (ratio of negatives to positives)": [
        swept("sweep", 5, "augmented_accuracy"),
        scored(BOTH),
    ],
    "C.3 (equal sampling)": [
        table("relations.parquet", 3, lambda row: row["subtype"] == "rel"),
        _as_many_relations_as_attributes,
    ],
    "Figures 1 and 3 (sample predictions)": [
        *[scored({REPLACE: 2 * ROWS})] * 3,
        page("samples.html", "Sample predictions"),
        page_of_studio("hard-positives/replace"),
        says("What to learn:"),
        page("demo.html", "Sample predictions", "world:hp-hn"),
    ],
    "Table 10 (zero-shot)": [
        scored(
            {"classification/imagenet": 1, "retrieval/coco": 1, "retrieval/flickr30k": 1},
            shows="top-1",
        )
    ],
    "4.1 (people rank captions)": [
        asked("people-replace", 2 * ROWS),
        asked("people-swap", ROWS),
        answered({REPLACE: 2 * ROWS}),
        answered({SWAP: ROWS}),
    ],
}
