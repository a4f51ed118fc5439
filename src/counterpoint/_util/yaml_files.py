"""YAML files of users: recipes, grids and plans of sweeps. Read within limits, in plain values.

And YAML for others to read, which needs no library.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from counterpoint._util.errors import DataError, MissingExtraError, reason
from counterpoint._util.untrusted import shortened, shown

_LARGEST: Final = 2**18  # bytes of a file
# PyYAML reads YAML 1.1, where a number with an exponent needs a point and a sign: 1.0e-2, not 1e-2.
_EXPONENT: Final = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")


def read_yaml(path: Path, what: str) -> Any:
    """The values of a YAML file; `what` it should be, in messages."""
    return parse_yaml(read_text(path, what), str(path))


def read_text(path: Path, what: str) -> str:
    """A small text file. Raises a DataError."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise DataError(
                "E-FILE-MALFORMED", f"{path}: not a {what}: it is larger than {_LARGEST:,} bytes."
            )
        return text.decode("utf-8")
    except OSError as error:
        raise DataError(
            "E-FILE-UNREADABLE", f"{path}: not a readable {what}: {reason(error)}."
        ) from None
    except ValueError as error:
        raise DataError(
            "E-FILE-MALFORMED", f"{path}: not a readable {what}: {shortened(error)}."
        ) from None


def parse_yaml(text: str, where: str) -> Any:
    """The values of a YAML text; `where` it is, in messages."""
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtraError("a YAML file", "train") from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Refuses a key that stands twice, of which YAML would take the last in silence; and
        aliases, with which a short text can stand for endless values."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                mark = self.peek_event().start_mark
                raise yaml.composer.ComposerError(
                    None, None, "write the value out instead of an alias (*)", mark
                )
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            counts = Counter(self.construct_object(key, deep=True) for key, _ in node.value)
            if twice := [key for key, count in counts.items() if count > 1]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {shown(twice[0])} stands twice", node.start_mark
                )
            return super().construct_mapping(node, deep)

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, [*"+-.0123456789"])
    try:
        return yaml.load(text, Loader)
    except RecursionError:
        raise DataError(
            "E-YAML-INVALID", f"{where} is not valid YAML: it is nested too deeply."
        ) from None
    except Exception as error:  # the library raises anything where a tag does not fit its value
        raise DataError(
            "E-YAML-INVALID", f"{where} is not valid YAML: {shortened(error)}."
        ) from None


def yaml_text(value: Mapping[str, Any] | Sequence[Mapping[str, Any]], indent: str = "") -> str:
    """Mappings and lists of mappings as YAML: texts are written as JSON, which is valid YAML."""
    if not isinstance(value, Mapping):
        rows = (yaml_text(row, indent + "  ") for row in value)
        return "".join(f"{indent}- {row[len(indent) + 2 :]}" for row in rows)
    lines = []
    for key, item in value.items():
        nested = isinstance(item, list) and item and isinstance(item[0], dict)
        if nested or (isinstance(item, dict) and item):
            below = indent if nested else indent + "  "
            lines.append(f"{indent}{key}:\n{yaml_text(item, below)}")
        else:
            lines.append(f"{indent}{key}: {json.dumps(item, ensure_ascii=False)}\n")
    return "".join(lines)
