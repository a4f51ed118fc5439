"""Options in an id: `?side=512&image=png` behind a model, `:size=100,seed=1` behind a benchmark.

An option is `key=value`, and the next one begins where `&` (or a comma) is followed by another
`key=`: so a value may hold any of these marks. A value is a whole number where the default is one,
one of a few words where these are listed, and else any text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from counterpoint._util.errors import NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint._util.untrusted import shown

Value = str | int
_NUMBER: Final = re.compile("[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Option:
    """What an option may be. A number is at least `least`."""

    default: Value
    among: tuple[str, ...] = ()
    least: int = 0


def read_options(
    of: str, text: str, known: Mapping[str, Option], apart: str = "&"
) -> dict[str, Value]:
    """The values of all known options, of which `text` gives some. Errors name what they are of."""
    values = {key: option.default for key, option in known.items()}
    for part in filter(None, re.split(rf"{apart}(?=\w+=|$)", text)):
        key, _, value = part.partition("=")
        if key not in known:
            raise NotFoundError("E-OPTION-UNKNOWN", did_you_mean(f"option of {of}", key, known))
        values[key] = _value(of, key, value, known[key])
    return values


def _value(of: str, key: str, value: str, option: Option) -> Value:
    if isinstance(option.default, int):
        if _NUMBER.fullmatch(value) and int(value) >= option.least:
            return int(value)
        what = f"{of}: {key} must be a whole number from {option.least} on"
        raise NotFoundError("E-OPTION-INVALID", f"{what}, not {shown(value)}.")
    if option.among and value not in option.among:
        raise NotFoundError("E-OPTION-INVALID", did_you_mean(f"{key} of {of}", value, option.among))
    return value
