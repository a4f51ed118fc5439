"""Pairs as a benchmark, a training set and a data set folder."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
import typer
from errors import raises
from hypothesis import given, strategies as st
from PIL import Image
from support import FEW
from typer.testing import CliRunner

from counterpoint.cases.files import read_cases
from counterpoint.cases.table import ImageRef
from counterpoint.cli.console import plainly
from counterpoint.cli.pairs import export
from counterpoint.evaluation.evaluating import evaluate
from counterpoint.generation.export import VALIDATION, export_benchmark, export_training
from counterpoint.generation.export.groups import ImagePaths, read_balance
from counterpoint.generation.export.hub import COLUMNS, Facts, card, export_hub
from counterpoint.generation.pairs import SCHEMA, Pair, tabulate, write_pairs
from counterpoint.images.pictures import Picture

SCENE = "world:0.508;small,orange,solid,triangle,0.519,0.505;large,yellow,dotted,heart,0.843,0.817"
OTHER = SCENE.replace("orange", "black")


COUNTS = [["captions", "empty", 2], ["captions", "made", 4], ["m", "meaning: may be true", 1]]


def pair(source: str, text: str, kind: str = "negative", **fields) -> Pair:
    image = fields.pop("image", ImageRef(f"photos/{source}.png"))
    values = {"type": "replace", "subtype": "att", "method": "m", "version": "1.0", "seed": 3}
    caption = fields.pop("caption", f"caption of {source}")
    return Pair(source, image, caption, text, kind, **(values | fields))


def written(
    path: Path, pairs: Sequence[Pair], text_images: dict[str, str] | None = None, **about
) -> Path:
    """A pairs file; the texts' images come later in real life, too."""
    frame = tabulate(pairs)
    if text_images:
        found = pl.Series([text_images.get(text) for text in frame["text"]], dtype=pl.String)
        frame = frame.with_columns(found.alias("text_image"))
    write_pairs(path, [frame], about)
    return path


def three(folder: Path) -> list[Path]:
    """Two captions with negatives, one of them with positives, and one with a positive only."""
    negatives = [
        pair("a", "a one"),
        pair("a", "a two", type="swap", subtype=""),
        pair("a", "a bad", refused="meaning: may be true"),
        pair("b", "b one"),
    ]
    positives = [pair("a", "a yes", "positive"), pair("a", "a yea", "positive")]
    positives.append(pair("c", "c yes", "positive"))
    return [
        written(folder / "negatives.parquet", negatives, counts=COUNTS),
        written(folder / "positives.parquet", positives, counts=COUNTS[:1]),
    ]


def photographs(folder: Path, names: Sequence[str] = ("a", "b", "c")) -> None:
    (folder / "photos").mkdir(parents=True)
    for number, name in enumerate(names):
        Image.new("RGB", (20, 10), (number, 90, 9)).save(folder / "photos" / f"{name}.png")


# --- benchmark ---------------------------------------------------------------------------------


def test_a_negative_is_a_case_with_a_positive_in_turn(tmp_path: Path):
    left_out: Counter[str] = Counter()
    out = tmp_path / "cases.parquet"
    assert export_benchmark(three(tmp_path), out, left_out) == 3
    cases = read_cases(out)
    found = {cases.case(row).id: cases.case(row) for row in range(3)}
    assert list(found) == ["a/0", "a/1", "b/0"]
    one, two, alone = found.values()
    assert {one.captions[1], two.captions[1]} == {"a yes", "a yea"}
    assert one.captions[::2] == ("caption of a", "a one") and one.truth == ((True, True, False),)
    assert (one.groups, two.groups) == (("replace/att",), ("swap",))
    assert alone.captions == ("caption of b", "b one") and alone.truth == ((True, False),)
    assert one.images == (ImageRef("photos/a.png"),) and one.cluster == "photos/a.png"
    assert left_out == {"captions with positives only": 1}


