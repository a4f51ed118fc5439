"""What describes a published data set: the card for people, and Croissant metadata for programs.

`Facts` collects what both say while the data set is written. The card (README.md) starts with the
YAML head that the hub reads. In the metadata (Croissant 1.0) a shard is a file with its digest; the
records are one set, and several shards are one file set.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

from counterpoint._util.yaml_files import yaml_text
from counterpoint.generation.drafts import CAPTIONS, MADE

IMAGES: Final = ("image", "text_image")
MEANINGS: Final = {
    "source": "the caption's id in the input; one caption has many pairs",
    "image": "the caption's image",
    "box": "the part of the image that is meant: x, y, width, height in pixels; null for all of it",
    "caption": "a true caption of the image",
    "text": "what was made from the caption",
    "kind": "negative (the text is false of the image) or positive (as true as the caption)",
    "type": "replace, swap, add, negate, shuffle or paraphrase",
    "subtype": "obj, att, rel, or empty",
    "start": "the first character of the text that differs from the caption",
    "end": "the end of the characters that differ",
    "method": "what made the text",
    "version": "of the method, with the models and word lists it used",
    "seed": "of the method's chance",
    "checks": "the automatic checks that the pair has passed",
    "doubt": "why a positive may yet be false, such as narrower (crimson for red); empty if sure",
    "text_image": "an image that the text is true of, or null",
}
COLUMNS: Final = tuple(MEANINGS)
INTEGERS: Final = {"box": "int32", "start": "int32", "end": "int32", "seed": "int64"}
LISTS: Final = ("box", "checks")


@dataclass(slots=True)
class Facts:
    """What the card and the metadata say about a data set."""

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
    files: list[Path] = field(default_factory=list)

    def summary(self) -> str:
        """One sentence."""
        sums: Counter[str] = Counter()
        for (kind, _, _), count in self.counts.items():
            sums[kind] += count
        kinds = " and ".join(f"{sums[kind]:,} hard {kind}s" for kind in sorted(sums))
        return f"{kinds} of {self.captions:,} image captions, made with Counterpoint."


VERSION: Final = "http://mlcommons.org/croissant/1.0"
_OWN: Final = (
    *("citeAs", "column", "extract", "field", "fileProperty", "fileObject", "fileSet", "format"),
    *("includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet"),
    *("references", "regex", "repeated", "replace", "separator", "source", "subField", "transform"),
    *("equivalentProperty", "samplingRate"),
)
_CONTEXT: Final[dict[str, Any]] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "conformsTo": "dct:conformsTo",
    **{name: f"cr:{name}" for name in _OWN},
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
}
_PARQUET: Final = "application/x-parquet"
_RECORDS: Final = "pairs"
_SHARDS: Final = "shards"


def croissant(facts: Facts) -> str:
    """The Croissant metadata of a data set whose files are written, as JSON."""
    files = [_file(path) for path in facts.files]
    source = {"fileObject": {"@id": files[0]["@id"]}}
    if len(files) > 1:
        shards = {"@type": "cr:FileSet", "@id": _SHARDS, "name": _SHARDS}
        files.append({**shards, "encodingFormat": _PARQUET, "includes": "data/*.parquet"})
        source = {"fileSet": {"@id": _SHARDS}}
    about = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": VERSION,
        "name": facts.name,
        "description": facts.summary(),
        "license": facts.licence or "unknown",
        "version": "1.0.0",
        "distribution": files,
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": _RECORDS,
                "name": _RECORDS,
                "description": "One record per caption and text made from it.",
                "field": [_field(name, source, facts.embedded) for name in COLUMNS],
            }
        ],
    }
    return json.dumps(about, indent=2, ensure_ascii=False) + "\n"


def _file(path: Path) -> dict[str, Any]:
    name = f"{path.parent.name}/{path.name}"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": path.name,
        "contentUrl": name,
        "contentSize": f"{path.stat().st_size} B",
        "encodingFormat": _PARQUET,
        "sha256": digest,
    }


def _field(name: str, source: dict[str, Any], embedded: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "@type": "cr:Field",
        "@id": f"{_RECORDS}/{name}",
        "name": name,
        "description": MEANINGS[name],
        "dataType": "sc:Integer" if name in INTEGERS else "sc:Text",
        "source": {**source, "extract": {"column": name}},
    }
    if name in LISTS:
        found["repeated"] = True
    if embedded and name in IMAGES:
        found["dataType"] = "sc:ImageObject"
        found["source"]["transform"] = {"jsonPath": "bytes"}
    return found


# The hub's identifiers; any other licence is "other" with a name.
_LICENCES: Final = frozenset(
    [
        *("apache-2.0", "mit", "bsd-3-clause", "cc0-1.0", "odc-by", "odbl", "pddl", "unknown"),
        *("cc-by-2.0", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0"),
        *("cc-by-nc-2.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0", "cc-by-nc-nd-4.0"),
    ]
)
_UNSHOWN: Final = ("root", "counts")  # a private folder; shown as a table
_SIZES: Final = (
    ("n<1K", 10**3),
    ("1K<n<10K", 10**4),
    ("10K<n<100K", 10**5),
    ("100K<n<1M", 10**6),
    ("1M<n<10M", 10**7),
    ("10M<n<100M", 10**8),
)


def card(facts: Facts) -> str:
    """README.md of a data set whose files are written."""
    parts = [
        f"---\n{yaml_text(_head(facts))}---\n",
        f"# {_line(facts.name)}\n\n{facts.summary()}\n",
        "A **negative** is a text that was made to be false of the image, a **positive** one that "
        "was made to be as true as the caption. A model that understands captions ranks caption "
        "and positives above the negatives.\n",
        _table("Counts", ("kind", "type", "subtype", "pairs"), _with_number(facts.counts)),
        _table("Methods", ("method", "version", "pairs"), _with_number(facts.methods)),
        _table("Checks", ("check", "pairs that passed it"), _with_number(facts.checks)),
        _rejections(facts),
        _table("Columns", ("column", "meaning"), MEANINGS.items()),
        f"{_images(facts)}\n",
        "## How it was made\n\n" + "\n".join(_made(about) for about in facts.made),
        _LIMITS,
        _licence(facts),
    ]
    return "\n".join(part for part in parts if part)


def _head(facts: Facts) -> dict[str, Any]:
    size = sum(file.stat().st_size for file in facts.files)
    rows = next((name for name, below in _SIZES if facts.rows < below), "n>100M")
    licence: dict[str, Any] = {"license": facts.licence.lower() or "unknown"}
    if licence["license"] not in _LICENCES:
        licence = {"license": "other", "license_name": _slug(facts.licence)}
    files = [{"split": "test", "path": "data/test-*"}]
    return {
        **licence,
        "pretty_name": facts.name,
        "language": ["en"],
        "task_categories": ["zero-shot-image-classification", "image-to-text"],
        "size_categories": [rows],
        "tags": ["compositionality", "hard-negatives", "hard-positives", "counterpoint"],
        "configs": [{"config_name": "default", "data_files": files}],
        "dataset_info": {
            "features": [_feature(name, facts.embedded) for name in COLUMNS],
            "splits": [{"name": "test", "num_bytes": size, "num_examples": facts.rows}],
            "download_size": size,
            "dataset_size": size,
        },
    }


def _feature(name: str, embedded: bool) -> dict[str, Any]:
    kind = "image" if embedded and name in IMAGES else INTEGERS.get(name, "string")
    return {"name": name, "sequence" if name in LISTS else "dtype": kind}


def _with_number(counts: Mapping[Any, int]) -> Iterable[tuple[str, ...]]:
    for key, count in sorted(counts.items()):
        yield (*(key if isinstance(key, tuple) else (key,)), f"{count:,}")


def _table(title: str, names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(_cell(value) for value in row)} |\n" for row in rows]
    if not lines:
        return ""
    head = f"| {' | '.join(names)} |\n|{'---|' * len(names)}\n"
    return f"## {title}\n\n{head}{''.join(lines)}"


def _cell(text: str) -> str:
    """A text as a table cell: data must not become markup or a new column."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", _line(text)) or "-"


