"""The data set's card: what people read first, with the head that the hub reads."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Final

from counterpoint.generate.export.facts import COLUMNS, IMAGES, INTEGERS, LISTS, MEANINGS, Facts
from counterpoint.generate.making import CAPTIONS, MADE

# Identifiers of the hub; any other licence is "other", with a name.
_LICENCES: Final = frozenset(
    [
        *("apache-2.0", "mit", "bsd-3-clause", "cc0-1.0", "odc-by", "odbl", "pddl", "unknown"),
        *("cc-by-2.0", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0"),
        *("cc-by-nc-2.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0", "cc-by-nc-nd-4.0"),
    ]
)
_UNSHOWN: Final = ("root", "counts")  # a folder of the maker's; a table of its own
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
        f"---\n{_yaml(_head(facts))}---\n",
        f"# {_line(facts.name)}\n\n{facts.summary()}\n",
        "A **negative** is a text that was made to be false of the image, a **positive** one that "
        "was made to be as true as the caption. A model that understands captions ranks caption "
        "and positives above the negatives.\n",
        _table("Counts", ("kind", "type", "subtype", "pairs"), _counts(facts)),
        _table("Methods", ("method", "version", "pairs"), _with_number(facts.methods)),
        _table("Checks", ("check", "pairs that passed it"), _with_number(facts.checks)),
        _refusals(facts),
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


def _yaml(value: Mapping[str, Any], indent: str = "") -> str:
    """Enough of YAML for the head: texts are written as JSON, which YAML includes."""
    lines = []
    for key, item in value.items():
        if isinstance(item, list) and isinstance(item[0], dict):
            lines.append(f"{indent}{key}:\n")
            for row in item:
                inner = _yaml(row, indent + "  ")
                lines.append(f"{indent}- {inner[len(indent) + 2 :]}")
        elif isinstance(item, dict):
            lines.append(f"{indent}{key}:\n{_yaml(item, indent + '  ')}")
        else:
            lines.append(f"{indent}{key}: {json.dumps(item, ensure_ascii=False)}\n")
    return "".join(lines)


def _counts(facts: Facts) -> Iterable[tuple[str, ...]]:
    return ((*key, f"{count:,}") for key, count in sorted(facts.counts.items()))


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
    """Names of methods and versions are data: no markup, and no new column."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", _line(text)) or "-"


def _line(text: str) -> str:
    return " ".join(text.split())


def _refusals(facts: Facts) -> str:
    """What did not come in: as the makers counted it, or by the rows they kept; and at export."""
    counts: Counter[tuple[str, str]] = Counter()
    for about in facts.made:
        for what, reason, number in about.get("counts") or ():
            key = (str(what), str(reason))
            # Of two files of the same captions, both say which captions were refused.
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
    """Without the names of folders on the maker's machine."""
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