def test_the_seed_says_where_the_turns_start(tmp_path: Path):
    positives = [pair(str(n), f"yes {k}", "positive") for n in range(40) for k in range(4)]
    file = written(tmp_path / "p.parquet", [pair(str(n), "no") for n in range(40)] + positives)

    def chosen(seed: int) -> list[str]:
        out = tmp_path / f"{seed}.parquet"
        export_benchmark([file], out, Counter(), seed=seed)
        return read_cases(out).frame["captions"].list.get(1).to_list()

    assert chosen(1) == chosen(1) != chosen(2)
    assert set(chosen(1)) == {"yes 0", "yes 1", "yes 2", "yes 3"}


def test_all_negatives_of_a_caption_in_one_case(tmp_path: Path):
    out = tmp_path / "cases.parquet"
    assert export_benchmark(three(tmp_path), out, Counter(), all_negatives=True) == 2
    case = read_cases(out).case(0)
    assert case.id == "a" and case.groups == ("replace/att", "swap")
    assert case.captions == ("caption of a", "a yes", "a yea", "a one", "a two")
    assert case.truth == ((True, True, True, False, False),)


def test_a_text_with_an_image_makes_a_square(tmp_path: Path):
    file = written(
        tmp_path / "p.parquet",
        [
            pair("a", "no", image=ImageRef(SCENE)),
            pair("a", "yes", "positive", image=ImageRef(SCENE)),
        ],
        {"no": OTHER},
    )
    out = tmp_path / "cases.parquet"
    export_benchmark([file], out, Counter())
    case = read_cases(out).case(0)
    assert case.images == (ImageRef(SCENE), ImageRef(OTHER))
    assert case.captions == ("caption of a", "no")
    assert case.truth == ((True, False), (False, True))


def test_what_is_no_case_is_counted(tmp_path: Path):
    pairs = [
        pair("a", "twice"),
        pair("a", "twice", method="other"),
        pair("a", "both"),
        pair("a", "both", "positive"),
        pair("b", "no picture", image=None),
    ]
    left_out: Counter[str] = Counter()
    out = tmp_path / "cases.parquet"
    assert export_benchmark([written(tmp_path / "p.parquet", pairs)], out, left_out) == 1
    assert left_out == {
        "texts that were there twice": 1,
        "texts called a positive and a negative of one caption": 1,
        "captions without an image": 1,
    }
    nothing = written(tmp_path / "none.parquet", [pair("a", "yes", "positive")])
    with raises("E-PAIRS-EMPTY", nothing):
        export_benchmark([nothing], tmp_path / "x.parquet", Counter())
    assert not (tmp_path / "x.parquet").exists()


def test_sources_of_two_inputs_with_one_id(tmp_path: Path):
    files = [
        written(tmp_path / f"{n}.parquet", [pair("0", "no", caption=f"caption {n}")])
        for n in range(2)
    ]
    out = tmp_path / "cases.parquet"
    export_benchmark(files, out, Counter())
    assert read_cases(out).ids.to_list() == ["0/0", "0/0~2"]


def test_eval_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    photographs(tmp_path / "data")
    file = three(tmp_path)[0]
    out = tmp_path / "elsewhere" / "cases.parquet"
    export_benchmark([file], out, Counter(), images=tmp_path / "data")
    run = evaluate("blind:length", [str(out)], out=tmp_path / "run")
    [part] = run.parts.values()
    assert len(part.cases) == 3
    for path in read_cases(out).frame["images"].list.first().struct.field("path"):
        assert Picture(ImageRef(path), out.parent).open().size == (20, 10)


ORDERS = st.permutations([(source, kind, n) for source in "abc" for kind in "np" for n in range(3)])


