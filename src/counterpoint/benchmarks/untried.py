"""Readers that were written from papers and public code: never run on the published files.

`ls`, `doctor` and `--json` say so. Those whose files are tables of two images and two captions are
rows of `benchmarks.toml` alone.

- BLA (Chen et al. 2023): an image, two true sentences and two false ones, for three constructions.
  Of `active-passive`, the two true sentences say the same in active and passive voice: a published
  hard positive. Of `coordination` and `relative-clause`, they say two different things.
- SPEC (Peng et al. 2024): size, position, existence and count, one at a time. `spec` has an image
  and captions that differ in one word or number; `spec/text-to-image` a caption and images.
- SVO-Probes (Hendricks and Nematzadeh 2021): one sentence and two images, which differ in the
  subject, the verb or the object. The authors ask whether each image matches, yes or no; later
  papers ask which of the two images it is, and so does this reader.
- ImageCoDe (Krojer et al. 2022): one description and ten images that are much alike, frames of one
  video or, in `static` sets, similar photographs. The validation split: of the test split the
  authors keep the answers.
- VSR (Liu et al. 2023): an image and a caption with a spatial relation, true or false. A model
  gives a score and no verdict, so the label is a grade, 0 or 1: `auroc` says how often a true pair
  scores above a false one. The paper's accuracy needs a threshold or training on the train split.
- What'sUp (Kamath et al. 2023): `whatsup` has photographs of two household objects in four
  arrangements each, A and B, with one caption for each arrangement. With `together=2` a case is a
  pair of photographs (left and right, or the other two), with `together=4` a set of all four, and
  each has to get its own caption: `image_to_text` is then the paper's pair and set accuracy.
  `whatsup/coco` and `whatsup/gqa` have photographs of COCO and GQA, with one object or two, and the
  caption with the opposite preposition.
- NaturalBench (Li et al. 2024): two photographs that models mix up, and two questions about them.
  `naturalbench` has the questions with the answer yes for one photograph and no for the other. A
  question stands in the place of a caption and is true of the photograph whose answer is yes; a
  generative model gets it as it is (`vqa:MODEL?template={caption} Please answer Yes or No.`).
  `naturalbench/answers` has all questions, also those with two options. A case has both questions,
  with either answer behind them: four texts, for models that score a text by its likelihood
  (`lm:`). Its metrics are the paper's Acc, Q-Acc, I-Acc and G-Acc.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from counterpoint.benchmarks.benchmark import Options, Sizes
from counterpoint.benchmarks.reading import (
    GENOME,
    ImageIndex,
    chosen_option,
    file_below,
    files_below,
    first_there,
    genome_name,
    label,
    matching_files,
    number,
    object_rows,
    parquet_image,
    parquet_rows,
    published_file,
    read_json,
    require,
    text,
    unexpected,
)
from counterpoint.cases import Case, Cases, ImageRef, caption_case

Row = dict[str, Any]


def _texts(values: Sequence[Any], what: str, where: str) -> list[str]:
    return [text({what: value}, what, where) for value in values]


# --- BLA -----------------------------------------------------------------------------------------


def bla(options: Options, tasks: Sequence[str]) -> Cases:
    folder = options.data / "bla"
    rows = (case for task in tasks for case in _bla_cases(folder, task, options.data))
    return Cases.build(rows, root=options.data, source=str(folder))


def _bla_cases(folder: Path, task: str, root: Path) -> Iterator[Case]:
    true, false = ("True1", "True2"), ("False1", "False2")
    path = published_file(folder, f"{task.replace('-', '_')}_captions.json", "bla")
    own = (path.parent.parent / "images").relative_to(root).as_posix()
    images = ImageIndex(root, own, *GENOME)
    rows = object_rows(path, ("image_id", "caption_group"), "bla")
    for place, (where, row) in enumerate(rows):
        groups = row["caption_group"]
        if not isinstance(groups, list) or not groups or not isinstance(groups[0], dict):
            raise unexpected(where, "a caption_group of one object or more", groups)
        captions = groups[0]  # the authors take the first
        if any(field not in captions for field in (*true, *false)):
            raise unexpected(where, f"captions {', '.join((*true, *false))}", captions)
        yield caption_case(
            f"{task}/{place}",
            ImageRef(images.path(f"{number(row, 'image_id', where)}.jpg")),
            [text(captions, field, where) for field in true],
            [text(captions, field, where) for field in false],
            (task,),
        )


# --- SPEC ----------------------------------------------------------------------------------------


def spec(options: Options, benchmark: str, name: str, subsets: Sequence[str]) -> Cases:
    """Of an image (`spec`) or a caption, several of the other, of which one is right."""
    folder = options.data / "spec"
    fields = ("query", "keys", "label")
    rows = (
        _spec_case(f"{subset}/{place}", path.parent, options.data, benchmark == "spec", row, where)
        for subset in subsets
        for path in [published_file(folder, f"{subset}/{name}", benchmark)]
        for place, (where, row) in enumerate(object_rows(path, fields, benchmark))
    )
    return Cases.build(rows, root=options.data, source=str(folder))


def _spec_case(id: str, folder: Path, root: Path, one_image: bool, row: Row, where: str) -> Case:
    keys, right = row["keys"], row["label"]
    if not isinstance(keys, list) or len(keys) < 2:
        raise unexpected(where, "two or more keys", keys)
    if isinstance(right, bool) or not isinstance(right, int) or not 0 <= right < len(keys):
        raise unexpected(where, f"a label from 0 to {len(keys) - 1}", right)
    query, choices = text(row, "query", where), _texts(keys, "keys", where)
    if one_image:
        image = ImageRef(file_below(folder, query, root))
        return caption_case(id, image, [choices.pop(right)], choices, (folder.name,))
    images = tuple(ImageRef(file_below(folder, choice, root)) for choice in choices)
    truth = tuple((place == right,) for place in range(len(images)))
    return Case(id, images, (query,), truth, (folder.name,))


# --- SVO-Probes ----------------------------------------------------------------------------------

_SVO_KINDS: Final = {"subj_neg": "subject", "verb_neg": "verb", "obj_neg": "object"}
_SVO_MARKS: Final = {"true": True, "1": True, "false": False, "0": False}


def svo_probes(options: Options) -> Cases:
    path = published_file(options.data / "svo_probes", "svo_probes.csv", "svo-probes")
    return Cases.build(_svo_cases(path, options.data), root=options.data, source=str(path))


def _svo_cases(path: Path, root: Path) -> Iterator[Case]:
    images = {
        file.stem: file.relative_to(root).as_posix()
        for file in files_below(root / "svo_probes" / "images", "*")
    }
    fields = ("sentence", "pos_image_id", "neg_image_id", *_SVO_KINDS)
    for place, (where, row) in enumerate(object_rows(path, fields, "svo-probes")):
        names = [str(number(row, field, where)) for field in ("pos_image_id", "neg_image_id")]
        both = (images.get(name, f"svo_probes/images/{name}.jpg") for name in names)
        yield Case(
            str(place),
            tuple(map(ImageRef, both)),
            (text(row, "sentence", where),),
            ((True,), (False,)),
            (_svo_kind(row, where),),
        )


def _svo_kind(row: Row, where: str) -> str:
    """What differs. The authors leave rows out in which it is not one thing: `several`."""
    marks = [_SVO_MARKS.get(str(row[field]).strip().lower()) for field in _SVO_KINDS]
    if None in marks:
        expected = f"True or False in {', '.join(_SVO_KINDS)}"
        raise unexpected(where, expected, ", ".join(str(row[field]) for field in _SVO_KINDS))
    kinds = [kind for kind, mark in zip(_SVO_KINDS.values(), marks, strict=True) if mark]
    return kinds[0] if len(kinds) == 1 else "several"


# --- ImageCoDe -----------------------------------------------------------------------------------

_SET_SIZE: Final = 10
_SET_FOLDERS: Final = ("", "image-sets", "games")  # folders of sets, beside the file
_FRAME: Final = re.compile(r"img(\d{1,9})\.jpg")


def imagecode(options: Options) -> Cases:
    path = published_file(options.data / "imagecode", "valid_data.json", "imagecode")
    return Cases.build(_imagecode_cases(path, options.data), root=options.data, source=str(path))


def _imagecode_cases(path: Path, root: Path) -> Iterator[Case]:
    sets = read_json(path, "imagecode")
    if not isinstance(sets, dict):
        raise unexpected(path, "an object with the descriptions of each set", sets)
    for name, descriptions in sets.items():
        where = f"{path}: set {name}"
        if PurePosixPath(name).name != name:
            raise unexpected(where, "the name of a folder", name)
        if not isinstance(descriptions, dict):
            raise unexpected(where, "an object with a description for each image", descriptions)
        files = _set_images(path.parent, name, where)
        images = tuple(ImageRef(file.relative_to(root).as_posix()) for file in files)
        for image in descriptions:
            if not (image.isdecimal() and len(image) < 3 and int(image) < _SET_SIZE):
                raise unexpected(where, "images from 0 to 9", descriptions)
            yield Case(
                f"{name}/{image}",
                images,
                (text(descriptions, image, where).strip(),),
                tuple((place == int(image),) for place in range(_SET_SIZE)),
                ("static" if "open-images" in name else "video",),
                cluster=name,
            )


def _set_images(folder: Path, name: str, where: str) -> list[Path]:
    """The ten images of a set in the order of their numbers, which are those of video frames."""
    places = (folder / part / name for part in _SET_FOLDERS)
    place = next((place for place in places if place.is_dir()), None)
    if place is None:
        return [folder / name / f"img{number}.jpg" for number in range(_SET_SIZE)]
    numbered = [(int(f[1]), file) for file in place.iterdir() if (f := _FRAME.fullmatch(file.name))]
    if len(numbered) != _SET_SIZE:
        raise unexpected(where, f"ten images img0.jpg ... in {place}", place)
    return [file for _, file in sorted(numbered)]


# --- VSR -----------------------------------------------------------------------------------------


def vsr(options: Options, splits: Mapping[str, int]) -> Cases:
    split, folder = chosen_option(options, "split", splits), options.data / "vsr"
    folders = (folder / "splits", folder / "data" / "splits", folder)
    path = first_there(*(one / split / "test.jsonl" for one in folders))
    rows = _vsr_cases(require(path, "vsr"))
    return Cases.build(rows, root=options.data, source=str(path))


def vsr_files(options: Options, splits: Mapping[str, int]) -> Sizes:
    return {"": splits[chosen_option(options, "split", splits)]}


def _vsr_cases(path: Path) -> Iterator[Case]:
    fields = ("image", "image_link", "caption", "label", "relation")
    for place, (where, row) in enumerate(object_rows(path, fields, "vsr")):
        if row["label"] not in (0, 1):
            raise unexpected(where, "the label 0 or 1", row["label"])
        yield Case(
            str(place),
            (ImageRef(_vsr_image(row, where)),),
            (text(row, "caption", where),),
            ((bool(row["label"]),),),
            (label(text(row, "relation", where)),),
            grades=(float(row["label"]),),
        )


def _vsr_image(row: Row, where: str) -> str:
    """`http://images.cocodataset.org/train2017/000000050403.jpg` is coco/train2017/..."""
    parts = urlsplit(text(row, "image_link", where)).path.split("/")
    folders = ("train2017", "val2017")
    if len(parts) < 3 or parts[-2] not in folders or parts[-1] != row["image"]:
        raise unexpected(
            where, "an image_link that ends in train2017 or val2017 and image", row["image_link"]
        )
    return f"coco/{parts[-2]}/{parts[-1]}"


# --- What'sUp ------------------------------------------------------------------------------------

_PREPOSITIONS: Final = ("left", "right", "above", "below", "top", "bottom", "front", "behind")
_ARRANGED: Final = ("left_of", "right_of", "in-front_of", "behind", "on", "under", "other")
_TOGETHER: Final = ("1", "2", "4")  # photographs that have to be right at once


class _Photograph(NamedTuple):
    row: int
    name: str
    image: ImageRef
    captions: list[str]  # the right one first

    @property
    def arrangement(self) -> str:
        """`beer-bottle_left_of_armchair.jpeg` is `left_of`."""
        return next((word for word in _ARRANGED if f"_{word}_" in self.name), _ARRANGED[-1])

    @property
    def objects(self) -> str:
        """The four photographs of the same two objects are one source."""
        return PurePosixPath(self.name.replace(f"_{self.arrangement}_", "_")).stem


def whatsup(options: Options, files: Mapping[str, str], cases: object) -> Cases:
    """`files` by the beginning of case ids."""
    together = int(chosen_option(options, "together", _TOGETHER))
    folder = options.data / "whatsup"
    rows = (
        case
        for group, name in files.items()
        for case in _arranged(published_file(folder, name, "whatsup"), group, together)
    )
    return Cases.build(rows, root=options.data, source=str(folder))


def whatsup_files(options: Options, files: object, cases: Mapping[str, int]) -> Sizes:
    """`cases` are those of single photographs."""
    together = max(1, options.number("together"))
    return {group: count // together for group, count in cases.items()}


def _arranged(path: Path, group: str, together: int) -> Iterator[Case]:
    if together == 1:
        for one in _photographs(path):
            right, *wrong = one.captions
            groups, source = (f"{group}/{one.arrangement}",), f"{group}/{one.objects}"
            id = f"{group}/{one.row}"
            yield caption_case(id, one.image, [right], wrong, groups, cluster=source)
        return
    sets: dict[str, list[_Photograph]] = {}
    for one in _photographs(path):
        sets.setdefault(one.objects, []).append(one)
    for objects, four in sets.items():
        if len(four) != 4:
            raise unexpected(path, f"four photographs of {objects}", [one.name for one in four])
        four.sort(key=lambda one: _ARRANGED.index(one.arrangement))
        for start in range(0, 4, together):
            some = four[start : start + together]
            captions = [one.captions[0] for one in some]
            captions += sorted({text for one in some for text in one.captions} - {*captions})
            arrangements = "+".join([one.arrangement for one in some])
            yield Case(
                f"{group}/{some[0].row}",
                tuple(one.image for one in some),
                tuple(captions),
                tuple(tuple(n == m for m in range(len(captions))) for n in range(together)),
                (f"{group}/{arrangements}",),
                f"{group}/{objects}",
            )


def _photographs(path: Path) -> Iterator[_Photograph]:
    rows = object_rows(path, ("image_path", "caption_options"), "whatsup")
    for place, (where, row) in enumerate(rows):
        captions = row["caption_options"]
        if not isinstance(captions, list) or len(captions) != 4:
            raise unexpected(where, "four caption_options, the right one first", captions)
        # The path is that of the authors' machine: its last two parts are folder and file.
        parts = PurePosixPath(text(row, "image_path", where)).parts
        if len(parts) < 2:
            raise unexpected(where, "an image_path of folder and file", row["image_path"])
        folder, name = parts[-2:]
        image = ImageRef(f"whatsup/{folder}/{name}")
        yield _Photograph(place, name, image, _texts(captions, "caption", where))


def whatsup_questions(options: Options, benchmark: str, files: Mapping[str, str]) -> Cases:
    folder = options.data / "whatsup"
    images = ImageIndex(options.data, "whatsup/vg_images", *GENOME)
    rows = (
        case
        for group, name in files.items()
        for case in _questions(published_file(folder, name, benchmark), group, benchmark, images)
    )
    return Cases.build(rows, root=options.data, source=str(folder))


def _questions(path: Path, group: str, benchmark: str, images: ImageIndex) -> Iterator[Case]:
    rows = read_json(path, benchmark)
    if not isinstance(rows, list):
        raise unexpected(path, "a list of [image, right caption, wrong caption]", rows)
    for place, row in enumerate(rows):
        where = f"{path}: row {place + 1}"
        if not isinstance(row, list) or len(row) != 3 or not isinstance(row[0], int | str):
            raise unexpected(where, "[image, right caption, wrong caption]", row)
        right, wrong = _texts(row[1:], "caption", where)
        words = reversed(right.lower().rstrip(". ").split())  # with one object, it is the last
        preposition = next((word for word in words if word in _PREPOSITIONS), "other")
        image = (
            f"coco/val2017/{str(row[0]).zfill(12)}.jpg"
            if benchmark == "whatsup/coco"
            else images.path(genome_name(row[0]))
        )
        id, groups = f"{group}/{place}", (f"{group}/{preposition}",)
        yield caption_case(id, ImageRef(image), [right], [wrong], groups)


# --- NaturalBench --------------------------------------------------------------------------------

_IMAGES: Final = ("Image_0", "Image_1")
_ASKED: Final = ("Question_0", "Question_1")
_TYPES: Final = ("Question_Type", "Question Type")  # the hub's file has had both names
_PAIRS: Final = {"yes_no": ("Yes", "No"), "multiple_choice": ("A", "B")}


class _Question(NamedTuple):
    """Two questions about two images, and their answers by image."""

    id: str
    images: tuple[ImageRef, ...]
    texts: list[str]
    kind: str
    answers: list[list[str]]
    groups: tuple[str, ...]


def naturalbench(options: Options, answers: bool) -> Cases:
    """The questions, with either answer behind each if `answers`, else those of yes and no."""
    benchmark = "naturalbench/answers" if answers else "naturalbench"
    folder = options.data / "naturalbench"
    rows = (
        question
        for path in matching_files(folder, ["*.parquet"], benchmark)
        for question in _natural_questions(path, options.data)
    )
    cases = (
        (_with_answers(row) for row in rows)
        if answers
        else (_whole(row) for row in rows if row.kind == "yes_no")
    )
    return Cases.build(cases, root=options.data, source=str(folder))


def _natural_questions(path: Path, root: Path) -> Iterator[_Question]:
    table = path.relative_to(root).as_posix()
    columns = [[f"{image}_{asked}" for asked in _ASKED] for image in _IMAGES]
    fields = [*_ASKED, *columns[0], *columns[1]]
    rows = parquet_rows(path, fields, _IMAGES, ("Index", "Source", *_TYPES))
    for place, row in enumerate(rows):
        where, own, source = f"{path}: row {place + 1}", row.get("Index"), row.get("Source")
        kind = text(row, next((name for name in _TYPES if name in row), _TYPES[0]), where)
        if kind not in _PAIRS:
            raise unexpected(where, f"the types {' and '.join(_PAIRS)}", kind)
        answers = [[text(row, name, where) for name in names] for names in columns]
        for answer in (*answers[0], *answers[1]):
            if answer not in _PAIRS[kind]:
                raise unexpected(where, f"the answers {' and '.join(_PAIRS[kind])}", answer)
        yield _Question(
            str(own) if isinstance(own, int | str) and own != "" else f"{path.stem}/{place}",
            tuple(parquet_image(table, name, place) for name in _IMAGES),
            [text(row, name, where) for name in _ASKED],
            kind,
            answers,
            (source,) if isinstance(source, str) and source else (),
        )


def _whole(row: _Question) -> Case:
    truth = tuple(tuple(answer == "Yes" for answer in line) for line in row.answers)
    return Case(row.id, row.images, tuple(row.texts), truth, row.groups)


def _with_answers(row: _Question) -> Case:
    choices = _PAIRS[row.kind]
    texts = tuple(f"{question} {answer}" for question in row.texts for answer in choices)
    truth = tuple(tuple(one == own for own in line for one in choices) for line in row.answers)
    groups = ("/".join((row.kind, *row.groups)),)
    return Case(row.id, row.images, texts, truth, groups, questions=len(_ASKED))
