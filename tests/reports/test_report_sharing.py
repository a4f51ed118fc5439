"""A report that is sent to others shows no folder of the machine that made it."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from support import FEW, part, random_scores, run_of, table
from test_report_page import photographed

from counterpoint.reports import formats
from counterpoint.reports.data import shared, without_folders
from counterpoint.reports.page import ReportOptions, compare_page, report_page, report_tables
from counterpoint.reports.provenance import Provenance


def test_without_folders():
    for text, expected in (
        ("checkpoint:/home/me/x/negclip.pt", "checkpoint:…/negclip.pt"),
        ("/data", "…/data"),
        ("image /Users/Jane Doe/1.jpg: no such file.", "image …/1.jpg: no such file."),
        ("world:positives=/a/b.parquet,tests=/c/d", "world:positives=…/b.parquet,tests=…/d"),
        (r"C:\Users\me\x.pt", "…/x.pt"),
        ("file:///home/me/x", "…/x"),
        ("'/tmp/q/r'", "'…/r'"),
        # These are none.
        ("https://host/a/b", "https://host/a/b"),
        ("open_clip:ViT-B/32, hf-hub:laion/CLIP", "open_clip:ViT-B/32, hf-hub:laion/CLIP"),
        ("A / B and/or 1/3", "A / B and/or 1/3"),
        ("</script>", "</script>"),
    ):
        assert without_folders(text) == expected


NAMES = st.text("abc 1._-é", min_size=1, max_size=6).filter(str.strip)


@FEW
@given(st.lists(NAMES.map(lambda n: f"x{n}x"), min_size=1, max_size=5), st.sampled_from("=: '\"("))
def test_of_any_path_only_the_last_part_is_left(parts, before):
    said = without_folders(f"image{before}/{'/'.join(parts)}: gone")
    assert said == f"image{before}…/{parts[-1]}: gone"
    assert without_folders(said) == said


def told_everywhere(folder: Path, file: str = "weights.pt"):
    """A run that has a folder wherever a run can have one."""
    cases = photographed(folder, 4)
    mine = part(cases, random_scores(cases, 1), name=f"{folder}/cases.jsonl")
    mine = replace(mine, left_out=(("7", f"image {folder}/7.jpg: no such file."),))
    manifest = {
        "command": [f"{folder}/bin/counterpoint", "eval", "--data", str(folder)],
        "options": {"data": str(folder), "limit": None},
        "model_info": {
            "notes": [f"read from {folder}/{file}"],
            "wise": {"base": f"{folder}/a.pt", "tuned": f"{folder}/b.pt", "alpha": 0.5},
        },
        "versions": {"python": "3"},
    }
    return replace(
        run_of(mine, model=f"checkpoint:{folder}/{file}"),
        manifest=manifest,
        folder=folder / "runs" / file,
    )


def whole(page: str) -> str:
    """The page with the tables that it holds as addresses."""
    files = re.findall(r"data:text/csv[^,]*,([^\"]+)", page)
    return page + "".join(base64.b64decode(file).decode() for file in files)


@pytest.mark.slow
def test_no_folder_of_the_machine_is_shown(tmp_path):
    folder = tmp_path / "a secret" / "project"
    folder.mkdir(parents=True)
    runs = [told_everywhere(folder), told_everywhere(folder, "other.pt")]
    options = ReportOptions(
        resamples=50, made=Provenance((f"{folder}/counterpoint", "report", f"{folder}/r"))
    )
    made = report_tables(runs, options)
    texts = [
        whole(report_page(runs, options)),
        whole(compare_page(*runs, options)),
        formats.as_markdown(made),
        formats.as_latex(made),
        formats.as_csv(made),
    ]
    for text in texts:
        assert "a secret" not in text and str(tmp_path) not in text
        assert "weights.pt" in text and "cases.jsonl" in text
    assert "counterpoint report &#39;…/r&#39;" in texts[0]
    assert "<dd>counterpoint eval --data &#39;…/project&#39;</dd>" in texts[0]


@pytest.mark.slow
def test_what_papers_call_a_model_is_said_of_its_whole_name(tmp_path):
    cases = table(40, positives=1)
    name = f"checkpoint:{tmp_path}/negclip.pt"
    run = run_of(part(cases, random_scores(cases, 1), "sugarcrepe", "sugarcrepe"), model=name)
    tables = report_tables([run], ReportOptions(resamples=50, called={name: "NegCLIP"}))
    assert {label for label, *_ in tables.papers.values} == {"checkpoint:…/negclip.pt"}


def test_names_that_differ_by_their_folder_only_stay_apart():
    cases = table(10)
    runs = [
        run_of(part(cases, random_scores(cases, seed), name=f"/{where}/cases.jsonl"), model=model)
        for seed, (where, model) in enumerate(
            [("a", "model:/a/x"), ("b", "model:/b/x"), ("a", "model:/a/x")]
        )
    ]
    found = shared(runs)
    assert [run.model for run in found.runs] == ["model:…/x", "model:…/x (2)", "model:…/x"]
    assert [list(run.parts) for run in found.runs] == [
        ["…/cases.jsonl"],
        ["…/cases.jsonl (2)"],
        ["…/cases.jsonl"],
    ]
