"""The pairs file: one row per pair of a caption and a text made from it, in Parquet.

| column      | type                        | meaning |
|-------------|-----------------------------|---------|
| source      | str                         | the caption's id: one caption has many pairs |
| image       | str or null                 | its image: a path under `root`, or `world:...` |
| box         | 4 x int or null             | the part of the image: x, y, width, height |
| caption     | str                         | the true caption |
| text        | str                         | the text made from the caption |
| kind        | str                         | `negative` (false of the image) or `positive` |
| type        | str                         | replace, swap, add, negate, shuffle, paraphrase |
| subtype     | str                         | obj, att, rel, count, bind, or empty |
| start, end  | int                         | the characters of `text` that are not the caption's |
| method      | str                         | what made it |
| version     | str                         | of the method, and of the words and models it used |
| seed        | int                         | |
| checks      | list of str                 | the checks that it passed; `sentence`: see below |
| refused     | str                         | empty, or the check that rejected it and why |
| doubt       | str                         | why a positive may still be false: `narrower` |
| scores      | list of {name, value}       | from `refine` and other scorers |
| text_images | list of {path, seed, score} | candidates for an image of which `text` is true |
| text_image  | str or null                 | the one that was chosen |

A language model's text is written like its caption, which may have no full stop. So whether the
model's own answer ended as a sentence is kept among the checks, as `sentence`.

The file's metadata (key `counterpoint`) is a JSON object: how it was made, and counts of what was
rejected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

import polars as pl

from counterpoint._util.errors import DataError, reason
from counterpoint._util.tables import parquet_columns, parquet_frames
from counterpoint._util.untrusted import parse_json, shortened, shown
from counterpoint._util.writing import locked, whole_file
from counterpoint.cases import ImageRef, shared_ends
from counterpoint.images import scheme_of

Kind = Literal["negative", "positive"]
Type = Literal["replace", "swap", "add", "negate", "shuffle", "paraphrase"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
TYPES: Final[tuple[Type, ...]] = get_args(Type)
SUBTYPES: Final = ("obj", "att", "rel", "count", "bind", "")

SCHEMA: Final = pl.Schema(
    {
        "source": pl.String(),
        "image": pl.String(),
        "box": pl.Array(pl.Int32(), 4),
        "caption": pl.String(),
        "text": pl.String(),
        "kind": pl.String(),
        "type": pl.String(),
        "subtype": pl.String(),
        "start": pl.Int32(),
        "end": pl.Int32(),
        "method": pl.String(),
        "version": pl.String(),
        "seed": pl.Int64(),
        "checks": pl.List(pl.String()),
        "refused": pl.String(),
        "doubt": pl.String(),
        "scores": pl.List(pl.Struct({"name": pl.String(), "value": pl.Float32()})),
        "text_images": pl.List(
            pl.Struct({"path": pl.String(), "seed": pl.Int64(), "score": pl.Float32()})
        ),
        "text_image": pl.String(),
    }
)
SENTENCE: Final = "sentence"
FINISHED: Final = r"[.!…][\"'”’) ]*$"  # the end of a sentence that is no question
_NEEDED: Final = ("source", "caption", "text", "kind", "type")
_EMPTIABLE: Final = ("subtype", "method", "version", "refused", "doubt")
# Polars panics at some damaged files.
_POLARS: Final = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
_METADATA: Final = b"counterpoint"


class Pair(NamedTuple):
    """A new row: it has no scores and no images of its text yet."""

    source: str
    image: ImageRef | None
    caption: str
    text: str
    kind: Kind
    type: Type
    subtype: str
    method: str
    version: str
    seed: int
    checks: tuple[str, ...] = ()
    refused: str = ""
    doubt: str = ""


class Draft(NamedTuple):
    """A text that a method made and that was not checked yet.

    `doubt` says why a positive may be false, if the method knows. A `common` draft is the edit of
    many captions: it is used only for a caption that gets no other text. `odd` says why a negative
    is hardly plausible; such a draft comes after all others of its kind of change, and is rejected
    unless texts are not ranked. `sentence`: what a language model answered ended as a sentence.
    """

    text: str
    type: Type
    subtype: str = ""
    doubt: str = ""
    common: bool = False
    odd: str = ""
    sentence: bool = False


class Rejection(NamedTuple):
    """Why a method made no text. Reasons are counted."""

    reason: str


def changed_span(caption: str, text: str) -> tuple[int, int]:
    """The characters of `text`, widened to whole words, that differ from the caption.

    Everything before and after is as in the caption. Of a deletion it is empty.
    """
    start, tail = shared_ends(caption, text)
    end = len(text) - tail
    if start == end:
        return start, end
    while start > 0 and text[start - 1].isalnum():
        start -= 1
    while end < len(text) and text[end].isalnum():
        end += 1
    return start, end


def stable_random(*parts: object, bytes: int = 8) -> int:
    """A whole number of this many bytes that depends on nothing but the parts, as text."""
    joined = "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(joined, digest_size=bytes).digest())


class UniqueIds:
    """Makes repeated ids unique: the second `7` is `7~2`."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._times: dict[str, int] = {}

    def __call__(self, id: str) -> str:
        unique = id
        while unique in self._seen:
            self._times[id] = self._times.get(id, 1) + 1
            unique = f"{id}~{self._times[id]}"
        self._seen.add(unique)
        return unique


