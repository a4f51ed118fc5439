"""What the commands of SugarCrepe's paper must write."""

from __future__ import annotations

from paper_commands import Expected
from paper_data import IMAGES, ROWS, SUBSETS
from paper_expectations import asked, columns, says, scored, sweep_of, table, trained

OLDER = {
    "crepe/productivity": ROWS,
    "aro/vg-relation": ROWS,
    "aro/vg-attribution": ROWS,
    "aro/coco-order": 5 * IMAGES,
    "aro/flickr30k-order": 5 * IMAGES,
    "vl-checklist": 2 * ROWS,
}
SUGARCREPE: dict[str, list[Expected]] = {
    "Tables 2 to 4 (models by subset)": [
        scored({"sugarcrepe": 2 * len(SUBSETS)}),
        says("beside CLIP ViT-B/32", "swap/obj", "published", "Miranda et al."),
    ],
    "Table 8 (17 models on older benchmarks)": [
        sweep_of(17, OLDER),
        says("DataComp", "aro/flickr30k-order", "Hsieh et al.", "published"),
    ],
    "Table 8 (models of text alone)": [scored(OLDER, models=2)],
    "D.2 (generation)": [table("negatives.parquet", 12, lambda row: row["method"][:4] == "llm/")],
    "D.3 (adversarial refinement)": [
        table("refined.parquet", 4, lambda row: {s["name"] for s in row["scores"]} >= SCORES)
    ],
    "E.2, Table 9 (people compare texts)": [
        table("rules.parquet", 12, lambda row: row["kind"] == "negative"),
        asked("quality"),
        columns("preferred.csv", "model", "benchmark", "value"),
    ],
    "hard negatives of CREPE for training": [
        table("crepe.parquet", 12, lambda row: row["kind"] == "negative"),
        table("train.parquet", 10, lambda row: row["negatives"]),
    ],
    "B.3, Table 5 (trained from scratch)": [
        trained("crepe-scratch", "clip-negatives"),
        trained("crepe-scratch", "clip-negatives", only="swap"),
    ],
    "Table 5 (finetuned)": [
        trained("crepe-replace", "clip-negatives", only="replace"),
        trained("crepe-swap", "clip-negatives", only="swap"),
        trained("crepe-negate", "clip-negatives", only="negate"),
    ],
}
SCORES = {f"{name}/{side}" for name in ("grammar", "plausible") for side in ("caption", "text")}
