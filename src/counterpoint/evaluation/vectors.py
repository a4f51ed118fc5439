"""`export_vectors`: a model's vectors of benchmarks as a folder that `vectors:FOLDER` reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from counterpoint._util.errors import DataError, ModelError, NotFoundError
from counterpoint._util.progress import Progress
from counterpoint._util.registry import did_you_mean
from counterpoint._util.store import Store
from counterpoint._util.writing import refuse_foreign, whole_folder
from counterpoint.benchmarks import load_benchmark
from counterpoint.evaluation.evaluating import prepare
from counterpoint.models import (
    VECTOR_FORMATS,
    LoadOptions,
    are_units,
    image_name,
    load_model,
    write_vectors,
)
from counterpoint.scoring import DualEncoder, Scored, Work, encode_plan, make_plan, stored

_ABOUT: Final = "vectors.json"
_ROWS: Final = 16_384  # vectors in memory at a time


@dataclass(frozen=True, slots=True)
class ExportedVectors:
    """What was written. `left_out`: cases and images of galleries without vectors, by benchmark."""

    folder: Path
    images: int
    captions: int
    left_out: dict[str, list[str]]

    @property
    def model(self) -> str:
        """The id under which the vectors are evaluated."""
        return f"vectors:{self.folder}"


def export_vectors(
    model: str | tuple[str, DualEncoder],
    benchmarks: Sequence[str | Path],
    folder: Path,
    *,
    store: Store,
    progress: Progress,
    data: str | Path | None = None,
    form: str = "parquet",
    limit: int | None = None,
    protocol: str | None = None,
    batch_size: int = 128,
    options: LoadOptions | None = None,
) -> ExportedVectors:
    """Encode the images and captions of benchmarks, through the store, and write their vectors.

    `form` is parquet or npy. A folder that was exported before is replaced.
    """
    if form not in VECTOR_FORMATS:
        said = did_you_mean("format of vectors", form, VECTOR_FORMATS)
        raise NotFoundError("E-OPTION-INVALID", said)
    refuse_foreign(folder, _ABOUT, "vectors export")
    loaded = [load_benchmark(name, data, protocol=protocol) for name in dict.fromkeys(benchmarks)]
    protocols = {one.name: one.read_by(protocol) for one in loaded}
    tables = {one.name: prepare(one.cases, protocols[one.name], limit) for one in loaded}
    name, encoder = model if isinstance(model, tuple) else (model, load_model(model, options))
    if not isinstance(encoder, DualEncoder):
        raise ModelError(
            "E-MODEL-UNSUITABLE", f"{name} has no vectors to export: it is not a dual encoder."
        )
    plan, work = make_plan(tables), Work(store, batch_size, progress)
    scored = {on: Scored(np.empty(0, dtype=np.float32)) for on in tables}
    overlong = {on: one.overlong for on, one in protocols.items()}
    image_keys, text_keys = encode_plan(encoder, plan, overlong, scored, work)
    shown = [(plan.pictures[i].ref, key) for i, key in image_keys.items() if key]
    images = _by_name((image_name(ref), key) for ref, key in shown if ref.text is None)
    pictured = plan.pictured_texts()
    captions = {
        text: key
        for n, (text, key) in enumerate(zip(plan.texts, text_keys.tolist(), strict=True))
        if any(key) and n not in pictured
    }
    captions |= sorted((ref.text, key) for ref, key in shown if ref.text is not None)
    with whole_folder(folder) as draft:
        for side, chosen in (("images", images), ("captions", captions)):
            pieces = _pieces([*chosen.values()], store, name)
            write_vectors(draft, side, form, [*chosen], pieces)
        about = {"model": name, "fingerprint": encoder.fingerprint, "benchmarks": [*tables]}
        (draft / _ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return ExportedVectors(
        folder, len(images), len(captions), {on: _reasons(one) for on, one in scored.items()}
    )


def _by_name(images: Iterator[tuple[str, bytes]]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, key in images:
        if found.setdefault(name, key) != key:
            raise DataError(
                "E-NAME-REPEATED",
                f"two different images are called {name}; export their benchmarks to two folders.",
            )
    return found


def _pieces(keys: list[bytes], store: Store, model: str) -> Iterator[np.ndarray]:
    for start in range(0, len(keys), _ROWS):
        piece = stored(keys[start : start + _ROWS], store)
        if not are_units(piece).all():  # a cosine would not be the model's score
            raise ModelError(
                "E-MODEL-OUTPUT",
                f"{model} returned vectors that do not have length one, as a dual encoder should.",
            )
        yield piece


def _reasons(scored: Scored) -> list[str]:
    lost = (why for images in scored.left_out_images.values() for why in images.values())
    return [*scored.left_out.values(), *lost]
