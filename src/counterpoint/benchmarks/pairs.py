"""Benchmarks of two images and two captions: the first image has the first caption.

Those whose files are tables are rows of `benchmarks.toml`, read by `tables`. The others are read by
a function here:

- Winoground (Thrush et al. 2022) has tags, of its own and by Diwan et al. 2022.
- BiVLC (Miranda et al. 2024) is SugarCrepe with an image for the negative caption too. Its images,
  and its captions, are also a question of what is natural and what is synthetic, which a detector
  answers (section 5.4 of the paper): one gallery of two classes.
- COLA (Ray et al. 2023), multi-object setting: attributes swapped between two objects.
- VisMin (Awal et al. 2024): in about half of the rows of the hub's table the first caption belongs
  to the second image: the authors' `sim_solution.csv` says which.
- MMVP-VLM (Tong et al. 2024) has nine visual patterns. The authors put "a photo of" before every
  statement, and count a pair as right if both statements prefer their own image: `text_to_image`
  is their number.
- EqBen (Wang et al. 2023): the whole annotation, in pairs of images (`private_info_global.json`) or
  as the authors' evaluation reads it, one image and one caption in each row
  (`ann_json_finegrained_random.json`); or the authors' subset of a tenth. The frames of YouCook2
  are NumPy arrays, no images: in the place of NAME.npy, a converted NAME.png or NAME.jpg is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from string import Formatter
from typing import Any, Final
from urllib.parse import urlsplit

from counterpoint._util.errors import DataError
from counterpoint.benchmarks.benchmark import Options
from counterpoint.benchmarks.reading import (
    GENOME,
    ImageIndex,
    file_below,
    files_below,
    first_there,
    label,
    malformed,
    matching_files,
    number,
    object_rows,
    parquet_image,
    parquet_rows,
    published_file,
    read_json,
    text,
    unexpected,
)
from counterpoint.benchmarks.retrieval import gallery
from counterpoint.cases import DETECTION, TEXT, Case, Cases, ImageRef

Row = dict[str, Any]
Groups = Callable[[Row, str], Iterable[str]]  # of a row; the text says where it is
IDENTITY: Final = ((True, False), (False, True))


# --- tables --------------------------------------------------------------------------------------


def pair_cases(
    options: Options,
    benchmark: str,
    files: Sequence[str],
    images: Sequence[str],
    captions: Sequence[str],
    *,
    id: str = "",
    pictures: str = ".",
    endings: Sequence[str] = (),
    groups: Groups = lambda row, where: (),
    cluster: Callable[[Row], str] = lambda row: "",
    required: Sequence[str] = (),
    more: Sequence[str] = (),
) -> Iterator[Case]:
    """The cases of tables of the hub, JSON, JSON lines or CSV, in the folder of the benchmark.

    `files` are patterns of names, of which the first that is there counts. `images` and `captions`
    are the columns of the two images and their captions, `id` that of an id (the row number if it
    is empty), `required` further columns that `groups` reads, and `more` those that may be missing.
    Images of Parquet tables are inside; others are in the folder `pictures` beside the file, or,
    with `endings`, at any place below the folder and found by their name without its ending.
    """
    folder = options.data / benchmark.partition("/")[0].replace("-", "_")
    ids = [id] if id else []
    place = 0  # over all files: they are the pieces of one table
    for path in matching_files(folder, files, benchmark):
        if path.suffix == ".parquet":
            table = path.relative_to(options.data).as_posix()
            rows = _located(path, parquet_rows(path, [*ids, *captions, *required], images, more))
            find = None
        else:
            rows = object_rows(path, [*ids, *images, *captions, *required], benchmark)
            find = _finder(folder, path.parent / pictures, endings)
        for row, (where, values) in enumerate(rows):
            references = [
                ImageRef(file_below(*find(text(values, name, where)), options.data))
                if find
                else parquet_image(table, name, row)
                for name in images
            ]
            own = values[id] if id else place
            yield Case(
                str(own) if isinstance(own, int) else text(values, id, where),
                tuple(references),
                tuple(text(values, name, where) for name in captions),
                IDENTITY,
                tuple(groups(values, where)),
                cluster(values),
            )
            place += 1


def _located(path: Path, rows: Iterable[Row]) -> Iterator[tuple[str, Row]]:
    return ((f"{path}: row {row}", values) for row, values in enumerate(rows, start=1))


def _finder(
    folder: Path, beside: Path, endings: Sequence[str]
) -> Callable[[str], tuple[Path, str]]:
    """Where the image of a name is: its folder and its file."""
    if not endings:
        return lambda name: (beside, name)
    known = {file.stem: file for ending in endings for file in files_below(folder, f"*{ending}")}

    def find(name: str) -> tuple[Path, str]:
        stem = PurePosixPath(name).stem
        file = known.get(stem, beside / f"{stem}{endings[0]}")
        return file.parent, file.name

    return find


def tables(options: Options, benchmark: str, groups: Sequence[str] = (), **columns: Any) -> Cases:
    """A benchmark that is described by its columns alone.

    `groups` are labels with columns in braces; those without a text in the row are left out.
    """
    fields = {one: [name for _, name, *_ in Formatter().parse(one) if name] for one in groups}

    def labels(row: Row, where: str) -> Iterator[str]:
        for one, names in fields.items():
            if all(isinstance(row.get(name), str) for name in names):
                yield one.format(**{name: label(row[name]) for name in names})

    more = [name for names in fields.values() for name in names]
    rows = pair_cases(options, benchmark, groups=labels, more=more, **columns)
    return _built(options, benchmark, rows)


def _built(options: Options, benchmark: str, cases: Iterable[Case]) -> Cases:
    folder = options.data / benchmark.partition("/")[0].replace("-", "_")
    return Cases.build(cases, root=options.data, source=str(folder))


# --- Winoground ----------------------------------------------------------------------------------

TAG_FILE: Final = "new_tag_assignments.json"
CLEAN: Final = "diwan/clean"  # the 171 cases without a tag


def winoground(options: Options, **columns: Any) -> Cases:
    tags = _diwan_tags(options.data / "winoground")
    rows = pair_cases(options, "winoground", groups=_winoground_groups, **columns)
    tagged = (replace(case, groups=(*case.groups, *tags.get(case.id, ()))) for case in rows)
    return _built(options, "winoground", tagged)


def _winoground_groups(row: Row, where: str) -> Iterator[str]:
    """What the swap is (object, relation or both) comes first; the paper's other tags follow.

    A case may have several secondary tags, with commas between; the name of its one tag may hold
    a comma.
    """
    yield label(text(row, "collapsed_tag", where))
    if row.get("tag"):
        yield f"tag/{label(text(row, 'tag', where))}"
    if row.get("secondary_tag"):
        for tag in text(row, "secondary_tag", where).split(","):
            if tag.strip():
                yield f"secondary/{label(tag)}"
    if row.get("num_main_preds") is not None:
        yield f"preds/{number(row, 'num_main_preds', where)}"


def _diwan_tags(folder: Path) -> dict[str, tuple[str, ...]]:
    """The groups of each case by Diwan et al. 2022, if their file is there.

    They say why a case may be hard for reasons other than word order; without a tag it is clean.
    """
    files = files_below(folder, TAG_FILE)
    if not files:
        return {}
    found = read_json(files[0], "winoground")
    if not isinstance(found, dict) or not all(
        isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)
        for tags in found.values()
    ):
        raise DataError(
            "E-FILE-MALFORMED", f"{files[0]}: should hold a list of tags for each case."
        )
    return {
        id: tuple(f"diwan/{label(tag)}" for tag in tags) or (CLEAN,) for id, tags in found.items()
    }


# --- BiVLC ---------------------------------------------------------------------------------------


def bivlc(options: Options) -> Cases:
    kinds = ("type", "subtype")
    rows = pair_cases(
        options,
        "bivlc",
        ["**/*.parquet"],
        ("image", "negative_image"),
        ("caption", "negative_caption"),
        groups=lambda row, where: ["/".join(label(text(row, kind, where)) for kind in kinds)],
        required=kinds,
        # The photograph's name; without one, at least equal captions share a photograph.
        cluster=lambda row: row["image"] or row["caption"],
    )
    return _built(options, "bivlc", rows)


def bivlc_detection(options: Options, captions: bool) -> Cases:
    """Every row's two images, or its two captions in the place of images."""
    cases = bivlc(options)
    rows = [cases.case(row) for row in range(len(cases))]
    items = [
        TEXT + case.captions[side] if captions else case.images[side].path
        for case in rows
        for side in range(len(DETECTION))
    ]
    true = ((place, place % 2) for place in range(len(items)))
    frame = gallery(items, DETECTION, true, cluster="bivlc")
    return Cases.checked(iter([frame]), options.data, str(options.data / "bivlc"))


