"""Make a pairs file of SugarCrepe's JSON files, refined or not.

    python studies/sugarcrepe_pairs.py FOLDER -o OUT.parquet

The files are named TYPE_SUBTYPE.json (`replace_obj.json`). A pair's source is the file's name and
its key there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast, get_args

from counterpoint.cases.table import ImageRef
from counterpoint.generation.pairs import Pair, Type, tabulate, write_pairs


def pairs_of(path: Path) -> Iterator[Pair]:
    type, _, subtype = path.stem.partition("_")
    if type not in get_args(Type):
        raise SystemExit(f"{path}: not one of SugarCrepe's files.")
    for key, item in json.loads(path.read_text(encoding="utf-8")).items():
        yield Pair(
            source=f"{path.stem}/{key}",
            image=ImageRef(item["filename"]),
            caption=item["caption"],
            text=item["negative_caption"],
            kind="negative",
            type=cast(Type, type),
            subtype=subtype,
            method="sugarcrepe",
            version="1",
            seed=0,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="A pairs file of SugarCrepe's JSON files")
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args()
    files = sorted(args.folder.glob("*_*.json"))
    if not files:
        raise SystemExit(f"{args.folder}: no file such as replace_obj.json.")
    about = {"made": "studies/sugarcrepe_pairs.py", "files": [path.name for path in files]}
    rows = write_pairs(args.out, (tabulate(list(pairs_of(path))) for path in files), about)
    print(f"{rows:,} pairs of {len(files)} files: {args.out}")


if __name__ == "__main__":
    main()
