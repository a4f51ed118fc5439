"""Benchmarks of an image with a caption and negatives of it, written or altered for this end.

SugarCrepe (Hsieh et al. 2023) has one caption and one negative written by a language model.
SugarCrepe++ (Dumpala et al. 2024) adds a second caption that means the same, and two tests: in ITT
an image is matched with the three captions; in TOT there is no image, and each caption must be
nearer to the other than the negative is to either. VISLA (the same authors) has two captions that
mean the same and one that does not.

VALSE (Parcalabescu et al. 2022) has a caption and a foil, for eleven linguistic phenomena. Its
images come from five data sets, so each is looked for by its name: in valse/images and all folders
below it, then among COCO's images. Names do not clash: those of each data set have a form of their
own, and the first folder in alphabetical order is taken if there are copies.

RoCOCO (Park et al. 2024) replaces one word of COCO's test captions, in four ways. The paper adds
the altered captions to the gallery of COCO retrieval and reports how far image-to-text recall@1
falls: `rococo/retrieval`. `rococo` compares every caption with its own altered form. With
`people=1` a caption by another person stands between the two: how often the wording of two people
decides is the noise that brittleness has to be compared with.

NegBench (Alhamoud et al. 2025) asks what is not in an image. `negbench` has questions with one
right caption of four, on images of COCO and VOC2007. The right one affirms an object, negates one,
or does both (hybrid); the wrong ones claim what is absent or deny what is there.
`negbench/retrieval` is COCO retrieval with captions that also say what is not in the image; the
paper reports text-to-image recall@5.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from counterpoint._util.errors import DataError
from counterpoint._util.untrusted import shown
from counterpoint.benchmarks.benchmark import Options, Sizes
from counterpoint.benchmarks.completeness import NO_VOTES
from counterpoint.benchmarks.reading import (
    ImageIndex,
    chosen_option,
    first_there,
    label,
    malformed,
    named_rows,
    number,
    read_json,
    require,
    table_rows,
    text,
    written_list,
)
from counterpoint.benchmarks.retrieval import CaptionedImage, captioned_images, owned_gallery
from counterpoint.cases import NO_NEGATIVE, TEXT, Absent, Case, Cases, ImageRef, caption_case

# --- SugarCrepe and SugarCrepe++ -----------------------------------------------------------------


class _SugarRow(NamedTuple):
    id: str
    group: str
    image: str
    captions: tuple[str, ...]


def _sugar_rows(
    folder: Path, subsets: Sequence[str], benchmark: str, *keys: str
) -> Iterator[_SugarRow]:
    """The rows of all subsets, with the captions of these keys."""
    for subset in subsets:
        file = f"{subset}.json"
        path = first_there(folder / file, folder / "data" / file)  # as in a clone of the repository
        rows = named_rows(path, benchmark) if benchmark == "sugarcrepe-pp" else _numbered(path)
        for key, row in rows:
            where = f"{path}: case {key}"
            captions = tuple(text(row, name, where) for name in keys)
            image = f"coco/val2017/{text(row, 'filename', where)}"
            yield _SugarRow(f"{subset}/{key}", subset.replace("_", "/"), image, captions)


def _numbered(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """SugarCrepe's rows by their numbers, which have gaps: a row was removed in 2023."""
    rows = read_json(path, "sugarcrepe")
    if not isinstance(rows, dict):
        raise DataError(
            "E-FILE-MALFORMED", f"{path}: should hold an object of cases by their number."
        )
    for key, row in rows.items():
        if not isinstance(row, dict):
            raise malformed(f"{path}: case {key}", f"should be an object, it is {row!r:.60}")
        yield key, row


def sugarcrepe(options: Options, subsets: Sequence[str]) -> Cases:
    folder = options.data / "sugarcrepe"
    rows = _sugar_rows(folder, subsets, "sugarcrepe", "caption", "negative_caption")
    cases = (
        caption_case(row.id, ImageRef(row.image), row.captions[:1], row.captions[1:], (row.group,))
        for row in rows
    )
    return Cases.build(cases, root=options.data, source=str(folder))


_TESTS: Final = {"both": ("", "tot/"), "itt": ("",), "tot": ("tot/",)}
_TWO_TRUE: Final = (True, True, False)


def sugarcrepe_pp(options: Options, subsets: Mapping[str, int]) -> Cases:
    begins = _TESTS[chosen_option(options, "tests", _TESTS, "choice of tests")]
    folder = options.data / "sugarcrepe_pp"
    keys = ("caption", "caption2", "negative_caption")
    rows = list(_sugar_rows(folder, list(subsets), "sugarcrepe-pp", *keys))
    cases = (_by_text(row) if begin else _by_image(row) for begin in begins for row in rows)
    return Cases.build(cases, root=options.data, source=str(folder))


def sugarcrepe_pp_files(options: Options, subsets: Mapping[str, int]) -> Sizes:
    """By test and subset: the test by text alone has cases of its own."""
    begins = _TESTS[options.text("tests")]
    return {f"{begin}{subset}": size for begin in begins for subset, size in subsets.items()}


