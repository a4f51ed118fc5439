"""The command line as runs and reports keep it: without passwords, keys and tokens."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Final

HIDDEN: Final = "***"
_NAME: Final = r"(?:[\w-]*[_-])?(?:password|passwd|pwd|pass|token|api[_-]?key|key|secret)"
# Who logs in, and with what. A password may hold any character, though it should not; a number
# before a slash is a port.
_LOGIN: Final = re.compile(r"(?<=://)(?:[^\s/?#:@]*:(?!\d{1,5}(?:[/?#]|$))\S*|[^\s/?#]*)@")
_SETTING: Final = re.compile(rf"(?i)(?<![\w-])(-*{_NAME}=)[^\s&;,]+")
_OPTION: Final = re.compile(rf"(?i)--?{_NAME}")


def recorded_command(words: Iterable[object] | None = None) -> list[str]:
    """The words of a command, `sys.argv` if none are given, with every secret as `***`.

    A secret is what stands before the `@` of an address, and the value of an option or a setting
    that is called a password, a key, a token or a secret.
    """
    found: list[str] = []
    for word in map(str, sys.argv if words is None else words):
        if found and _OPTION.fullmatch(found[-1]):
            found.append(HIDDEN)
        else:
            found.append(_SETTING.sub(rf"\1{HIDDEN}", _LOGIN.sub(f"{HIDDEN}@", word)))
    return found
