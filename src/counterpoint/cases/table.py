"""The case table: k images x m captions x truth, a row per case, columnar.

| column   | type                | meaning |
|----------|---------------------|---------|
| id       | str                 | unique within the benchmark |
| images   | list of {path, box} | where each image is; box = x, y, width, height or null |
| captions | list of str         | the first true caption of an image is its original |
| truth    | list of int         | true cells of the k x m block, `image * m + caption`, ascending |
| groups   | list of str         | labels like `replace/obj`; averages use the first |
| cluster  | str                 | the source image: cases of one cluster are not independent |

Four more columns are there only in tables that need them:

| column   | type                | meaning |
|----------|---------------------|---------|
| grades   | list of float       | how well people found that each cell of the block fits |
| query    | str                 | what a graded pair asks about, if its caption's text does not |
|          |                     | say it: two captions of one wording are two queries |
| queries  | list of int         | of a gallery: images, and captions (counted on from k), whose |
|          |                     | right answers are all known; nothing else is asked for |
| questions | int                | how many questions the captions answer; those of a question |
|          |                     | are as many as those of another, and stand next to each other |

A case with grades may lack a true or a false cell. With questions, every image has one true answer
to each. Truth is stored sparsely so that retrieval
(thousands x thousands) is a case like any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from counterpoint._util.errors import CaseError
from counterpoint._util.untrusted import shortened, shown
from counterpoint.cases.checks import refuse_malformed, refuse_repeated_ids

CHUNK: Final = 50_000  # rows read, checked and written at a time
SCHEMA: Final = pl.Schema(
    {
        "id": pl.String(),
        "images": pl.List(pl.Struct({"path": pl.String(), "box": pl.Array(pl.Int32(), 4)})),
        "captions": pl.List(pl.String()),
        "truth": pl.List(pl.Int32()),
        "groups": pl.List(pl.String()),
        "cluster": pl.String(),
    }
)
OPTIONAL: Final = pl.Schema(
    {
        "grades": pl.List(pl.Float32()),
        "query": pl.String(),
        "queries": pl.List(pl.Int32()),
        "questions": pl.Int32(),
    }
)
TEXT: Final = "text:"  # an "image" that is a text: captions are compared with it
PROMPTS: Final = "\x1e"  # between the prompts of a caption that stands for their average
PICTURE: Final = "\x1dimage:"  # a "caption" that is an image: images are compared with it


class ImageRef(NamedTuple):
    """Where an image is: a path under the data root, and a crop box if any.

    A path may be a reference of another kind: `text:CAPTION`, and those of `images`.
    """

    path: str
    box: tuple[int, int, int, int] | None = None

    @property
    def text(self) -> str | None:
        """The text that stands in the image's place, if one does."""
        return self.path.removeprefix(TEXT) if self.path.startswith(TEXT) else None


SURPLUS: Final = "more than published"
NO_NEGATIVE: Final = "no negative caption"  # in the published file, so that it cannot be scored


