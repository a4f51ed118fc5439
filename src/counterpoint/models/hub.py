"""The hub of Hugging Face: models are fetched from it, or taken from what was fetched before."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from huggingface_hub import constants

from counterpoint.errors import ModelError, reason
from counterpoint.untrusted import shortened

_PATIENCE: Final = 5.0  # seconds


@contextmanager
def hub_or_cache(id: str, source: Path | str | None) -> Iterator[None]:
    """Load a model inside: from the hub, or from the cache alone if the hub does not answer.

    `source` is a folder or the name of a repository. The hub's own library would ask six times for
    every file of it, and wait up to a minute each time.
    """
    library: Any = constants
    before = library.HF_HUB_OFFLINE
    local = source is None or Path(source).exists()
    if not before and not local and (why := _silence(library.ENDPOINT)):
        if not (Path(library.HF_HUB_CACHE) / _folder(str(source))).is_dir():
            raise ModelError(
                f"{id} cannot be fetched: {shortened(library.ENDPOINT)} does not answer ({why}), "
                f"and {source} is not in the cache; run this again with a network, or give a "
                "folder that holds the model."
            )
        library.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        library.HF_HUB_OFFLINE = before


def _silence(address: str) -> str:
    """Why there is no answer; empty if there is one, whatever it says."""
    try:
        with urllib.request.urlopen(
            urllib.request.Request(address, method="HEAD"), timeout=_PATIENCE
        ):
            return ""
    except urllib.error.HTTPError:
        return ""
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", error)
        if isinstance(why, ssl.SSLError):  # the hub's library may know other certificates
            return ""
        return reason(why) if isinstance(why, OSError) else shortened(why)


def _folder(repository: str) -> str:
    """As the hub's library calls it in its cache."""
    return f"models--{repository.replace('/', '--')}"
