"""The file of published results: its form, its own arithmetic, and values typed from the papers."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

import counterpoint
from counterpoint.benchmarks.benchmark import Size
from counterpoint.benchmarks.registry import find_benchmark, published_files
from counterpoint.evaluation.verifying import published_id
from counterpoint.metrics import METRICS, PROTOCOLS as METRIC_PROTOCOLS, get_protocol

FILE = Path(counterpoint.__file__).parent / "evaluation" / "published.csv"
FORM = tomllib.loads(Path(__file__).with_name("published_form.toml").read_text("utf-8"))
GROUPS = {name: set(groups) for name, groups in FORM["groups"].items()}
GROUPS |= {key: {"all", *published_files("spec")} for key in ("spec", "spec/text-to-image")}
OTHER_METRICS = set(FORM["other_metrics"])
REPLACE_CASES, BIVLC_CASES, SUGARCREPE_CASES = FORM["cases"].values()
CLIP, SWAP = "CLIP ViT-B/32", "hard-positives/swap"
KAMATH, MIRANDA, ARO = "Kamath et al. 2024", "Miranda et al. 2024", "Yuksekgonul et al. 2023"
ARO_RETRIEVAL = "aro-retrieval"
_RETRIEVAL = pl.col("family").str.starts_with("retrieval/")
VL_COMPO = "vl_compo individual results (Oh et al. 2024)"
VL_MEANS = "vl_compo means, computed from the individual results (Oh et al. 2024)"


@pytest.fixture(scope="module")
def printed() -> pl.DataFrame:
    """The file with its values as they are printed."""
    return pl.read_csv(FILE, infer_schema=False).fill_null("")


@pytest.fixture(scope="module")
def rows(printed: pl.DataFrame) -> pl.DataFrame:
    return printed.with_columns(pl.col("value").cast(pl.Float64))


def wide(rows: pl.DataFrame, on: str, *index: str) -> list[dict]:
    """One dict per combination of `index`, with the values under the names in `on`."""
    return rows.pivot(on, index=list(index), values="value").to_dicts()


def weighted(values: dict, cases: dict[str, int]) -> float:
    return sum(values[group] * n for group, n in cases.items()) / sum(cases.values())


def natural(source: str) -> tuple[str, int]:
    """`Table 10` comes after `Table 9`."""
    match = re.fullmatch(r"(.*?)(\d*)", source)
    assert match is not None
    return match[1], int(match[2] or 0)


def test_form(printed: pl.DataFrame) -> None:
    assert printed.columns == FORM["columns"]
    assert FILE.stat().st_size < 1_000_000  # it travels with the package
    required = printed.drop("id", "note")
    assert required.filter(pl.any_horizontal(pl.all() == "")).is_empty()
    # A comma-separated file edited by hand gets stray blanks, which no lookup would find.
    blanks = pl.any_horizontal(pl.all().str.strip_chars() != pl.all())
    assert printed.filter(blanks).is_empty()


def test_vocabulary(printed: pl.DataFrame) -> None:
    parts = printed.with_columns(
        family=pl.col("benchmark").str.extract("^([^:]+)"),
        option=pl.col("benchmark").str.extract("(:.*)$").fill_null(""),
    )
    assert set(parts["family"]) == set(FORM["protocols"])
    assert set(parts["option"]) == set(FORM["shuffles"])
    assert set(parts.filter(pl.col("option") != "")["protocol"]) == {ARO_RETRIEVAL}
    # ARO cleans captions and counts all of them; other papers take the usual five as they are.
    theirs = (pl.col("protocol") == ARO_RETRIEVAL, pl.col("source").str.starts_with(ARO))
    assert parts.filter(theirs[0]).equals(parts.filter(theirs[1], _RETRIEVAL))
    assert parts.filter(theirs[0]).height == 332
    pairs = parts.filter(~theirs[0]).select("family", "protocol").unique().rows()
    assert sorted(pairs) == sorted(FORM["protocols"].items())
    assert set(printed["metric"]) <= set(METRICS) | OTHER_METRICS
    assert set(printed["metric"]) >= OTHER_METRICS
    assert set(printed["average"]) == {"micro", "macro", "types", "types-macro", "nested"}
    # Means of means over files, data sets and aspects: VL-CheckList's own average.
    nested = printed.filter(pl.col("average") == "nested")
    assert set(nested["benchmark"]) == {"vl-checklist"}
    for benchmark, groups in GROUPS.items():
        assert set(printed.filter(pl.col("benchmark") == benchmark)["group"]) == groups


def test_every_protocol_is_one_that_verify_can_name(printed: pl.DataFrame) -> None:
    """Of rows about a benchmark of the tool; no run can hold the others, and verify skips them."""
    other = pl.col("benchmark").str.starts_with("other/")
    for benchmark, protocol in (
        printed.filter(~other).select("benchmark", "protocol").unique().rows()
    ):
        assert get_protocol(protocol).name == protocol
        assert find_benchmark(benchmark).id == benchmark.partition(":")[0]
        assert published_id(benchmark) == benchmark
    unnamed = printed.filter(~pl.col("protocol").is_in(list(METRIC_PROTOCOLS)))
    assert unnamed.filter(~other).is_empty() and set(unnamed["protocol"]) == {"campaign"}


def test_values_of_openai_models_that_were_probably_measured_in_fp16(
    printed: pl.DataFrame, rows: pl.DataFrame
) -> None:
    """Original accuracy on SWAP is VG-Attribution's over cases: the same 28,748 pairs."""
    whole = (pl.col("group") == "all", pl.col("metric") == "original_accuracy")
    kamath = rows.filter(
        *whole, pl.col("source") == f"{KAMATH}, Table 8", pl.col("benchmark") == SWAP
    )
    hsieh = rows.filter(
        *whole,
        pl.col("source") == "Hsieh et al. 2023, Table 8",
        pl.col("benchmark") == "aro/vg-attribution",
    )
    both = kamath.join(hsieh, on="model").with_columns(
        off=pl.col("value_right") - pl.col("value"), openai=pl.col("id").str.ends_with("/openai")
    )
    openai = both.filter("openai")
    assert len(openai) == 5 and openai["off"].is_between(0.35, 1.05).all()
    others = both.filter(~pl.col("openai"), pl.col("model") != "RoBERTa-CLIP ViT-B/32")
    assert len(others) >= 3 and (others["off"].abs() <= 0.05 + 1e-9).all()
    noted = printed.filter(pl.col("note").str.contains("fp16"))
    theirs = printed.filter(
        pl.col("source").str.starts_with(KAMATH),
        pl.col("benchmark").str.starts_with("hard-positives/"),
        pl.col("id").str.ends_with("/openai"),
    )
    assert noted.equals(theirs) and len(noted) == 59


