"""Pairs of ARO's two templates from scene graphs: the captions are made here, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from counterpoint._util.errors import DataError
from counterpoint._util.progress import Advance, Progress, Quiet
from counterpoint.generation.inputs.scene_graphs import (
    Graph,
    attribution_pairs,
    read_graphs,
    read_sizes,
    relation_pairs,
)
from counterpoint.generation.inputs.source import SourceCaption, with_prefix
from counterpoint.generation.making import CAPTIONS, MADE, DraftChecker, TextSettings
from counterpoint.generation.pairs import Kind, Pair, require_parquet, tabulate, write_pairs
from counterpoint.generation.registry import Draft
from counterpoint.generation.run import Generated, with_counts


class GraphMethod(NamedTuple):
    """A template of ARO's."""

    kinds: tuple[Kind, ...]
    version: str
    summary: str


GRAPH_METHODS: Final = {
    "vg-attribution": GraphMethod(
        ("negative", "positive"), "1", '"the A1 O1 and the A2 O2", attributes swapped or reversed'
    ),
    "vg-relation": GraphMethod(("negative",), "1", '"the X is REL the Y", the two swapped'),
}
_ROWS: Final = 10_000  # tabulated at a time


def generate_from_graphs(
    path: Path,
    settings: TextSettings,
    out: Path,
    *,
    sizes: Path | None = None,
    image_prefix: str = "",
    progress: Progress | None = None,
) -> Generated:
    """Make the pairs file `out` of a scene-graph file; `sizes` is Visual Genome's image_data.json.

    It is quick (no language is parsed), so it is done in one go: what is interrupted starts again.
    """
    require_parquet(out)
    if out.exists():
        raise DataError("E-OUTPUT-EXISTS", f"{out} exists; name another -o or remove it.", path=out)
    about = {
        "input": str(path),
        "root": str(path.parent.absolute()),
        "kind": settings.kind,
        "seed": settings.seed,
        "methods": list(settings.methods),
    }
    known = read_sizes(sizes) if sizes else None
    counts: Counter[tuple[str, str]] = Counter()
    shown = progress or Quiet()

    def pairs() -> Iterator[Pair]:
        for method in settings.methods:
            version = f"{method}-{GRAPH_METHODS[method].version}"
            graphs = _advancing(read_graphs(path, known), shown.start(method, None))
            for source, draft in _drafts(method, graphs, settings, image_prefix, counts):
                counts[CAPTIONS, MADE] += 1
                yield from DraftChecker(source, settings, counts).judged(
                    iter((draft,)), method, version
                )

    def frames() -> Iterator[pl.DataFrame]:
        stream = pairs()
        while some := list(islice(stream, _ROWS)):
            yield tabulate(some)

    written = write_pairs(out, frames(), lambda: with_counts(about, counts))
    return Generated(written, counts[CAPTIONS, MADE], counts)


def _advancing(graphs: Iterable[Graph], advance: Advance) -> Iterator[Graph]:
    for graph in graphs:
        yield graph
        advance(1)


def _drafts(
    method: str,
    graphs: Iterator[Graph],
    settings: TextSettings,
    prefix: str,
    counts: Counter[tuple[str, str]],
) -> Iterator[tuple[SourceCaption, Draft]]:
    refusals: Counter[str] = Counter()
    image_path = partial(_image_path, prefix)
    if method == "vg-relation":
        yield from relation_pairs(graphs, refusals, image_path=image_path)
    else:
        yield from attribution_pairs(
            graphs, refusals, kind=settings.kind, image_path=image_path, limit=settings.each
        )
    for reason, number in refusals.items():
        counts[method, reason] += number


def _image_path(prefix: str, image: str) -> str:
    return with_prefix(f"{image}.jpg", prefix)
