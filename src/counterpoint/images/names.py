"""What a photograph is called: two with one name are one."""

from __future__ import annotations

import os
import re
from typing import Final

from counterpoint.images.pictures import Picture

_COCO: Final = re.compile(r"(?:^|[/#_])(\d{12})\.\w+$")
_FLICKR: Final = re.compile(r"(?:^|[/#])(\d{8,11})(?:_[0-9a-f]{8,})?\.\w+$")


def photograph_id(path: str) -> str | None:
    """The number that COCO or Flickr has given a photograph, if its name has one."""
    for kind, pattern in (("COCO", _COCO), ("Flickr", _FLICKR)):
        if match := pattern.search(path):
            return f"{kind} {int(match[1])}"
    return None


def photograph_names(picture: Picture) -> list[str]:
    """Its path, and its number at COCO or Flickr if it has one."""
    number = photograph_id(picture.ref.path)
    where = os.path.abspath(os.path.join(picture.root or ".", picture.ref.path))  # noqa: PTH100, PTH118
    return [where, *([number] if number else [])]