@pytest.mark.slow
@given(ORDERS, st.integers(0, 18))
@FEW
def test_any_order_and_any_files_give_the_same_groups(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, int]], cut: int
):
    folder = tmp_path_factory.mktemp("order")
    kinds = {"n": "negative", "p": "positive"}
    pairs = [pair(source, f"{source}{kind}{n}", kinds[kind]) for source, kind, n in rows]
    files = [
        written(folder / f"{name}.parquet", part)
        for name, part in (("x", pairs[:cut]), ("y", pairs[cut:]))
    ]
    assert export_training(files, folder / "t.jsonl", Counter()) == 3
    found = [json.loads(line) for line in (folder / "t.jsonl").read_text().splitlines()]
    for row in found:
        assert sorted(row["negatives"]) == [f"{row['source']}n{n}" for n in range(3)]
        assert sorted(row["positives"]) == [f"{row['source']}p{n}" for n in range(3)]


# --- image paths -------------------------------------------------------------------------------


def test_where_images_are_said_to_be(tmp_path: Path):
    file = written(tmp_path / "pairs" / "p.parquet", [pair("a", "x")], root=str(tmp_path / "data"))
    near = ImagePaths.of(file, tmp_path / "data")
    assert near.image("coco/1.jpg") == "coco/1.jpg"
    assert near.image(SCENE) == SCENE
    assert near.image("parquet:hub.parquet#image/7") == "parquet:hub.parquet#image/7"
    assert near.image("../secret.jpg") == "../secret.jpg"
    far = ImagePaths.of(file, tmp_path / "out")
    full = f"{tmp_path}/data/coco/1.jpg"
    assert far.image("coco/1.jpg") == far.image(full) == full
    assert far.image("shuffle-rows:1:coco/1.jpg") == f"shuffle-rows:1:{full}"
    assert far.image("parquet:h#1.parquet#i/7") == f"parquet:{tmp_path}/data/h#1.parquet#i/7"
    assert far.text_image("made/1.png") == f"{tmp_path}/pairs/made/1.png"
    moved = ImagePaths.of(file, tmp_path / "out", root=tmp_path)
    assert moved.image("coco/1.jpg") == "data/coco/1.jpg"
    assert moved.text_image("made/1.png") == "pairs/made/1.png"
    with raises("E-PATH-OUTSIDE"):
        ImagePaths.of(file, tmp_path, root=tmp_path / "dat").image("coco/1.jpg")


# --- training ----------------------------------------------------------------------------------


def test_a_training_row_is_a_caption(tmp_path: Path):
    out = tmp_path / "train.parquet"
    near = tmp_path / "near.parquet"
    rows = {"image": ["photos/a.png"], "neighbours": [["photos/b.png", "photos/z.png"]]}
    pl.DataFrame(rows).write_parquet(near)
    left_out: Counter[str] = Counter()
    assert export_training(three(tmp_path), out, left_out, neighbours=near) == 3
    found = {row["source"]: row for row in pl.read_parquet(out).to_dicts()}
    assert found["a"] == {
        "source": "a",
        "image": "photos/a.png",
        "box": None,
        "caption": "caption of a",
        "positives": ["a yes", "a yea"],
        "positive_types": ["replace", "replace"],
        "negatives": ["a one", "a two"],
        "negative_types": ["replace", "swap"],
        "negative_images": [None, None],
        "neighbours": ["photos/b.png", "photos/z.png"],
    }
    assert found["c"]["negatives"] == [] and found["c"]["positives"] == ["c yes"]
    assert left_out == {"neighbours: captions of an image that has none": 2}
    assert export_training(three(tmp_path), tmp_path / "t.jsonl", Counter(), neighbours=near) == 3
    lines = (tmp_path / "t.jsonl").read_text().splitlines()
    assert {row["source"]: row for row in map(json.loads, lines)} == found


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "separator"), [("tsv", "\t"), ("csv", ",")])
def test_negclips_table(tmp_path: Path, ending: str, separator: str):
    cropped = pair("d", "crop", image=ImageRef("photos/d.png", (0, 0, 5, 5)))
    odd = pair("e", 'it\'s a "tab\t", 🚗\nnew', image=ImageRef("photos/b.png"))
    files = [*three(tmp_path), written(tmp_path / "odd.parquet", [cropped, odd])]
    near = tmp_path / "near.jsonl"
    near.write_text('{"image": "photos/a.png", "neighbours": ["photos/b.png", "photos/z.png"]}')
    left_out: Counter[str] = Counter()
    out = tmp_path / f"train.{ending}"
    assert export_training(files, out, left_out, neighbours=near) == 3
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter=separator))
    table = {row["title"]: (int(row[""]), row) for row in rows}
    assert [int(row[""]) for row in rows] == [0, 1, 2]
    first = table["caption of a"][1]
    assert first["filepath"] == "photos/a.png"
    assert ast.literal_eval(first["neg_caption"]) == ["a one", "a two"]
    ofb = min(number for number, row in table.values() if row["filepath"] == "photos/b.png")
    assert ast.literal_eval(first["neg_image"]) == [ofb]
    assert ast.literal_eval(table["caption of e"][1]["neg_caption"]) == [odd.text]
    assert left_out["captions of a crop"] == left_out["captions with positives only"] == 1