class Absent(NamedTuple):
    """Cases of a published benchmark that are not in its files: `what` is a case id or a file.

    `cases` is the number of cases, None if it is unknown. With the reason `SURPLUS` they are in the
    files here, and not in the published benchmark.
    """

    what: str
    reason: str
    cases: int | None = 1


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table, for benchmarks that build cases one by one.

    `truth` has a row per image and a column per caption.
    """

    id: str
    images: tuple[ImageRef, ...]
    captions: tuple[str, ...]
    truth: tuple[tuple[bool, ...], ...]
    groups: tuple[str, ...] = ()
    cluster: str = ""
    grades: tuple[float, ...] = ()  # of the cells, row by row
    questions: int = 0  # that the captions answer, the answers to one behind the other
    query: str = ""  # of a graded pair, if its caption's text does not say it

    def cells(self) -> list[int]:
        """The true cells of the block, as the table keeps them."""
        k, m = len(self.images), len(self.captions)
        if len(self.truth) != k or any(len(cells) != m for cells in self.truth):
            shape = shortened(" + ".join(str(len(cells)) for cells in self.truth[:99]))
            raise CaseError(
                "E-TRUTH-SHAPE",
                f"case {shown(self.id)}: truth has {shape} cells, expected {k} rows of {m}.",
            )
        return [i for i, cell in enumerate(c for line in self.truth for c in line) if cell]


def caption_case(
    id: str,
    image: ImageRef,
    positives: Iterable[str],
    negatives: Iterable[str],
    groups: tuple[str, ...] = (),
    cluster: str = "",
) -> Case:
    """A case of one image: the original first, then other positives, then negatives."""
    true, false = tuple(positives), tuple(negatives)
    truth = (True,) * len(true) + (False,) * len(false)
    return Case(id, (image,), true + false, (truth,), groups, cluster)


def tabulate(cases: Sequence[Case]) -> pl.DataFrame:
    """Rows of the table. Raises a CaseError for what the table cannot hold."""
    import pyarrow as pa  # slow to import

    try:
        return _tabulate(cases)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        if len(cases) > 1:  # which of them is it?
            for case in cases:
                tabulate([case])
        raise CaseError(
            "E-CASE-MALFORMED",
            f"case {shown(cases[0].id)}: a number or a text in it cannot be kept "
            f"({shortened(error).rstrip('.')}).",
        ) from None


def _tabulate(cases: Sequence[Case]) -> pl.DataFrame:
    """Lists are built flat and then cut, many times as fast as row by row."""
    import pyarrow as pa

    def lists(parts: list[Sequence[Any]], values: Any) -> pl.Series:
        ends = offsets(np.array([len(part) for part in parts], dtype=np.int64))
        return pl.Series(pl.from_arrow(pa.LargeListArray.from_arrays(pa.array(ends), values)))

    def flat(parts: list[Sequence[Any]], kind: Any) -> pl.Series:
        return lists(parts, pa.array([value for part in parts for value in part], kind))

    images = [image for case in cases for image in case.images]
    paths = pa.array([image.path for image in images], pa.large_string())
    boxes = pa.array([image.box for image in images], pa.list_(pa.int32(), 4))
    structs = pa.StructArray.from_arrays([paths, boxes], ["path", "box"])
    columns = {
        "id": [case.id for case in cases],
        "images": lists([case.images for case in cases], structs),
        "captions": flat([case.captions for case in cases], pa.large_string()),
        "truth": flat([case.cells() for case in cases], pa.int32()),
        "groups": flat([case.groups for case in cases], pa.large_string()),
        "cluster": [case.cluster or (case.images[0].path if case.images else "") for case in cases],
    }
    schema = dict(SCHEMA)
    for name in ("grades", "query", "questions"):
        values = [getattr(case, name) or None for case in cases]
        if any(values):
            columns[name] = values
            schema[name] = OPTIONAL[name]
    return pl.DataFrame(columns).cast(schema)  # type: ignore[arg-type]


def columns_in(names: Container[str]) -> pl.Schema:
    """The columns of a case table: those that all have, and those of the others that it has."""
    more = {name: kind for name, kind in OPTIONAL.items() if name in names}
    return pl.Schema({**SCHEMA, **more})


def offsets(counts: np.ndarray) -> np.ndarray:
    """Cumulative sums from 0: where each of consecutive runs of `counts` starts, and the end."""
    return np.concatenate([[0], np.cumsum(counts)])


class PairNumbers(NamedTuple):
    """For each pair: its case, image and caption, numbered over all cases, and its own number."""

    cases: np.ndarray
    images: np.ndarray
    captions: np.ndarray
    places: np.ndarray


class Layout:
    """Where the cases' images, captions and pairs stand in flat arrays.

    A *line* is one image with all captions of its case: lines are numbered as images are.
    """

    def __init__(self, image_counts: np.ndarray, caption_counts: np.ndarray) -> None:
        self.images, self.captions = offsets(image_counts), offsets(caption_counts)
        self.line_cases = np.repeat(np.arange(len(image_counts)), image_counts)
        self.line_pairs = offsets(caption_counts[self.line_cases])

    def lines(self, rows: np.ndarray) -> np.ndarray:
        """The lines of some cases."""
        marked = np.zeros(len(self.images) - 1, dtype=bool)
        marked[rows] = True
        return np.flatnonzero(marked[self.line_cases])

    def pairs(self, lines: np.ndarray) -> PairNumbers:
        """All pairs of some lines, line by line."""
        sizes = np.diff(self.line_pairs)[lines]
        line = np.repeat(lines, sizes)
        column = np.arange(len(line)) - np.repeat(offsets(sizes)[:-1], sizes)
        case = self.line_cases[line]
        return PairNumbers(case, line, self.captions[case] + column, self.line_pairs[line] + column)

    def pieces(self, lines: np.ndarray, most: int, pairs: int) -> Iterator[np.ndarray]:
        """`lines`, at most `most` at a time, with about `pairs` pairs at most."""
        done = np.cumsum(np.diff(self.line_pairs)[lines]) // pairs
        done += np.arange(len(lines)) // most
        yield from np.split(lines, np.flatnonzero(np.diff(done)) + 1)


class Block(NamedTuple):
    """All cases of one shape: their rows in the table, and their truth as (n, k, m) booleans.

    `texts`: texts stand in the place of their images. `listed`: the cases name their queries.
    `questions`: how many questions their captions answer, 0 if these are no answers.
    """

    rows: np.ndarray
    truth: np.ndarray
    texts: bool = False
    listed: bool = False
    questions: int = 0


def _gather(flat: np.ndarray, starts: np.ndarray, k: int, m: int) -> np.ndarray:
    """The k x m blocks that begin at `starts`: (n, k, m)."""
    if len(starts) == 1:  # not a copy: a gallery may have a hundred million pairs
        return flat[starts[0] : starts[0] + k * m].reshape(1, k, m)
    return flat[starts[:, None] + np.arange(k * m)].reshape(-1, k, m)


def _lengths(lists: pl.Series) -> np.ndarray:
    return lists.list.len().to_numpy().astype(np.int64)


class Cases:
    """A validated case table. `root` is the folder that relative image paths start from.

    `absent` are the cases that a loader could not make.
    """

    def __init__(
        self, frame: pl.DataFrame, root: Path | None = None, absent: Sequence[Absent] = ()
    ) -> None:
        self.frame, self.root, self.absent = frame, root, tuple(absent)

    def __repr__(self) -> str:
        return f"Cases({len(self):,} cases, root={str(self.root)!r})"

    @classmethod
    def build(cls, cases: Iterable[Case], *, root: Path | None = None, source: str) -> Cases:
        """Validate and tabulate cases; `source` names them in error messages."""
        stream = iter(cases)
        lists = iter(lambda: list(islice(stream, CHUNK)), [])
        return cls.checked((tabulate(some) for some in lists), root, source)

    @classmethod
    def checked(cls, frames: Iterable[pl.DataFrame], root: Path | None, source: str) -> Cases:
        """A table from frames, each of which is checked."""
        found, rows = list[pl.DataFrame](), 0
        for frame in frames:
            refuse_malformed(frame, rows, source)
            found.append(frame)
            rows += frame.height
        if not rows:
            raise CaseError("E-BENCHMARK-EMPTY", f"{source}: no cases.")
        # Where only some frames have an optional column, the others get nulls.
        cases = cls(pl.concat(found, how="diagonal"), root)
        refuse_repeated_ids(cases.ids, source)
        return cases

    def __len__(self) -> int:
        return self.frame.height

    @property
    def columns(self) -> pl.Schema:
        """The columns of the table, as far as a case table has them."""
        return columns_in(self.frame.columns)

    @property
    def ids(self) -> pl.Series:
        return self.frame["id"]

    @property
    def image_counts(self) -> np.ndarray:
        return _lengths(self.frame["images"])

    @property
    def caption_counts(self) -> np.ndarray:
        return _lengths(self.frame["captions"])

    @property
    def pair_offsets(self) -> np.ndarray:
        """Where each case's scores start in the flat array of all pairs, with the total last."""
        return offsets(self.image_counts * self.caption_counts)

    def layout(self) -> Layout:
        return Layout(self.image_counts, self.caption_counts)

    def pairs(self) -> PairNumbers:
        """Every pair of the table, in the order of `pair_offsets`."""
        layout = self.layout()
        return layout.pairs(np.arange(layout.images[-1]))

    def truth_flat(self) -> np.ndarray:
        """The truth of every pair, case by case, row by row."""
        starts, cells = self.pair_offsets, self.frame["truth"]
        truth = np.zeros(starts[-1], dtype=bool)
        true = np.repeat(starts[:-1], _lengths(cells)) + cells.explode().to_numpy()
        truth[true] = True
        return truth

    def blocks(self) -> Iterator[Block]:
        """The cases grouped by shape, so that metrics work on dense arrays."""
        images, captions = self.image_counts, self.caption_counts
        starts, truth = self.pair_offsets, self.truth_flat()
        of_texts = self.of_texts()
        kinds = np.stack([images, captions, of_texts, self.listed(), self.questions()])
        shapes, codes = np.unique(kinds, axis=1, return_inverse=True)
        for code, (k, m, texts, listed, questions) in enumerate(shapes.T):
            rows = np.flatnonzero(codes.reshape(-1) == code)
            block = _gather(truth, starts[rows], k, m)
            yield Block(rows, block, bool(texts), bool(listed), int(questions))

    def scores_of(self, block: Block, scores: np.ndarray) -> np.ndarray:
        """A block's part of the flat scores, in the shape of its truth."""
        _, k, m = block.truth.shape
        return _gather(scores, self.pair_offsets[block.rows], k, m)

    def of_texts(self) -> np.ndarray:
        """Which cases compare captions with texts instead of images."""
        first = self.frame["images"].list.first().struct.field("path")
        return first.str.starts_with(TEXT).to_numpy()

    def listed(self) -> np.ndarray:
        """Which cases name their queries."""
        return self._there("queries")

    def graded(self) -> np.ndarray:
        """Which cases have grades."""
        return self._there("grades")

    def _there(self, column: str) -> np.ndarray:
        if column not in self.frame.columns:
            return np.zeros(len(self), dtype=bool)
        return self.frame[column].is_not_null().to_numpy()

    def questions(self) -> np.ndarray:
        """How many questions the captions of each case answer; 0 if they are no answers."""
        if "questions" not in self.frame.columns:
            return np.zeros(len(self), dtype=np.int64)
        return self.frame["questions"].fill_null(0).to_numpy().astype(np.int64)

    def choice_starts(self) -> np.ndarray:
        """Where the captions of an image begin among all pairs, or those that answer one question:
        the captions that a model chooses from.
        """
        width = self.caption_counts // np.maximum(self.questions(), 1)
        sizes = np.repeat(width, self.image_counts * self.caption_counts // width)
        return offsets(sizes)[:-1]

    def grades_flat(self) -> np.ndarray | None:
        """The grade of every pair, in the order of `pair_offsets`, NaN without one; None if no
        case has grades.
        """
        if "grades" not in self.frame.columns:
            return None
        starts, graded = self.pair_offsets, self.graded()
        grades = np.full(starts[-1], np.nan)
        there = self.frame["grades"].filter(pl.Series(graded))
        grades[np.repeat(graded, np.diff(starts))] = there.explode().to_numpy()
        return grades

    def case(self, row: int) -> Case:
        """One row as a `Case`, to show it."""
        values = self.frame.row(row, named=True)
        images = tuple(
            ImageRef(i["path"], None if i["box"] is None else tuple(i["box"]))
            for i in values["images"]
        )
        k, m, true = len(images), len(values["captions"]), set(values["truth"])
        return Case(
            values["id"],
            images,
            tuple(values["captions"]),
            tuple(tuple(i * m + j in true for j in range(m)) for i in range(k)),
            tuple(values["groups"]),
            values["cluster"],
            tuple(values.get("grades") or ()),
            values.get("questions") or 0,
            values.get("query") or "",
        )

    def limit(self, count: int) -> Cases:
        """`count` cases, spread evenly over each group, so that groups keep their shares."""
        if count >= len(self):
            return self
        first = self.frame["groups"].list.first().fill_null("")
        by_group = np.argsort(first.rank("dense").to_numpy(), kind="stable")
        chosen = np.linspace(0, len(self) - 1, count).round().astype(np.int64)
        return Cases(self.frame[np.sort(by_group[chosen])], self.root)

    def keep(self, mask: np.ndarray) -> Cases:
        if mask.all():
            return Cases(self.frame, self.root)  # not a copy
        return Cases(self.frame.filter(pl.Series(mask)), self.root)

    def without_root(self) -> Cases:
        """The same cases, of which no image is opened: the folder of one machine is not in them."""
        return Cases(self.frame, None, self.absent)

    def content_hash(self) -> str:
        """A digest of ids, image references, captions and truth: the same table, the same hash.

        It is the SHA-256 of a line of JSON for each case: its columns in the order of `SCHEMA` and
        `OPTIONAL`, without spaces, in UTF-8. Runs keep it, so it must never change.
        """
        digest = hashlib.sha256()
        for part in self.frame.select(self.columns.names()).iter_slices(CHUNK):
            digest.update(part.write_ndjson().encode())
        return digest.hexdigest()
