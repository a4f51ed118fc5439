"""Refinement: where scores come from, and whole files. Its arithmetic is in test_refine_grid."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from errors import raises
from support import write_lines

from counterpoint._util.progress import Quiet
from counterpoint._util.store import Store
from counterpoint.cases.table import ImageRef
from counterpoint.generation.pairs import SENTENCE, Pair, read_about, tabulate, write_pairs
from counterpoint.generation.refinement import Refined, RefineSettings, refine, scores
from counterpoint.generation.refinement.negatives import random_keys
from counterpoint.generation.refinement.scores import (
    parse_blind_model,
    read_scores,
    table_scores,
)
from counterpoint.models.blind.baselines import Length
from counterpoint.scoring.kinds import Work

# --- names and tables --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("length", ("length", "blind:length")),
        ("grammar:org/repo", ("grammar:org/repo", "blind:grammar:org/repo")),
        ("blind:grammar:some/folder", ("grammar:some/folder", "blind:grammar:some/folder")),
        ("lm:folder/a=b.gguf", ("lm:folder/a=b.gguf", "blind:lm:folder/a=b.gguf")),
        ("small=lm:folder/a.gguf", ("small", "blind:lm:folder/a.gguf")),
        ("column:vera", ("vera", "column:vera")),
        ("v=column:vera", ("v", "column:vera")),
        ("other:thing", ("other:thing", "other:thing")),
    ],
)
def test_what_a_name_asks_for(spec: str, expected: tuple[str, str]) -> None:
    assert parse_blind_model(spec) == expected


def test_tables_may_be_long_or_wide(tmp_path: Path) -> None:
    wide = write_lines(tmp_path / "w.csv", "text,one,note", "a,1,hm", '"b, c",-2.5,', "a,1,again")
    long = write_lines(
        tmp_path / "l.jsonl",
        '{"text": "a", "name": "two", "value": 7}',
        '{"text": "a", "name": "three", "value": 8}',
        '{"text": "b, c", "name": "two", "value": 9}',
    )
    tables = read_scores([wide, long])
    assert sorted(tables) == ["note", "one", "three", "two"]
    pairs = pl.DataFrame({"caption": ["b, c", "a", "a"], "text": ["a", "a", "x"]})
    one, two = table_scores("one", tables, pairs), table_scores("two", tables, pairs)
    assert np.array_equal(one, [[-2.5, 1], [1, 1], [1, np.nan]], equal_nan=True)
    assert np.array_equal(two, [[9, 7], [7, 7], [7, np.nan]], equal_nan=True)
    with raises("E-SCORE-INVALID", wide, "note"):
        table_scores("note", tables, pairs)
    with raises("E-NAME-REPEATED", wide, "one"):
        read_scores([wide, wide])
    twice = write_lines(tmp_path / "t.csv", "text,one", "a,1", "a,2")
    with raises("E-SCORE-REPEATED", twice, "one", 1):
        table_scores("one", read_scores([twice]), pairs)


# --- whole files -------------------------------------------------------------------------------


def pair(number: int, caption: str, text: str, kind="negative", subtype="obj", **more) -> Pair:
    image = ImageRef(f"{number}.jpg")
    fixed = {"method": "test", "version": "1", "seed": 0, "type": "replace", **more}
    return Pair(f"{number}", image, caption, text, kind=kind, subtype=subtype, **fixed)


def some_pairs(count: int = 120, seed: int = 0) -> list[Pair]:
    """Texts that are longer than their captions three times of four; some are as long."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        a, b = (f"{number} " + "x" * int(rng.integers(1, 6)) for _ in range(2))
        if len(a) > len(b) and rng.random() < 0.6:
            a, b = b, a
        found.append(pair(number, a, b + ".", subtype=("obj", "att", "rel")[number % 3]))
    return found


