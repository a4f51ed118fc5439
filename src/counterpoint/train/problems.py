"""What the data had to leave out or replace: counted by kind, with a few examples of each.

A data set of millions of samples may have as many broken ones, and every checkpoint holds this: it
must not grow with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

UNREADABLE: Final = "samples that cannot be read: replaced by another sample"
NO_IMAGE: Final = "images of negatives that cannot be read: the negative has none"
_EXAMPLES: Final = 3
# How messages ended when every message had a count of its own: in checkpoints of that time.
_ENDINGS: Final = {
    " Another sample stood in.": UNREADABLE,
    " The negative has no image then.": NO_IMAGE,
}


@dataclass(slots=True)
class Problems:
    """The examples that are kept are the first in the alphabet, whoever met them: so they are the
    same for any number of processes, and after a restart."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, *examples: str, count: int = 1) -> None:
        self.counts[kind] += count
        if examples:
            kept = {*self.examples.get(kind, ()), *examples}
            self.examples[kind] = sorted(kept)[:_EXAMPLES]

    def update(self, other: Problems) -> None:
        for kind, count in other.counts.items():
            self.add(kind, *other.examples.get(kind, ()), count=count)

    def clear(self) -> None:
        self.counts.clear()
        self.examples.clear()

    def told(self) -> dict[str, int]:
        """How often each kind was met; the kind with its examples, as a line to print."""
        return {_line(kind, self.examples.get(kind, ())): n for kind, n in self.counts.items()}

    def as_json(self) -> dict[str, Any]:
        return {"counts": dict(self.counts), "examples": self.examples}

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Problems:
        """From a checkpoint, of the form of `as_json` or of the older one."""
        found = cls()
        if isinstance(saved.get("counts"), Mapping):
            for kind, count in saved["counts"].items():
                found.add(kind, *saved["examples"].get(kind, ()), count=count)
            return found
        for message, count in saved.items():
            ending = next((end for end in _ENDINGS if message.endswith(end)), None)
            if ending is None:
                found.add(message, count=count)
            else:
                found.add(_ENDINGS[ending], message.removesuffix(ending), count=count)
        return found


def _line(kind: str, examples: Iterable[str]) -> str:
    some = " ".join(examples)
    return f"{kind}, for instance: {some}" if some else kind
