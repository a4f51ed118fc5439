"""ARO and the hard positives that were made of its captions, on images of Visual Genome.

ARO (Yuksekgonul et al. 2023). VG-Relation and VG-Attribution: two objects or their attributes
swapped, on crops. COCO-Order and Flickr30k-Order: a caption against four shuffles of its words.

Hard Positives (Kamath et al. 2024): a caption, the caption reworded, and a hard negative.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np

from counterpoint._util.errors import CaseError, DataError
from counterpoint._util.store import default_store, digest
from counterpoint.benchmarks.benchmark import Options, Sizes, over_seeds
from counterpoint.benchmarks.reading import (
    GENOME,
    ImageIndex,
    box,
    json_rows,
    label,
    malformed,
    require,
    text,
)
from counterpoint.benchmarks.retrieval import KARPATHY_FILES, split_images
from counterpoint.benchmarks.word_order import ORDER, SHUFFLES, Shuffler, tag_captions, version
from counterpoint.cases import Case, Cases, ImageRef, caption_case, read_cases, write_cases
from counterpoint.metrics import UNCOUNTED_RELATIONS

Row = dict[str, Any]
_VERSION: Final = 1  # of the shuffles: raise it when their code changes
_BOX: Final = ("bbox_x", "bbox_y", "bbox_w", "bbox_h")  # the smallest that holds both objects
_ATTRIBUTION: Final = "visual_genome_attribution.json"
SPATIAL_RELATIONS: Final = frozenset(
    (
        *("above", "at", "behind", "below", "beneath", "in", "in front of", "inside", "on"),
        *("on top of", "to the left of", "to the right of", "under"),
    )
)


# --- VG-Relation and VG-Attribution --------------------------------------------------------------


class AroImages(ImageIndex):
    """ARO's images are in its own folder, or else in Visual Genome's."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "aro/images", *GENOME)

    def path(self, name: str) -> str:
        """The image of this name, which may include folders (`data/VG_100K_2/1.jpg`)."""
        plain, behind = name.rpartition("/")[2], name.removeprefix("data/")
        absent = f"visual_genome/{behind}" if behind.startswith("VG_") else f"aro/images/{plain}"
        return self.find(plain) or absent

    def crop(self, row: Row, where: str) -> ImageRef:
        return ImageRef(self.path(text(row, "image_path", where)), box(row, _BOX, where))


def _aro_rows(options: Options, name: str, benchmark: str) -> Iterator[tuple[Case, Row, str]]:
    """Every row as a case without a group, with the row itself and where it is."""
    path = options.data / "aro" / name
    images = AroImages(options.data)
    for place, row in enumerate(json_rows(path, benchmark)):
        where = f"{path}: row {place + 1}"
        image = images.crop(row, where)
        caption, negative = (text(row, key, where) for key in ("true_caption", "false_caption"))
        yield caption_case(str(place), image, (caption,), (negative,)), row, where


def relation(options: Options) -> Cases:
    """Each case in the group of its relation and, if that counts, of its kind of relation."""
    benchmark = "aro/vg-relation"
    rows = (
        replace(case, groups=(label(name), *_kind(name)))
        for case, row, where in _aro_rows(options, "visual_genome_relation.json", benchmark)
        for name in (text(row, "relation_name", where).strip(),)
    )
    return Cases.build(rows, root=options.data, source=benchmark)


def _kind(relation: str) -> tuple[str, ...]:
    """The paper's Table 2 has two parts: 13 spatial relations, and all others as verbs."""
    if relation in UNCOUNTED_RELATIONS:
        return ()
    return ("spatial",) if relation in SPATIAL_RELATIONS else ("verbs",)


def attribution(options: Options) -> Cases:
    rows = _attribution_cases(options, "aro/vg-attribution")
    return Cases.build(rows, root=options.data, source="aro/vg-attribution")


