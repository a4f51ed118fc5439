"""`publish`: the numbers of `run.results()` in the forms of others, and text that stays text."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import yaml
from cli_support import counterpoint, own_place
from columns_support import zoo
from errors import raises
from huggingface_hub import ModelCard, parse_eval_result_entries
from hypothesis import given, strategies as st
from support import FEW, case, part, random_run, random_scores, reference, run_of, square, table

import counterpoint as cp
from counterpoint.cases import Cases, ImageRef, caption_case
from counterpoint.metrics import METRICS, TIES_NOTE, PooledMetric
from counterpoint.reports.publishing import PublishOptions, hub as writing, publish
from counterpoint.reports.publishing.parts import names_apart, published_model, safe_name
from counterpoint.runs import main_rows, save_run

__all__ = ["counterpoint", "own_place"]  # fixtures
NOW = datetime(2026, 1, 2, tzinfo=UTC)
FAST = PublishOptions(resamples=50, now=NOW)


def aggregates(folder: Path) -> list[dict]:
    files = sorted(folder.glob("every_eval_ever/data/*/*/*/*.json"))
    return [json.loads(file.read_text()) for file in files]


def lines(folder: Path) -> list[dict]:
    files = sorted(folder.glob("every_eval_ever/data/*/*/*/*_samples.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def bivlc(count: int = 12, model: str = "hf:some/model"):
    cases = Cases.build([square(i) for i in range(count)], source="test")
    return run_of(part(cases, random_scores(cases, 3), name="bivlc"), model=model)


# --- the numbers ---------------------------------------------------------------------------------


def test_every_form_has_the_numbers_of_the_run(tmp_path):
    run, out = bivlc(), tmp_path / "out"
    publish([run], out, replace(FAST, groups=True, wandb=True, source="https://x.org/run"))
    found = run.results(groups=True, resamples=50)
    main = main_rows(found, groups=False)
    expected = {(row.group, row.metric): row for row in found}

    [record] = aggregates(out)
    assert len(record["evaluation_results"]) == len(found)
    for result in record["evaluation_results"]:
        details = result["score_details"]
        name = result["metric_config"]["metric_id"].removeprefix("counterpoint.")
        row = expected[details["details"]["group"], name]
        interval = details["uncertainty"]["confidence_interval"]
        assert details["score"] == row.value
        assert (interval["lower"], interval["upper"]) == (row.ci_low, row.ci_high)
        assert details["uncertainty"]["num_samples"] == row.n
        assert result["metric_config"]["lower_is_better"] == (METRICS[name].better == "lower")

    model = out / "models/some/model"
    entries = parse_eval_result_entries(
        yaml.safe_load((model / ".eval_results/bivlc.yaml").read_text())
    )
    assert [(e.task_id, e.value) for e in entries] == [(row.metric, row.value) for row in main]
    assert {e.dataset_id for e in entries} == {"imirandam/BiVLC"}
    assert all(f"n = {row.n};" in e.notes for e, row in zip(entries, main, strict=True))

    card = ModelCard((model / "model-card.md").read_text())
    assert [(e.metric_type, e.metric_value) for e in card.data.eval_results] == [
        (row.metric, row.value) for row in main
    ]
    for row in main:
        assert f" {100 * row.value:.1f} | {100 * row.ci_low:.1f} to {100 * row.ci_high:.1f}" in str(
            card
        )

    table = json.loads((out / "wandb/some_model.table.json").read_text())
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [(r["group"], r["metric"], r["value"]) for r in rows] == [
        (row.group, row.metric, row.value) for row in found
    ]


def test_a_task_that_is_named_has_the_headline_metric(tmp_path):
    run = random_run(table(20), 1)
    options = replace(FAST, datasets={"bench": "me/set:default"})
    publish([run], tmp_path / "out", options)
    [file] = tmp_path.glob("out/models/*/*/.eval_results/*.yaml")
    [entry] = yaml.safe_load(file.read_text())
    [row] = [r for r in run.results(resamples=50) if r.metric == "augmented_accuracy"]
    assert entry["dataset"] == {"id": "me/set", "task_id": "default"}
    assert entry["value"] == row.value


def test_a_number_that_depends_on_ties_says_so(tmp_path):
    run = random_run(table(30), 1, values=1)
    publish([run], tmp_path / "out", replace(FAST, datasets={"bench": "me/set:default"}))
    [file] = tmp_path.glob("out/models/*/*/.eval_results/*.yaml")
    [card] = tmp_path.glob("out/models/*/*/model-card.md")
    assert TIES_NOTE in yaml.safe_load(file.read_text())[0]["notes"]
    assert TIES_NOTE in card.read_text() and "0.0†" in card.read_text()


def test_a_benchmark_without_a_data_set_of_the_hub_has_no_entry(tmp_path):
    publish([random_run(table(20), 1)], tmp_path / "out", FAST)
    assert not [*tmp_path.rglob(".eval_results")]


# --- the lines -----------------------------------------------------------------------------------


def test_the_lines_of_a_metric_make_its_number(tmp_path):
    """Of every kind of case; their mean is the number where the average is over cases."""
    cases = zoo()
    run = run_of(part(cases, random_scores(cases, 5, values=6)))
    publish([run], tmp_path / "out", FAST)
    scores = defaultdict(list)
    for line in lines(tmp_path / "out"):
        scores[line["evaluation_result_id"]].append(line["evaluation"]["score"])
    rows = {
        f"bench/{row.group}/{row.metric}": row
        for row in main_rows(run.results(resamples=50), groups=False)
        if not isinstance(METRICS[row.metric], PooledMetric)
    }
    assert scores.keys() == rows.keys() and len(rows) > 5
    for name, row in rows.items():
        assert len(scores[name]) == row.n
        assert np.mean(scores[name]) == pytest.approx(row.value)


def test_a_line_holds_what_its_score_is_computed_from(tmp_path):
    cases = Cases.build([*(case(i) for i in range(9)), square(9), square(10)], source="test")
    run = run_of(part(cases, random_scores(cases, 2, values=4)))
    publish([run], tmp_path / "out", FAST)
    found = lines(tmp_path / "out")
    for line in found:
        images, choices = line["input"]["raw"].split("\n"), line["input"]["choices"]
        scores = np.reshape([float(s) for s in line["output"]["raw"]], (len(images), len(choices)))
        named = [
            [c if len(images) == 1 else f"image {i}: {c}" for c in choices]
            for i in range(len(images))
        ]
        truth = [[name in line["input"]["reference"] for name in row] for row in named]
        value, name = line["evaluation"]["score"], line["metadata"]["metric"]
        assert value == reference(name, scores.tolist(), truth, "wrong")
        assert line["evaluation"]["is_correct"] == (value == (name != "brittleness"))
        best = [choices[row.argmax()] for row in scores]
        assert [a["extracted_value"] for a in line["answer_attribution"]] == best
    assert {len(line["input"]["raw"].split("\n")) for line in found} == {1, 2}


def test_a_query_of_a_gallery_names_its_first_answer(tmp_path):
    cases = zoo()
    run = run_of(part(cases, random_scores(cases, 5)))
    publish([run], tmp_path / "out", FAST)
    queries = [line for line in lines(tmp_path / "out") if line["input"]["choices"] is None]
    recalls = [q for q in queries if q["metadata"]["metric"].endswith("recall@1")]
    assert recalls
    for line in recalls:
        [answer] = line["output"]["raw"]
        assert line["evaluation"]["is_correct"] == (answer in line["input"]["reference"])


# --- the schema ----------------------------------------------------------------------------------


def test_files_pass_the_validator_of_the_schema(tmp_path, monkeypatch):
    validator = pytest.importorskip("every_eval_ever.validator")
    cases = zoo()
    odd = "a\u2028b </script> \N{GRINNING FACE}\x85"
    said = Cases.build(
        [caption_case(odd, ImageRef("a.jpg"), [odd, "b"], ["c\nd"], ("g|h",))], source="test"
    )
    runs = [
        bivlc(),
        run_of(part(cases, random_scores(cases, 5), name="../zoo"), model="checkpoint:/a b/x.pt"),
        run_of(part(said, random_scores(said, 1), name=odd), model="api:http://x/y:z"),
    ]
    publish(runs, tmp_path / "out", replace(FAST, groups=True))
    root = tmp_path / "out" / "every_eval_ever"
    monkeypatch.chdir(root)
    files = sorted(file.relative_to(root) for file in root.rglob("*.json*"))
    assert len(files) == 6
    for file in files:
        report = validator.validate_file(
            file,
            repo_path=file.as_posix(),
            available_files={one.as_posix() for one in files},
            read_repo_file=lambda path: Path(path).read_text(encoding="utf-8"),
            run_semantic_checks=True,
        )
        assert report.valid and not report.warnings, (report.errors, report.warnings)


REQUIRED = {
    "aggregate": "schema_version evaluation_id retrieved_timestamp source_metadata model_info "
    "eval_library evaluation_results",
    "result": "evaluation_name source_data metric_config score_details",
    "line": "schema_version evaluation_id model_id evaluation_name sample_id interaction_type "
    "input output answer_attribution evaluation",
}


def test_files_have_what_the_schema_requires(tmp_path):
    """By hand, where the validator is not installed: it needs Python 3.12."""
    publish([bivlc()], tmp_path / "out", FAST)
    [record] = aggregates(tmp_path / "out")
    assert record.keys() >= {*REQUIRED["aggregate"].split()}
    assert {*record["model_info"]["additional_details"]} >= {
        "deployment_type",
        "model_availability",
    }
    for result in record["evaluation_results"]:
        assert result.keys() >= {*REQUIRED["result"].split()}
        config, score = result["metric_config"], result["score_details"]["score"]
        assert config["min_score"] <= score <= config["max_score"]
        assert isinstance(config["lower_is_better"], bool)
        assert all(isinstance(v, str) for v in result["score_details"]["details"].values())
        assert all(isinstance(v, str) for v in result["source_data"]["additional_details"].values())
    found = lines(tmp_path / "out")
    detailed = record["detailed_evaluation_results"]
    assert detailed["total_rows"] == len(found) == 12 * 3
    assert (tmp_path / "out/every_eval_ever" / detailed["file_path"]).is_file()
    for line in found:
        assert line.keys() >= {*REQUIRED["line"].split()}
        assert line["evaluation_id"] == record["evaluation_id"]
        assert line["model_id"] == record["model_info"]["id"]
        assert all(isinstance(value, str) for value in line["metadata"].values())


def test_a_table_is_one_of_wandb(tmp_path):
    wandb = pytest.importorskip("wandb")
    publish([bivlc()], tmp_path / "out", replace(FAST, wandb=True))
    table = json.loads((tmp_path / "out/wandb/some_model.table.json").read_text())
    assert len(wandb.Table(**table).data) == len(table["data"])


# --- names and captions are data -----------------------------------------------------------------


EVIL = "---\n<script>alert(1)</script> | `x` [a](b) ../../../etc/passwd"


def test_names_are_text_and_stay_inside_the_folder(tmp_path):
    said = [caption_case(f"{EVIL}{i}", ImageRef("a.jpg"), [EVIL, "b"], ["c"]) for i in range(3)]
    cases = Cases.build(said, source="test")
    mine = replace(part(cases, random_scores(cases, 1), name=EVIL), left_out=((EVIL, EVIL),))
    run = replace(run_of(mine, model=f"m:{EVIL}"), manifest={"command": ["counterpoint", EVIL]})
    out = tmp_path / "inner" / "out"
    publish([run], out, replace(FAST, wandb=True, datasets={EVIL: "me/set"}))
    assert [*tmp_path.iterdir()] == [tmp_path / "inner"]
    assert [path.name for path in (tmp_path / "inner").iterdir()] == ["out"]
    [card] = out.rglob("model-card.md")
    _, head, text = re.split(r"^---\n", card.read_text(), flags=re.M)
    outside = re.sub(r"^(````+)sh\n.*?^\1$", "", text, flags=re.M | re.S)
    assert "<script" not in outside and "[a](b)" not in outside
    for row in re.findall(r"^\|.*$", outside, flags=re.M):
        assert len(re.findall(r"(?<!\\)\|", row)) == 6
    [model] = yaml.safe_load(head)["model-index"]
    assert "<script>" in model["results"][0]["dataset"]["name"]
    [results] = out.rglob(".eval_results/*.yaml")
    assert len(yaml.safe_load(results.read_text())) == 3
    assert all(line["input"]["choices"] == [EVIL, "b", "c"] for line in lines(out))


NAMES = st.one_of(st.text(max_size=120), st.sampled_from(["..", "", "con.txt", "data", "a/../b"]))


@FEW
@given(NAMES, NAMES)
def test_any_name_is_one_part_of_a_path(family, name):
    for component in (safe_name(name), *published_model(f"{family}:{name}").split("/")):
        assert re.fullmatch(r"[A-Za-z0-9._+=-]{1,96}", component)
        assert not component.startswith(".") and not component.endswith(".")
        assert component.split(".")[0].lower() not in {"con", "prn", "aux", "nul", "data"}


def test_models_are_called_by_their_id_on_the_hub():
    assert published_model("hf:openai/clip-vit-base-patch32") == "openai/clip-vit-base-patch32"
    assert published_model("open_clip:ViT-B-32/openai") == "open_clip/ViT-B-32-openai"
    assert published_model("hf:…/folder") == "hf/folder"
    assert published_model("random") == "counterpoint/random"
    assert [*names_apart(["a", "A", "a", "a-2"])] == ["a", "A-2", "a-3", "a-2-2"]


def test_no_folder_of_the_machine_is_published(tmp_path):
    secret = "/home/me/a secret"
    said = [
        caption_case(str(i), ImageRef(f"{secret}/{i}.jpg"), ["a", "b"], ["c"]) for i in range(4)
    ]
    cases = Cases.build(said, source="test")
    mine = replace(
        part(cases, random_scores(cases, 1), name=f"{secret}/cases.jsonl"),
        left_out=(("7", f"image {secret}/7.jpg: no such file."),),
    )
    run = replace(
        run_of(mine, model=f"checkpoint:{secret}/x.pt"),
        manifest={"command": [f"{secret}/counterpoint", "eval", "--data", secret]},
        folder=Path(secret, "runs", "x"),
    )
    publish([run], tmp_path / "out", replace(FAST, wandb=True))
    texts = [file.read_text() for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert len(texts) == 5 and not any("secret/" in text or "/home" in text for text in texts)


# --- what is missing -----------------------------------------------------------------------------


def test_cases_that_were_left_out_are_told_everywhere(tmp_path):
    run = bivlc()
    lost = tuple((str(i), "image 1.jpg: no such file.") for i in range(4))
    run = replace(run, parts={"bivlc": replace(run.parts["bivlc"], left_out=lost)})
    run = replace(run, manifest={"options": {"limit": 20}})
    publish([run], tmp_path / "out", replace(FAST, wandb=True))
    [record] = aggregates(tmp_path / "out")
    details = record["evaluation_results"][0]["source_data"]["additional_details"]
    assert (details["left_out"], details["scored_cases"]) == ("4", "12")
    said = "4 of 16 cases were left out"
    model = tmp_path / "out/models/some/model"
    assert said in details["notes"] and "--limit" in details["notes"]
    assert said in (model / "model-card.md").read_text()
    assert said in (model / ".eval_results/bivlc.yaml").read_text()
    assert '"left_out": 4' in (tmp_path / "out/published.json").read_text()
    table = json.loads((tmp_path / "out/wandb/some_model.table.json").read_text())
    assert {row[-1] for row in table["data"]} == {4}
    assert not {line["sample_id"] for line in lines(tmp_path / "out")} & {id for id, _ in lost}


def test_a_run_without_scored_cases_is_refused(tmp_path):
    run = run_of(part(table(4).keep(np.zeros(4, dtype=bool)), np.zeros(0)))
    with raises("E-RUN-EMPTY"):
        publish([run], tmp_path / "out", FAST)
    with raises("E-RUN-MISSING"):
        publish([], tmp_path / "out", FAST)


# --- the folder ----------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_the_same_runs_again_give_the_same_files(tmp_path):
    out = tmp_path / "out"
    publish([bivlc()], out, FAST)
    before = contents(out)
    publish([bivlc(), bivlc()], out, FAST)  # the second is the same run
    assert contents(out) == before
    listed = json.loads(before["published.json"])["files"]
    assert sorted([*listed, "published.json"]) == sorted(before)


def test_other_runs_replace_only_if_asked(tmp_path):
    out = tmp_path / "out"
    publish([bivlc()], out, FAST)
    before = contents(out)
    with raises("E-OUTPUT-EXISTS", out):
        publish([bivlc(13)], out, FAST)
    assert contents(out) == before
    publish([bivlc(13)], out, replace(FAST, overwrite=True))
    assert len(lines(out)) == 13 * 3 and len(aggregates(out)) == 1


def test_what_publish_did_not_write_is_never_replaced(tmp_path):
    for name in ("mine.txt", "published.json"):
        out = tmp_path / Path(name).stem
        out.mkdir()
        (out / name).write_text("{}")
        for overwrite in (False, True):
            with raises("E-OUTPUT-EXISTS", out):
                publish([bivlc()], out, replace(FAST, overwrite=overwrite))
        assert (out / name).read_text() == "{}"


def test_a_failure_leaves_nothing_half_written(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError

    monkeypatch.setattr(writing, "_write_model", fail)
    with pytest.raises(RuntimeError):
        publish([bivlc()], tmp_path / "out", FAST)
    assert not [*tmp_path.iterdir()]


def test_names_that_cannot_be_ids_of_the_hub_are_refused(tmp_path):
    for option, name, value in (
        ("called", "hf:some/model", "no-owner"),
        ("called", "hf:some/model", "../x"),
        ("called", "unknown", "a/b"),
        ("datasets", "unknown", "a/b"),
        ("datasets", "bivlc", "a/b/c"),
        ("datasets", "bivlc", "a/b:"),
    ):
        with raises("E-OPTION-INVALID"):
            publish([bivlc()], tmp_path / "out", replace(FAST, **{option: {name: value}}))
    assert not [*tmp_path.iterdir()]


def test_two_models_never_share_a_name(tmp_path):
    runs = [bivlc(model="a:b c"), bivlc(model="a:b-c")]
    with raises("E-OPTION-INVALID"):
        publish(runs, tmp_path / "out", replace(FAST, called={r.model: "me/x" for r in runs}))
    publish(runs, tmp_path / "out", FAST)
    assert sorted(path.name for path in (tmp_path / "out/models/a").iterdir()) == ["b-c", "b-c-2"]


# --- in Python and from the command line --------------------------------------------------------


def test_in_python(tmp_path):
    run = save_run(random_run(table(12), 1, values=3), tmp_path / "run")
    out = cp.publish(
        tmp_path / "run",
        tmp_path / "out",
        called={"model": "me/mine"},
        protocol="hard-positives",
        organization="us",
        relationship="first_party",
        resamples=50,
    )
    assert out == tmp_path / "out"
    [record] = aggregates(out)
    assert record["source_metadata"]["source_organization_name"] == "us"
    assert record["model_info"]["id"] == "me/mine"
    how = record["eval_library"]["additional_details"]
    assert how["recompute"] == "counterpoint rescore run --protocol hard-positives"
    assert how["sha256_of_scores.parquet"] == run.manifest["files"]["scores.parquet"]
    values = [r["score_details"]["score"] for r in record["evaluation_results"]]
    expected = run.results(protocol="hard-positives", resamples=50)
    assert values == [row.value for row in expected if math.isfinite(row.value)]


def test_from_the_command_line(tmp_path, counterpoint):
    run = bivlc(model="mine:x")
    lost = (("7", "image 7.jpg: no such file."),)
    save_run(replace(run, parts={"bivlc": replace(run.parts["bivlc"], left_out=lost)}), Path("run"))
    save_run(random_run(table(8), 1), Path("other"))
    words = ["publish", "run", "other", "-o", "out", "--as", "mine:x=me/x"]
    done = counterpoint(*words, "--dataset", "bivlc=me/set:group", "--relationship", "first_party")
    assert done.code == 0 and "2 models on 2 benchmarks; nothing was uploaded" in done.out
    assert "no .eval_results for bench" in done.err and "1 of 13 cases were left out" in done.err
    [entry] = yaml.safe_load(Path("out/models/me/x/.eval_results/bivlc.yaml").read_text())
    assert entry["dataset"] == {"id": "me/set", "task_id": "group"}
    assert {a["source_metadata"]["evaluator_relationship"] for a in aggregates(Path("out"))} == {
        "first_party"
    }
    assert counterpoint("publish", "run", "-o", "out").code == 1
    assert counterpoint("publish", "run", "-o", "out", "--overwrite").code == 0
    assert counterpoint("publish", "run", "-o", "o2", "--as", "me/x").code == 2


def test_a_task_has_one_value(tmp_path):
    """Two benchmarks of one data set, and the two counts of cases with and without positives."""
    halves = [
        run_of(part(Cases.build(cases, source="test"), scores, name=name), model="hf:some/model")
        for name in ("bivlc/image-detection", "bivlc/text-detection")
        for cases in [[square(i) for i in range(12)]]
        for scores in [random_scores(Cases.build(cases, source="test"), 3)]
    ]
    both = replace(halves[0], parts=halves[0].parts | halves[1].parts)
    publish([both], tmp_path / "out", FAST)
    found = [
        (entry["dataset"]["id"], entry["dataset"]["task_id"])
        for file in tmp_path.glob("out/models/some/model/.eval_results/*.yaml")
        for entry in yaml.safe_load(file.read_text())
    ]
    assert len(found) == len(set(found)) > 2
    assert ("imirandam/BiVLC", "image-detection.group") in found
    with raises("E-TASK-REPEATED", "imirandam/BiVLC"):
        publish([bivlc(), bivlc(14)], tmp_path / "two", FAST)
    assert not (tmp_path / "two").exists()
