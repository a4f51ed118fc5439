"""Metadata that programs read: Croissant 1.0.

A shard is a file with its digest. The records are one set; where there are several shards, a file
set stands for all of them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from counterpoint.generate.export.facts import COLUMNS, IMAGES, INTEGERS, LISTS, MEANINGS, Facts

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
    """The metadata of a data set whose files are written, as JSON."""
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
                "description": "A caption and a text made from it, a record each.",
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
