"""Tables of the study on photographs (`photo_study.py`).

    python studies/photo_tables.py FOLDER [--plots docs/figures] [--data FOLDER]

Reads FOLDER/values. Writes FOLDER/table.csv (every number) and FOLDER/table.md (the tables). With
the data of photo_data.py also FOLDER/examples.md: captions on which two rows differ, and the rows
by the words of the cases: whether the training has the pair, and how rare they are.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from photo_data import is_left_out, word_pair
from photo_study import BENCHMARKS, DEV, FLICKR, MODELS, NEGATIVES, ROWS, study_of
from study import BASE
from study_tables import By, Key, Sections, against, draw_drop, save_plot, write_tables

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
    DEV: "dev",
    NEGATIVES: "dev negatives",
}
_MAIN: Final = (BASE, *(row for row in ROWS if not row.startswith("hp-hn-0")))
_WEIGHTS: Final = ("hp", "hp-hn-0.25", "hp-hn-0.5", "hp-hn-0.75", "hp-hn", "hn")
_WORDS: Final = ("hn", "hp-hn", "hp-hn-half", "counterpoint", "counterpoint-half")
_BY_RARITY: Final = (
    *("clip-ft", "hn", "hp-hn", "counterpoint"),
    *("counterpoint-apart", "counterpoint-0.25", "counterpoint-replace"),
    *("hn-plausible", "hp-hn-plausible", "counterpoint-plausible"),
)
_RARE: Final = 20  # times
_THREE: Final = ("original_accuracy", "augmented_accuracy", "brittleness")
_SCALE: Final = ("auroc", "calibration_error", "true_below_threshold")
_BOTH_WAYS: Final = ("image_to_text", "text_to_image")


Texts = list[list[str]]  # of each case: caption, positive, negative
Names = Sequence[str]


def _keys(benchmark: str, *metrics: str, groups: tuple[str, ...] = (ALL,)) -> tuple[Key, ...]:
    return tuple((benchmark, group, metric) for group in groups for metric in metrics)


SECTIONS: Final[Sections] = {
    "The base": (
        MODELS,
        (
            *_keys(_REPLACE, *_THREE, groups=(ALL, "relations", "attributes")),
            *_keys(_SUGAR, "original_accuracy"),
            *_keys(_RETRIEVAL, *(f"{way}_recall@1" for way in _BOTH_WAYS)),
            *_keys(FLICKR, *(f"{way}_recall@1" for way in _BOTH_WAYS)),
            *_keys(DEV, *(f"{way}_recall@1" for way in _BOTH_WAYS)),
            *_keys(NEGATIVES, "original_accuracy"),
        ),
    ),
    "Table 1: hard-positives/replace": (_MAIN, _keys(_REPLACE, *_THREE)),
    "Table 1, by group": (_MAIN, _keys(_REPLACE, *_THREE, groups=("relations", "attributes"))),
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


def plot(by: By, folder: Path) -> None:
    """Two pictures: the drop on relations and attributes; by rewordings and by other people."""
    groups = ("relations", "attributes")
    parts = [partial(draw_drop, by, _MAIN, (_REPLACE, g), g, (35, 80)) for g in groups]
    save_plot(folder / "photo-drop.svg", (8.0, 3.6), parts)
    positives = {"positive: a rewording": _REPLACE, "positive: another person's caption": _ROCOCO}
    drops = [
        partial(draw_drop, by, _MAIN, (benchmark, ALL), said, (35, 80))
        for said, benchmark in positives.items()
    ]
    save_plot(folder / "photo-people.svg", (8.0, 3.6), drops)


def examples(folder: Path, captions: Texts, one: str, other: str, count: int = 6) -> str:
    """Cases that `one` gets right in all seeds with caption and positive, and `other` rejects the
    positive of in all seeds: spread evenly over the benchmark, so that nobody has chosen them."""
    right = [*_metric(folder, one, "augmented_accuracy").values()]
    rejected = [*_metric(folder, other, "brittle_original_above").values()]
    if not (right and rejected):
        return ""
    rows = np.flatnonzero(np.all([values == 1 for values in (*right, *rejected)], axis=0))
    said = f"{len(rows):,} of {len(captions):,}: `{one}` is right, `{other}` rejects the positive"
    lines = [said, "", "| caption | positive | negative |", "|---|---|---|"]
    chosen = rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)].tolist()
    lines += [f"| {' | '.join(captions[row])} |" for row in chosen]
    return "\n".join(lines) + "\n"


def by_positives(folder: Path, captions: Texts) -> str:
    """Rows on the pairs of words that half.parquet has and on those that it has not, beside `hn`:
    the same negatives, no positives at all."""
    left_out = [is_left_out(word_pair(*texts[:2])) for texts in captions]
    parts = {"in half": ~np.array(left_out), "left out": np.array(left_out)}
    return _by_part(folder, parts, (BASE, "clip-ft", *_WORDS), _THREE[1:], "hn")


def by_negatives(folder: Path, captions: Texts, trained: pl.DataFrame) -> str:
    """Rows on the cases whose negative replaces words as a negative of the training does, and on
    the others, beside `clip-ft`: no negatives at all."""
    known = {
        word_pair(caption, text)
        for caption, texts in trained.select("caption", "negatives").iter_rows()
        for text in texts or ()
    }
    seen = np.array([word_pair(texts[0], texts[2]) in known for texts in captions])
    rows = ("clip-ft", "hn", "hn-replace", "hp-hn", "counterpoint", "counterpoint-replace")
    return _by_part(folder, {"trained": seen, "other": ~seen}, rows, _THREE[:1], "clip-ft")


def by_rarity(folder: Path, benchmark: str, captions: Texts, trained: pl.DataFrame) -> str:
    """Rows on cases by how much rarer the words of the negative are than those that they replace,
    in the captions of the training, beside `clip-ft`."""
    seen = Counter(word for caption in trained["caption"] for word in _letters(caption))
    rarer = np.array([_rarer(texts[0], texts[2], seen) for texts in captions])
    few = math.log(_RARE)
    parts = {
        "more frequent": rarer < 0,
        f"less than {_RARE} times rarer": (rarer >= 0) & (rarer < few),
        "rarer": rarer >= few,
    }
    return _by_part(folder, parts, _BY_RARITY, _THREE[:1], "clip-ft", benchmark)


def _rarer(caption: str, negative: str, seen: Counter[str]) -> float:
    """The difference of mean logarithms of how often the words are seen that only one text has."""
    old, new = Counter(_letters(caption)), Counter(_letters(negative))
    ours, theirs = (
        np.mean([math.log(seen[word] + 0.5) for word in words.elements()] or [0])
        for words in (old - new, new - old)
    )
    return float(ours - theirs)


def _letters(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def _by_part(
    folder: Path,
    parts: dict[str, np.ndarray],
    rows: Sequence[str],
    metrics: Names,
    rival: str,
    benchmark: str = _REPLACE,
) -> str:
    """Means of rows on parts of the cases, and differences of the last metric to a rival's."""
    last = metrics[-1]
    heads = [f"{part} ({cases.sum():,}): {m}" for part, cases in parts.items() for m in metrics]
    heads += [f"{part}: {last} minus that of {rival}" for part in parts]
    lines = ["| row | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    clusters = next(iter(_columns(folder, BASE, "clusters", benchmark).values()))
    theirs = _metric(folder, rival, last, benchmark)
    for row in rows:
        found = [_metric(folder, row, metric, benchmark) for metric in metrics]
        if not found[0]:
            continue
        cells = [
            f"{100 * np.mean([of[cases].mean() for of in values.values()]):.1f}"
            for cases in parts.values()
            for values in found
        ]
        for cases in parts.values():
            two = [{s: of[cases, None] for s, of in v.items()} for v in (found[-1], theirs)]
            same = row in (BASE, rival) or not theirs
            cells += [""] if same else against(two[0], two[1], clusters[cases])[0]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _columns(folder: Path, row: str, name: str, benchmark: str) -> dict[int, np.ndarray]:
    """By seed: an array of a row on every case; nothing if the row is not there."""
    paths = sorted((folder / "values").glob(f"{row}-?.npz"))
    return {int(path.stem[-1]): np.load(path)[f"{benchmark}/{name}"] for path in paths}


def _metric(
    folder: Path, row: str, metric: str, benchmark: str = _REPLACE
) -> dict[int, np.ndarray]:
    """By seed: a metric of a row on every case."""
    names = _columns(folder, row, "metrics", benchmark)
    values = _columns(folder, row, "values", benchmark)
    return {s: of[:, names[s].tolist().index(metric)] for s, of in values.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="the study")
    parser.add_argument("--plots", type=Path, help="where pictures go; else into the study")
    parser.add_argument("--data", type=Path, help="made by photo_data.py: for examples")
    given = parser.parse_args()
    folder = given.folder
    data = given.data or folder
    study = study_of(
        argparse.Namespace(data=data, photographs=folder, out=folder, towers="", base=BASE)
    )
    plot(write_tables(folder, study, SECTIONS, SHORT), given.plots or folder)
    if given.data:
        captions, people = (
            study.load(name).cases.frame["captions"].to_list() for name in (_REPLACE, _ROCOCO)
        )
        if {len(of) for of in _metric(folder, BASE, _THREE[0]).values()} != {len(captions)}:
            print("no examples: the study has no base, was made with --limit, or of other data")
            return
        two = [("counterpoint", "hn"), ("hn", "counterpoint")]
        told = [examples(folder, captions, *rows) for rows in two]
        trained = pl.read_parquet(given.data / "train.parquet")
        told += [by_positives(folder, captions), by_negatives(folder, captions, trained)]
        for benchmark, texts in ((_REPLACE, captions), (_ROCOCO, people)):
            told += [f"{benchmark}:\n", by_rarity(folder, benchmark, texts, trained)]
        (folder / "examples.md").write_text("\n".join(told), encoding="utf-8")


if __name__ == "__main__":
    main()
