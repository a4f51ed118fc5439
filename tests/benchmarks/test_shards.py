"""Cases in shards and tables that hold their images: real tar files, also damaged ones."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_support import own_place
from errors import raises
from image_support import encoded, same, shown
from models_for_tests import Towers, is_sentence, noise

import counterpoint as cp
from counterpoint.images import expand_braces, files, member_reference

__all__ = ["own_place"]  # fixtures


@pytest.fixture(autouse=True)
def nothing_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_TARS", files._Latest(files._TARS_HELD))


def write_tar(path: Path, members: dict[str, bytes], form: int = tarfile.PAX_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=form) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def sample(key: str, seed: int, values: dict[str, Any] | str, ending: str = "png") -> dict:
    text = values if isinstance(values, str) else json.dumps(values)
    kind = "txt" if isinstance(values, str) else "json"
    return {f"{key}.{ending}": encoded(noise(seed)), f"{key}.{kind}": text.encode()}


def edits(number: int) -> dict[str, Any]:
    return {
        "caption": f"a dog and {number} cats",
        "positives": [f"{number} cats and a dog"],
        "negatives": [f"a cat and {number} dogs", f"a dog and {number + 1} cats"],
        "group": f"swap/{number % 2}",
    }


def shards(folder: Path, *counts: int) -> None:
    number = 0
    for file, count in enumerate(counts):
        members: dict[str, bytes] = {"__index__.txt": b"no sample"}
        for _ in range(count):
            members |= sample(f"s/{number:04}", number, edits(number))
            number += 1
        write_tar(folder / f"part-{file:03}.tar", members)


def plain_cases(folder: Path, count: int) -> cp.Cases:
    """The same cases as files."""
    folder.mkdir()
    found = []
    for n in range(count):
        noise(n).save(folder / f"{n}.png")
        said = edits(n)
        found.append(
            cp.caption_case(
                str(n),
                cp.ImageRef(f"{n}.png"),
                [said["caption"], *said["positives"]],
                said["negatives"],
                (said["group"],),
            )
        )
    return cp.Cases.build(found, root=folder, source="test")


# --- shards --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["in/part-{000..002}.tar", "in", "in/part-00{0,1,2}.tar"])
def test_shards_are_scored_as_plain_files_are(name: str, tmp_path: Path) -> None:
    shards(tmp_path / "in", 3, 2, 4)
    run = cp.evaluate(("towers", Towers()), name, out="run")
    plain = cp.evaluate(("towers", Towers()), plain_cases(tmp_path / "plain", 9), out="files")
    part, expected = run.parts[name], plain.parts["cases"]
    np.testing.assert_array_equal(part.scores, expected.scores)
    for column in ("captions", "truth", "groups"):
        assert part.cases.frame[column].to_list() == expected.cases.frame[column].to_list()
    assert part.cases.ids[0] == "0/s/0000" and part.cases.ids[5] == "2/s/0005"
    again = Towers()
    cp.evaluate(("towers", again), name, out="again")
    assert again.images == again.captions == []  # the keys are those of the content


def test_captions_alone_are_a_gallery(tmp_path: Path) -> None:
    members = {}
    for n in range(6):
        members |= sample(f"{n}", n, f"caption {n % 5}\n", "webp" if n % 2 else "png")
    write_tar(tmp_path / "all.tar", members)
    [case] = [cp.load_benchmark("all.tar").cases.case(0)]
    assert (len(case.images), len(case.captions)) == (6, 6)
    both = [0, 5]  # images with the same caption, which is true of both
    expected = [[j in (both if i in both else [i]) for j in range(6)] for i in range(6)]
    assert [[*line] for line in case.truth] == expected
    run = cp.evaluate(("towers", Towers()), "all.tar")
    metrics = {row["metric"] for row in run.results().to_polars().to_dicts()}
    assert any("recall" in metric for metric in metrics), metrics


def test_ids_clusters_and_single_texts(tmp_path: Path) -> None:
    values = {"caption": "x", "negatives": "y", "id": 7, "cluster": "one", "group": None}
    write_tar(tmp_path / "a.tar", sample("k", 1, values))
    case = cp.load_benchmark(tmp_path / "a.tar").cases.case(0)
    assert (case.id, case.cluster, case.groups, case.captions) == ("7", "one", (), ("x", "y"))


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"negatives": ["y"]}, "E-ROW-MALFORMED"),
        ({"caption": 7, "negatives": ["y"]}, "E-ROW-MALFORMED"),
        ({"caption": "x", "negatives": [7]}, "E-ROW-MALFORMED"),
        ({"caption": "x", "negatives": {"a": "b"}}, "E-ROW-MALFORMED"),
        ({"caption": "x", "negatives": ["y"], "group": ["a"]}, "E-ROW-MALFORMED"),
        ({"caption": "x", "negatives": [" "]}, "E-CAPTION-EMPTY"),
        ({"caption": "x"}, "E-CASE-NO-NEGATIVE"),
        ("[1]", "E-ROW-MALFORMED"),
        ("{", "E-JSON-INVALID"),
        ('{"caption": "\\ud800"}', "E-JSON-INVALID"),
    ],
)
def test_malformed_samples_are_named(values: Any, code: str, tmp_path: Path) -> None:
    members = sample("first", 1, edits(1)) | sample("second", 2, {})
    members["second.json"] = (values if isinstance(values, str) else json.dumps(values)).encode()
    write_tar(tmp_path / "a.tar", members)
    with raises(code) as caught:
        cp.load_benchmark("a.tar")
    assert is_sentence(caught.value)
    assert "second" in str(caught.value)


def test_negatives_for_some_are_refused_in_any_order(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", sample("a", 1, "a caption") | sample("b", 2, edits(2)))
    with raises("E-CASE-NO-NEGATIVE"):
        cp.load_benchmark("a.tar")


def test_what_is_no_sample_makes_no_case(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {"a.png": b"x", "b.json": b"{}", "c.cls": b"1"})
    with raises("E-BENCHMARK-EMPTY"):
        cp.load_benchmark("a.tar")
    for name in ("none.tar", "in-{0..1}.tar"):
        with raises("E-FILE-MISSING"):
            cp.load_benchmark(name)
    with raises("E-BENCHMARK-UNKNOWN"):
        cp.load_benchmark("no-such-folder")


def test_patterns() -> None:
    assert expand_braces("a-{08..11}.tar") == ["a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"]
    assert expand_braces("{a,bc}/{0..1}.tar") == ["a/0.tar", "a/1.tar", "bc/0.tar", "bc/1.tar"]
    assert expand_braces("{x}.tar") == ["{x}.tar"]
    for pattern in ("{5..1}.tar", "{0..999999999}.tar", "{0..9999}{0..9999}.tar"):
        with raises("E-OPTION-INVALID"):
            expand_braces(pattern)


# --- members of tar files ------------------------------------------------------------------------


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_members_are_read_in_place(form: int, tmp_path: Path) -> None:
    long = "folder/" * 12 + "long name #1.png"
    names = ["a.png", "../../etc/b.png", "/abs/c.png", long, "ä #2.png"]
    write_tar(tmp_path / "t.tar", {n: encoded(noise(i)) for i, n in enumerate(names)}, form)
    before = sorted(tmp_path.rglob("*"))
    for number in (4, 0, 3, 1, 2, 0):
        reference = member_reference("t.tar", names[number])
        assert same(shown(tmp_path, reference), noise(number))
    assert sorted(tmp_path.rglob("*")) == before  # nothing was extracted, whatever it is called


def refused(root: Path, reference: str) -> cp.CounterpointError:
    with pytest.raises(cp.CounterpointError) as caught:
        shown(root, reference)
    assert is_sentence(caught.value)
    return caught.value


def test_references_that_lead_nowhere(tmp_path: Path) -> None:
    write_tar(tmp_path / "t.tar", {"a.png": encoded(noise(1)), "b.png": b"no image"})
    with tarfile.open(tmp_path / "links.tar", "w") as tar:
        for kind, target in ((tarfile.SYMTYPE, "/etc/passwd"), (tarfile.LNKTYPE, "a.png")):
            link = tarfile.TarInfo(f"{kind!r}.png")
            link.type, link.linkname = kind, target
            tar.addfile(link)
    for reference, code in (
        ("tar:t.tar#none.png", "E-IMAGE-MISSING"),
        ("tar:none.tar#a.png", "E-IMAGE-MISSING"),
        ("tar:t.tar#b.png", "E-IMAGE-BROKEN"),
        ("tar:t.tar#", "E-IMAGE-REFERENCE"),
        ("tar:", "E-IMAGE-REFERENCE"),
        ("tar:t.tgz#a.png", "E-IMAGE-REFERENCE"),
        ("tar:../t.tar#a.png", "E-PATH-OUTSIDE"),
        (f"tar:links.tar#{tarfile.SYMTYPE!r}.png", "E-IMAGE-MISSING"),
        (f"tar:links.tar#{tarfile.LNKTYPE!r}.png", "E-IMAGE-MISSING"),
    ):
        assert refused(tmp_path, reference).code == code, reference


def test_damaged_tar_files(tmp_path: Path) -> None:
    whole = write_tar(tmp_path / "t.tar", sample("a", 1, edits(1))).read_bytes()
    size = len(encoded(noise(1)))
    damaged = {
        "empty": b"",
        "text": b"this is no tar file" * 100,
        "cut in the image": whole[: 512 + size // 2],
        "cut in the header": whole[:300],
        "bad checksum": whole[:148] + b"9999999\0" + whole[156:],
        "size beyond the end": whole[:124] + b"77777777777\0" + whole[136:],
        "compressed": __import__("gzip").compress(whole),
    }
    for how, data in damaged.items():
        (tmp_path / "t.tar").write_bytes(data)
        assert refused(tmp_path, "tar:t.tar#a.png").code in (
            "E-IMAGE-UNREADABLE",
            "E-IMAGE-MISSING",
        ), how
        with pytest.raises(cp.CounterpointError) as caught:
            cp.load_benchmark("t.tar")
        assert is_sentence(caught.value), how


def test_a_tar_file_that_changes_is_read_again(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_tar(tmp_path / "t.tar", {"x.txt": b"x" * 700 * seed, "a.png": encoded(noise(seed))})
        assert same(shown(tmp_path, "tar:t.tar#a.png"), noise(seed))


def test_a_damaged_image_costs_its_case(tmp_path: Path) -> None:
    members = sample("a", 1, edits(1)) | sample("b", 2, edits(2))
    write_tar(tmp_path / "t.tar", members | {"b.png": b"broken"})
    run = cp.evaluate(("towers", Towers()), "t.tar")
    [(case, why)] = run.parts["t.tar"].left_out
    assert case == "b" and "b.png" in why


# --- tables --------------------------------------------------------------------------------------


def table(path: Path, count: int, *, plain: bool = False, column: str = "image") -> None:
    images = [encoded(noise(n)) for n in range(count)]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    cells = (
        pa.array(images, pa.binary())
        if plain
        else pa.array([{"bytes": data, "path": None} for data in images], kind)
    )
    said = pl.DataFrame([edits(n) for n in range(count)]).to_arrow()
    pq.write_table(said.append_column(column, cells), path, row_group_size=2)


@pytest.mark.parametrize("plain", [False, True])
def test_tables_are_scored_as_plain_files_are(plain: bool, tmp_path: Path) -> None:
    table(tmp_path / "t.parquet", 5, plain=plain, column="picture" if plain else "image")
    run = cp.evaluate(("towers", Towers()), "t.parquet", out="run")
    files = cp.evaluate(("towers", Towers()), plain_cases(tmp_path / "plain", 5), out="files")
    np.testing.assert_array_equal(run.parts["t.parquet"].scores, files.parts["cases"].scores)
    assert run.parts["t.parquet"].cases.ids.to_list() == [str(n) for n in range(5)]


def test_several_tables(tmp_path: Path) -> None:
    for number in range(2):
        table(tmp_path / f"t{number}.parquet", 2)
    cases = cp.load_benchmark("t{0..1}.parquet").cases
    assert cases.ids.to_list() == ["0/0", "0/1", "1/0", "1/1"]
    assert same(shown(tmp_path, cases.case(3).images[0].path), noise(1))


def test_a_case_table_is_still_one_and_other_tables_say_why_not(tmp_path: Path) -> None:
    cp.write_cases(plain_cases(tmp_path / "plain", 3), "cases.parquet")
    assert len(cp.load_benchmark("cases.parquet")) == 3
    pl.DataFrame({"caption": ["x"]}).write_parquet("other.parquet")
    with raises("E-COLUMN-MISSING"):
        cp.load_benchmark("other.parquet")
    table(Path("t.parquet"), 1)
    with raises("E-COLUMN-MISSING"):
        cp.load_benchmark("{t,other}.parquet")
    Path("cases.parquet").rename("{a,b}.parquet")  # a name, not a pattern
    assert len(cp.load_benchmark("{a,b}.parquet")) == 3
    Path("bad.parquet").write_bytes(b"PAR1 nothing PAR1")
    with raises("E-FILE-MALFORMED"):
        cp.load_benchmark("bad.parquet")
