"""The source of a campaign: a benchmark, a case file, a run or a pairs file."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from counterpoint._util.errors import CounterpointError, DataError
from counterpoint.benchmarks import load_benchmark
from counterpoint.cases import TEXT, Case, Cases, ImageRef, normal
from counterpoint.evaluation import prepare
from counterpoint.generation import is_pairs_file, read_pairs, root_of
from counterpoint.metrics import get_protocol
from counterpoint.runs import file_digest, load_run
from counterpoint.studio.annotate.questions import RANK, CampaignKind, JudgedCase, chance, lasting

_PAIR: Final = ("source", "image", "box", "caption", "text", "kind", "type", "subtype")
_IMAGES: Final = ("text_images", "text_image")
_CANDIDATES: Final = 4
_STRICT: Final = {"protocol": "strict", "data_hash": ""}  # of texts, which no benchmark has


@dataclass(slots=True)
class CampaignSource:
    """What can be judged. `about` is kept with the campaign; `left_out` counts by reason."""

    subjects: list[JudgedCase]
    about: dict[str, Any]
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class SourceSelection:
    """Which part of a source: at random by `seed`, at most `limit` cases; where things are."""

    limit: int | None = None
    seed: int = 0
    data: Path | None = None
    images: Path | None = None  # of a pairs file; else where it says
    benchmark: str | None = None  # of a run that has several
    against: Path | None = None  # a second pairs file, whose texts are compared


def read_material(source: str, kind: CampaignKind, wanted: SourceSelection) -> CampaignSource:
    """The cases of a source, by benchmark id or path."""
    path = Path(source)
    if kind.compares or wanted.against is not None:
        return _compared(path, kind, wanted)
    if is_pairs_file(path):
        return _from_pairs(path, kind, wanted)
    if path.is_dir():
        return _from_run(path, wanted)
    known, cases = load_benchmark(source, wanted.data)
    protocol = get_protocol(known.protocol)
    name = path.name if path.is_file() else source
    return _from_cases(prepare(cases, protocol, None), wanted, name, protocol.name, source)


def _from_run(path: Path, wanted: SourceSelection) -> CampaignSource:
    if not (path / "run.json").is_file():  # and do not search all that is below it
        raise DataError(
            "E-RUN-MISSING", f"{path}: no run folder (no run.json); name the folder of one run."
        )
    run = load_run(path)
    names = [wanted.benchmark] if wanted.benchmark else list(run.parts)
    if len(names) > 1 or names[0] not in run.parts:
        raise CounterpointError(
            "E-BENCHMARK-AMBIGUOUS",
            f"{path}: choose one of its benchmarks with --benchmark: {', '.join(run.parts)}.",
        )
    part = run.parts[names[0]]
    return _from_cases(part.cases, wanted, part.benchmark, part.protocol.name, str(path))


def _from_cases(
    cases: Cases, wanted: SourceSelection, benchmark: str, protocol: str, source: str
) -> CampaignSource:
    root = None if cases.root is None else str(cases.root.absolute())
    subjects = []
    for row in _sample(len(cases), wanted):
        case = lasting(cases.case(row))
        subjects.append(JudgedCase(case, (root,) * len(case.images)))
    about = {"type": "cases", "source": source, "benchmark": benchmark, "protocol": protocol}
    return CampaignSource(subjects, {**about, "data_hash": cases.content_hash()})


# --- pairs -------------------------------------------------------------------------------------


def _from_pairs(path: Path, kind: CampaignKind, wanted: SourceSelection) -> CampaignSource:
    table = read_pairs(path).select(*_PAIR, *_IMAGES)
    table = table.with_row_index("row")
    root = wanted.images or root_of(path)
    folders = (str(root.absolute()), str(path.absolute().parent))
    about = {"type": "pairs", "source": str(path.absolute()), "digest": file_digest(path)}
    made = CampaignSource([], {**about, "benchmark": path.name, **_STRICT})
    fit = _fitting(table, kind, made.left_out)
    ranked = RANK in kind.asks
    made_of = _ranked(fit, folders, made.left_out) if ranked else _single(fit, kind, folders)
    subjects = list(made_of)
    made.subjects = [subjects[number] for number in _sample(len(subjects), wanted)]
    return made


def _sample(count: int, wanted: SourceSelection) -> list[int]:
    """The numbers of the cases that are asked about, in order."""
    if wanted.limit is None or wanted.limit >= count:
        return list(range(count))
    rng = chance(wanted.seed, "sample")
    return sorted(rng.choice(count, wanted.limit, replace=False).tolist())


def _fitting(table: pl.DataFrame, kind: CampaignKind, left_out: Counter[str]) -> pl.DataFrame:
    """The rows of which the kind can ask something; the others are counted."""
    needs = {"without an image": pl.col("image").is_not_null()}
    if kind.name == "best-image":
        needs = {"without candidate images": pl.col("text_images").list.len() > 0}
    elif kind.name not in ("image-to-text", "rank"):
        needs["without a chosen image of the text"] = pl.col("text_image").is_not_null()
    if RANK not in kind.asks:
        needs = {"positives": pl.col("kind") == "negative", **needs}
    for reason, keep in needs.items():
        kept = table.filter(keep)
        if len(kept) < len(table):
            left_out[f"pairs: {reason}"] += len(table) - len(kept)
        table = kept
    return table


def _single(
    table: pl.DataFrame, kind: CampaignKind, folders: tuple[str, str]
) -> Iterator[JudgedCase]:
    """A case for each pair."""
    for row in table.iter_rows(named=True):
        groups = (_label(row),)
        rows = (row["row"],)
        id, cluster = f"{row['source']}#{row['row']}", row["image"] or row["source"]
        if kind.name == "best-image":
            images = [ImageRef(image["path"]) for image in row["text_images"][:_CANDIDATES]]
            truth = ((True,),) * len(images)
            case = Case(id, tuple(images), (row["text"],), truth, groups, cluster)
            yield JudgedCase(case, (folders[1],) * len(images), rows)
            continue
        captions, image = (row["caption"], row["text"]), _image(row)
        if kind.name == "image-to-text":
            case = Case(id, (image,), captions, ((True, False),), groups, cluster)
            yield JudgedCase(case, folders[:1], (-1, *rows))
            continue
        images = [image, ImageRef(row["text_image"])]
        case = Case(id, tuple(images), captions, ((True, False), (False, True)), groups, cluster)
        yield JudgedCase(case, folders, (-1, *rows))


def _ranked(
    table: pl.DataFrame, folders: tuple[str, str], left_out: Counter[str]
) -> Iterator[JudgedCase]:
    """A case for each caption: itself, its positives, its negatives."""
    key = ["source", "caption", "image"]
    for part in table.partition_by(key, maintain_order=True):
        rows = part.unique("text", keep="first", maintain_order=True)
        ordered = rows.sort(pl.col("kind") == "negative", maintain_order=True)
        if len(ordered) > RANK.most - 1:
            left_out["texts: more than can be ranked"] += len(ordered) - RANK.most + 1
            ordered = _spread(ordered, RANK.most - 1)
        first = ordered.row(0, named=True)
        captions = (first["caption"], *ordered["text"].to_list())
        truth = (True, *(ordered["kind"] == "positive").to_list())
        id = f"{first['source']}#{first['row']}"
        negative = ordered.filter(pl.col("kind") == "negative").head(1).to_dicts()
        groups = (_label(negative[0] if negative else first),)
        case = Case(id, (_image(first),), captions, (truth,), groups, first["image"])
        yield JudgedCase(case, folders[:1], (-1, *ordered["row"].to_list()))


def _spread(rows: pl.DataFrame, most: int) -> pl.DataFrame:
    """Positives and negatives in turn until there are enough, then in order again."""
    turn = pl.int_range(pl.len()).over("kind")
    return (
        rows.with_columns(turn=turn)
        .sort("turn", maintain_order=True)
        .head(most)
        .sort(pl.col("kind") == "negative", maintain_order=True)
    )


def _compared(path: Path, kind: CampaignKind, wanted: SourceSelection) -> CampaignSource:
    """The negatives of two pairs files, side by side.

    Texts belong together if their captions are the same, apart from case and punctuation, and their
    types, too; a negation goes with an addition, as in SugarCrepe's comparison with CREPE. Every
    text is used once, in the order of the files. Equal texts are not asked about.
    """
    if not kind.compares or wanted.against is None or not is_pairs_file(path):
        raise DataError(
            "E-CAMPAIGN-AGAINST",
            "compare-texts, and no other kind, needs two pairs files: SOURCE and --against.",
        )
    sides = [path.stem, wanted.against.stem]
    if sides[0] == sides[1]:
        sides = [str(path), str(wanted.against)]
    about = {"type": "comparison", "source": str(path.absolute()), "sides": sides}
    made = CampaignSource([], {**about, "benchmark": " and ".join(sides), **_STRICT})
    others: dict[tuple[tuple[str, ...], str], deque[dict[str, Any]]] = {}
    for row in _negatives(wanted.against):
        others.setdefault(_matching(row), deque()).append(row)
    for number, row in enumerate(_negatives(path)):
        waiting = others.get(_matching(row))
        if not waiting:
            made.left_out[f"texts of {sides[0]} without a counterpart"] += 1
            continue
        other = waiting.popleft()
        if normal(row["text"]) == normal(other["text"]):
            made.left_out["pairs of equal texts"] += 1
            continue
        texts, place = (row["text"], other["text"]), ImageRef(TEXT + row["caption"])
        group = _ALIKE.get(row["type"], row["type"])
        id = f"{row['source']}#{number}"
        case = Case(id, (place,), texts, ((False, False),), (group,), row["caption"])
        made.subjects.append(JudgedCase(case, (None,)))
    rest = sum(map(len, others.values()))
    if rest:
        made.left_out[f"texts of {sides[1]} without a counterpart"] += rest
    made.subjects = _some(made.subjects, wanted)
    return made


def _negatives(path: Path) -> Iterator[dict[str, Any]]:
    return read_pairs(path).filter(pl.col("kind") == "negative").iter_rows(named=True)


def _matching(row: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    return normal(row["caption"]), _ALIKE.get(row["type"], row["type"])


def _some(subjects: list[JudgedCase], wanted: SourceSelection) -> list[JudgedCase]:
    """At most `limit` of each group, as SugarCrepe's authors took 100."""
    if wanted.limit is None:
        return subjects
    groups: dict[str, list[int]] = {}
    for number, subject in enumerate(subjects):
        groups.setdefault(subject.case.groups[0], []).append(number)
    chosen: list[int] = []
    for group, numbers in groups.items():
        rng = chance(wanted.seed, "limit", group)
        chosen += [numbers[n] for n in rng.permutation(len(numbers))[: wanted.limit]]
    return [subjects[number] for number in sorted(chosen)]


_ALIKE: Final = {"negate": "add"}


def _image(row: dict[str, Any]) -> ImageRef:
    box = row["box"]
    return ImageRef(row["image"], None if box is None else (box[0], box[1], box[2], box[3]))


def _label(row: dict[str, Any]) -> str:
    return f"{row['type']}/{row['subtype']}" if row["subtype"] else str(row["type"])


def described(about: dict[str, Any]) -> str:
    """A campaign's source in words."""
    what = {"pairs": "pairs", "comparison": "texts"}.get(about["type"], "cases")
    return f"{what} of {about['benchmark']}"