def _attribution_cases(options: Options, benchmark: str) -> Iterator[Case]:
    """VG-Attribution, each case in the group of its two attributes."""
    for case, row, where in _aro_rows(options, _ATTRIBUTION, benchmark):
        pair = row.get("attributes")
        texts = pair if isinstance(pair, list) else []
        if len(texts) != 2 or not all(isinstance(one, str) for one in texts):
            raise malformed(where, f"'attributes' should hold two texts, it is {pair!r:.60}")
        yield replace(case, groups=(label("_".join(texts)),))


# --- COCO-Order and Flickr30k-Order --------------------------------------------------------------


def order(options: Options, name: str, **_: object) -> Cases:
    """Every caption of a test split by Karpathy against four shuffles."""
    benchmark, file = f"aro/{name}-order", options.data / name / KARPATHY_FILES[name]

    def draw(seed: int) -> Cases:
        what = f"{benchmark} {_VERSION} seed={seed} {version()}"
        return cached_cases(what, require(file, benchmark), options.data, lambda: build(seed))

    def build(seed: int) -> Cases:
        rows = _shuffled(options, name, benchmark, seed)
        return Cases.build(rows, root=options.data, source=benchmark)

    return over_seeds(options, draw)


def order_files(options: Options, cases: int, **_: object) -> Sizes:
    return options.files(cases)


def _shuffled(options: Options, name: str, benchmark: str, seed: int) -> Iterator[Case]:
    shuffler = Shuffler(seed)
    rows = split_images(options, name, benchmark)
    images = [row.image for row in rows for _ in row.captions]
    captions = (caption for row in rows for caption in row.captions)
    for place, (image, words) in enumerate(zip(images, tag_captions(captions), strict=True)):
        negatives = [SHUFFLES[how](shuffler, words) for how in ORDER]
        yield caption_case(str(place), ImageRef(image), (words.text,), negatives)


def cached_cases(what: str, source: Path, root: Path, build: Callable[[], Cases]) -> Cases:
    """The table that `build` makes, from the cache folder if it was made before.

    It depends on `what` and on the bytes of `source` alone. `root` is the folder that the paths of
    its images start from.
    """
    key = digest(what, source.read_bytes()).hex()
    path = default_store().parent / "cases" / f"{key}.parquet"
    with suppress(CaseError):  # not there, or damaged: made anew
        return Cases(read_cases(path).frame, root)
    cases = build()
    with suppress(CaseError):  # a full disk or a read-only cache costs time, not the result
        write_cases(cases, path)
    return cases


# --- Hard Positives ------------------------------------------------------------------------------

REPLACED: Final[Mapping[str, Mapping[str, Mapping[str, str]]]] = tomllib.loads(
    (resources.files("counterpoint.benchmarks") / "hard_positives.toml").read_text("utf-8")
)
SYNONYMS: Final[Mapping[str, Mapping[str, str]]] = {
    kind: {word: synonym for words in parts.values() for word, synonym in words.items()}
    for kind, parts in REPLACED.items()
}


def hard_positives_replace(options: Options) -> Cases:
    rows = _replace_cases(options)
    return Cases.build(rows, root=options.data, source=str(options.data / "hard_positives"))


def _replace_cases(options: Options) -> Iterator[Case]:
    place = 0  # over both files
    for kind, synonyms in SYNONYMS.items():
        for original, positive, where in _halves(options, f"vl_checklist_{kind}.json"):
            captions = [text(row, "true_caption", where) for row in (original, positive)]
            image = text(original, "image_path", where).removeprefix("data/")
            negative = text(original, "false_caption", where)
            word = replaced_word(captions[0], captions[1], synonyms)
            yield caption_case(
                str(place),
                ImageRef(f"visual_genome/{image}"),
                captions,
                (negative,),
                (f"{kind}/{word or 'other'}",),
            )
            place += 1


