"""The data of the study on photographs (`photo_study.py`): what is trained on, what is held out.

    python studies/photo_data.py --data DATA --out FOLDER

DATA is a data root with the annotations of the benchmarks and the photographs that are at hand.
FOLDER gets

    eval/             a data root with the held-out photographs alone, as links
    held-out.parquet  these photographs of the Karpathy test split with their captions
    train.parquet     captions with the texts made from them by `counterpoint generate`
    people.parquet    the same, with other people's captions of the same photograph as positives
    half.parquet      the same, without the positives of half of the pairs of words
    plausible.parquet the same, with the negatives that `counterpoint generate` makes by default
    coco.parquet      the rows of train.parquet whose photographs are at hand
    dev-negatives.parquet  negatives of the captions of Flickr8k's development split, which is
                      neither trained nor evaluated on: a base is chosen by it
    counts.json       how much of everything, and what was taken out

No photograph and no text of an evaluation is in a training table: what is the same by name, bytes,
look or words is taken out here, and `counterpoint train` checks again (`data.keep_out`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from photo_vectors import FLICKR8K, read_flickr8k, tidy

from counterpoint.training import Leak, find_leaks, without_leaks

EVALUATED: Final = ("sugarcrepe", "hard-positives/replace")
NEGATIVES: Final = ("negclip", "crepe-replace", "crepe-swap", "svlc")
POSITIVES: Final = ("hard-positives", "synonyms", "conjuncts", "converse")
DEV_NEGATIVES: Final = "dev-negatives"
# Few captions have a plausible swap: the rows of swaps need the others, too.
PAIRS: Final[dict[str, tuple[str, Sequence[str], list[str]]]] = {
    "negatives": ("negatives", NEGATIVES, ["--plausible", "none"]),
    "plausible-negatives": ("negatives", NEGATIVES, []),
    "positives": ("positives", POSITIVES, ["--doubtful"]),
    DEV_NEGATIVES: ("negatives", (*NEGATIVES, "bind", "add"), []),
}
KARPATHY: Final = "coco_karpathy_test.json"
# Of these, cases of photographs that are not there are left out.
WHOLE: Final = (
    *("hard_positives", "sugarcrepe", "visual_genome", "coco/val2017"),
    *(f"coco/{KARPATHY}", "rococo", "cxc", "eccv_caption"),
)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def split(data: Path, count: int, seed: int) -> tuple[list[dict[str, Any]], set[str], list[Leak]]:
    """The Karpathy photographs at hand, which of them are held out, and why some must be.

    A photograph that another benchmark evaluates on is held out; others are drawn.
    """
    rows = read_json(data / "coco" / KARPATHY)
    rows = [row for row in rows if (data / "coco" / row["image"]).is_file()]
    names = [row["image"] for row in rows]
    leaks = find_leaks(pl.DataFrame({"image": names}), EVALUATED, images=data / "coco", data=data)
    held = {leak.what for leak in leaks}
    drawn = np.random.default_rng(seed).permutation([name for name in names if name not in held])
    return rows, held | set(drawn[: max(0, count - len(held))].tolist()), leaks


def make_eval_root(data: Path, root: Path, held: set[str]) -> None:
    (root / "coco" / "val2014").mkdir(parents=True, exist_ok=True)
    for name in (*WHOLE, *(f"coco/{image}" for image in held)):
        if not (root / name).is_symlink():
            (root / name).symlink_to((data / name).resolve())


def held_table(rows: list[dict[str, Any]], held: set[str]) -> pl.DataFrame:
    ours = [row for row in rows if row["image"] in held]
    found = [(f"eval/coco/{row['image']}", caption) for row in ours for caption in row["caption"]]
    return pl.DataFrame(found, schema=["image", "caption"], orient="row")


def training_captions(data: Path, rows: list[dict[str, Any]], held: set[str]) -> pl.DataFrame:
    coco = [(r["image"], r["caption"]) for r in rows if r["image"] not in held]
    return _captions([*coco, *read_flickr8k(data, "train")])


def _captions(found: Iterable[tuple[str, list[str]]]) -> pl.DataFrame:
    rows = [(image, tidy(text)) for image, texts in found for text in texts]
    table = pl.DataFrame(rows, schema=["image", "caption"], orient="row")
    return table.unique(maintain_order=True)


def make_texts(captions: pl.DataFrame, dev: pl.DataFrame, folder: Path) -> None:
    """What rules make of the captions: a file of pairs for each of `PAIRS`."""
    captions.write_parquet(folder / "captions.parquet")
    dev.write_parquet(folder / "dev-captions.parquet")
    for name, (kind, methods, more) in PAIRS.items():
        chosen = [word for method in methods for word in ("-M", method)] + more
        source = "dev-captions.parquet" if name == DEV_NEGATIVES else "captions.parquet"
        out = folder / f"{name}.parquet"
        if not out.exists():
            call("generate", kind, folder / source, *chosen, "-o", out)


def with_texts(captions: pl.DataFrame, folder: Path, images: Path, negatives: str) -> pl.DataFrame:
    """The captions with these negatives, and with the positives."""
    exported = folder / "exported.parquet"
    made = [folder / f"{name}.parquet" for name in (negatives, "positives")]
    exported.unlink(missing_ok=True)
    call("export", *made, "--as", "training", "--images", images, "--root", images, "-o", exported)
    texts = pl.read_parquet(exported).drop("source").unique(["image", "caption"])
    return captions.join(texts, on=["image", "caption"], how="left", maintain_order="left")


def call(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "counterpoint", *map(str, words)], check=True)


def by_people(table: pl.DataFrame) -> pl.DataFrame:
    """Other captions of the same photograph in the place of rewordings."""
    own = table.group_by("image").agg(pl.col("caption").alias("positives"))
    joined = table.drop("positives", "positive_types").join(own, on="image", maintain_order="left")
    others = pl.concat_list("caption")
    return joined.with_columns(
        pl.col("positives").list.set_difference(others),
        pl.lit([], dtype=pl.List(pl.String)).alias("positive_types"),
    )


def word_pair(caption: str, positive: str) -> tuple[str, str]:
    """What was replaced by what: the words between the common beginning and the common end."""
    old, new = (text.lower().rstrip(".").split() for text in (caption, positive))
    first = _same(old, new)
    last = _same(old[first:][::-1], new[first:][::-1])
    return " ".join(old[first : len(old) - last]), " ".join(new[first : len(new) - last])


def _same(one: list[str], other: list[str]) -> int:
    """How many words are the same at the beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def is_left_out(pair: tuple[str, str]) -> bool:
    """Whether the positives of this pair of words are not in half.parquet."""
    return hashlib.sha256(" > ".join(pair).encode()).digest()[0] % 2 == 1