def test_values_are_numbers_in_range(printed: pl.DataFrame, rows: pl.DataFrame) -> None:
    assert printed.filter(~pl.col("value").str.contains(r"^\d+(\.\d+)?$")).is_empty()
    scores = pl.col("metric").str.starts_with("mean_score")
    assert rows.filter(scores)["value"].is_between(0.1, 0.3).all()
    # A fraction that was not turned into per cent would lie between 0 and 1.
    hard = pl.col("group") == "eqbenkubric_loc"  # where models are right below one time in 100
    shares = rows.filter(~scores, ~hard, ~pl.col("metric").is_in(["cases", "kappa"]))["value"]
    assert ((shares == 0) | shares.is_between(1, 100)).all()


def test_nothing_twice_and_in_order(printed: pl.DataFrame) -> None:
    key = ["model", "benchmark", "group", "metric", "average", "source"]
    assert not printed.select(key).is_duplicated().any()
    order = [
        (natural(row["source"]), *(row[c] for c in ("model", "benchmark", "group", "metric")))
        for row in printed.to_dicts()
    ]
    assert all(a <= b for a, b in pairwise(order))


def test_one_spelling_and_one_id_per_model(printed: pl.DataFrame) -> None:
    ids = printed.select("model", "id").unique()
    assert not ids["model"].is_duplicated().any()
    named = ids.filter(pl.col("id") != "")
    assert not named["id"].is_duplicated().any()
    assert named["id"].str.starts_with("open_clip:").all()
    # OpenAI's weights are QuickGELU; without the suffix the scores are other scores.
    openai = named.filter(pl.col("id").str.ends_with("/openai"))
    assert openai["id"].str.ends_with("-quickgelu/openai").all()
    assert openai["model"].str.starts_with("CLIP ").all()
    assert openai.height == 8


def test_ids_can_be_loaded(printed: pl.DataFrame) -> None:
    open_clip = pytest.importorskip("open_clip")
    known = {f"open_clip:{name}/{tag}" for name, tag in open_clip.list_pretrained()}
    assert set(printed["id"]) - {""} <= known


