"""Pairs as a data set folder for the Hugging Face hub.

    FOLDER/
      README.md                            the card: what it is, how it was made, its limitations
      data/test-00000-of-00001.parquet     the pairs, one row each, in shards

The columns are those of the pairs file, without those for work in progress. Without embedding,
images are paths as in the pairs file; with it, `{bytes, path}` of the whole image, beside its box.
What programs read of a data set (sizes, features, Croissant) the hub makes of the files itself.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import chain
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

import polars as pl
from jinja2 import Template

from counterpoint._util.errors import DataError, ImageError, reason
from counterpoint._util.progress import Advance, Progress
from counterpoint._util.untrusted import shown, yaml_text
from counterpoint._util.writing import whole_folder
from counterpoint.cases import ImageRef
from counterpoint.generation.drafts import CAPTIONS, MADE
from counterpoint.generation.export.groups import QUIET, ImagePaths, LeftOut
from counterpoint.generation.pairs import SCHEMA, read_about, read_pairs

SHARD: Final = 200_000_000  # bytes, about
_SPLIT: Final = "test"
_ROWS: Final = 256  # rows with images in memory at a time: one row group
_PLAIN_ROWS: Final = 50_000
IMAGES: Final = ("image", "text_image")
_WORK: Final = ("refused", "scores", "text_images")  # columns for work in progress
COLUMNS: Final = tuple(name for name in SCHEMA if name not in _WORK)  # card.md has their meanings
INTEGERS: Final = {"box": "int32", "start": "int32", "end": "int32", "seed": "int64"}
LISTS: Final = ("box", "checks")


@dataclass(slots=True)
class Facts:
    """What the card says about a data set, collected while it is written."""

    name: str
    licence: str
    embedded: bool
    rows: int = 0
    captions: int = 0
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    methods: Counter[tuple[str, str]] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    made: list[dict[str, Any]] = field(default_factory=list)

    def summary(self) -> str:
        """One sentence."""
        sums: Counter[str] = Counter()
        for (kind, _, _), count in self.counts.items():
            sums[kind] += count
        kinds = " and ".join(f"{sums[kind]:,} hard {kind}s" for kind in sorted(sums))
        return f"{kinds} of {self.captions:,} image captions, made with Counterpoint."


def export_hub(
    pairs: Sequence[Path],
    out: Path,
    left_out: LeftOut,
    *,
    name: str = "",
    licence: str = "",
    images: Path | None = None,
    embed: bool = False,
    shard: int = SHARD,
    progress: Progress = QUIET,
) -> int:
    """Write a new folder; returns the number of rows."""
    if out.exists():
        raise DataError("E-OUTPUT-EXISTS", f"{out} exists; name a new folder.")
    facts = Facts(name or out.name, licence, embed, left_out=left_out)
    facts.made = [read_about(file) for file in pairs]
    with whole_folder(out) as draft:
        (draft / "data").mkdir()
        tables = [_checked(file, facts) for file in pairs]
        advance = progress.start("pairs", sum(map(len, tables)))
        facts.captions = pl.concat(tables).select("source", "caption").n_unique()
        frames = _frames(zip(pairs, tables, strict=True), facts, images, advance)
        _write_shards(frames, draft / "data", embed, shard)
        if not facts.rows:
            raise DataError("E-PAIRS-EMPTY", f"{pairs[0]}: no pair passed the checks.")
        (draft / "README.md").write_text(card(facts), encoding="utf-8")
    return facts.rows


def _checked(file: Path, facts: Facts) -> pl.DataFrame:
    """The pairs of a file that passed the checks; the others are counted."""
    table, why = read_pairs(file, rejected=True), pl.col("refused")
    if "counts" not in read_about(file):  # else `generate` has counted them
        refused = table.filter(why != "")["refused"].str.split(":").list.first()
        facts.refused.update(refused.to_list())
    return table.filter(why == "").select(COLUMNS)


def _frames(
    tables: Iterable[tuple[Path, pl.DataFrame]], facts: Facts, images: Path | None, advance: Advance
) -> Iterator[list[Any]]:
    """The rows to write, in pieces; they are counted in `facts`."""
    for file, table in tables:
        paths = ImagePaths.of(file, file.parent, images=images)
        for part in table.iter_slices(_ROWS if facts.embedded else _PLAIN_ROWS):
            rows = part.to_dicts()
            if facts.embedded:
                rows = list(_embedded(rows, paths, facts.left_out))
            for row in rows:
                facts.rows += 1
                facts.counts[row["kind"], row["type"], row["subtype"]] += 1
                facts.methods[row["method"], row["version"]] += 1
                facts.checks.update(row["checks"] or [])
            yield rows
            advance(len(part))


def _embedded(
    rows: list[dict[str, Any]], paths: ImagePaths, left_out: LeftOut
) -> Iterator[dict[str, Any]]:
    """Rows with their images; rows whose image cannot be read are left out."""
    known: dict[tuple[str, str], Any] = {}
    for row in rows:
        try:
            for column, root in zip(IMAGES, (paths.images, paths.text_images), strict=True):
                path = row[column]
                if path is not None and (column, path) not in known:
                    data, name = image_bytes(path, Path(root))
                    known[column, path] = {"bytes": data, "path": name}
                row[column] = None if path is None else known[column, path]
        except ImageError:
            left_out["pairs whose image is missing or broken"] += 1
        else:
            yield row


def image_bytes(path: str, root: Path) -> tuple[bytes, str]:
    """The bytes of an image's file, or a PNG if it has no file of its own; and a name for it.

    The image is opened, so that a broken one raises ImageError here, not when the data set is used.
    """
    from counterpoint.images import PLAIN, Picture

    picture = Picture(ImageRef(path), root)
    image = picture.open()
    if picture.scheme is PLAIN:
        file = picture.path()
        try:
            return file.read_bytes(), file.name
        except OSError as error:
            raise ImageError(
                "E-IMAGE-UNREADABLE", f"image {shown(str(file))}: cannot be read: {reason(error)}."
            ) from None
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue(), "image.png"


def _write_shards(frames: Iterator[list[Any]], folder: Path, embedded: bool, limit: int) -> None:
    """Files of about `limit` bytes each; their names contain the number of files."""
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    schema = _schema(embedded)
    written: list[Path] = []
    # Many rows have the same image: with a large dictionary it is stored once per row group.
    form = {"compression": "zstd", "dictionary_pagesize_limit": limit}
    for first in frames:
        written.append(folder / f"{len(written)}.parquet")
        with pq.ParquetWriter(written[-1], schema, **form) as writer:
            for rows in chain([first], frames):
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                if written[-1].stat().st_size >= limit:
                    break
    for number, file in enumerate(written):
        file.rename(folder / f"{_SPLIT}-{number:05}-of-{len(written):05}.parquet")


def _schema(embedded: bool) -> Any:
    """The types of the columns; the metadata tells `datasets` which of them are images."""
    import pyarrow as pa

    schema = pl.DataFrame(schema={name: SCHEMA[name] for name in COLUMNS}).to_arrow().schema
    if not embedded:
        return schema
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    fields = [pa.field(f.name, image) if f.name in IMAGES else f for f in schema]
    features: dict[str, Any] = {}
    for name in COLUMNS:
        value: dict[str, Any] = {"dtype": INTEGERS.get(name, "string"), "_type": "Value"}
        if name in LISTS:
            value = {"feature": value, "_type": "Sequence"}
        features[name] = {"_type": "Image"} if name in IMAGES else value
    note = {"info": {"features": features}}
    return pa.schema(fields).with_metadata({"huggingface": json.dumps(note)})


# --- the card ------------------------------------------------------------------------------------

# The hub's identifiers; any other licence is "other" with a name.
_LICENCES: Final = frozenset(
    [
        *("apache-2.0", "mit", "bsd-3-clause", "cc0-1.0", "odc-by", "odbl", "pddl", "unknown"),
        *("cc-by-2.0", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0"),
        *("cc-by-nc-2.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0", "cc-by-nc-nd-4.0"),
    ]
)
_UNSHOWN: Final = ("root", "counts")  # a private folder; shown as a table


def card(facts: Facts) -> str:
    """README.md of a data set whose files are written. It begins with what the hub reads."""
    licence = "No licence was named for this data set."
    if facts.licence:
        licence = f"This data set: {_line(facts.licence)}."
    tables = [
        _table("Counts", "kind, type, subtype, pairs", sorted(facts.counts.items())),
        _table("Methods", "method, version, pairs", sorted(facts.methods.items())),
        _table("Checks", "check, pairs that passed it", sorted(facts.checks.items())),
        _table("Refused and left out", "by, reason, how many", _rejections(facts)),
    ]
    template = resources.files(__package__).joinpath("card.md").read_text(encoding="utf-8")
    return Template(template, keep_trailing_newline=True).render(
        head=yaml_text(_head(facts)),
        name=_line(facts.name),
        summary=facts.summary(),
        tables=filter(None, tables),
        embedded=facts.embedded,
        made="\n".join(map(_made, facts.made)),
        licence=licence,
    )


def _head(facts: Facts) -> dict[str, Any]:
    licence: dict[str, Any] = {"license": facts.licence.lower() or "unknown"}
    if licence["license"] not in _LICENCES:
        name = re.sub(r"[^a-z0-9.]+", "-", facts.licence.lower()).strip("-") or "other"
        licence = {"license": "other", "license_name": name}
    files = [{"split": _SPLIT, "path": f"data/{_SPLIT}-*"}]
    return {
        **licence,
        "pretty_name": facts.name,
        "language": ["en"],
        "task_categories": ["zero-shot-image-classification", "image-to-text"],
        "tags": ["compositionality", "hard-negatives", "hard-positives", "counterpoint"],
        "configs": [{"config_name": "default", "data_files": files}],
    }


def _table(title: str, names: str, counts: Iterable[tuple[Any, int]]) -> str:
    """Counts as a Markdown table; empty if there are none."""
    columns = names.split(", ")
    lines = [f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"]
    for key, count in counts:
        cells = (*(key if isinstance(key, tuple) else (key,)), f"{count:,}")
        lines.append(f"| {' | '.join(map(_cell, cells))} |\n")
    return f"## {title}\n\n{''.join(lines)}" if len(lines) > 1 else ""


def _cell(text: str) -> str:
    """A text as a table cell: data must not become markup or a new column."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", _line(text)) or "-"