# --- COLA ----------------------------------------------------------------------------------------

COLA_FILE: Final = "COLA_multiobjects_matching_benchmark.json"


def cola(options: Options) -> Cases:
    path = _cola_file(options.data / "cola")
    return Cases.build(_cola_cases(path, options.data), root=options.data, source=str(path))


def _cola_file(folder: Path) -> Path:
    """The file by its published name, else the one file of its form (it has had other names)."""
    path = first_there(folder / COLA_FILE, folder / "data" / COLA_FILE)
    if path.exists():
        return path
    others = [other for other in files_below(folder, "*.json") if _has_cola_rows(other)]
    if len(others) > 1:
        raise DataError(
            "E-FILE-AMBIGUOUS",
            f"{others[0]} and {others[1]} both look like COLA's {COLA_FILE}; keep one.",
        )
    return others[0] if others else path


def _has_cola_rows(path: Path) -> bool:
    rows = read_json(path, "cola")
    return isinstance(rows, list) and bool(rows) and _is_cola_row(rows[0])


def _is_cola_row(row: Any) -> bool:
    texts = isinstance(row, list) and all(isinstance(one, str) and one.strip() for one in row)
    return texts and len(row) == 4


def _cola_cases(path: Path, root: Path) -> Iterator[Case]:
    """An image is in cola/images or, since they are the same, in Visual Genome."""
    rows = read_json(path, "cola")
    if not isinstance(rows, list):
        raise DataError(
            "E-FILE-MALFORMED", f"{path}: should hold a list of [image, caption, image, caption]."
        )
    images = ImageIndex(root, "cola/images", *GENOME)
    for place, row in enumerate(rows):
        if not _is_cola_row(row):
            what = f"should be [image, caption, image, caption], all texts, it is {row!r:.80}"
            raise malformed(f"{path}: row {place + 1}", what)
        names = (PurePosixPath(urlsplit(url).path).name for url in row[::2])
        both = tuple(ImageRef(images.path(name)) for name in names)
        yield Case(str(place), both, (row[1], row[3]), IDENTITY)


