"""CREPE: many tables of regions and lists of negatives, and where Visual Genome's images are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmark_fixtures import (
    absent,
    group_counts,
    load,
    needs_real_files,
    real,
    write,
    write_table,
)
from errors import raises

from counterpoint.benchmarks.reading import GENOME, ImageIndex, genome_name
from counterpoint.cases.table import Absent, ImageRef

LISTS = ("atom", "comp", "combined")


def region(number: int = 7, **changes: Any) -> dict[str, Any]:
    return {
        "region_id": 100 + number,
        "image_id": number,
        "caption": f"a mole in a hat {number}",
        "x": 3,
        "y": -1,
        "width": 90,
        "height": 4000,
        "hard_negs": str([f'a mole\'s "hat" {number}', f"a hat in a mole {number}"]),
    } | changes


def compounds(number: int = 7, **negatives: list[str]) -> dict[str, Any]:
    row = region(number)
    del row["hard_negs"]
    listed = {name: negatives.get(name, [f"no {name} {number}"]) for name in LISTS}
    return row | {f"valid_hard_negs_{name}": str(found) for name, found in listed.items()}


def prod(root: Path, kind: str = "atom", level: int = 4, below: str = "") -> Path:
    folder = root / "crepe/prod_hard_negatives" / below / kind
    return folder / f"prod_vg_hard_negs_{kind}_complexity_{level}.csv"


def syst(root: Path, seen: str = "seen", source: str = "cc12m") -> Path:
    name = f"syst_vg_hard_negs_{seen}_compounds_in_{source}.csv"
    return root / "crepe/syst_hard_negatives" / name


# --- productivity ------------------------------------------------------------------------------


def test_a_row_is_a_region_and_its_captions(tmp_path: Path) -> None:
    write_table(prod(tmp_path), [region(5), region(7)])
    first, found = load("crepe/productivity", tmp_path)
    assert (first.id, found.id) == ("atom/4/0", "atom/4/1")
    assert found.images == (ImageRef("visual_genome/VG_100K/7.jpg", (3, -1, 90, 4000)),)
    assert found.captions == ("a mole in a hat 7", 'a mole\'s "hat" 7', "a hat in a mole 7")
    assert found.truth == ((True, False, False),)
    assert found.groups == ("atom/complexity_4",)
    assert found.cluster == "visual_genome/VG_100K/7.jpg"


def test_complexities_are_in_order_of_number(tmp_path: Path) -> None:
    for kind, level in (("swap", 4), ("atom", 12), ("atom", 4), ("negate", 10), ("atom", 5)):
        write_table(prod(tmp_path, kind, level), [region()])
    cases = load("crepe/productivity", tmp_path)
    assert [case.id for case in cases] == [
        *("atom/4/0", "atom/5/0", "atom/12/0"),
        *("negate/10/0", "swap/4/0"),
    ]
    assert [cases[2].groups, cases[3].groups] == [
        ("atom/complexity_12",),
        ("negate/complexity_10",),
    ]


def test_files_of_all_complexities_and_of_a_mac_do_not_count(tmp_path: Path) -> None:
    path = write_table(prod(tmp_path), [region()])
    write_table(path.parent.parent / "prod_vg_hard_negs_atom_all.csv", [region()])
    write(path.parent / f"._{path.name}", b"\x00\x05")
    assert len(load("crepe/productivity", tmp_path)) == 1


def test_files_may_be_one_folder_deeper(tmp_path: Path) -> None:
    write_table(prod(tmp_path, below="prod_hard_negatives"), [region()])
    assert [case.id for case in load("crepe/productivity", tmp_path)] == ["atom/4/0"]


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for below in ("", "copy"):
        write_table(prod(tmp_path, below=below), [region()])
    with raises("E-FILE-AMBIGUOUS"):
        load("crepe/productivity", tmp_path)


def test_numbers_may_be_floats_and_lists_tuples(tmp_path: Path) -> None:
    for ending in ["\n", "\r\n"]:
        header = "Unnamed: 0,image_id,caption,x,y,width,height,hard_negs"
        values = "0,7.0,moles,3.0,-1.0,90.0,10.0,\"('a','b')\""
        write(prod(tmp_path), "\ufeff" + ending.join([header, values, ""]))
        [found] = load("crepe/productivity", tmp_path)
        assert found.images == (ImageRef("visual_genome/VG_100K/7.jpg", (3, -1, 90, 10)),)
        assert found.captions == ("moles", "a", "b")


def test_empty_lists_and_blank_negatives_are_named(tmp_path: Path) -> None:
    empty = [region(hard_negs=written) for written in ("[]", "", "nan", "['', ' ']")]
    write_table(prod(tmp_path), [region(), *empty, region(hard_negs="['a', '']")])
    cases = load("crepe/productivity", tmp_path)
    assert [case.id for case in cases] == ["atom/4/0", "atom/4/5"]
    assert cases[1].captions == ("a mole in a hat 7", "a")
    assert absent("crepe/productivity", tmp_path) == (
        *(Absent(f"atom/4/{row}", "no negative caption") for row in (1, 2, 3, 4)),
        Absent("atom/4/5", "1 of 2 negatives are blank", 0),
    )


def test_whole_files_lack_nothing(tmp_path: Path) -> None:
    write_table(prod(tmp_path), [region()])
    assert absent("crepe/productivity", tmp_path) == ()


def test_only_empty_lists_are_no_benchmark(tmp_path: Path) -> None:
    write_table(prod(tmp_path), [region(hard_negs="[]")])
    with raises("E-BENCHMARK-EMPTY"):
        load("crepe/productivity", tmp_path)


MALFORMED = {
    "no list": {"hard_negs": "a text"},
    "not only texts": {"hard_negs": "['a', 3]"},
    "an open list": {"hard_negs": "['a', "},
    "a program": {"hard_negs": "print('a')"},
    "an object": {"hard_negs": "{'a': 'b'}"},
    "no caption": {"caption": ""},
    "no image": {"image_id": ""},
    "no number": {"x": "left"},
    "no end": {"x": "inf"},
    "no width": {"width": 0},
    "no height": {"height": -3},
}


def test_a_malformed_row_is_named(tmp_path: Path) -> None:
    for what in MALFORMED:
        changes = MALFORMED[what]
        write_table(prod(tmp_path), [region(), region(**changes)])
        with raises("E-ROW-MALFORMED", f"{prod(tmp_path)}: row 2"):
            load("crepe/productivity", tmp_path)


def test_a_row_of_too_few_fields_is_named(tmp_path: Path) -> None:
    path = write_table(prod(tmp_path), [region()])
    write(path, path.read_bytes() + b"1,2,three")
    with raises("E-ROW-MALFORMED", f"{prod(tmp_path)}: row 2"):
        load("crepe/productivity", tmp_path)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    for column in ["image_id", "caption", "x", "height", "hard_negs"]:
        row = {key: value for key, value in region().items() if key != column}
        write_table(prod(tmp_path), [row])
        code = "E-COLUMN-MISSING" if column == "hard_negs" else "E-ROW-MALFORMED"
        with raises(code, f"{prod(tmp_path)}: row 1", column):
            load("crepe/productivity", tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    for half in ["productivity", "systematicity"]:
        with raises("E-FILE-MISSING", f"crepe/{half}"):
            load(f"crepe/{half}", tmp_path)


# --- systematicity -----------------------------------------------------------------------------


def test_each_list_of_negatives_is_a_case(tmp_path: Path) -> None:
    write_table(syst(tmp_path), [compounds(5), compounds(7, comp=["one", "two"])])
    cases = load("crepe/systematicity", tmp_path)
    assert [case.id for case in cases] == [
        f"cc12m/seen/{name}/{row}" for row in range(2) for name in LISTS
    ]
    assert [case.groups for case in cases[:3]] == [(f"cc12m/seen/{name}",) for name in LISTS]
    assert cases[4].captions == ("a mole in a hat 7", "one", "two")
    assert cases[4].truth == ((True, False, False),)


def test_sources_and_seen_are_told_apart(tmp_path: Path) -> None:
    places = [
        (seen, source) for seen in ("seen", "unseen") for source in ("cc12m", "laion", "yfcc")
    ]
    for seen, source in places:
        write_table(syst(tmp_path, seen, source), [compounds()])
    ids = [case.id for case in load("crepe/systematicity", tmp_path)]
    assert ids[::3] == [f"{source}/{seen}/atom/0" for seen, source in places]


def test_an_empty_list_leaves_the_others(tmp_path: Path) -> None:
    write_table(syst(tmp_path), [compounds(5, atom=[], combined=[]), compounds(7)])
    ids = [case.id for case in load("crepe/systematicity", tmp_path)]
    assert ids == ["cc12m/seen/comp/0", *(f"cc12m/seen/{name}/1" for name in LISTS)]
    named = [one.what for one in absent("crepe/systematicity", tmp_path)]
    assert named == ["cc12m/seen/atom/0", "cc12m/seen/combined/0"]


# --- Visual Genome -----------------------------------------------------------------------------


def test_images_are_in_one_of_two_folders(tmp_path: Path) -> None:
    for path in ("VG_100K/1.jpg", "VG_100K_2/2.jpg", "VG_100K/3.jpg", "VG_100K_2/3.jpg"):
        write(tmp_path / "visual_genome" / path, b"a picture")
    genome = ImageIndex(tmp_path, *GENOME)
    assert genome.path("1.jpg") == "visual_genome/VG_100K/1.jpg"
    assert genome.path("2.jpg") == "visual_genome/VG_100K_2/2.jpg"
    assert genome.path("3.jpg") == "visual_genome/VG_100K/3.jpg"
    assert genome.path("4.jpg") == "visual_genome/VG_100K/4.jpg"
    assert genome.find("4.jpg") is None


def test_an_id_may_be_a_number_or_a_file() -> None:
    for id in (20, "20", " 20 ", "20.0", "20.jpg", "VG_100K/20.jpg"):
        assert genome_name(id) == "20.jpg"


def test_regions_are_looked_for_in_both_folders(tmp_path: Path) -> None:
    write(tmp_path / "visual_genome/VG_100K_2/7.jpg", b"a picture")
    write_table(prod(tmp_path), [region(5), region(7)])
    found = [case.images[0].path for case in load("crepe/productivity", tmp_path)]
    assert found == ["visual_genome/VG_100K/5.jpg", "visual_genome/VG_100K_2/7.jpg"]


@needs_real_files
def test_the_published_files() -> None:
    expected = {
        f"{kind}/complexity_{level}"
        for kind in ("atom", "swap", "negate")
        for level in range(4, 13)
    }
    assert set(group_counts(real("crepe/productivity"))) == expected
    sources = ("cc12m", "laion", "yfcc")
    assert set(group_counts(real("crepe/systematicity"))) == {
        f"{source}/{seen}/{name}"
        for source in sources
        for seen in ("seen", "unseen")
        for name in LISTS
    }
