"""Values from outside: read within limits, shown safely in messages, used safely as paths.

Also the command line as runs and reports record it, without secrets.

YAML files of users are recipes, grids and plans of sweeps: read within limits, in plain values. And
there is YAML for others to read, which needs no library.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from reprlib import Repr
from typing import Any, BinaryIO, Final

from counterpoint._util.errors import CounterpointError, DataError, MissingExtraError, reason

_SHOWN: Final = 200  # characters of a value in a message
_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class _Repr(Repr):
    def repr_int(self, x: int, level: int) -> str:
        """Python itself refuses to write numbers of more than 4,300 digits."""
        return super().repr_int(x, level) if x.bit_length() < 10_000 else "a huge number"


_repr = _Repr()
_repr.maxlevel, _repr.maxdict, _repr.maxlist, _repr.maxtuple = 3, 4, 4, 4
_repr.maxstring = _repr.maxother = _repr.maxlong = _SHOWN


def parse_json(
    text: str | bytes,
    where: object,
    error: type[CounterpointError] = DataError,
    *,
    once: bool = False,
) -> Any:
    """The value of a JSON text. Errors are one sentence that begins with `where`.

    Besides invalid JSON this rejects nesting beyond Python's limit, numbers of thousands of digits
    and lone surrogates, which cannot be written as UTF-8. With `once`, an object that has a key
    twice is rejected, too: another reader would take the other value.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        value = json.loads(text, object_pairs_hook=_each_once if once else None)
        if "\\ud" in text or "\\uD" in text or _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise error(
            "E-JSON-INVALID", f"{where}: not readable JSON: it is nested too deeply."
        ) from None
    except UnicodeEncodeError:
        raise error(
            "E-JSON-INVALID",
            f"{where}: a text holds half of a surrogate pair, which is not valid text.",
        ) from None
    except UnicodeDecodeError as problem:
        raise error("E-TEXT-ENCODING", f"{where}: not a text in UTF-8: {problem.reason}.") from None
    except ValueError as problem:
        raise error("E-JSON-INVALID", f"{where}: not valid JSON: {shortened(problem)}.") from None
    return value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {shown(key)} is there twice")
        found[key] = value
    return found


def open_regular(path: Path) -> BinaryIO:
    """A regular file to read. Raises an OSError for a pipe or a device, which may never end."""
    # Without O_NONBLOCK, opening a pipe would wait for its writer.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: Path) -> bytes:
    """The content of a regular file. Raises an OSError as `open_regular` does."""
    with open_regular(path) as file:
        return file.read()


def shown(value: object) -> str:
    """A value for a message: like `repr`, but always short."""
    return shortened(_repr.repr(value))


def shortened(text: object) -> str:
    """A text for a message: one line, without control characters, and not long."""
    said = text if isinstance(text, str) else str(text)
    said = without_controls(" ".join(said[: 20 * _SHOWN].split()))
    return said if len(said) <= _SHOWN else f"{said[: _SHOWN - 4]} ..."


def described(error: BaseException) -> str:
    """What a library raised, for a message: its kind, and what it says, if anything."""
    said = shortened(error).rstrip(". ")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def without_controls(text: str) -> str:
    """The text with control characters made visible: a terminal must not obey a caption."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


# --- The command line without passwords, keys and tokens ----------------------------------------


HIDDEN: Final = "***"
_NAME: Final = r"(?:[\w-]*[_-])?(?:password|passwd|pwd|pass|token|api[_-]?key|key|secret)"
# User name and password in an address. A password may hold any character; a number before a slash
# is a port.
_LOGIN: Final = re.compile(r"(?<=://)(?:[^\s/?#:@]*:(?!\d{1,5}(?:[/?#]|$))\S*|[^\s/?#]*)@")
_SETTING: Final = re.compile(rf"(?i)(?<![\w-])(-*{_NAME}=)[^\s&;,]+")
_OPTION: Final = re.compile(rf"(?i)--?{_NAME}")


def recorded_command(words: Iterable[object] | None = None) -> list[str]:
    """The words of a command, `sys.argv` if none are given, with every secret as `***`.

    Secrets are the part of an address before the `@`, and the value of an option or a setting with
    password, key, token or secret in its name.
    """
    found: list[str] = []
    for word in map(str, sys.argv if words is None else words):
        if found and _OPTION.fullmatch(found[-1]):
            found.append(HIDDEN)
        else:
            found.append(_SETTING.sub(rf"\1{HIDDEN}", _LOGIN.sub(f"{HIDDEN}@", word)))
    return found


# --- Names from outside as paths that stay inside a folder --------------------------------------


_DEPTH: Final = 100  # folders of a name; some programs cannot remove what is nested much deeper


def inside(folder: Path, name: str) -> Path:
    """`folder / name`. Raises if the path could be outside the folder on any operating system.

    Only the name is checked: a folder of the data root may be a link to a bigger disk.
    """
    path = PurePosixPath(name)
    outside = path.is_absolute() or ".." in path.parts or PureWindowsPath(name).anchor
    odd = not 0 < len(path.parts) <= _DEPTH or "\\" in name or ":" in path.parts[0]
    if outside or odd or "\0" in name or not _is_encodable(name):
        raise DataError(
            "E-PATH-OUTSIDE", f"{shown(name)} is not a name inside {folder}; it is not used."
        )
    return folder / path


def _is_encodable(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


# --- YAML ----------------------------------------------------------------------------------------

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
