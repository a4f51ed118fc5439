"""Readers of data sets, captions, pairs and answers of servers as targets for fuzzers."""

from __future__ import annotations

import functools
import io
import random
import shutil
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpcore
import httpx
import polars as pl
import pyarrow.parquet as pq
from fuzz_support import Inputs, Target, mutations, of_bytes, of_json, of_lines
from models_for_tests import choice

from counterpoint.benchmarks.classification import read_labels
from counterpoint.benchmarks.positives import add_positives
from counterpoint.benchmarks.reading import parquet_rows
from counterpoint.cases import Cases
from counterpoint.cases.table import ImageRef
from counterpoint.data.archives import extract
from counterpoint.data.download import WantedFile, download, new_client
from counterpoint.generation import TextSettings
from counterpoint.generation.export import export_benchmark, export_training
from counterpoint.generation.export.hub import export_hub
from counterpoint.generation.inputs.captions import open_captions
from counterpoint.generation.pairs import Pair, read_about, read_pairs, tabulate, write_pairs
from counterpoint.generation.refinement.negatives import Negatives
from counterpoint.generation.refinement.scores import read_scores, table_scores
from counterpoint.generation.run import Parts
from counterpoint.generation.scene_graphs import (
    attribution_pairs,
    read_graphs,
    read_sizes,
    relation_pairs,
)
from counterpoint.training.data.table import _is_pairs, _read_training

SCENE = "world:0.508;small,orange,solid,triangle,0.519,0.505;large,yellow,dotted,heart,0.843,0.817"


# --- captions and scene graphs -----------------------------------------------------------------


def captions(ending: str) -> Callable[[bytes, Path], None]:
    """A file of captions, read twice as `generate` does."""

    def target(data: bytes, folder: Path) -> None:
        (folder / f"captions{ending}").write_bytes(data)
        found = open_captions(str(folder / f"captions{ending}"))
        sources = list(found)
        assert sources == list(found)
        tabulate([Pair(s.id, s.image, s.caption, "x", *_MADE) for s in sources])

    return target


def scene_graphs(data: bytes, folder: Path) -> None:
    (folder / "graphs.json").write_bytes(data)
    graphs = list(read_graphs(folder / "graphs.json", {"1": (90, 90)}))
    drafts = [
        pair
        for graph in graphs
        for make in (relation_pairs, attribution_pairs)
        for pair in make(graph, Counter(), TextSettings("negative", ()))
    ]
    tabulate([Pair(s.id, s.image, s.caption, draft.text, *_MADE) for s, draft in drafts])


def sizes(data: bytes, folder: Path) -> None:
    """Visual Genome's `image_data.json`."""
    (folder / "image_data.json").write_bytes(data)
    read_sizes(folder / "image_data.json")


# --- pairs -------------------------------------------------------------------------------------


def pairs(data: bytes, folder: Path) -> None:
    """A pairs file, through all that reads one."""
    (folder / "pairs.parquet").write_bytes(data)
    _use(folder / "pairs.parquet", folder)


def pairs_metadata(data: bytes, folder: Path) -> None:
    """What a pairs file says of how it was made."""
    table = pq.read_table(io.BytesIO(_pairs_file()))
    pq.write_table(table.replace_schema_metadata({b"counterpoint": data}), folder / "pairs.parquet")
    _use(folder / "pairs.parquet", folder)


def _use(path: Path, folder: Path) -> None:
    read_about(path)
    read_pairs(path, rejected=True).to_dicts()
    Negatives.of(read_pairs(path), ("type", "subtype"), 0)
    out = Path(tempfile.mkdtemp(dir=folder))
    try:
        export_training([path], out / "out.jsonl", Counter())
        export_hub([path], out / "out", Counter())
        export_benchmark([path], out / "out.parquet", Counter())
    finally:
        shutil.rmtree(out)


def settings_of_parts(data: bytes, folder: Path) -> None:
    """What an interrupted `generate` has left."""
    (folder / "out.parquet.parts").mkdir(exist_ok=True)
    (folder / "out.parquet.parts" / "settings.json").write_bytes(data)
    Parts(folder / "out.parquet", _SETTINGS)


def scores(ending: str) -> Callable[[bytes, Path], None]:
    """A table of scores for `refine`, looked up for every pair."""

    def target(data: bytes, folder: Path) -> None:
        (folder / f"scores{ending}").write_bytes(data)
        tables = read_scores([folder / f"scores{ending}"])
        for name in tables:
            table_scores(name, tables, _frame())

    return target


def neighbours(data: bytes, folder: Path) -> None:
    """A table of nearest images for `export --as training`."""
    (folder / "near.parquet").write_bytes(data)
    if not (folder / "pairs.parquet").exists():
        (folder / "pairs.parquet").write_bytes(_pairs_file())
    near = folder / "near.parquet"
    export_training([folder / "pairs.parquet"], folder / "o.jsonl", Counter(), neighbours=near)