def hard_positives(rows: pl.DataFrame) -> pl.DataFrame:
    of_paper = pl.col("source").str.starts_with(KAMATH)
    of_benchmark = pl.col("benchmark").str.starts_with("hard-positives/")
    return rows.filter(of_paper, of_benchmark, ~pl.col("metric").str.starts_with("mean_score"))


def test_hard_positives_outcomes(rows: pl.DataFrame) -> None:
    table = wide(hard_positives(rows), "metric", "model", "benchmark", "group", "source")
    assert len(table) == 2 * (14 + 9 + 14 + 16)  # Tables 1, 3, 7 and 8
    for row in table:
        original, augmented = row["original_accuracy"], row["augmented_accuracy"]
        assert augmented <= original
        assert augmented + row["brittleness"] <= 100
        # The original above the negative is either augmented or brittle (ties aside).
        assert original - augmented <= row["brittleness"] + 0.15


def test_replace_is_the_mean_over_cases(rows: pl.DataFrame) -> None:
    table = hard_positives(rows).filter(pl.col("benchmark") == "hard-positives/replace")
    parts = {
        (row["model"], row["metric"]): weighted(row, REPLACE_CASES)
        for row in wide(table.filter(pl.col("group") != "all"), "group", "model", "metric")
    }
    wholes = table.filter(pl.col("group") == "all", pl.col("model") != "Random chance")
    off = {
        (row["model"], row["metric"], natural(row["source"])[1])
        for row in wholes.to_dicts()
        if (row["model"], row["metric"]) in parts
        and abs(row["value"] - parts[row["model"], row["metric"]]) > 0.1
    }
    # The paper contradicts itself here: a column was copied. Each of these rows has a note.
    assert off == {
        *(("DAC-SAM", m, 1) for m in ("original_accuracy", "augmented_accuracy", "brittleness")),
        *(("Our HN", "brittleness", table) for table in (1, 3)),
        *(("Human", m, t) for m in ("original_accuracy", "augmented_accuracy") for t in (1, 3, 8)),
    }
    for model, metric, number in off - {entry for entry in off if entry[0] == "Human"}:
        [note] = wholes.filter(
            pl.col("model") == model,
            pl.col("metric") == metric,
            pl.col("source") == f"{KAMATH}, Table {number}",
        )["note"]
        assert f"the micro mean is {parts[model, metric]:.1f}" in note
    human = table.filter(pl.col("model") == "Human", pl.col("group") != "all")
    assert set(human["note"]) == {"The row repeats Table 1's REPLACE and SWAP columns."}


def test_tables_that_repeat_a_cell_agree(rows: pl.DataFrame) -> None:
    """Within a paper, a cell printed in two tables is the same, but for what the notes name."""
    key = ["model", "benchmark", "group", "metric", "average"]
    papers = rows.filter(pl.col("source").str.contains(", (Table|Section) ")).with_columns(
        paper=pl.col("source").str.extract("^([^,]+)")
    )
    repeated = papers.group_by("paper", *key).agg(
        pl.len().alias("times"),
        (pl.col("value").max() - pl.col("value").min()).alias("apart"),
    )
    assert repeated.filter(pl.col("times") > 1).height > 50
    # Table 6 of the ARO paper rounds what Tables 3 to 5 print with one more digit.
    allowed = pl.when(pl.col("paper") == ARO).then(0.5).otherwise(0)
    scores = pl.col("metric") == "mean_score_original"
    off = repeated.filter(pl.col("apart") > allowed, ~scores)
    assert set(off.select("model", "benchmark").rows()) == {
        (model, "aro/vg-relation") for model in (CLIP, "CLIP-FT", "NegCLIP", "FLAVA")
    }
    means = repeated.filter(pl.col("apart") > 0, scores)
    assert set(means["model"]) == {"DAC-LLM", "Our HP+HN"}


def test_group_score_is_at_most_either_direction(rows: pl.DataFrame) -> None:
    two_by_two = ["bivlc", "winoground", "colorswap", "mmvp-vlm", "eqben"]
    pairs = rows.filter(pl.col("benchmark").is_in(two_by_two))
    pairs = pairs.rename({"group": "part"})  # `group` is also the name of a metric
    table = wide(pairs, "metric", "model", "benchmark", "part", "source")
    complete = [row for row in table if row["image_to_text"] is not None]
    assert len(complete) == len(table) - 1  # FSC-CLIP's Winoground: the group score alone
    for row in complete:
        directions = row["image_to_text"], row["text_to_image"]
        assert sum(directions) - 100 - 0.01 <= row["group"] <= min(directions)