# --- VisMin --------------------------------------------------------------------------------------

# What a right model's scores are: of the first image (I0), which of the captions (T) is above.
_IN_ORDER: Final = {
    "T0_I0 > T1_I0 & T1_I1 > T0_I1": True,
    "T1_I0 > T0_I0 & T0_I1 > T1_I1": False,
}


def vismin(options: Options, **columns: Any) -> Cases:
    solution = published_file(options.data / "vismin", "sim_solution.csv", "vismin")
    cases = list(
        pair_cases(options, "vismin", groups=_vismin_groups, more=("category",), **columns)
    )
    order = list(_vismin_order(solution))
    if len(cases) != len(order):
        raise unexpected(solution, f"{len(cases):,} rows, as in the tables", len(order))
    # Ids begin anew in a category.
    named = [replace(case, id="/".join((*case.groups, case.id))) for case in cases]
    rows = (
        case if in_order else replace(case, captions=case.captions[::-1])
        for case, in_order in zip(named, order, strict=True)
    )
    return _built(options, "vismin", rows)


def _vismin_order(path: Path) -> Iterator[bool]:
    for where, row in object_rows(path, ("Text", "category"), "vismin"):
        if row["Text"] not in _IN_ORDER:
            raise unexpected(where, " or ".join(_IN_ORDER), row["Text"])
        yield _IN_ORDER[row["Text"]]


def _vismin_groups(row: Row, where: str) -> list[str]:
    return [label(row["category"])] if isinstance(row.get("category"), str) else []


# --- MMVP-VLM ------------------------------------------------------------------------------------

_MMVP_FOLDERS: Final = ("MLLM_VLM Images", "MMVP_VLM_Images")  # on the hub, in the authors' README
_QUESTIONS: Final = 30  # of each pattern


def mmvp_vlm(options: Options, patterns: Sequence[str]) -> Cases:
    path = published_file(options.data / "mmvp_vlm", "Questions.csv", "mmvp-vlm")
    folder = first_there(*(path.parent / name for name in _MMVP_FOLDERS))
    fields = ("Question ID", "Type", "Statement")
    rows = list(object_rows(path, fields, "mmvp-vlm"))
    images = folder.relative_to(options.data).as_posix()
    pairs = (
        _mmvp_case(rows[place : place + 2], images, patterns) for place in range(0, len(rows), 2)
    )
    return Cases.build(pairs, root=options.data, source=str(path))


