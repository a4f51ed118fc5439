"""Where htmx is: a file of the package `django-htmx`, of which nothing else is used.

No JavaScript library is kept in this repository. Without the file, pages still work: every link
and form is a plain one that htmx only makes smoother.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_PLACE: Final = Path("static/django_htmx/htmx-2.min.js")


@cache
def htmx_file() -> Path | None:
    """The path of htmx, if it is installed. The package is found, not imported: it needs Django."""
    spec = find_spec("django_htmx")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / _PLACE
    return path if path.is_file() else None


def has_htmx() -> bool:
    return htmx_file() is not None