def rows_of(path: Path) -> list[dict]:
    """The rows of a training set of any format, by the names of Parquet's columns."""
    if path.suffix == ".parquet":
        return pl.read_parquet(path).to_dicts()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))
    images = [row["filepath"] for row in table]
    return [
        {
            "image": row["filepath"],
            "caption": row["title"],
            "negatives": ast.literal_eval(row["neg_caption"]),
            "neighbours": [images[n] for n in ast.literal_eval(row["neg_image"])],
        }
        for row in table
    ]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv", "tsv"])
def test_a_validation_file_shares_no_image(tmp_path: Path, ending: str):
    """Five captions for each of 100 images, neighbours across the split, and shared text images."""
    pairs = [
        pair(f"{n}#{k}", f"no {n} {k}", image=ImageRef(f"photos/{n}.png"))
        for k in range(5)
        for n in range(100)
    ]
    # The images 0 and 1, 1 and 2, ... up to 9 have an image of a text in common.
    shared = {f"no {n} {k}": f"made/{n - k}.png" for n in range(1, 10) for k in range(2)}
    file = written(tmp_path / "p.parquet", pairs, shared)
    near = tmp_path / "near.parquet"
    others = [[f"photos/{(n + 1) % 100}.png", "photos/unknown.png"] for n in range(100)]
    names = [f"photos/{n}.png" for n in range(100)]
    pl.DataFrame({"image": names, "neighbours": others}).write_parquet(near)

    def split(out: Path, seed: int = 0) -> tuple[list[dict], list[dict]]:
        left_out: Counter[str] = Counter()
        made = export_training(
            [file], out, left_out, neighbours=near, validation=0.2, seed=seed, root=tmp_path
        )
        held_out = out.with_name(f"train-validation.{ending}")
        sides = rows_of(out), rows_of(held_out)
        assert (made, left_out[VALIDATION]) == (len(sides[0]), len(sides[1]))
        return sides

    def images(rows: list[dict]) -> set[str]:
        own = {row["image"] for row in rows} | {i for row in rows for i in row["neighbours"]}
        return own | {i for row in rows for i in row.get("negative_images", []) if i}

    training, validation = split(tmp_path / f"train.{ending}")
    assert len(training) + len(validation) == 500
    assert not images(training) & images(validation) - {"photos/unknown.png"}
    assert len({row["image"] for row in validation} & set(names[:10])) in (0, 9, 10)
    assert 10 <= len({row["image"] for row in validation}) <= 32
    again = split(tmp_path / "elsewhere" / f"train.{ending}")
    assert again == (training, validation)  # wherever it is written
    assert images(split(tmp_path / f"train.{ending}", seed=1)[1]) != images(validation)


def test_a_split_needs_images_on_both_sides(tmp_path: Path):
    file = written(tmp_path / "p.parquet", [pair("a", "no")])
    with raises("E-SPLIT-EMPTY"):
        export_training([file], tmp_path / "t.jsonl", Counter(), validation=0.2)
    assert not list(tmp_path.glob("t*"))
    with raises("E-OPTION-INVALID"):
        export_training([file], tmp_path / "t.jsonl", Counter(), validation=1.0)