def _mmvp_case(pair: list[tuple[str, Row]], images: str, patterns: Sequence[str]) -> Case:
    where, first = pair[0]
    rows = [row for _, row in pair]
    numbers = [number(row, "Question ID", where) for row in rows]
    pattern, kind = (numbers[0] - 1) // _QUESTIONS, text(first, "Type", where)
    follow = len(rows) == 2 and numbers[1] == numbers[0] + 1 and rows[1]["Type"] == kind
    if not follow or numbers[0] % 2 == 0 or not 0 <= pattern < len(patterns):
        raise unexpected(
            where,
            "two rows of one type with the numbers n, odd and from 1 to 269, and n + 1",
            " and ".join(f"{row['Question ID']} of type {row['Type']}" for row in rows),
        )
    return Case(
        str(numbers[0]),
        tuple(ImageRef(f"{images}/{kind}/{question}.jpg") for question in numbers),
        tuple(f"a photo of {text(row, 'Statement', where)}" for row in rows),
        IDENTITY,
        (patterns[pattern],),
    )


# --- EqBen ---------------------------------------------------------------------------------------

_SINGLES: Final = "ann_json_finegrained_random.json"
EQBEN_FILES: Final = ("private_info_global.json", _SINGLES, "eqben_subset_10percent_final.json")
_EQBEN_FOLDERS: Final = ("image_full", "image_subset", "images", "image")  # of the two archives
_EQBEN_FIELDS: Final = ("image0", "image1", "caption0", "caption1")


def eqben(options: Options) -> Cases:
    folder = options.data / "eqben"
    [path, *_] = matching_files(folder, EQBEN_FILES, "eqben")
    images = next((folder / name for name in _EQBEN_FOLDERS if (folder / name).is_dir()), folder)
    rows = _eqben_cases(path, images, options.data)
    return Cases.build(rows, root=options.data, source=str(path))


def _eqben_cases(path: Path, images: Path, root: Path) -> Iterator[Case]:
    counts: Counter[str] = Counter()
    whole = path.name != _SINGLES
    rows = object_rows(path, _EQBEN_FIELDS, "eqben") if whole else _located(path, _paired(path))
    for where, row in rows:
        names = [text(row, field, where) for field in _EQBEN_FIELDS[:2]]
        part = label(PurePosixPath(names[0]).parts[0])
        yield Case(
            f"{part}/{counts[part]}",
            tuple(ImageRef(_converted(file_below(images, name, root), root)) for name in names),
            tuple(_first_text(row, field, where) for field in _EQBEN_FIELDS[2:]),
            IDENTITY,
            (part,),
            # Frames of one video are one source.
            cluster=PurePosixPath(names[0]).parent.as_posix() if "/" in names[0] else "",
        )
        counts[part] += 1


def _paired(path: Path) -> Iterator[Row]:
    """Rows of one image and one caption, of which four in any order make a pair of images.

    The name of a row says which of the captions and of the images it has, as `c0i1`.
    """
    pairs: dict[int, Row] = {}
    for where, row in object_rows(path, ("image", "caption", "private_info"), "eqben"):
        info = row["private_info"]
        name = info.get("name") if isinstance(info, dict) else None
        if name not in ("c0i0", "c0i1", "c1i0", "c1i1"):
            raise unexpected(where, "private_info with a name as c0i1 and sample_cnt", info)
        pair = pairs.setdefault(number(info, "sample_cnt", where), {})
        pair |= {f"caption{name[1]}": row["caption"], f"image{name[3]}": row["image"]}
    for count, pair in sorted(pairs.items()):
        if len(pair) < len(_EQBEN_FIELDS):
            raise unexpected(path, f"two images and two captions of sample {count}", pair)
        yield pair


def _first_text(row: Row, field: str, where: str) -> str:
    """Of several captions (Action Genome) the authors take the first."""
    value = row[field]
    return text({field: value[0] if isinstance(value, list) and value else value}, field, where)


def _converted(name: str, root: Path) -> str:
    if not name.endswith(".npy"):
        return name
    names = (name.removesuffix(".npy") + ending for ending in (".png", ".jpg"))
    return next((other for other in names if (root / other).exists()), name)
