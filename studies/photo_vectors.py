"""Photographs as what the locked image trunk makes of them, for the study on photographs.

The trunk is the same in all rows. So its outputs are computed once (`save_vectors`), every training
takes them from there (`data.vectors`), and so does every evaluation (`from_vectors`): neither needs
a photograph. Of Flickr8k only such vectors are at hand. The cases of the benchmarks that
have a photograph are saved, too (`save_benchmarks`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import torch
from safetensors.torch import load_file, save_file

from counterpoint._util.progress import Progress
from counterpoint._util.writing import whole_folder
from counterpoint.benchmarks import LoadedBenchmark, find_benchmark, own_cases
from counterpoint.benchmarks.retrieval import owned_gallery
from counterpoint.cases import SCHEMA, Cases, ImageRef, read_cases, write_cases
from counterpoint.evaluation.evaluating import prepare
from counterpoint.images import Picture
from counterpoint.models import load_model, open_image_vectors, write_vectors
from counterpoint.scoring import Model
from counterpoint.training.locking import looking
from counterpoint.training.towers import add_pool, open_start, towers_of, trunk_of

FLICKR8K: Final = "flickr8k"
FLICKR8K_VECTORS: Final = "dinov2_small_cls_mean.safetensors"
TRAIN, EVAL = "train", "eval"  # folders of vectors: what is trained on, and what is evaluated on
_FOLDERS: Final = (
    *("coco/val2014", "coco/val2017"),
    *("visual_genome/VG_100K", "visual_genome/VG_100K_2"),
)
_SPLITS: Final = {TRAIN: ("train",), EVAL: ("dev", "test")}  # of Flickr8k
_POOL: Final = {"kind": "mean", "heads": 1}  # the class token and the mean of the patches
_BATCH: Final = 500


# --- the trunk's outputs -------------------------------------------------------------------------


def save_vectors(towers: str, photographs: Path, data: Path, progress: Progress) -> None:
    """DATA/vectors/train and DATA/vectors/eval, of a data root and what photo_data.py made of it.

    No image is in both: `eval` has what is below DATA/eval and Flickr8k's dev and test splits.
    """
    trained = pl.read_parquet(data / "train.parquet", columns=["image"])["image"].unique()
    known = {side: flickr8k_images(photographs, splits) for side, splits in _SPLITS.items()}
    own = {
        TRAIN: (photographs / "coco", sorted(set(trained) - set(known[TRAIN]))),
        EVAL: (data / "eval", sorted(_jpegs(data / "eval"))),
    }
    [given] = load_file(photographs / FLICKR8K / FLICKR8K_VECTORS).values()
    start = open_start(towers, "auto")
    add_pool(towers, start, _POOL, 0)
    see = looking(trunk_of(start), None, torch.device("cpu"), progress)
    for side, (root, names) in own.items():
        pictures = [Picture(ImageRef(name), root) for name in names]
        seen = see(pictures)
        rows = torch.stack([seen.row(picture) for picture in pictures])
        found = seen.take(rows).flatten(1).half()
        vectors = torch.cat([found, given[[*known[side].values()]].half()])
        with whole_folder(data / "vectors" / side) as draft:
            save_file({"vectors": vectors}, draft / "images.safetensors")
            lines = [json.dumps({"name": name}) for name in (*names, *known[side])]
            (draft / "images.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _jpegs(root: Path) -> Iterable[str]:
    for name in _FOLDERS:
        yield from (f"{name}/{path.name}" for path in (root / name).glob("*.jpg"))


# --- Flickr8k as benchmarks ----------------------------------------------------------------------


def read_flickr8k(photographs: Path, split: str) -> list[tuple[str, list[str]]]:
    """The photographs of a split by name, with their captions."""
    rows = _rows(photographs)
    return [(_name(row), [*map(tidy, row["captions"])]) for row in rows if row["split"] == split]


def flickr8k_images(photographs: Path, splits: Sequence[str]) -> dict[str, int]:
    """The photographs of splits by name, with their rows in the file of vectors."""
    rows = enumerate(_rows(photographs))
    return {_name(row): number for number, row in rows if row["split"] in splits}


def tidy(caption: str) -> str:
    """Flickr8k has blanks before full stops and commas."""
    return re.sub(r"\s+([.,!])", r"\1", " ".join(caption.split()))


def retrieval(photographs: Path, split: str, name: str) -> LoadedBenchmark:
    """Retrieval on a split, as a benchmark of this name."""
    found = read_flickr8k(photographs, split)
    owners = (number for number, (_, captions) in enumerate(found) for _ in captions)
    texts = [text for _, captions in found for text in captions]
    return own_cases(
        owned_gallery([image for image, _ in found], texts, owners, Path(), name), name
    )


def against_negatives(pairs: Path, name: str) -> LoadedBenchmark:
    """The pairs that `counterpoint generate negatives` made, as a benchmark of this name."""
    texts = pl.read_parquet(pairs).select("image", "caption", "text").iter_rows()
    rows: list[tuple[Any, ...]] = [
        (str(number), [{"path": image, "box": None}], [caption, text], [0], [], image)
        for number, (image, caption, text) in enumerate(texts)
    ]
    table = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    return own_cases(Cases.checked(iter([table]), Path(), name), name)


def _rows(photographs: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        (photographs / FLICKR8K / "captions.json").read_text(encoding="utf-8")
    )
    return found


def _name(row: dict[str, Any]) -> str:
    return f"{FLICKR8K}/{row['image']}"


# --- benchmarks with the photographs that are there ----------------------------------------------


def save_benchmarks(found: Sequence[LoadedBenchmark], vectors: Path, folder: Path) -> None:
    """Those cases of which an image has a vector: reading all of them takes a minute."""
    seen = set(open_image_vectors(vectors).names)
    with whole_folder(folder) as draft:
        for one in found:
            paths = one.cases.frame["images"].list.eval(pl.element().struct.field("path"))
            there = paths.list.eval(pl.element().is_in(seen)).list.any()
            write_cases(one.cases.keep(there.to_numpy()), _file(draft, one.name))


def read_benchmark(folder: Path, photographs: Path, name: str) -> LoadedBenchmark:
    """A benchmark that was saved; `photographs` is its data root."""
    cases = Cases(read_cases(_file(folder, name)).frame, photographs)
    if name.startswith(FLICKR8K):
        return own_cases(cases, name)
    return LoadedBenchmark(name, find_benchmark(name), cases)


def _file(folder: Path, name: str) -> Path:
    return folder / f"{re.sub('[^a-z0-9]+', '-', name)}.parquet"


# --- a tuned model without photographs -----------------------------------------------------------


def from_vectors(
    vectors: Path,
    id: str,
    benchmarks: Sequence[LoadedBenchmark],
    limit: int | None,
    folder: Path,
) -> tuple[str, Model]:
    """A model with a locked trunk as its vectors of `limit` cases of these benchmarks, in a new
    folder.

    `vectors` has the trunk's outputs. A model that pools the tokens of all patches needs more: it
    is returned as it is.
    """
    seen = open_image_vectors(vectors)
    start = open_start(id, "auto")
    trunk = trunk_of(start)
    if seen.vectors.shape[1] != np.prod(trunk.shape):
        return id, load_model(id)
    towers = towers_of(start, None, trunk).eval()
    device = next(start.model.parameters()).device
    texts = _texts(benchmarks, limit)

    def see(rows: np.ndarray) -> torch.Tensor:
        outputs = torch.from_numpy(seen.raw(rows)).reshape(-1, *trunk.shape)
        found: torch.Tensor = towers(outputs.to(device), None)[0]
        return found

    def read(rows: np.ndarray) -> torch.Tensor:
        found: torch.Tensor = towers(None, start.tokenizer([texts[n] for n in rows]).to(device))[1]
        return found

    folder.mkdir()
    for side, names, encode in (("images", [*seen.names], see), ("captions", texts, read)):
        pieces = np.array_split(np.arange(len(names)), -(-len(names) // _BATCH))
        with torch.inference_mode():
            found = [encode(piece).cpu().numpy() for piece in pieces]
        write_vectors(folder, side, "npy", names, found)
    return id, load_model(f"vectors:{folder}")


def _texts(benchmarks: Sequence[LoadedBenchmark], limit: int | None) -> list[str]:
    """All captions as the protocols write them, by length."""
    tables = (prepare(one.cases, one.read_by(None), limit) for one in benchmarks)
    found = {text for cases in tables for text in cases.frame["captions"].explode()}
    return sorted(found, key=lambda text: (len(text), text))