def test_bivlc_directions_are_made_of_single_comparisons(rows: pl.DataFrame) -> None:
    table = wide(
        rows.filter(pl.col("source") == f"{MIRANDA}, Table 3", pl.col("benchmark") == "bivlc"),
        *("metric", "model"),
    )
    assert len(table) == 6
    for row in table:
        for way in ("image_to_text", "text_to_image"):
            singles = row[f"{way}_0"], row[f"{way}_1"]
            # The misses of the two can at most add up, and at least coincide.
            assert sum(singles) - 100 - 0.01 <= row[way] <= min(singles)


def test_bivlc_types_average_to_the_whole(rows: pl.DataFrame) -> None:
    of_types = rows.filter(pl.col("source") == f"{MIRANDA}, Table 6")
    whole = rows.filter(pl.col("source") == f"{MIRANDA}, Table 3", pl.col("benchmark") == "bivlc")
    values = {(row["model"], row["metric"]): row["value"] for row in whole.to_dicts()}
    table = wide(of_types, "group", "model", "metric")
    assert len(table) == 18
    for row in table:
        assert weighted(row, BIVLC_CASES) == pytest.approx(
            values[row["model"], row["metric"]], abs=0.015
        )


def test_vg_relation_rows_average_to_the_printed_means(rows: pl.DataFrame) -> None:
    table = rows.filter(pl.col("source") == f"{ARO}, Table 2", pl.col("metric") != "cases")
    assert table["model"].n_unique() == 6
    for [_], part in table.group_by(["model"]):
        macro = dict(part.filter(pl.col("average") == "macro").select("group", "value").rows())
        relations = part.filter(pl.col("average") == "micro")["value"]
        assert len(relations) == 45
        # Every row is rounded to a per cent, and so is the mean.
        assert relations.mean() == pytest.approx(macro["all"], abs=0.6)
        by_type = (13 * macro["spatial"] + 32 * macro["verbs"]) / 45
        assert by_type == pytest.approx(macro["all"], abs=1)


def test_recall_grows_with_k_and_falls_with_shuffling(rows: pl.DataFrame) -> None:
    retrieval = rows.filter(pl.col("protocol").is_in(["retrieval", ARO_RETRIEVAL]))
    table = wide(retrieval, "metric", "model", "benchmark", "source")
    for row in table:
        for way in ("image_to_text", "text_to_image"):
            printed = [row[f"{way}_recall@{k}"] for k in (1, 5, 10)]
            found = [value for value in printed if value is not None]
            assert found == sorted(found)
    whole = {
        (row["model"], row["source"], row["benchmark"], row["metric"]): row["value"]
        for row in retrieval.to_dicts()
    }
    shuffled = retrieval.filter(pl.col("benchmark").str.contains(":"))
    assert shuffled.height == 4 * 2 * 4 * (5 + 3)  # models, datasets, recalls, shuffles
    for row in shuffled.to_dicts():
        original = row["benchmark"].partition(":")[0]
        assert row["value"] < whole[row["model"], row["source"], original, row["metric"]]


@pytest.mark.parametrize("model", [CLIP, "NegCLIP"])
def test_four_sugarcrepe_averages_follow_from_the_subsets(rows: pl.DataFrame, model: str) -> None:
    sugarcrepe = rows.filter(pl.col("model") == model, pl.col("benchmark") == "sugarcrepe")
    subsets = dict(
        sugarcrepe.filter(pl.col("source") == VL_COMPO).select("group", "value").iter_rows()
    )
    assert subsets.keys() == SUGARCREPE_CASES.keys()
    types = {
        kind: {g: n for g, n in SUGARCREPE_CASES.items() if g.startswith(kind)}
        for kind in ("add", "replace", "swap")
    }
    means = [sum(subsets[g] for g in cases) / len(cases) for cases in types.values()]
    expected = {
        "micro": weighted(subsets, SUGARCREPE_CASES),
        "macro": sum(subsets.values()) / len(subsets),
        "types": sum(weighted(subsets, cases) for cases in types.values()) / 3,
        "types-macro": sum(means) / 3,
    }
    published = sugarcrepe.filter(pl.col("source") == VL_MEANS).select("average", "value")
    assert dict(published.iter_rows()) == pytest.approx(expected, abs=0.01)


