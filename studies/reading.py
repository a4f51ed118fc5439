"""A reading of generated texts: a sample to judge, and what the judgements say.

    python studies/reading.py sample PAIRS... --each 40 -o sample.csv
    python studies/reading.py keep sample.csv JUDGED... -o docs/generate/reading.csv
    python studies/reading.py count docs/generate/reading.csv

The sample has `--each` texts of each method, drawn by a hash of the pair, so that the order of the
files does not matter. A judged file has the columns number, label, english, possible and cause: 1
or 0 for whether the label is right (a negative is surely false and a positive as true as its
caption), the English is good, and the scene could be photographed; cause says in a few words what
is wrong. What is kept has no captions, only what was changed: the captions belong to their authors.
"""

from __future__ import annotations

import argparse
from hashlib import blake2b
from pathlib import Path
from typing import Final

import polars as pl

from counterpoint.cases import shared_ends
from counterpoint.generation.pairs import read_pairs

JUDGED: Final = ("label", "english", "possible")
STATED: Final = ("kind", "method", "type", "subtype", "source")


def sample(paths: list[Path], each: int) -> pl.DataFrame:
    """`each` texts of every method, numbered."""
    pairs = pl.concat(map(read_pairs, paths))
    pairs = pairs.filter(pl.col("refused") == "").with_columns(
        drawn=pl.concat_str("method", "source", "text", separator="\0").map_elements(
            lambda said: blake2b(said.encode(), digest_size=8).hexdigest(), return_dtype=pl.String
        ),
    )
    drawn = pairs.sort("drawn").group_by("method", maintain_order=True).head(each)
    return (
        drawn.sort("kind", "method", "drawn")
        .select(*STATED, "caption", "text")
        .with_row_index("number")
    )


def keep(sampled: pl.DataFrame, judged: list[pl.DataFrame]) -> pl.DataFrame:
    """The judgements with what was changed, and without the captions."""
    found = sampled.join(pl.concat(judged), on="number", how="left", validate="1:1")
    if missing := found.filter(pl.any_horizontal(pl.col(*JUDGED).is_null())).height:
        raise SystemExit(f"{missing} of {found.height} texts have no judgement")
    edit = pl.struct("caption", "text").map_elements(
        lambda two: " > ".join(changed(two["caption"], two["text"])), return_dtype=pl.String
    )
    return found.with_columns(edit=edit).select(*STATED, "edit", *JUDGED, "cause")


def changed(caption: str, text: str) -> tuple[str, str]:
    """The words between what both have at the start and at the end."""
    one, two = caption.split(), text.split()
    start, end = shared_ends(one, two)
    return " ".join(one[start : len(one) - end]), " ".join(two[start : len(two) - end])


def count(judged: pl.DataFrame) -> str:
    """A line for each method, as Markdown: what is usable is right in all three."""
    usable = pl.all_horizontal(pl.col(name) == 1 for name in JUDGED)
    table = judged.group_by("kind", "method").agg(
        *(pl.col(name).sum() for name in JUDGED), usable=usable.sum(), texts=pl.len()
    )
    heads = ("kind", "method", "texts", *JUDGED, "usable")
    lines = [f"| {' | '.join(heads)} | |", "|---" * (len(heads) + 1) + "|"]
    for row in table.sort("kind", "method").to_dicts():
        share = f"{100 * row['usable'] / row['texts']:.0f} %"
        lines.append(f"| {' | '.join(str(row[head]) for head in heads)} | {share} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    what = parser.add_subparsers(dest="what", required=True)
    one = what.add_parser("sample")
    one.add_argument("pairs", type=Path, nargs="+")
    one.add_argument("--each", type=int, default=40)
    two = what.add_parser("keep")
    two.add_argument("sample", type=Path)
    two.add_argument("judged", type=Path, nargs="+")
    for parts in (one, two):
        parts.add_argument("-o", "--out", type=Path, required=True)
    what.add_parser("count").add_argument("judged", type=Path)
    given = parser.parse_args()
    if given.what == "sample":
        sample(given.pairs, given.each).write_csv(given.out)
    elif given.what == "keep":
        columns = ["number", *JUDGED, "cause"]
        judged = [pl.read_csv(path).select(columns) for path in given.judged]
        keep(pl.read_csv(given.sample), judged).write_csv(given.out)
    else:
        print(count(pl.read_csv(given.judged)))


if __name__ == "__main__":
    main()