def _by_image(row: _SugarRow) -> Case:
    return Case(row.id, (ImageRef(row.image),), row.captions, (_TWO_TRUE,), (row.group,))


def _by_text(row: _SugarRow) -> Case:
    """The two captions stand in for images; the group keeps them out of `replace` and `swap`."""
    texts = tuple(ImageRef(TEXT + caption) for caption in row.captions[:2])
    groups = (f"text-only/{row.group}",)
    truth = (_TWO_TRUE, _TWO_TRUE)
    return Case(f"tot/{row.id}", texts, row.captions, truth, groups, cluster=row.image)


# --- VISLA ---------------------------------------------------------------------------------------


class _VislaFile(NamedTuple):
    """A file, under its names in the paper's and in the first version, and its columns."""

    part: str
    names: Sequence[str]
    image: str
    positives: Sequence[str]
    negative: str

    def path(self, folder: Path) -> Path:
        folders = (folder, folder / "data")
        return first_there(*(base / name for name in self.names for base in folders))


def visla(options: Options, files: Sequence[Mapping[str, Any]]) -> Cases:
    folder = options.data / "visla"
    parts = [_VislaFile(**file) for file in files]
    there = [part for part in parts if part.path(folder).exists()]
    if not there:
        require(parts[0].path(folder), "visla")
    absent: list[Absent] = []
    rows = (case for part in there for case in _visla_cases(part, options, absent))
    cases = Cases.build(rows, root=options.data, source=str(folder))
    return Cases(cases.frame, cases.root, absent)


def _visla_cases(file: _VislaFile, options: Options, absent: list[Absent]) -> Iterator[Case]:
    path = file.path(options.data / "visla")
    for place, (where, fields) in enumerate(table_rows(path, "visla", separator="\t")):
        id, row = f"{file.part}/{place}", {_column(name): fields[name] for name in fields}
        positives = [_one_field(row, key, where) for key in file.positives]
        if file.negative in row and not row[file.negative].strip():
            absent.append(Absent(id, NO_NEGATIVE))
            continue
        image = _coco_2017(text(row, file.image, where), options.data, where)
        negative = _one_field(row, file.negative, where)
        yield caption_case(id, ImageRef(image), positives, (negative,), (file.part,))


def _column(name: str) -> str:
    """`best reference` for `Best reference (Semantically close)`; blanks for underscores."""
    return name.partition("(")[0].strip().lower().replace("_", " ")


def _one_field(row: dict[str, Any], key: str, where: str) -> str:
    caption = text(row, key, where)
    if "\t" in caption or "\n" in caption:  # a quotation mark without its pair swallows rows
        raise malformed(where, f"{key!r} goes on over several fields; check its quotation marks")
    return caption


def _coco_2017(name: str, root: Path, where: str) -> str:
    """Spatial images are of COCO's training and validation sets; the name does not say which."""
    digits = re.fullmatch(r"(\d{1,12})(?:\.jpg)?", name.strip())
    if not digits:
        raise malformed(where, f"{name!r:.60} is not the name of a COCO image")
    paths = [f"coco/{split}/{digits[1]:0>12}.jpg" for split in ("val2017", "train2017")]
    return next((path for path in paths if (root / path).exists()), paths[0])


# --- VALSE ---------------------------------------------------------------------------------------

UNCONFIRMED: Final = "unconfirmed"
ENOUGH: Final = 2  # of three annotators chose the caption and not the foil
_COCO_FOLDERS: Final = ("coco/val2014", "coco/train2014", "coco/val2017")


def valse(options: Options) -> Cases:
    folder, root = options.data / "valse", options.data
    form = "[!.]*.json"  # archives packed on a Mac hold a `._NAME` beside every NAME
    pieces = sorted(folder.glob(form)) or sorted((folder / "data").glob(form))
    if not pieces:
        require(folder / "*.json", "valse")
    below = sorted(path for path in (folder / "images").rglob("*") if path.is_dir())
    own = ["valse/images", *(path.relative_to(root).as_posix() for path in below)]
    images = ImageIndex(root, *own, *_COCO_FOLDERS)
    unrated: Counter[str] = Counter()
    rows = (case for path in pieces for case in _valse_cases(path, images, unrated))
    cases = Cases.build(rows, root=root, source=str(folder))
    # Every published row has votes: without them the number would be that of fewer rows.
    absent = [Absent(piece, NO_VOTES, count) for piece, count in unrated.items()]
    return Cases(cases.frame, cases.root, absent)


def _valse_cases(path: Path, images: ImageIndex, unrated: Counter[str]) -> Iterator[Case]:
    for key, row in named_rows(path, "valse"):
        where = f"{path}: case {key}"
        groups = [label(path.stem)]
        votes = _votes(row, where)
        if votes is None:
            unrated[path.stem] += 1
        if votes is None or votes < ENOUGH:
            groups.append(UNCONFIRMED)
        image = text(row, "image_file", where)
        yield caption_case(
            f"{path.stem}/{key}",
            ImageRef(images.find(PurePosixPath(image).name) or f"valse/images/{image}"),
            (_only_text(row, "caption", where),),
            (_only_text(row, "foil" if "foil" in row else "foils", where),),
            tuple(groups),
        )