def test_subtypes_are_balanced(tmp_path: Path):
    """Hard positives, C.3: an equal number for relations and attributes."""
    subtypes = ["att"] * 30 + ["rel"] * 10 + ["obj"] * 20 + [""] * 5
    positives = [
        pair(str(n), f"yes {n}", "positive", subtype=subtype) for n, subtype in enumerate(subtypes)
    ]
    negatives = [pair(str(n), f"no {n}", subtype="att") for n in range(25)]
    file = written(tmp_path / "p.parquet", positives + negatives)

    def kept(seed: int) -> tuple[list[int], Counter[str]]:
        left_out: Counter[str] = Counter()
        out = tmp_path / "t.jsonl"
        export_training([file], out, left_out, balance="positive:att,rel", seed=seed)
        rows = rows_of(out)
        assert sum(len(row["negatives"]) for row in rows) == 25
        return [int(row["source"]) for row in rows if row["positives"]], left_out

    numbers, left_out = kept(0)
    assert sum(n < 30 for n in numbers) == 10 and [n for n in numbers if n >= 30] == [
        *range(30, 65)
    ]
    gone = 5 - sum(25 <= n < 30 for n in numbers)  # these captions have no negative either
    assert left_out == {
        "positives of the subtype att, to balance": 20,
        **({"captions without a text, after balancing": gone} if gone else {}),
    }
    assert kept(0)[0] == numbers != kept(1)[0]
    # A kind that cannot be balanced is told; one that has neither of the two need not be.
    with raises("E-BALANCE-EMPTY", "negative") as found:
        export_training([file], tmp_path / "t.jsonl", Counter(), balance="att,rel")
    assert "25 of att, 0 of rel" in str(found.value)
    only = written(tmp_path / "only.parquet", positives)
    left_out = Counter()
    export_training([only], tmp_path / "t.jsonl", left_out, balance="att,rel")
    assert left_out["positives of the subtype att, to balance"] == 20
    for balance in ("obj,bind", "negative:att,rel"):
        with raises("E-BALANCE-EMPTY"):
            export_training([only], tmp_path / "t.jsonl", Counter(), balance=balance)


def test_a_balance_that_is_none():
    for balance in ("att", "att,att", "att,tone", "texts:att,rel", "positive:att"):
        with raises("E-OPTION-INVALID", "balance"):
            read_balance(balance)


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "tsv"])
def test_a_row_per_negative(tmp_path: Path, ending: str):
    """TROHN: an epoch sees every negative once, so a caption has as many rows as negatives."""
    file = written(
        tmp_path / "p.parquet",
        [
            pair("a", "a no"),
            pair("a", "a never", subtype="att"),
            pair("a", "a yes", "positive"),
            pair("b", "b yes", "positive"),
            pair("c", "c no"),
        ],
        {"a no": "drawn.png"},
    )
    left_out: Counter[str] = Counter()
    out = tmp_path / f"t.{ending}"
    assert export_training([file], out, left_out, per="negative") == 3
    assert left_out == {"captions without a negative": 1}
    if ending == "tsv":
        rows = list(csv.DictReader(out.read_text().splitlines(), delimiter="\t"))
        assert [row["neg_caption"] for row in rows] == ["['a no']", "['a never']", "['c no']"]
        return
    rows = rows_of(out)
    assert [row["source"] for row in rows] == ["a", "a", "c"]
    assert [row["negatives"] for row in rows] == [["a no"], ["a never"], ["c no"]]
    assert [row["negative_images"] for row in rows] == [["drawn.png"], [None], [None]]
    assert [row["positives"] for row in rows] == [["a yes"], ["a yes"], []]
    assert all(len(row["negative_types"]) == 1 for row in rows)