def tabulate(pairs: Sequence[Pair]) -> pl.DataFrame:
    """Pairs as rows of the table."""
    spans = [changed_span(pair.caption, pair.text) for pair in pairs]
    images = [pair.image or ImageRef("") for pair in pairs]
    columns: dict[str, Any] = {
        "image": [image.path or None for image in images],
        "box": [image.box for image in images],
        "start": [start for start, _ in spans],
        "end": [end for _, end in spans],
        "checks": [list(pair.checks) for pair in pairs],
        "text_image": [None] * len(pairs),
    }
    for name in ("scores", "text_images"):  # an empty list is made once, which is much faster
        empty = pl.Series(name, [[]], dtype=SCHEMA[name])
        columns[name] = empty.new_from_index(0, len(pairs))
    for name in SCHEMA.names():
        if name not in columns:
            columns[name] = [getattr(pair, name) for pair in pairs]
    return pl.DataFrame([pl.Series(n, columns[n], dtype=kind) for n, kind in SCHEMA.items()])


About = Mapping[str, Any] | Callable[[], Mapping[str, Any]]


def write_pairs(path: Path, frames: Iterable[pl.DataFrame], about: About) -> int:
    """Write tables into one file, which appears when it is complete; returns the number of rows.

    `about` says how it was made; a function is called when all rows are written.
    """
    import pyarrow.parquet as pq  # slow to import

    require_parquet(path)
    schema = pl.DataFrame(schema=SCHEMA).to_arrow().schema
    rows = 0
    with whole_file(path) as draft, pq.ParquetWriter(draft, schema, compression="zstd") as writer:
        for frame in frames:
            rows += len(frame)
            writer.write_table(frame.select(SCHEMA.names()).to_arrow().cast(schema))
        metadata = json.dumps(about() if callable(about) else about, sort_keys=True)
        writer.add_key_value_metadata({_METADATA: metadata})
    return rows


def read_pairs(path: Path, *, rejected: bool = False) -> pl.DataFrame:
    """The table; without rejected pairs unless asked for.

    A null where a value is needed is an error. Texts that may be empty are empty where null.
    """
    with _reading(path):
        columns = parquet_columns(path)
        if missing := [name for name in SCHEMA if name not in columns]:
            raise DataError(
                "E-COLUMN-MISSING",
                f"{path}: not a pairs file of `counterpoint generate`: "
                f"the column {missing[0]!r} is missing.",
            )
        raw = pl.concat(parquet_frames(path, columns=list(SCHEMA)))
        table = raw.select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())
        _check(table, path)
        whole = table.with_columns(
            pl.col(_EMPTIABLE).fill_null(""),
            *(pl.col(name).list.drop_nulls() for name in ("checks", "scores", "text_images")),
        )
        return whole if rejected else whole.filter(pl.col("refused") == "")