def _line(text: str) -> str:
    return " ".join(text.split())


def _rejections(facts: Facts) -> str:
    """What is not in the data set: counts of `generate`, of rejected rows, and of the export."""
    counts: Counter[tuple[str, str]] = Counter()
    for about in facts.made:
        for what, reason, number in about.get("counts") or ():
            key = (str(what), str(reason))
            # Two files of the same captions both count the rejected captions.
            other = 0 if what == CAPTIONS else counts[key]
            counts[key] = max(counts[key], other + int(number))
    rows = {key: number for key, number in sorted(counts.items()) if key[1] != MADE}
    rows |= {("pairs", check): number for check, number in sorted(facts.refused.items())}
    rows |= {("export", why): number for why, number in sorted(facts.left_out.items()) if number}
    return _table("Refused and left out", ("by", "reason", "how many"), _with_number(rows))


def _images(facts: Facts) -> str:
    if facts.embedded:
        return "Images are in the files, whole; `box` says which part is meant."
    return "Images are not included: `image` is a path in the captions' own data set."


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


_LIMITS: Final = """## Limitations

- The texts were made and checked by programs. Some negatives are true of their image and some \
positives are not: the checks know words, not pictures.
- Language made by rules or models can be told from captions that people wrote. Measure a blind \
model, which sees no image, before trusting a score.
- Captions carry the biases of the people who wrote them, and the texts inherit these.
"""


def _licence(facts: Facts) -> str:
    said = (
        f"This data set: {_line(facts.licence)}."
        if facts.licence
        else ("No licence was named for this data set.")
    )
    return (
        f"## Licence\n\n{said} The captions and images belong to the data sets they were taken "
        "from, whose licences hold for them and for texts made from them.\n"
    )


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-") or "other"
