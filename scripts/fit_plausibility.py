"""Fit a plausibility model, by which `counterpoint generate` ranks its texts.

    python scripts/fit_plausibility.py CAPTIONS... -o FILE.npz

CAPTIONS is anything that `counterpoint generate` takes. `--column FILE=NAME` names the column of
its captions. n-grams that occur only once are left out of the model.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from counterpoint.generation.inputs import CaptionOptions, open_captions
from counterpoint.generation.language.plausibility import fit, load, write
from counterpoint.generation.language.sentences import unreadable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("captions", nargs="+")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--column", action="append", default=[], metavar="FILE=NAME")
    asked = parser.parse_args()
    columns = dict(entry.rpartition("=")[::2] for entry in asked.column)
    texts = []
    for name in asked.captions:
        options = CaptionOptions(caption=columns.get(name))
        found = [source.caption for source in open_captions(name, None, options=options)]
        texts += [text for text in found if not unreadable(text)]
        print(f"{name}: {len(found):,} captions")
    write(asked.out, fit(texts))
    size = asked.out.stat().st_size / 1e6
    print(f"{asked.out}: {len(texts):,} captions, {size:.2f} MB, version {load(asked.out).version}")


if __name__ == "__main__":
    main()