def write(path: Path, pairs: list[Pair], own: pl.Series | None = None) -> Path:
    frame = tabulate(pairs)
    if own is not None:
        frame = frame.with_columns(own.alias("scores"))
    write_pairs(path, [frame[: len(frame) // 2], frame[len(frame) // 2 :]], {"made": "here"})
    return path


def read(path: Path) -> pl.DataFrame:
    return pl.read_parquet(path)


class Bench:
    """A folder with a store, where files are refined."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def refine(self, pairs: Path, *blind: str, name: str = "out.parquet", **more) -> Refined:
        tables = more.pop("tables", ())
        with Store(self.folder / "store") as store:
            work = Work(store, 8, Quiet())
            settings = RefineSettings(blind=blind, **more)
            return refine(pairs, self.folder / name, settings, work, tables=tables)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_file_is_refined(bench: Bench, tmp_path: Path) -> None:
    pairs = some_pairs()
    pairs[5:5] = [pair(900, "a dog", "one dog", kind="positive", subtype="")]
    pairs[9:9] = [pair(901, "a cat", "a cats", refused="grammar: no")]
    source = write(tmp_path / "in.parquet", pairs)
    found = bench.refine(source, "length", watch=("format",))
    assert (found.before, found.selected, found.positives, found.refused) == (120, 120, 1, 1)
    assert found.scales == {"length": "max"}

    out = read(tmp_path / "out.parquet")
    assert len(out) == found.after + 1 and 0 < found.after < 120
    before = read(source).filter(pl.col("refused") == "")
    same = before.join(out, on="source", how="semi", maintain_order="left")
    assert out.drop("scores").equals(same.drop("scores")), "the same rows, in the same order"
    assert out.filter(kind="positive")["scores"].to_list() == [[]]
    negatives = out.filter(kind="negative")
    for caption, text, named in negatives.select("caption", "text", "scores").iter_rows():
        values = {score["name"]: score["value"] for score in named}
        assert list(values) == [
            f"{name}/{side}" for name in ("length", "format") for side in ("caption", "text")
        ]
        assert (values["length/caption"], values["length/text"]) == (-len(caption), -len(text))

    lengths = {row.group: row for row in found.rows if row.model == "length"}
    assert list(lengths) == ["all", "replace/att", "replace/obj", "replace/rel"]
    assert {row.accuracy_after for row in lengths.values()} == {0.5}
    assert all(row.reached and row.use == "balanced" for row in lengths.values())
    originals = before.filter(kind="negative")
    shorter = originals["caption"].str.len_chars() < originals["text"].str.len_chars()
    equal = originals["caption"].str.len_chars() == originals["text"].str.len_chars()
    assert lengths["all"].accuracy_before == pytest.approx(shorter.mean() + equal.mean() / 2)
    assert lengths["all"].accuracy_before > 0.6
    formats = [row for row in found.rows if row.model == "format"]
    assert all(row.use == "watched" and not row.reached for row in formats)  # all end in a stop
    about = read_about(tmp_path / "out.parquet")
    assert about["made"] == "here"
    [step] = about["refined"]
    assert step["after"] == found.after and step["settings"]["bins"] == 50
    assert step["models"] == {"length": "blind:length", "format": "blind:format"}


def test_the_order_of_a_file_and_its_pieces_do_not_matter_but_the_seed_does(
    bench: Bench, tmp_path: Path
) -> None:
    pairs = some_pairs()
    shuffled = [pairs[i] for i in np.random.default_rng(1).permutation(len(pairs))]
    kept = []
    for number, (some, seed) in enumerate(((pairs, 0), (shuffled, 0), (pairs, 1))):
        source = write(tmp_path / f"{number}.parquet", some)
        bench.refine(source, "length", name=f"{number}-out.parquet", seed=seed)
        kept.append(set(read(tmp_path / f"{number}-out.parquet")["source"]))
    assert kept[0] == kept[1] != kept[2] and len(kept[0]) == len(kept[2])


def test_groups_are_refined_by_themselves_or_together(bench: Bench, tmp_path: Path) -> None:
    shorter = [pair(i, "a", "a b", subtype="obj") for i in range(4)]
    longer = [pair(i + 9, "a b", "a", subtype="att") for i in range(4)]
    source = write(tmp_path / "in.parquet", shorter + longer)
    apart = bench.refine(source, "length")
    assert apart.after == 0 and {row.reached for row in apart.rows} == {None}
    assert read(tmp_path / "out.parquet").is_empty()
    together = bench.refine(source, "length", by=())
    assert together.after == 8 and [row.group for row in together.rows] == ["all"]
    assert bench.refine(source, "length", by=("type",)).after == 8


def test_trohn_img_selects_by_subtype_and_refines_all_together(
    bench: Bench, tmp_path: Path
) -> None:
    """The two commands of TROHN-Img's selection: the best of each, then one set."""
    shorter = [pair(i, "a", "a b" + "b" * i, subtype="obj") for i in range(4)]
    longer = [pair(i + 9, "a b" + "b" * i, "a" + "b" * i, subtype="att") for i in range(4)]
    source = write(tmp_path / "in.parquet", shorter + longer)
    chosen = bench.refine(source, select=("length",), top=0.5, balance=False, name="s.parquet")
    assert chosen.selected == 4
    left = read(tmp_path / "s.parquet")["subtype"].to_list()
    assert left == ["obj", "obj", "att", "att"]
    found = bench.refine(tmp_path / "s.parquet", "length", by=(), scale="rank", bins=1)
    assert found.after == 4 and [row.group for row in found.rows] == ["all"]


def test_the_best_texts_are_selected_first(bench: Bench, tmp_path: Path) -> None:
    pairs = [pair(i, "x" * (5 + i % 2), "x" * length) for i, length in enumerate(range(1, 11))]
    source = write(tmp_path / "in.parquet", pairs)
    found = bench.refine(source, "length", top=0.5, balance=False)
    assert (found.selected, found.after, found.rows[0].use) == (5, 5, "selected")
    assert read(tmp_path / "out.parquet")["text"].str.len_chars().max() == 5
    found = bench.refine(source, "format", select=("length",), top=0.5)
    assert (found.selected, found.after) == (5, 5)  # format sees no difference
    assert [row.use for row in found.rows] == ["balanced", "selected"]


def test_every_text_once_and_no_caption(bench: Bench, tmp_path: Path) -> None:
    """TROHN-Img, step 2: duplicates and other images' captions; questions, no final mark."""
    made = [
        pair(0, "a dog.", "A cat runs."),
        pair(1, "a horse.", "a cat, runs"),  # the same words
        pair(2, "the cow.", "An owl sits!"),
        pair(3, "an owl sits.", "the cow"),  # both are captions of other images
        pair(4, "a fox", "is it a bear?"),
        pair(5, "a fox", "a fish swims."),
        pair(5, "a fox", "a fish swims.", kind="positive"),  # positives stay
    ]
    file = write(tmp_path / "p.parquet", made)
    found = bench.refine(file, unique=True, name="u.parquet")
    rows = read(tmp_path / "u.parquet")
    texts = rows.filter(pl.col("kind") == "negative")["text"].to_list()
    assert len(texts) == 3 and texts[0] in ("A cat runs.", "a cat, runs")
    assert texts[1:] == ["is it a bear?", "a fish swims."]
    assert (found.before, found.selected, found.after, found.cleaned) == (6, 6, 3, 3)
    assert found.positives == 1 and len(rows) == 4
    bench.refine(write(tmp_path / "r.parquet", made[::-1]), unique=True, name="v.parquet")
    assert set(read(tmp_path / "v.parquet")["text"]) == set(rows["text"])  # in any order
    bench.refine(file, sentences=True, name="s.parquet")
    left = read(tmp_path / "s.parquet").filter(pl.col("kind") == "negative")["text"].to_list()
    assert left == ["A cat runs.", "An owl sits!", "a fish swims."]
    asked = [  # of a language model, its own answer counts: texts are written like their captions
        pair(6, "a dog", "a cat", method="llm/mine", checks=("changed", SENTENCE)),
        pair(7, "A dog.", "A cow.", method="llm/mine", checks=("changed",)),  # as by `uniform`
    ]
    bench.refine(write(tmp_path / "a.parquet", asked), sentences=True, name="l.parquet")
    assert read(tmp_path / "l.parquet")["text"].to_list() == ["a cat"]
    both = bench.refine(file, "length", unique=True, sentences=True, name="b.parquet")
    assert both.cleaned == 6 - 2 or both.cleaned == 6 - 1  # which of the equal texts is chosen
    assert read_about(tmp_path / "b.parquet")["refined"][0]["cleaned"] == both.cleaned


def test_scores_that_the_file_or_a_table_has(bench: Bench, tmp_path: Path) -> None:
    pairs = [pair(i, f"c{i}", f"t{i}") for i in range(4)]
    probabilities = [(0.9, 0.1), (0.1, 0.9), (0.2, 0.1), (1.0, 0.0)]
    own = pl.Series(
        [
            [
                {"name": "mine/caption", "value": a},
                {"name": "mine/text", "value": b},
                {"name": "other", "value": 3.0},
            ]
            for a, b in probabilities
        ]
    )
    source = write(tmp_path / "in.parquet", pairs, own)
    found = bench.refine(source, "column:mine")
    assert found.scales == {"mine": "probability"} and found.rows[0].accuracy_before == 0.75
    out = read(tmp_path / "out.parquet")
    assert out["source"].to_list() == ["0", "1"]
    assert {s["name"] for s in out["scores"][0]} == {"mine/caption", "mine/text", "other"}
    assert len(out["scores"][0]) == 3

    table = write_lines(
        tmp_path / "t.csv", "text,mine", *(f"{s}{i},{i}" for s in "ct" for i in range(4))
    )
    found = bench.refine(source, "column:mine", tables=[table])  # the table comes first
    assert found.after == 4 and found.rows[0].ties_after == 4
    short = write_lines(tmp_path / "s.csv", "text,few", "c0,1", "t0,1", "c1,1")
    with raises("E-SCORE-MISSING", "few", 3):
        bench.refine(source, "column:few", tables=[short])
    with raises("E-SCORE-MISSING", "nothing", 4):
        bench.refine(source, "column:nothing")
    huge = write_lines(
        tmp_path / "h.csv", "text,mine", *(f"{s}{i},1e300" for s in "ct" for i in range(4))
    )
    with raises("E-SCORE-MISSING", "mine", 4):
        bench.refine(source, "column:mine", tables=[huge])


def test_refining_again_says_so_and_replaces_scores(bench: Bench, tmp_path: Path) -> None:
    source = write(tmp_path / "in.parquet", some_pairs())
    first = bench.refine(source, "length", name="one.parquet")
    second = bench.refine(tmp_path / "one.parquet", "length", name="two.parquet", seed=5)
    assert second.after == first.after, "what is balanced stays whole"
    assert len(read_about(tmp_path / "two.parquet")["refined"]) == 2
    assert set(read(tmp_path / "two.parquet")["scores"].list.len()) == {2}


class Breaks(Length):
    """Stops after some texts, and remembers what it was asked."""

    fingerprint = "test breaks"

    def __init__(self, left: int) -> None:
        self.left, self.seen = left, []

    def score_captions(self, captions: Sequence[str]) -> np.ndarray:
        self.left -= len(captions)
        if self.left < 0:
            raise KeyboardInterrupt
        self.seen += captions
        return super().score_captions(captions)


def test_a_stopped_run_goes_on_and_no_text_is_scored_twice(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [pair(i, f"caption {i // 3}", f"text {i % 40}") for i in range(60)]
    source = write(tmp_path / "in.parquet", pairs)
    models = [Breaks(30), Breaks(1000)]
    for model in models:
        monkeypatch.setattr(scores, "load_blind", lambda *_, model=model: model)
        if model.left == 30:
            with pytest.raises(KeyboardInterrupt):
                bench.refine(source, "length")
            assert not (tmp_path / "out.parquet").exists()
        else:
            bench.refine(source, "length")
    assert models[0].seen and models[1].seen
    assert sorted(models[0].seen + models[1].seen) == sorted(
        {p.caption for p in pairs} | {p.text for p in pairs}
    )


def test_random_keys_are_of_what_a_pair_is() -> None:
    frame = tabulate([pair(i % 5, "a", "b", refused="x" * i) for i in range(10)])
    keys = random_keys(frame, 0)
    assert len(set(keys.tolist())) == 5 and (keys[:5] == keys[5:]).all()
    assert not (random_keys(frame, 1) == keys).any()
    assert keys[0] == 2859423013585575986, "a file is refined the same way on every machine"


def test_a_file_without_negatives(bench: Bench, tmp_path: Path) -> None:
    source = write(tmp_path / "in.parquet", [pair(0, "a", "b", kind="positive")])
    found = bench.refine(source, "length", top=0.5)
    assert (found.before, found.after, found.positives) == (0, 0, 1)
    assert found.rows[0].accuracy_before is None and found.rows[0].reached is None
    assert read(tmp_path / "out.parquet").equals(read(source))


def refusals() -> list[tuple[str, dict, str]]:
    return [
        ("x.parquet", {"by": ("typo",)}, "E-COLUMN-UNKNOWN"),
        ("in.parquet", {}, "E-OUTPUT-IS-INPUT"),
        ("x.csv", {}, "E-FILE-FORMAT"),
        ("x.parquet", {"watch": ("length=format",)}, "E-NAME-REPEATED"),
        ("x.parquet", {"watch": ("bow",)}, "E-MODEL-UNSUITABLE"),
        ("x.parquet", {"watch": ("lenght",)}, "E-MODEL-UNKNOWN"),
        ("x.parquet", {"watch": ("blind:lenght",)}, "E-MODEL-UNKNOWN"),
    ]


@pytest.mark.parametrize(("name", "more", "code"), refusals())
def test_what_cannot_be_done_is_said(bench: Bench, tmp_path: Path, name, more, code) -> None:
    source = write(tmp_path / "in.parquet", some_pairs(6))
    before = source.read_bytes()
    with raises(code):
        bench.refine(source, "length", name=name, **more)
    assert source.read_bytes() == before and not (tmp_path / "x.parquet").exists()