def _check(table: pl.DataFrame, path: Path) -> None:
    """Refuse the first row with a value that cannot be used."""
    corners = pl.col("box").arr.to_list()
    faults = [(name, "is missing (null)", pl.col(name).is_null()) for name in _NEEDED]
    faults.append(("kind", f"is not {' or '.join(KINDS)}", ~pl.col("kind").is_in(KINDS)))
    faults.append(("box", "has a null in it", corners.list.drop_nulls().list.len() != 4))
    for name, fault, bad in faults:
        rows = table.select(bad.fill_null(False)).to_series().arg_true()
        if len(rows):
            raise DataError("E-ROW-MALFORMED", f"{path}: row {rows[0] + 1}: {name!r} {fault}.")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    import pyarrow as pa  # slow to import

    if not path.is_file():
        raise DataError("E-FILE-MISSING", f"{path}: no such file.")
    try:
        yield
    except (*_POLARS, pa.ArrowException, UnicodeDecodeError, OSError) as error:
        why = shortened(str(error).partition("\n")[0]).rstrip(".") or type(error).__name__
        raise DataError("E-FILE-MALFORMED", f"{path}: not a readable pairs file: {why}.") from None


def rebased(frame: pl.DataFrame, before: Path, after: Path) -> pl.DataFrame:
    """The rows of the file `before`, with paths as the file `after` needs them.

    Paths of text images are relative to the folder of the pairs file.
    """
    old, new = before.parent.absolute(), after.parent.absolute()
    if old == new or not (frame["text_images"].list.len() > 0).any():
        return frame

    def moved_file(path: str) -> str:
        if Path(path).is_absolute():
            return path
        full = old / path
        return str(full.relative_to(new) if full.is_relative_to(new) else full)

    def moved(path: str | None) -> str | None:
        return path if path is None else scheme_of(path).with_path(path, moved_file)

    lists = [
        [{**image, "path": moved(image["path"])} for image in images or ()]
        for images in frame["text_images"].to_list()
    ]
    chosen = [moved(path) for path in frame["text_image"].to_list()]
    return frame.with_columns(
        pl.Series("text_images", lists, dtype=SCHEMA["text_images"]),
        pl.Series("text_image", chosen, dtype=SCHEMA["text_image"]),
    )


def read_about(path: Path) -> dict[str, Any]:
    """How a pairs file was made; empty if it does not say."""
    import pyarrow.parquet as pq

    with _reading(path):
        content = (pq.read_metadata(path).metadata or {}).get(_METADATA, b"{}")
    about = parse_json(content, f"{path}: its metadata")
    if not isinstance(about, dict):
        raise DataError(
            "E-METADATA-INVALID", f"{path}: its metadata should be an object, it is {shown(about)}."
        )
    for key, fits in (("counts", _is_count), ("refined", lambda row: isinstance(row, dict))):
        rows = about.get(key, [])
        if not isinstance(rows, list) or not all(map(fits, rows)):
            raise DataError(
                "E-METADATA-INVALID",
                f"{path}: {key!r} of its metadata is not what Counterpoint writes.",
            )
    return about


def _is_count(row: Any) -> bool:
    return isinstance(row, list) and [type(value) for value in row] == [str, str, int]


def root_of(pairs: Path) -> Path:
    """The folder of the captions' images: the one that the file names, or its own."""
    root = read_about(pairs).get("root")
    return Path(root) if isinstance(root, str) and root else pairs.parent


def is_pairs_file(path: Path) -> bool:
    if path.suffix != ".parquet" or not path.is_file():
        return False
    return {"caption", "text", "kind"} <= set(parquet_columns(path))


def require_parquet(out: Path, what: str = "pairs") -> None:
    if out.suffix != ".parquet":
        raise DataError(
            "E-FILE-FORMAT", f"{out}: {what} are written as Parquet; the name must end in .parquet."
        )


@contextmanager
def reserved(out: Path) -> Iterator[None]:
    """Reserve an output until the work is done, and fail now if it cannot be written.

    The lock is called `OUT.parts`: the lock of OUT itself is held only while it is written.
    """
    with ExitStack() as stack:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.exists()  # raises if the name is too long
            stack.enter_context(locked(out.with_name(f"{out.name}.parts")))
        except OSError as error:
            raise DataError(
                "E-OUTPUT-UNWRITABLE", f"{out}: cannot be written: {reason(error)}."
            ) from None
        except DataError:
            raise DataError(
                "E-OUTPUT-LOCKED",
                f"{out}: another command is writing it; wait for it, or name another place.",
            ) from None
        yield
