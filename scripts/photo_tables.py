"""Tables of the study on photographs (`photo_study.py`).

    python scripts/photo_tables.py FOLDER

Reads FOLDER/values. Writes FOLDER/table.csv (every number) and FOLDER/table.md (the tables).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from photo_study import BENCHMARKS, FLICKR, ROWS, study_of
from study import BASE
from study_tables import Key, Sections, write_tables

from counterpoint.metrics.statistics import ALL

_REPLACE, _SUGAR, _ORDER, _ROCOCO, _RETRIEVAL, _ECCV, _TEXTS, _IMAGES = BENCHMARKS
SHORT: Final = {
    _REPLACE: "HP",
    _SUGAR: "SugarCrepe",
    _ORDER: "order",
    _ROCOCO: "RoCOCO",
    _RETRIEVAL: "COCO",
    _ECCV: "ECCV",
    _TEXTS: "CxC text",
    _IMAGES: "CxC image",
    FLICKR: "Flickr8k",
}
_MAIN: Final = (BASE, *(row for row in ROWS if not row.startswith("hp-hn-0")))
_WEIGHTS: Final = ("hp", "hp-hn-0.25", "hp-hn-0.5", "hp-hn-0.75", "hp-hn", "hn")
_THREE: Final = ("original_accuracy", "augmented_accuracy", "brittleness")
_SCALE: Final = ("auroc", "calibration_error", "true_below_threshold")
_BOTH_WAYS: Final = ("image_to_text", "text_to_image")


def _keys(benchmark: str, *metrics: str, groups: tuple[str, ...] = (ALL,)) -> tuple[Key, ...]:
    return tuple((benchmark, group, metric) for group in groups for metric in metrics)


SECTIONS: Final[Sections] = {
    "Table 1: hard-positives/replace": (
        _MAIN,
        _keys(_REPLACE, *_THREE, groups=(ALL, "relations", "attributes")),
    ),
    "Table 3: the weight of the negatives": (_WEIGHTS, _keys(_REPLACE, *_THREE)),
    "Table 7: other benchmarks": (
        _MAIN,
        (
            *_keys(_SUGAR, "original_accuracy"),
            *_keys(_ORDER, "original_accuracy"),
            *_keys(_RETRIEVAL, *(f"{way}_recall@1" for way in _BOTH_WAYS)),
            *_keys(FLICKR, *(f"{way}_recall@1" for way in _BOTH_WAYS)),
        ),
    ),
    # The positive is another person's caption: the drop that wording by other people alone makes.
    "The null: two people's captions (RoCOCO)": (_MAIN, _keys(_ROCOCO, *_THREE)),
    "The scale of scores": (
        _MAIN,
        (
            *_keys(_TEXTS, "rank_correlation"),
            *_keys(_IMAGES, "rank_correlation"),
            *_keys(_REPLACE, *_SCALE),
            *_keys(_ECCV, *(f"{way}_map@R" for way in _BOTH_WAYS)),
        ),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="the study")
    folder = parser.parse_args().folder
    nowhere = argparse.Namespace(data=folder, photographs=folder, out=folder, towers="", first=())
    write_tables(folder, study_of(nowhere), SECTIONS, SHORT)


if __name__ == "__main__":
    main()