def _votes(row: dict[str, Any], where: str) -> int | None:
    """How many people chose the caption; None if the row does not say it."""
    votes = row.get("mturk")
    if not isinstance(votes, dict) or votes.get("caption") is None:
        return None
    return number(votes, "caption", f"{where}, mturk")


def _only_text(row: dict[str, Any], key: str, where: str) -> str:
    """A text; early versions of the files have a list of one."""
    value = row.get(key)
    return text({key: value[0]} if isinstance(value, list) and len(value) == 1 else row, key, where)


# --- RoCOCO --------------------------------------------------------------------------------------

METHODS: Final = ("same_concept", "diff_concept", "rand_voca", "danger")
_ALTERED: Final = 5  # captions of each image; ten images have a sixth, which was not altered


def _rococo_rows(options: Options, method: str, benchmark: str) -> Iterator[CaptionedImage]:
    """Captions, and then the altered forms of the first five."""
    path = options.data / "rococo" / f"{method}.json"
    for place, row in enumerate(captioned_images(path, "coco", benchmark), start=1):
        if len(row.captions) < 2 * _ALTERED:
            raise malformed(
                f"{path}: row {place}",
                "'caption' should hold five captions or more and then their five altered forms, it "
                f"holds {len(row.captions)} of them",
            )
        yield row


def rococo(options: Options) -> Cases:
    rows = (case for method in METHODS for case in _rococo_cases(options, method))
    return Cases.build(rows, root=options.data, source=str(options.data / "rococo"))


def _rococo_cases(options: Options, method: str) -> Iterator[Case]:
    others = options.number("people")
    for place, row in enumerate(_rococo_rows(options, method, "rococo")):
        captions, altered = row.captions[:-_ALTERED], row.captions[-_ALTERED:]
        for turn, negative in enumerate(altered):
            people = captions[turn:] + captions[:turn]  # its own caption first
            id, true = f"{method}/{place}/{turn}", people[: 1 + others]
            yield caption_case(id, ImageRef(row.image), true, [negative], (method,))


def rococo_retrieval(options: Options) -> Cases:
    method = chosen_option(options, "altered", METHODS, "way of altering captions")
    rows = list(_rococo_rows(options, method, "rococo/retrieval"))
    captions = [caption for row in rows for caption in row.captions[:-_ALTERED]]
    altered = [caption for row in rows for caption in row.captions[-_ALTERED:]]
    owners = [image for image, row in enumerate(rows) for _ in row.captions[:-_ALTERED]]
    images = [row.image for row in rows]
    return owned_gallery(images, captions + altered, owners, options.data, "rococo/retrieval")


# --- NegBench ------------------------------------------------------------------------------------

_ANSWERS: Final = tuple(f"caption_{place}" for place in range(4))
_TEMPLATES: Final = {"positive": "affirmation", "negative": "negation", "hybrid": "hybrid"}


def negbench(options: Options, files: Mapping[str, Sequence[str]]) -> Cases:
    """`files` has the file of each source and the folder of its images."""
    folder = options.data / "negbench"
    rows = (
        case
        for source, (name, images) in files.items()
        for case in _negbench_cases(folder / name, source, images)
    )
    return Cases.build(rows, root=options.data, source=str(folder))


def _negbench_cases(path: Path, source: str, folder: str) -> Iterator[Case]:
    for place, (where, row) in enumerate(table_rows(path, "negbench")):
        captions = [text(row, key, where) for key in _ANSWERS]
        right = number(row, "correct_answer", where)
        if not 0 <= right < len(captions):
            what = f"'correct_answer' should be a number from 0 to 3, it is {right}"
            raise malformed(where, what)
        given = text(row, "correct_answer_template", where)
        template = _TEMPLATES.get(given, label(given))
        yield caption_case(
            f"{source}/{place}",
            ImageRef(_named_image(row, "image_path", folder, where)),
            [captions.pop(right)],
            captions,
            (f"{source}/{template}", template),
        )


def _named_image(row: dict[str, Any], key: str, folder: str, where: str) -> str:
    """The paths in the files are those of the authors' machine."""
    return f"{folder}/{PurePosixPath(text(row, key, where)).name}"


def negbench_retrieval(options: Options, file: str) -> Cases:
    images: list[str] = []
    captions: list[str] = []
    owners: list[int] = []
    blank: list[Absent] = []
    path = options.data / "negbench" / file
    for place, (where, row) in enumerate(table_rows(path, "negbench/retrieval")):
        written = text(row, "captions", where)
        if (own := written_list(written)) is None:
            what = f"'captions' should hold a list of texts, it is {shown(written)}"
            raise malformed(where, what)
        for caption in own:
            if caption.strip():
                captions.append(caption)
                owners.append(place)
            else:  # the authors' language model returned nothing
                blank.append(Absent(f"row {place + 1}", "a caption without text", 0))
        images.append(_named_image(row, "filepath", "coco/val2017", where))
    cases = owned_gallery(images, captions, owners, options.data, "negbench/retrieval")
    return Cases(cases.frame, cases.root, blank)
