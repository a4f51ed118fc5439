"""What all readers have in common, on small files of the published forms (published_rows.toml):
the cases, and the errors for damaged rows, damaged files and files that are not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmark_fixtures import (
    PUBLISHED,
    TABLES,
    files_of,
    group_counts,
    load,
    needs_real_files,
    real,
    write,
    write_benchmark,
    write_rows,
)
from errors import raises

from counterpoint.benchmarks.completeness import FILE_MISSING, absent_from
from counterpoint.benchmarks.registry import BENCHMARKS
from counterpoint.cases import SURPLUS, Case
from counterpoint.images import expand_braces
from counterpoint.metrics import PROTOCOLS

EVERY = pytest.mark.parametrize("id", PUBLISHED)
NO_TEXTS: dict[str, list[Any]] = {
    ".json": [None, "", " ", 4, ["a", "b"]],
    ".jsonl": [None, "", " ", ["a", "b"]],
    ".csv": ["", " "],
    ".tsv": ["", " "],
    ".parquet": ["", " "],
}
NO_NUMBERS: dict[str, list[Any]] = {
    ".json": [None, "wide", True, [1], float("inf"), float("nan")],
    ".csv": ["", "wide", "inf", "nan"],
}
ROW, FILE, JSON, TEXT = "E-ROW-MALFORMED", "E-FILE-MALFORMED", "E-JSON-INVALID", "E-TEXT-ENCODING"
JSON_CONTENTS = {b"{": [JSON], b"\xff\x00": [TEXT], b"4": [FILE], b"null": [FILE], b'"no"': [FILE]}
JSON_CONTENTS |= {b"[1]": [ROW, FILE], b'{"0": 3}': [ROW, FILE]}  # objects may have either form
TABLE = {b"a,b\n\xff\xfe": [FILE]}
LACKING = [f"{what} missing" for what in ("rows", "captions", "queries")]
CONTENTS = {
    ".json": JSON_CONTENTS,
    ".jsonl": {b'{"id": 1': [JSON], b"[1]": [ROW], '{"id": "é"}'.encode("latin-1"): [TEXT]},
    ".csv": TABLE,
    ".tsv": TABLE,
    ".parquet": {content: [FILE] for content in (b"", b"no Parquet", b"PAR1 and no more PAR1")},
}


# --- the file that is damaged --------------------------------------------------------------------


def damaged(id: str, root: Path) -> list[Path]:
    """The file whose last row is damaged; two files if they must agree."""
    return [root / path for path in expand_braces(TABLES[id].get("file", next(iter(files_of(id)))))]


def write_last(
    id: str, root: Path, *, change: dict[str, Any] | None = None, row: Any = None, remove: str = ""
) -> None:
    """The last row of a file changed, without a field, or with another row in its place."""
    for path in damaged(id, root):
        rows = files_of(id)[path.relative_to(root).as_posix()]
        named = dict(rows) if isinstance(rows, dict) else dict(enumerate(rows))
        last = [*named][-1]
        if row is None:
            kept = {key: value for key, value in named[last].items() if key != remove}
            named[last] = kept | (change or {})
        else:
            named[last] = row
        write_rows(path, named if isinstance(rows, dict) else [*named.values()])


def where(id: str, root: Path) -> str:
    path, table = damaged(id, root)[0], TABLES[id]
    number = len(files_of(id)[path.relative_to(root).as_posix()])
    return f"{path}: {table.get('where', f'row {number}')}"


# --- cases ---------------------------------------------------------------------------------------


def described(case: Case) -> dict[str, Any]:
    """A case in the words of the file."""
    found: dict[str, Any] = {
        "id": case.id,
        "images": [image.path for image in case.images],
        "captions": [*case.captions],
        "truth": ["".join("01"[cell] for cell in line) for line in case.truth],
        "groups": [*case.groups],
        "cluster": case.cluster,
    }
    boxes = [[*image.box] for image in case.images if image.box]
    more = {"boxes": boxes, "grades": [*case.grades], "query": case.query}
    return found | {name: value for name, value in more.items() if value}


@pytest.mark.parametrize("id", TABLES)
def test_the_cases_of_published_files(id: str, tmp_path: Path) -> None:
    write_benchmark(id, tmp_path)
    cases, table = {case.id: case for case in load(id, tmp_path)}, TABLES[id]
    assert [*cases] == table.get("ids", [case["id"] for case in table["cases"]])
    for case in table["cases"]:
        assert described(cases[case["id"]]) == {"cluster": case["images"][0]} | case


@pytest.mark.parametrize(
    "id", ["sugarcrepe", "sugarcrepe-pp", "visla", "valse", "vl-checklist", "winoground", "bivlc"]
)
def test_files_may_lie_in_a_folder_called_data(id: str, tmp_path: Path) -> None:
    write_benchmark(id, tmp_path)
    expected = [case.captions for case in load(id, tmp_path)]
    folder = tmp_path / next(iter(files_of(id))).partition("/")[0]
    folder.rename(tmp_path / "data")
    folder.mkdir()
    (tmp_path / "data").rename(folder / "data")
    assert [case.captions for case in load(id, tmp_path)] == expected


# Of VL-CheckList's files only some can still be got.
WHOLE = [*sorted(PUBLISHED.keys() - {"vl-checklist"}), "eccv-caption", "rococo/retrieval"]


@needs_real_files
@pytest.mark.parametrize("id", [*WHOLE, "cxc/renderings"])
def test_the_authors_files_lack_nothing(id: str) -> None:
    cases, expected = real(id), TABLES.get(id, {}).get("published", {})
    absent = absent_from(id, cases, PROTOCOLS[BENCHMARKS.get(id).protocol])
    assert [one for one in absent if one.reason in (FILE_MISSING, SURPLUS, *LACKING)] == []
    assert not expected or group_counts(cases) == expected


# --- damage --------------------------------------------------------------------------------------


def fields(id: str) -> Iterator[tuple[str, Any]]:
    """The fields that are checked, with the values that are refused."""
    suffix, table = damaged(id, Path())[0].suffix, TABLES[id]
    for kind, values in (("texts", NO_TEXTS), ("numbers", NO_NUMBERS)):
        yield from ((name, value) for name in table.get(kind, []) for value in values[suffix])


@pytest.mark.parametrize("id", [id for id in PUBLISHED if [*fields(id)] or "bad" in TABLES[id]])
def test_a_damaged_row_is_named(id: str, tmp_path: Path) -> None:
    write_benchmark(id, tmp_path)
    for name, value in fields(id):
        write_last(id, tmp_path, change={name: value})
        with raises(ROW, where(id, tmp_path), f"'{name}'"):
            load(id, tmp_path)
    for damage in TABLES[id].get("bad", []):
        write_last(id, tmp_path, change=damage.get("change"), row=damage.get("row"))
        place = where(id, tmp_path) if "code" not in damage else ""
        with raises(damage.get("code", ROW), place, damage.get("names", "")):
            load(id, tmp_path)


@pytest.mark.parametrize(
    "id", [id for id in PUBLISHED if TABLES[id].keys() & {"texts", "numbers", "columns"}]
)
def test_a_column_that_is_not_there_is_named(id: str, tmp_path: Path) -> None:
    write_benchmark(id, tmp_path)
    [path, *_], table = damaged(id, tmp_path), TABLES[id]
    for name in (*table.get("texts", ()), *table.get("numbers", ()), *table.get("columns", ())):
        if path.suffix.startswith(".json"):
            write_last(id, tmp_path, remove=name)
        else:
            rows = files_of(id)[path.relative_to(tmp_path).as_posix()]
            write_rows(path, [{k: v for k, v in row.items() if k != name} for row in rows])
        with pytest.raises(Exception, match=name.replace("_", "[_ ]")) as caught:
            load(id, tmp_path)
        assert caught.value.code in (ROW, "E-COLUMN-MISSING", "E-LAYOUT-UNEXPECTED")
        assert str(path) in str(caught.value)


@EVERY
def test_a_damaged_file_is_named(id: str, tmp_path: Path) -> None:
    for name in files_of(id):
        path = tmp_path / name
        for content, codes in CONTENTS[path.suffix].items():
            write_benchmark(id, tmp_path)
            if path.suffix == ".jsonl":
                content = path.read_bytes().partition(b"\n")[0] + b"\n" + content
            write(path, content)
            with pytest.raises(Exception, match=r"\.$") as caught:
                load(id, tmp_path)
            assert caught.value.code in codes, content
            assert str(caught.value).startswith(str(path))


@EVERY
def test_a_file_that_is_not_there_is_named(id: str, tmp_path: Path) -> None:
    table = TABLES[id]
    with raises("E-FILE-MISSING", tmp_path / table.get("missing", next(iter(files_of(id)))), id):
        load(id, tmp_path)
    for name in [] if table.get("any") else files_of(id):
        write_benchmark(id, tmp_path)
        (tmp_path / name).unlink()
        with raises("E-FILE-MISSING", tmp_path / name):
            load(id, tmp_path)