# --- other tables ------------------------------------------------------------------------------


def table(read: Callable[[Path], object]) -> Callable[[bytes, Path], None]:
    """A Parquet file of a data set."""

    def target(data: bytes, folder: Path) -> None:
        (folder / "table.parquet").write_bytes(data)
        read(folder / "table.parquet")

    return target


def _positives(path: Path) -> None:
    case = choice("0", "a.png", "a dog", "one dog", "a cat")
    add_positives(Cases.build([case], source="the fuzzer"), path)


def _training(path: Path) -> None:
    if not _is_pairs(path):
        _read_training(path).to_pylist()


def _rows(path: Path) -> None:
    list(parquet_rows(path, ["text"], ["image"], ["label"]))


# --- archives and answers ----------------------------------------------------------------------


def archive(data: bytes, folder: Path) -> None:
    """An archive: all that it writes lies in its folder, and a failure leaves nothing there."""
    (folder / "archive").write_bytes(data)
    target = folder / "target"
    shutil.rmtree(target, ignore_errors=True)
    try:
        extract(folder / "archive", target)
    except BaseException:
        assert not target.exists() or not any(target.iterdir())
        raise
    finally:
        assert {path.name for path in folder.iterdir()} <= {"archive", "target"}
        assert not any(path.is_symlink() for path in target.rglob("*"))


def answer(data: bytes, folder: Path) -> None:
    """Whatever a server sends, every time that it is asked."""
    client, backend = _client(), httpcore.MockBackend([data])
    with httpcore.ConnectionPool(network_backend=backend) as pool:
        client._transport._pool = pool  # type: ignore[attr-defined] - another network below it
        (folder / "file").unlink(missing_ok=True)
        wanted = WantedFile(folder / "file", ("http://server/a", "http://other/b"), 900)
        download(wanted, client, lambda _: None, lambda _: lambda _: None)


@functools.cache
def _client() -> httpx.Client:
    client = new_client()  # slow: it reads certificates
    client._mounts = {}  # proxies of this machine
    return client


# --- what they begin with ----------------------------------------------------------------------

_MADE = ("negative", "replace", "obj", "m", "1", 5)
_SETTINGS = {"input": "x", "seed": 0, "methods": ["negclip"]}
COCO = {
    "info": {"year": 2014},
    "images": [{"id": 9, "file_name": "9.jpg"}, {"id": 4, "file_name": "4.jpg"}],
    "annotations": [{"id": n, "image_id": 4, "caption": f"A cat {n}."} for n in range(3)],
}
KARPATHY = {
    "images": [
        {"filepath": "val", "filename": "a.jpg", "split": "test", "sentences": sentences}
        for sentences in ([{"raw": "A b.", "sentid": 1}], [{"raw": "B.", "sentid": 2}])
    ]
}
ROWS = [{"id": n, "image": "1.jpg", "caption": ["a b", "c d"], "box": [1, 2, 3, 4]} for n in "ab"]
BY_ID = {"7": {"filename": "7.jpg", "caption": "A cat."}, "8": {"caption": "A dog."}}
TABLE = b'id,caption,image\n1,"A ""red"" car",1.jpg\n2,A dog,2.jpg\n3,\xc3\xa4,3.jpg\n'
_OBJECT = {"x": 1, "y": 2, "w": 60, "h": 60, "attributes": ["red", "big"]}
VISUAL_GENOME = [
    {
        "image_id": 1,
        "objects": [
            {"object_id": 5, "names": ["dog"], "synsets": ["dog.n.01"], **_OBJECT},
            {"object_id": 6, "names": ["man"], "synsets": [], **_OBJECT, "attributes": ["old"]},
        ],
        "relationships": [
            {"relationship_id": 2, "predicate": "on", "subject_id": 5, "object_id": 6}
        ],
    }
]
_RELATED = {"name": "dog", **_OBJECT, "relations": [{"name": "on", "object": "6"}]}
GQA = {
    "1": {
        "width": 80,
        "height": 80,
        "objects": {"5": _RELATED, "6": {"name": "man", **_OBJECT, "attributes": ["old"]}},
    }
}
SIZES = [{"image_id": 1, "width": 800, "height": 600}, {"id": 2, "width": 5, "height": 6}]
ABOUT = {
    "input": "x",
    "root": "photos",
    "counts": [["captions", "made", 4], ["m", "meaning: may be true", 1]],
    "refined": [{"settings": {"seed": 0}}],
}
HUB = {"text": ["a dog"], "image": [{"bytes": b"x", "path": "a.png"}], "label": [1]}
ANSWER = (
    b'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nETag: "one"\r\nContent-Length: 900\r\n'
    b"Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\nSet-Cookie: a=b; Path=/\r\n\r\n" + b"x" * 900
)
ANSWERS = (
    ANSWER,
    b"HTTP/1.1 302 Found\r\nLocation: http://server/b?c=d#e\r\nSet-Cookie: a=b\r\n\r\n",
    b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-899/900\r\n\r\n" + b"x" * 900,
    b"HTTP/1.1 503 Busy\r\nRetry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n384\r\n" + b"x" * 900 + b"\r\n0\r\n\r\n",
)
HOSTILE = (
    *("../x", "/x", "//x", "///tmp/x", "a/../../x", "..", ".", "a\\..\\x", "C:/x", "a:b"),
    *("\x7f\x1b[31m", "a/" * 150 + "x", "x" * 300, "a\nb", "~", "-rf", "\u202egpj.x", "a//b"),
)