def test_vl_checklist_means_follow_from_the_aspects(rows: pl.DataFrame) -> None:
    table = rows.filter(pl.col("model") == CLIP, pl.col("benchmark") == "vl-checklist")
    aspects = table.filter(pl.col("source") == VL_COMPO)
    kinds = aspects.group_by(pl.col("group").str.extract("^([^/]+)")).agg(pl.col("value").mean())
    expected = {**dict(kinds.iter_rows()), "all": kinds["value"].mean()}
    published = table.filter(pl.col("source") == VL_MEANS).select("group", "value")
    assert dict(published.iter_rows()) == pytest.approx(expected, abs=0.01)


def test_golden(printed: pl.DataFrame) -> None:
    """Values typed from the papers. Their image recall is text to image: the smaller of the two."""
    golden = pl.read_csv(Path(__file__).with_name("published_golden.csv"), infer_schema=False)
    *where, value = golden.columns
    found = golden.join(printed, on=where, how="left", maintain_order="left", suffix=" in the file")
    assert found[f"{value} in the file"].to_list() == golden[value].to_list()


def test_known_contradictions_have_notes(printed: pl.DataFrame) -> None:
    """Numbers that look like the same measurement and are not say so."""
    relation = printed.filter(pl.col("benchmark") == "aro/vg-relation", pl.col("model") == CLIP)
    [note] = relation.filter(pl.col("source") == f"{ARO}, Table 6")["note"]
    assert "59" in note
    text_detection = pl.col("benchmark") == "bivlc/text-detection"
    [note] = printed.filter(text_detection, pl.col("model") == "CLIP_Det")["note"]
    assert "57.3" in note
    hsieh = printed.filter(pl.col("source") == "Hsieh et al. 2023, Table 8")
    for family in ("vl-checklist", "aro/coco-order", "aro/flickr30k-order"):
        assert hsieh.filter(pl.col("benchmark") == family)["note"].str.contains("protocol").all()


def test_crepe_of_hsieh_is_a_mean_over_cases(rows: pl.DataFrame) -> None:
    """Every value is a whole number of that many cases, so it is no mean of means."""
    found = rows.filter(
        pl.col("source") == "Hsieh et al. 2023, Table 8",
        pl.col("benchmark") == "crepe/productivity",
    )
    assert len(found) == 57 and set(found["average"]) == {"micro"}
    for group, cases in {"atom": 865, "swap": 226, "negate": 768}.items():
        right = found.filter(pl.col("group") == group)["value"] * cases / 100
        assert ((right - right.round()).abs() < 0.006 * cases / 100).all()


def test_comparisons_of_texts_are_whole(rows: pl.DataFrame) -> None:
    compared = rows.filter(pl.col("metric") == "preferred")
    assert compared.group_by("group").agg(pl.col("value").sum())["value"].to_list() == [100.0] * 6


def test_vg_relation_has_the_frequencies_of_the_paper(rows: pl.DataFrame) -> None:
    """Of the relations with ten cases or more; the file has 23,937 cases in all."""
    counted = rows.filter(pl.col("metric") == "cases")
    relations = rows.filter(pl.col("source") == f"{ARO}, Table 2", pl.col("model") == CLIP)
    assert set(counted["group"]) == set(relations["group"]) - {"all", "spatial", "verbs"}
    assert counted["value"].min() == 10 and counted["value"].sum() == 21_917


@pytest.mark.parametrize(("benchmark", "cases"), FORM["shares"].items())
def test_values_are_shares_of_as_many_cases_as_the_loader_says(
    rows: pl.DataFrame, benchmark: str, cases: dict[str, int]
) -> None:
    """Right answers are whole numbers: the counts that the loaders state can be seen in them."""
    stated = published_files(benchmark)
    for group, count in cases.items():
        assert stated["" if group == "all" else group] == Size(count)
        found = rows.filter(
            pl.col("benchmark") == benchmark,
            pl.col("group") == group,
            ~pl.col("note").str.starts_with("not a share"),
        )
        right = found["value"] * count / 100
        assert len(found) >= (2 if benchmark.startswith("spec") else 49)
        assert ((right - right.round()).abs() <= 0.0051 * count / 100).all()
