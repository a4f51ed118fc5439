"""Hard Positives (Kamath et al. 2024): a caption, the caption reworded, and a hard negative."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from counterpoint._util.errors import DataError
from counterpoint.benchmarks.annotations import json_rows, text
from counterpoint.benchmarks.aro import AroImages, box, read_attribution
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.cases import Case, Cases, ImageRef, caption_case

Row = dict[str, Any]
_PAPER: Final = "Kamath et al. 2024, The Hard Positive Truth about VLM Compositionality, ECCV"

# The words that the authors replaced, and by what: Tables 4 to 6 of the paper, as in the data.
REPLACED: Final[dict[str, dict[str, Mapping[str, str]]]] = {
    "relations": {
        "spatial": {
            "in": "within",
            "behind": "to the rear of",
            "on top of": "on",
            "near": "next to",
            "next to": "near",
            "under": "beneath",
            "by": "near",
            "above": "on top of",
        },
        "action": {
            "wearing": "in",
            "wears": "in",
            "holding": "grasping",
            "sitting": "seated",
            "hanging": "dangling",
            "walking": "strolling",
            "riding on": "traveling on",
            "riding": "traveling on",
        },
    },
    "attributes": {
        "action": {
            "standing": "upright",
            "sitting": "seated",
            "walking": "strolling",
            "eating": "ingesting",
            "hanging": "dangling",
            "looking": "gazing",
        },
        "color": {
            "white": "ivory",
            "black": "ebony",
            "blue": "sapphire",
            "brown": "chestnut",
            "red": "crimson",
            "green": "emerald",
            "silver": "metallic",
        },
        "size": {
            "large": "big",
            "small": "tiny",
            "long": "lengthy",
            "big": "large",
            "huge": "big",
        },
        "state": {
            "wet": "damp",
            "smiling": "happy",
            "old": "aged",
            "clear": "unclouded",
            "young": "youthful",
        },
    },
}
SYNONYMS: Final[dict[str, Mapping[str, str]]] = {
    kind: dict(pair for words in parts.values() for pair in words.items())
    for kind, parts in REPLACED.items()
}


def replaced_word(original: str, positive: str, synonyms: Mapping[str, str]) -> str | None:
    """The word whose replacement explains the positive: a whole word, else a part of one."""
    for whole in (True, False):
        found = [
            word
            for word, synonym in synonyms.items()
            if word in original and _explains(word, synonym, whole, original, positive)
        ]
        if found:
            return max(found, key=len)
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
        [
            _inside(captions[0], captions[1], SYNONYMS.get(groups[0].partition("/")[0], {}))
            for captions, groups in rows
        ]
    )


def _inside(original: str, positive: str, synonyms: Mapping[str, str]) -> bool:
    words = positive.split()
    return any(
        match[0].replace(word, synonym) in words
        for word, synonym in synonyms.items()
        if word in original
        for match in re.finditer(rf"\b(?:\w+{word}\w*|\w*{word}\w+)\b", original)
    )


def _replace(options: Options) -> Cases:
    folder = options.data / "hard_positives"
    return Cases.build(_replace_cases(options), root=options.data, source=str(folder))


def _replace_cases(options: Options) -> Iterator[Case]:
    number = 0
    for kind, synonyms in SYNONYMS.items():
        for original, positive, where in _halves(options, f"vl_checklist_{kind}.json"):
            caption, reworded = (text(row, "true_caption", where) for row in (original, positive))
            word = replaced_word(caption, reworded, synonyms)
            yield caption_case(
                str(number),
                ImageRef(_image(text(original, "image_path", where))),
                (caption, reworded),
                (text(original, "false_caption", where),),
                (f"{kind}/{word or 'other'}",),
            )
            number += 1


def _halves(options: Options, name: str) -> Iterator[tuple[Row, Row, str]]:
    """Row by row: the original, the positive, and where they are; they must belong together."""
    folder = options.data / "hard_positives"
    data, swapped = folder / "data" / name, folder / "swapped_data" / name
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


def _image(path: str) -> str:
    """`data/VG_100K_2/1.jpg`, as the authors have it, under the data root."""
    return f"visual_genome/{path.removeprefix('data/')}"


def _swap(options: Options) -> Cases:
    name = "visual_genome_attribution.json"
    folder = options.data / "hard_positives"
    published = all((folder / half / name).is_file() for half in ("data", "swapped_data"))
    rows = _published_swap(options, name) if published else _rebuilt_swap(options)
    return Cases.build(rows, root=options.data, source="hard-positives/swap")


def _published_swap(options: Options, name: str) -> Iterator[Case]:
    images = AroImages(options.data)
    for number, (original, positive, where) in enumerate(_halves(options, name)):
        yield caption_case(
            str(number),
            ImageRef(images.path(text(original, "image_path", where)), box(original, where)),
            (text(original, "true_caption", where), text(positive, "true_caption", where)),
            (text(original, "false_caption", where),),
        )


def _rebuilt_swap(options: Options) -> Iterator[Case]:
    """From ARO's file, the conjuncts reversed, which is how the paper says it was made."""
    for case in read_attribution(options, "hard-positives/swap"):
        original, negative = case.captions
        try:
            positive = reverse_conjuncts(original)
        except ValueError as error:
            raise DataError(
                "E-ROW-MALFORMED",
                f"aro/visual_genome_attribution.json: row {int(case.id) + 1}: {error}.",
            ) from None
        yield caption_case(case.id, case.images[0], (original, positive), (negative,))


def reverse_conjuncts(caption: str) -> str:
    """ "the A1 O1 and the A2 O2" -> "the A2 O2 and the A1 O1"."""
    left, between, right = caption.partition(" and the ")
    if not between or not left.startswith("the ") or " and the " in right:
        raise ValueError(f"{caption!r} is not of the form 'the A and the B'")
    return f"the {right} and {left}"


REPLACE: Final = Benchmark(
    "hard-positives/replace",
    "a relation or attribute replaced by another (negative) or by a synonym (positive)",
    "1 x 3",
    "hard-positives",
    _replace,
    paper=_PAPER,
    licence="not stated",
    images="Visual Genome (8,041 images)",
    count=27_443,
    ids="row number from 0, relations before attributes",
    defects={"part of a word replaced in the positive": inside_words},
)
SWAP: Final = Benchmark(
    "hard-positives/swap",
    "two attributes swapped (negative) or the conjuncts reversed (positive)",
    "1 x 3",
    "hard-positives",
    _swap,
    paper=_PAPER,
    licence="not stated",
    images="Visual Genome, cropped (ARO's VG-Attribution)",
    count=28_748,
)