def test_an_ending_that_is_none(tmp_path: Path):
    with raises("E-FILE-FORMAT", tmp_path / "t.txt"):
        export_training(three(tmp_path), tmp_path / "t.txt", Counter())


# --- data set folder ---------------------------------------------------------------------------


def test_a_folder_has_data_and_a_card(tmp_path: Path):
    out = tmp_path / "my set"
    assert export_hub(three(tmp_path), out, Counter(), licence="CC-BY-4.0") == 6
    names = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    assert names == ["README.md", "data/test-00000-of-00001.parquet"]
    table = pl.read_parquet(out / names[1])
    assert table.columns == list(COLUMNS) and table["text"].to_list()[:2] == ["a one", "a two"]
    assert table.schema == pl.Schema({name: SCHEMA[name] for name in COLUMNS})
    text = (out / "README.md").read_text()
    assert "3 hard negatives and 3 hard positives of 3 image captions" in text
    assert "| negative | replace | att | 2 |" in text and "| m | 1.0 | 6 |" in text
    assert "| m | meaning: may be true | 1 |" in text and "| captions | empty | 2 |" in text
    assert "| made |" not in text
    assert not list(tmp_path.glob(".*"))


def head(text: str) -> dict:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(re.match(r"---\n(.*?)\n---\n", text, re.DOTALL).group(1))


def test_the_cards_head_is_what_the_hub_reads(tmp_path: Path):
    export_hub(
        three(tmp_path), tmp_path / "set", Counter(), licence="cc-by-4.0", name='My "set": #1'
    )
    found = head((tmp_path / "set" / "README.md").read_text())
    assert found["license"] == "cc-by-4.0" and found["pretty_name"] == 'My "set": #1'
    [config] = found["configs"]
    assert config["data_files"] == [{"split": "test", "path": "data/test-*"}]
    assert list((tmp_path / "set").glob(config["data_files"][0]["path"]))


def test_other_licences_and_none():
    assert head(card(Facts("n", "Mine, all mine", False)))["license_name"] == "mine-all-mine"
    assert head(card(Facts("n", "", False)))["license"] == "unknown"


def test_names_on_the_card_are_data_and_no_folder_is_told():
    facts = Facts("n", "", False)
    facts.methods["<b>|x`", "*v*"] = 3
    facts.made = [{"root": "/home/me", "input": "/home/me/captions.json", "list": ["C:\\me\\a"]}]
    text = card(facts)
    assert "| \\<b\\>\\|x\\` | \\*v\\* | 3 |" in text
    assert "/home" not in text and "captions.json" in text and "C:" not in text


def test_images_are_put_in_once_a_group(tmp_path: Path):
    data = tmp_path / "data"
    photographs(data)
    noise = Image.effect_noise((256, 256), 90)
    noise.save(data / "photos" / "a.png")
    pairs = [pair("a", f"text {n}") for n in range(50)]
    pairs.append(pair("w", "no", image=ImageRef(SCENE)))
    pairs.append(pair("gone", "no"))
    file = written(tmp_path / "p.parquet", pairs, {"no": OTHER}, root=str(data))
    left_out: Counter[str] = Counter()
    assert export_hub([file], tmp_path / "set", left_out, embed=True) == 51
    assert left_out == {"pairs whose image is missing or broken": 1}
    [shard] = (tmp_path / "set" / "data").iterdir()
    original = (data / "photos" / "a.png").read_bytes()
    assert shard.stat().st_size < 2 * len(original)
    rows = pl.read_parquet(shard).to_dicts()
    assert rows[0]["image"] == {"bytes": original, "path": "a.png"}
    for column, scene in (("image", SCENE), ("text_image", OTHER)):
        drawn = Image.open(io.BytesIO(rows[-1][column]["bytes"]))
        assert drawn.tobytes() == Picture(ImageRef(scene)).open().tobytes()
    note = json.loads(pq.read_schema(shard).metadata[b"huggingface"])
    assert note["info"]["features"]["image"] == {"_type": "Image"}
    assert "pairs whose image" in (tmp_path / "set" / "README.md").read_text()