def by_half(table: pl.DataFrame) -> pl.DataFrame:
    """Without the positives of half of the pairs of words; a caption may have none left."""
    kept = [
        [text for text in texts or [] if not is_left_out(word_pair(caption, text))]
        for caption, texts in table.select("caption", "positives").iter_rows()
    ]
    return table.with_columns(
        pl.Series("positives", kept, pl.List(pl.String)),
        pl.lit([], dtype=pl.List(pl.String)).alias("positive_types"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="what it has is not made again")
    parser.add_argument("--held-out", type=int, default=1000, help="photographs")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    data, out = given.data.resolve(), given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("COUNTERPOINT_DATA", str(data))
    rows, held, leaks = split(data, given.held_out, given.seed)
    make_eval_root(data, out / "eval", held)
    held_out = out / "held-out.parquet"
    held_table(rows, held).write_parquet(held_out)
    captions = training_captions(data, rows, held)
    make_texts(captions, _captions(read_flickr8k(data, "dev")), out)
    (table, texts), (plausible, _) = (
        without_leaks(
            with_texts(captions, out, data / "coco", negatives),
            [*EVALUATED, held_out],
            images=data / "coco",
            data=out / "eval",
        )
        for negatives in ("negatives", "plausible-negatives")
    )
    tables = {
        "train": table,
        "people": by_people(table),
        "half": by_half(table),
        "plausible": plausible,
        "coco": table.filter(~pl.col("image").str.starts_with(f"{FLICKR8K}/")),
    }
    for name, made in tables.items():
        made.write_parquet(out / f"{name}.parquet")
    counts = {
        "photographs at hand": len(rows),
        "held out": len(held),
        "held out because another benchmark has them": Counter(leak.how for leak in leaks),
        "rows taken out": Counter(leak.how for leak in texts),
        "rows": table.height,
        "photographs trained on": table["image"].n_unique(),
    }
    (out / "counts.json").write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(counts, indent=1))


if __name__ == "__main__":
    main()
