"""Score the texts of a pairs file with a bigram language model, for `refine --scores`.

    python studies/bigram_scores.py CAPTIONS.json PAIRS.parquet -o scores.csv

CAPTIONS is a JSON list of objects whose `caption` or `captions` is a text or a list of texts; use
captions of other images than the pairs'. Two scores for every text, higher for likelier ones:
`unigram` and `bigram`, the mean log-probability of a word. Words are in lower case and without
punctuation, so that format has no part in it. The bigram model interpolates half and half with the
unigram one, which gives one count to every word that it has not seen.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import polars as pl

from counterpoint.generation.pairs import read_pairs

START, END = "<s>", "</s>"


def words(text: str) -> list[str]:
    return [START, *re.findall(r"[\w']+", text.lower()), END]


class Bigrams:
    def __init__(self, texts: Iterable[str]) -> None:
        self.ones: Counter[str] = Counter()
        self.before: Counter[str] = Counter()
        self.twos: Counter[tuple[str, str]] = Counter()
        for text in texts:
            found = words(text)
            self.ones.update(found[1:])
            self.before.update(found[:-1])
            self.twos.update(pairwise(found))
        self.total = sum(self.ones.values()) + len(self.ones) + 1

    def unigram(self, word: str) -> float:
        return (self.ones[word] + 1) / self.total

    def bigram(self, before: str, word: str) -> float:
        seen = self.before[before]
        share = self.twos[before, word] / seen if seen else 0.0
        return (share + self.unigram(word)) / 2

    def scores(self, text: str) -> tuple[float, float]:
        found = words(text)
        one = [math.log(self.unigram(word)) for word in found[1:]]
        two = [math.log(self.bigram(before, word)) for before, word in pairwise(found)]
        return sum(one) / len(one), sum(two) / len(two)


def captions_of(path: Path) -> list[str]:
    found: list[str] = []
    for item in json.loads(path.read_text(encoding="utf-8")):
        value = item.get("captions", item.get("caption"))
        found += [value] if isinstance(value, str) else value
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Bigram scores of the texts of a pairs file")
    parser.add_argument("captions", type=Path)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args()
    captions = captions_of(args.captions)
    model = Bigrams(captions)
    pairs = read_pairs(args.pairs)
    texts = sorted({*pairs["caption"], *pairs["text"]})
    rows = [(text, *model.scores(text)) for text in texts]
    pl.DataFrame(rows, schema=["text", "unigram", "bigram"], orient="row").write_csv(args.out)
    print(f"{len(texts):,} texts by {len(captions):,} captions: {args.out}")


if __name__ == "__main__":
    main()