def _line(text: str) -> str:
    return " ".join(text.split())


def _rejections(facts: Facts) -> Iterator[tuple[tuple[str, str], int]]:
    """What is not in the data set: counts of `generate`, of rejected rows, and of the export."""
    counts: Counter[tuple[str, str]] = Counter()
    for about in facts.made:
        for what, why, number in about.get("counts") or ():
            key = (str(what), str(why))
            # Two files of the same captions both count the rejected captions.
            other = 0 if what == CAPTIONS else counts[key]
            counts[key] = max(counts[key], other + int(number))
    yield from ((key, number) for key, number in sorted(counts.items()) if key[1] != MADE)
    for by, reasons in (("pairs", facts.refused), ("export", facts.left_out)):
        yield from (((by, why), number) for why, number in sorted(reasons.items()) if number)


def _made(about: dict[str, Any]) -> str:
    shown = json.dumps(_public(about), indent=2, ensure_ascii=False, sort_keys=True)
    fence = "`" * (3 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence}json\n{shown}\n{fence}\n"


def _public(value: Any) -> Any:
    """Without the names of local folders."""
    if isinstance(value, dict):
        return {key: _public(item) for key, item in value.items() if key not in _UNSHOWN}
    if isinstance(value, list):
        return [_public(item) for item in value]
    if isinstance(value, str):
        for kind in (PurePosixPath, PureWindowsPath):
            if kind(value).is_absolute():
                return kind(value).name
    return value
