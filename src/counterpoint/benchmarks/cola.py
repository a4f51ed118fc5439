"""COLA (Ray et al. 2023), multi-object setting: attributes swapped between two objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from counterpoint._util.errors import DataError
from counterpoint.benchmarks.annotations import VisualGenome, files_below, first_there, read_json
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.cases import Case, Cases, ImageRef

FILE: Final = "COLA_multiobjects_matching_benchmark.json"


def _cases(options: Options) -> Cases:
    path = _find(options.data / "cola")
    return Cases.build(_rows(path, options.data), root=options.data, source=str(path))


def _find(folder: Path) -> Path:
    """The file by its published name, else the one file of its form (it has had other names)."""
    path = first_there(folder / FILE, folder / "data" / FILE)
    if path.exists():
        return path
    others = [other for other in files_below(folder, "*.json") if _has_the_form(other)]
    if len(others) > 1:
        raise DataError(
            "E-FILE-AMBIGUOUS",
            f"{others[0]} and {others[1]} both look like COLA's {FILE}; keep one.",
        )
    return others[0] if others else path


def _has_the_form(path: Path) -> bool:
    rows = read_json(path, "cola")
    return isinstance(rows, list) and bool(rows) and _is_row(rows[0])


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, list)
        and len(row) == 4
        and all(isinstance(part, str) and part.strip() for part in row)
    )


def _rows(path: Path, root: Path) -> Iterator[Case]:
    rows = read_json(path, "cola")
    if not isinstance(rows, list):
        raise DataError(
            "E-FILE-MALFORMED", f"{path}: should hold a list of [image, caption, image, caption]."
        )
    genome = VisualGenome(root)
    for number, row in enumerate(rows):
        if not _is_row(row):
            raise DataError(
                "E-ROW-MALFORMED",
                f"{path}: row {number + 1}: should be [image, caption, image, caption], all texts, "
                f"it is {row!r:.80}.",
            )
        images = tuple(ImageRef(_image(url, root, genome)) for url in (row[0], row[2]))
        truth = ((True, False), (False, True))
        yield Case(str(number), images, (row[1], row[3]), truth)


def _image(url: str, root: Path, genome: VisualGenome) -> str:
    """The file of an image's address, in cola/images or, since they are the same, Visual Genome."""
    name = PurePosixPath(urlsplit(url).path).name
    path = f"cola/images/{name}"
    return path if (root / path).exists() else genome.find(name) or path


COLA: Final = Benchmark(
    "cola",
    "attributes swapped between two objects; officially only text_to_image is reported",
    "2 x 2",
    "bivlc",
    _cases,
    paper="Ray et al. 2023, COLA, arXiv 2305.03689",
    licence="MIT",
    images="218 Visual Genome images, in cola/images or visual_genome",
    count=210,
)