def test_many_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("counterpoint.generation.export.hub._PLAIN_ROWS", 1)
    out = tmp_path / "set"
    export_hub(three(tmp_path), out, Counter(), shard=1)
    names = [path.name for path in sorted((out / "data").iterdir())]
    assert names == [f"test-{n:05}-of-00006.parquet" for n in range(6)]
    texts = [
        text for path in sorted((out / "data").iterdir()) for text in pl.read_parquet(path)["text"]
    ]
    assert texts == ["a one", "a two", "b one", "a yes", "a yea", "c yes"]


def test_a_folder_is_not_overwritten_and_a_failure_leaves_none(tmp_path: Path):
    (tmp_path / "set").mkdir()
    with raises("E-OUTPUT-EXISTS", tmp_path / "set"):
        export_hub(three(tmp_path), tmp_path / "set", Counter())
    refused = pair("a", "x", refused="format: odd")
    nothing = written(tmp_path / "none.parquet", [refused])
    some = written(tmp_path / "some.parquet", [refused, pair("a", "y")])
    export_hub([some], tmp_path / "some", Counter())
    assert "| pairs | format | 1 |" in (tmp_path / "some" / "README.md").read_text()
    with raises("E-PAIRS-EMPTY", nothing):
        export_hub([nothing], tmp_path / "new", Counter())
    assert not list(tmp_path.glob("*new*")) and not list(tmp_path.glob(".*"))


# --- the command -------------------------------------------------------------------------------


def run(*words: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(plainly(export))
    result = CliRunner().invoke(app, words)
    return result.exit_code, result.output


@pytest.mark.slow
def test_the_command(tmp_path: Path):
    files = [str(path) for path in three(tmp_path)]
    status, said = run(*files, "--as", "benchmark", "-o", str(tmp_path / "b.parquet"))
    assert status == 0 and "3 cases" in said and "left out: 1 captions with positives only" in said
    status, said = run(*files, "--as", "training", "-o", str(tmp_path / "t.tsv"), "--json")
    assert status == 0 and json.loads(said[said.index("[") :])[0]["rows"] == 2
    status, said = run(*files, "--as", "hf", "-o", str(tmp_path / "h"), "--embed-images")
    assert status == 1 and "[E-PAIRS-EMPTY]" in said  # not one of the photographs is there
    photographs(tmp_path, ("a", "b"))
    status, said = run(*files, "--as", "hf", "-o", str(tmp_path / "h"), "--embed-images")
    assert status == 3 and "5 pairs" in said and "missing or broken" in said
    assert run(*files, "--as", "benchmark", "-o", "b.parquet", "--embed-images")[0] == 2
    assert run(*files, "--as", "benchmark", "-o", "b.parquet", "--validation", "0.2")[0] == 2
    assert run(*files, "--as", "training", "-o", "t.jsonl", "--balance", "att")[0] == 1
    assert run(*files, "--as", "benchmark", "-o", "b.parquet", "--per", "negative")[0] == 2
    per = ("--as", "training", "-o", str(tmp_path / "per.jsonl"), "--per", "negative")
    status, said = run(*files, *per)
    assert status == 0 and "per.jsonl: 3 rows" in said
    out = tmp_path / "split.jsonl"
    status, said = run(*files, "--as", "training", "-o", str(out), "--validation", "0.5")
    assert status == 0 and "split-validation.jsonl" in said
    assert len(rows_of(out)) + len(rows_of(tmp_path / "split-validation.jsonl")) == 3
    status, said = run(str(tmp_path / "gone"), "--as", "benchmark", "-o", "b.parquet")
    assert status == 1 and "[E-FILE-MISSING]" in said
    status, said = run(*files, "--as", "benchmark", "-o", str(tmp_path / "b.jsonl"))
    assert status == 1 and "[E-FILE-FORMAT]" in said
