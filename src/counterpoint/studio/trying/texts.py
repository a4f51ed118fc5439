"""What rules make of the captions that somebody types: positives and negatives of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Final

from counterpoint.generate.making import Settings, make_by_rules
from counterpoint.generate.methods import RULES, Rule
from counterpoint.generate.pairs import KINDS, Kind
from counterpoint.generate.sources import Source
from counterpoint.studio.security import Refused
from counterpoint.wording import changed_words

MAX_CAPTIONS: Final = 10
_LONGEST: Final = 300  # characters of a caption
_EACH: Final = 6  # texts of a kind that are shown
_LOCK: Final = Lock()  # spaCy's pipeline is shared


@dataclass(frozen=True, slots=True)
class Made:
    """A text with what made it; `pieces` make it up, each with whether its words are new."""

    text: str
    kind: Kind
    method: str
    pieces: list[tuple[str, bool]]


@dataclass(frozen=True, slots=True)
class Family:
    """A caption and the texts made from it."""

    caption: str
    made: tuple[Made, ...]

    @property
    def texts(self) -> list[str]:
        return [self.caption, *(made.text for made in self.made)]


def read_captions(text: str) -> list[str]:
    """The captions of a text area, one per line; Refused if they are too many or too long."""
    lines = (" ".join(line.replace("\0", "").split()) for line in text.splitlines())
    captions = list(dict.fromkeys(line for line in lines if line))
    if len(captions) > MAX_CAPTIONS:
        raise Refused(f"At most {MAX_CAPTIONS} captions can be tried at once.", 400)
    if any(len(caption) > _LONGEST for caption in captions):
        raise Refused(f"A caption may have at most {_LONGEST} characters.", 400)
    return captions


def families(captions: list[str]) -> list[Family]:
    """Each caption with its positives and negatives, always the same for the same caption."""
    sources = [Source(f"{i}", None, caption) for i, caption in enumerate(captions)]
    found: dict[str, dict[tuple[Kind, str], str]] = {caption: {} for caption in captions}
    for kind in KINDS:
        with _LOCK:
            pairs = make_by_rules(sources, Settings(kind, _methods(kind))).pairs
        for pair in pairs:
            found[pair.caption].setdefault((kind, pair.text), pair.method)
    return [Family(caption, _few(caption, texts)) for caption, texts in found.items()]


def _few(caption: str, texts: dict[tuple[Kind, str], str]) -> tuple[Made, ...]:
    made = [_made(caption, text, kind, method) for (kind, text), method in texts.items()]
    positives = [text for text in made if text.kind == "positive"]
    negatives = [text for text in made if text.kind == "negative"]
    return (*positives[:_EACH], *negatives[:_EACH])


def _made(caption: str, text: str, kind: Kind, method: str) -> Made:
    return Made(text, kind, method, changed_words(caption, text))


@cache
def _methods(kind: Kind) -> tuple[str, ...]:
    rules: list[tuple[str, Rule]] = [(name, RULES.get(name)) for name in RULES.names()]
    return tuple(name for name, rule in rules if rule.kind == kind)
