"""What the commands of BiVLC's paper must write."""

from __future__ import annotations

from pathlib import Path

from paper_commands import Done, Expected
from paper_data import ROWS, SUBSETS
from paper_expectations import answered, asked, says, scored, table, trained
from PIL import Image

SUGARCREPE = 2 * len(SUBSETS)
CHECKED = {
    f"{NAME}/{side}"
    for NAME in ("grammar:textattack/roberta-base-CoLA", "plausible")
    for side in ("caption", "text")
}


def _drawn(name: str, least: int, candidates: int) -> Expected:
    """Images for every negative, which can be opened."""

    def check(done: Done) -> None:
        table(name, least, lambda row: len(row["text_images"]) == candidates)(done)
        for path in list(Path(f"{Path(name).stem}-images").glob("*.png"))[:3]:
            with Image.open(path) as image:
                assert image.size[0] >= 16, image.size

    return check


BIVLC: dict[str, list[Expected]] = {
    "3.1, step 1 (captions in one format)": [
        table("pairs.parquet", SUGARCREPE, lambda row: row["text"][-1] == row["caption"][-1] == ".")
    ],
    "3.1, step 2 (images)": [_drawn("candidates.parquet", SUGARCREPE, 4)],
    "3.1, step 3 (choice of images)": [
        asked("choose", SUGARCREPE),
        table("chosen.parquet", SUGARCREPE, lambda row: row["text_image"]),
    ],
    "I.3, Table 7 (agreement)": [asked("agreement", SUGARCREPE), says("mean kappa")],
    "3.1, step 4 (ambiguous cases)": [
        asked("ambiguous", SUGARCREPE),
        table("clear.parquet", SUGARCREPE, lambda row: row["text_image"]),
        table("bivlc.parquet", SUGARCREPE, lambda row: len(row["images"]) == 2),
    ],
    "Table 1 (sizes)": [
        scored({"bivlc": ROWS, "sugarcrepe": SUGARCREPE, "winoground": 2}, shows="swap/obj")
    ],
    "Tables 2, 3 and 6": [
        scored({"bivlc": ROWS, "sugarcrepe": SUGARCREPE}, shows="I2T"),
        says("add/obj", "group"),
    ],
    "Table 2 (people)": [asked("humans", 4 * ROWS), answered({"bivlc": ROWS})],
    "5.1 (TROHN-Text)": [
        table("trohn.parquet", 20, lambda row: row["method"].startswith("llm/trohn-")),
        table("text.parquet", 15, lambda row: len(row["negatives"]) == 1),
    ],
    "5.2, steps 1 to 3 (TROHN-Img)": [
        table("selected.parquet", 3, lambda row: {s["name"] for s in row["scores"]} >= CHECKED),
        table("refined.parquet", 2, lambda row: True),
    ],
    "5.2, step 4": [
        _drawn("drawn.parquet", 2, 1),
        table("img.parquet", 2, lambda row: len(row["negatives"]) == 1 and row["negative_images"]),
    ],
    "E (training, best epoch)": [
        trained("trohn-text", "clip-negatives"),
        trained("trohn-img", "trohn-img"),
    ],
    "E (CLIP on COCO)": [
        table("coco.parquet", 8, lambda row: row["image"]),
        trained("clip-ft", "clip"),
    ],
    "Table 4 (detectors)": [
        says("image head:", "caption head:", "saved clip-det"),
        says("image head:", "caption head:", "saved trohn-img-det"),
        scored(
            {
                "bivlc/image-detection": 1,
                "bivlc/text-detection": 1,
                "bivlc": ROWS,
                "sugarcrepe": SUGARCREPE,
            },
            shows="I2T",
        ),
        says("CLIP_Det", "published"),
    ],
    "inpainted negatives (GNM)": [
        table("objects.parquet", 8, lambda row: row["type"] == "replace"),
        _drawn("inpainted.parquet", 8, 1),
    ],
}
