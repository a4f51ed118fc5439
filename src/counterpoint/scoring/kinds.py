"""The kinds of model as Protocols. The engine knows these, and no particular model.

A model has a `fingerprint`: a digest of everything that its outputs depend on (weights,
architecture, preprocessing, precision). It is part of the keys of its stored results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, get_args, runtime_checkable

from counterpoint._util.errors import ModelError
from counterpoint._util.progress import Progress
from counterpoint._util.store import Store

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

    from counterpoint.cases import Cases
    from counterpoint.images import Picture
    from counterpoint.metrics import Overlong
    from counterpoint.scoring.plan import Scored


@runtime_checkable
class DualEncoder(Protocol):
    """Two towers: a pair's score is the dot product of its unit vectors."""

    fingerprint: str
    context_length: int | None  # tokens, or None if any length fits

    def preprocess(self, image: Image.Image) -> Any:
        """An RGB image as the image tower takes it. Called in worker threads."""

    def encode_images(self, images: Sequence[Any]) -> np.ndarray:
        """Unit vectors (n, d) float32 of n preprocessed images."""

    def count_tokens(self, captions: Sequence[str]) -> np.ndarray:
        """How many tokens each caption has, special ones included, before anything is cut."""

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        """Unit vectors (n, d) float32; a caption beyond the context is cut."""


class RefusedInputsError(ModelError):
    """The model refused some inputs, or its answers to them cannot be read; the others were scored.

    `reasons` has a sentence for the index of each refused input, `values` the results of all others
    in order. The cases of refused inputs are left out. `unread` has the answers that cannot be
    read, by the index of their input: its value is used and not kept, so the next run asks again.
    """

    def __init__(
        self,
        values: np.ndarray,
        reasons: Mapping[int, str],
        unread: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        self.values, self.reasons, self.unread = values, reasons, unread or {}
        answers = (f"an answer cannot be read: {said[0]!r:.80}." for said in self.unread.values())
        super().__init__("E-INPUTS-REFUSED", next(iter((*reasons.values(), *answers))))


@runtime_checkable
class PairScorer(Protocol):
    """Looks at an image and a caption together."""

    fingerprint: str

    def score_pairs(self, pictures: Sequence[Picture], captions: Sequence[str]) -> np.ndarray:
        """A score for each pair (n,); pairs of one image stand next to each other.

        May raise RefusedInputsError.
        """


@runtime_checkable
class BlindScorer(Protocol):
    """Sees captions only: it measures what a benchmark gives away without images."""

    fingerprint: str

    def score_captions(self, captions: Sequence[str]) -> np.ndarray:
        """A score for each caption (n,)."""


@runtime_checkable
class TableScorer(Protocol):
    """A baseline that is computed from a whole case table, without images. It is not stored."""

    fingerprint: str

    def score_cases(self, cases: Cases) -> np.ndarray:
        """A score for every pair, flat, in the order of `Cases.pair_offsets`."""


@runtime_checkable
class BenchmarkScorer(Protocol):
    """Scores whole benchmarks itself: an ensemble of models, a judge of whole cases."""

    fingerprint: str

    def score_benchmarks(
        self, benchmarks: Mapping[str, Cases], overlong: Mapping[str, Overlong], work: Work
    ) -> dict[str, Scored]:
        """As `engine.score`, which it may call for the models it consists of."""


Model = DualEncoder | PairScorer | BlindScorer | TableScorer | BenchmarkScorer


def check_kind(model: object) -> None:
    """Raise a ModelError that says what an object lacks, unless it is one of the kinds."""
    name, kinds = type(model).__name__, get_args(Model)
    if isinstance(model, type):
        what = f"{model.__name__} is a class; give an object of it: {model.__name__}()."
        raise ModelError("E-MODEL-INVALID", what)
    if isinstance(model, Model):
        if not isinstance(model.fingerprint, str):
            raise ModelError("E-MODEL-INVALID", f"the fingerprint of {name} must be a text.")
        return
    absent = {kind: [m for m in _members(kind) if not hasattr(model, m)] for kind in kinds}
    begun = [kind for kind in kinds if {*_members(kind)} - {*absent[kind], "fingerprint"}]
    if not begun:
        methods = ", ".join(_members(kind)[-1] for kind in kinds)
        what = f"{name} is not a model: it has none of the methods {methods}."
        raise ModelError("E-MODEL-INVALID", what)
    nearest = min(begun, key=lambda kind: len(absent[kind]))
    raise ModelError(
        "E-MODEL-INVALID",
        f"{name} is not a {nearest.__name__}: it has no {' and no '.join(absent[nearest])}; "
        "docs/extend/model.md lists the members of each kind.",
    )


def _members(kind: type) -> list[str]:
    methods = (name for name in vars(kind) if not name.startswith("_"))
    return [*kind.__annotations__, *methods]


@runtime_checkable
class Announcing(Protocol):
    """A model that announces its work before it begins, because it costs money or time."""

    def announce(self, items: int) -> str:
        """A few words on what `items` results that are not stored yet will take."""


@runtime_checkable
class Described(Protocol):
    """A model with facts to record in the run: device, precision, versions, notes."""

    def describe(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Work:
    """Where results are stored, the batch size, and where progress is shown.

    Without a batch size, one that is fast on the model's device is found.
    """

    store: Store
    batch: int | None
    progress: Progress