@functools.cache
def _frame() -> pl.DataFrame:
    image = ImageRef(SCENE, (0, 0, 9, 9))
    return tabulate(
        [
            *(Pair(f"{n}", image, "a dog", f"a cat {n}", *_MADE) for n in range(3)),
            Pair("0", image, "a dog", "one dog", "positive", *_MADE[1:]),
        ]
    )


@functools.cache
def _pairs_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write_pairs(Path(folder) / "pairs.parquet", [_frame()], ABOUT)
        return (Path(folder) / "pairs.parquet").read_bytes()


def _parquet(columns: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    pl.DataFrame(columns).write_parquet(file)
    return file.getvalue()


def _zip(names: list[str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name in names:
            made.writestr(name, b"content " * 9)
    return file.getvalue()


def _tar(names: list[str], codec: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{codec}") as made:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 72
            made.addfile(info, io.BytesIO(b"content " * 9))
    return file.getvalue()


def _archives(make: Callable[[list[str]], bytes]) -> Inputs:
    """Half of them with hostile names, half with changed bytes."""

    def inputs(count: int, seed: int) -> Iterator[bytes]:
        for number in range(count // 2):
            rng = random.Random(f"{seed} {number}")
            names = ["a.jpg", "b/c.jpg", rng.choice(HOSTILE) + rng.choice(("", "", "/", "y"))]
            yield make(rng.sample(names, 3))
        yield from mutations(make(["a.jpg", "b/c.jpg", "b/d/"]), count - count // 2, seed)

    return inputs


TARGETS = {
    "captions, COCO": Target(captions(".json"), of_json(COCO)),
    "captions, Karpathy": Target(captions(".json"), of_json(KARPATHY)),
    "captions, other JSON": Target(captions(".json"), of_json(ROWS, BY_ID)),
    "captions, JSON Lines": Target(captions(".jsonl"), of_lines(ROWS)),
    "captions, CSV": Target(captions(".csv"), of_bytes(TABLE)),
    "captions, TSV": Target(captions(".tsv"), of_bytes(TABLE.replace(b",", b"\t"))),
    "captions, Parquet": Target(
        captions(".parquet"),
        of_bytes(_parquet({"caption": ["a b", None], "image": ["1.jpg", None], "id": [1, 2]})),
    ),
    "scene graphs": Target(scene_graphs, of_json(VISUAL_GENOME, GQA)),
    "sizes of images": Target(sizes, of_json(SIZES)),
    "pairs": Target(pairs, of_bytes(_pairs_file())),
    "pairs' metadata": Target(pairs_metadata, of_json(ABOUT)),
    "settings of parts": Target(settings_of_parts, of_json(_SETTINGS)),
    "scores, CSV": Target(scores(".csv"), of_bytes(b"text,mine\na dog,0.5\na cat 1,-2e5\n")),
    "scores, TSV": Target(scores(".tsv"), of_bytes(b"text\tname\tvalue\na dog\tm\t0.5\n" * 2)),
    "scores, JSON Lines": Target(
        scores(".jsonl"), of_lines([{"text": t, "name": "m", "value": 0.5} for t in ("a", "b")])
    ),
    "scores, Parquet": Target(
        scores(".parquet"), of_bytes(_parquet({"text": ["a dog", "b"], "mine": [0.5, 1.0]}))
    ),
    "neighbours": Target(
        neighbours, of_bytes(_parquet({"image": [SCENE, "b"], "neighbours": [["b"], []]}))
    ),
    "positives": Target(
        table(_positives),
        of_bytes(_parquet({"case_id": ["0"], "text": ["the dog"], "doubt": [None]}), _pairs_file()),
    ),
    "training file": Target(
        table(_training),
        of_bytes(_parquet({"image": ["b"], "caption": ["a dog"], "negatives": [["a cat", None]]})),
    ),
    "hub table": Target(table(_rows), of_bytes(_parquet(HUB))),
    "hub labels": Target(table(read_labels), of_bytes(_parquet(HUB))),
    "zip": Target(archive, _archives(_zip)),
    "tar": Target(archive, _archives(lambda names: _tar(names, ""))),
    "tar.gz": Target(archive, _archives(lambda names: _tar(names, "gz"))),
    "HTTP answer": Target(answer, of_bytes(*ANSWERS)),
}