def replaced_word(original: str, positive: str, synonyms: Mapping[str, str]) -> str | None:
    """The word whose replacement explains the positive: a whole word, else a part of one."""
    for whole in (True, False):
        words = [
            word
            for word, synonym in synonyms.items()
            if word in original and _explains(word, synonym, whole, original, positive)
        ]
        if words:
            return max(words, key=len)
    return None


def _explains(word: str, synonym: str, whole: bool, original: str, positive: str) -> bool:
    """Whether replacing one occurrence, or all, turns the original into the positive."""
    pattern = rf"\b{word}\b" if whole else word
    if re.sub(pattern, synonym, original) == positive:
        return original != positive
    places = [match.span() for match in re.finditer(pattern, original)]
    return any(original[:start] + synonym + original[end:] == positive for start, end in places)


def inside_words(cases: Cases) -> np.ndarray:
    """Positives in which a part of a word was replaced: "covecrimson" for "covered"."""
    rows = cases.frame.select("captions", "groups").iter_rows()
    return np.array(
        [_inside(texts[0], texts[1], groups[0].partition("/")[0]) for texts, groups in rows]
    )


def _inside(original: str, positive: str, kind: str) -> bool:
    words = positive.split()
    return any(
        match[0].replace(word, synonym) in words
        for word, synonym in SYNONYMS.get(kind, {}).items()
        if word in original
        for match in re.finditer(rf"\b(?:\w+{word}\w*|\w*{word}\w+)\b", original)
    )


def hard_positives_swap(options: Options) -> Cases:
    """The published files; without them, rebuilt from ARO's file."""
    folder = options.data / "hard_positives"
    published = all((folder / half / _ATTRIBUTION).is_file() for half in _HALVES)
    rows = _published_swap(options) if published else _rebuilt_swap(options)
    return Cases.build(rows, root=options.data, source="hard-positives/swap")


def _published_swap(options: Options) -> Iterator[Case]:
    images = AroImages(options.data)
    for place, (original, positive, where) in enumerate(_halves(options, _ATTRIBUTION)):
        yield caption_case(
            str(place),
            images.crop(original, where),
            [text(row, "true_caption", where) for row in (original, positive)],
            (text(original, "false_caption", where),),
        )


def _rebuilt_swap(options: Options) -> Iterator[Case]:
    """The conjuncts reversed, which is how the paper says it was made."""
    for case in _attribution_cases(options, "hard-positives/swap"):
        original, negative = case.captions
        try:
            positive = reverse_conjuncts(original)
        except ValueError as error:
            raise malformed(f"aro/{_ATTRIBUTION}: row {int(case.id) + 1}", str(error)) from None
        yield caption_case(case.id, case.images[0], (original, positive), (negative,))


def reverse_conjuncts(caption: str) -> str:
    """ "the A1 O1 and the A2 O2" -> "the A2 O2 and the A1 O1"."""
    left, between, right = caption.partition(" and the ")
    if not between or not left.startswith("the ") or " and the " in right:
        raise ValueError(f"{caption!r} is not of the form 'the A and the B'")
    return f"the {right} and {left}"


_HALVES: Final = ("data", "swapped_data")


def _halves(options: Options, name: str) -> Iterator[tuple[Row, Row, str]]:
    """Row by row: the original, the positive, and where they are; they must belong together."""
    data, swapped = (options.data / "hard_positives" / half / name for half in _HALVES)
    left, right = (json_rows(path, "hard-positives/replace") for path in (data, swapped))
    if len(left) != len(right):
        raise DataError(
            "E-FILES-MISMATCH",
            f"{data} has {len(left)} rows and {swapped} {len(right)}; get both files again.",
        )
    for number, (original, positive) in enumerate(zip(left, right, strict=True), start=1):
        for key in ("image_path", "false_caption"):
            if original.get(key) != positive.get(key):
                raise DataError(
                    "E-FILES-MISMATCH",
                    f"{swapped}: row {number} has another {key!r} than in {data}.",
                )
        yield original, positive, f"{data}: row {number}"
