"""The figure of the line between two models: what is drawn against what, and its file."""

from __future__ import annotations

import re

import pytest
from errors import raises

from counterpoint.reports.figures.curves import CurveKey, Panel, draw_line, line_panels
from counterpoint.runs import Row


def row(benchmark: str, metric: str, value: float) -> Row:
    return Row("m", benchmark, "all", metric, value, value - 0.02, value + 0.03, 100, 0, 0.5)


def rows_along(*metrics: tuple[str, str]) -> dict[float, list[Row]]:
    return {
        alpha: [
            row(b, metric, 0.4 + 0.1 * n + 0.2 * alpha) for n, (b, metric) in enumerate(metrics)
        ]
        for alpha in (1.0, 0.0, 0.5)
    }


ORIGINAL, AUGMENTED = (CurveKey("swap", f"{name}_accuracy") for name in ("original", "augmented"))
RECALL, PETS = CurveKey("coco", "image_to_text_recall@1"), CurveKey("pets", "accuracy@1")
GROUP = CurveKey("bi", "group")


def test_what_is_drawn_against_what():
    for metrics, expected in (
        ([ORIGINAL, AUGMENTED], [Panel("original_accuracy", [AUGMENTED])]),
        ([ORIGINAL, AUGMENTED, RECALL], [Panel(RECALL, [AUGMENTED])]),
        (
            [ORIGINAL, AUGMENTED, RECALL, PETS, GROUP],
            [Panel(kept, [AUGMENTED, GROUP]) for kept in (RECALL, PETS)],
        ),
        ([ORIGINAL, AUGMENTED, GROUP], [Panel(None, [AUGMENTED, GROUP])]),
        ([RECALL], [Panel(None, [RECALL])]),
    ):
        assert line_panels(rows_along(*metrics)) == expected


@pytest.mark.slow
def test_the_plot_is_an_svg_with_its_names_as_they_are(tmp_path):
    name = "_my $cases$ <b>.jsonl"
    along = rows_along((name, "original_accuracy"), (name, "augmented_accuracy"), RECALL)
    draw_line(along, tmp_path / "new" / "line.svg", "base to tuned")
    text = (tmp_path / "new" / "line.svg").read_text()
    assert text.lstrip().startswith("<?xml") and "</svg>" in text
    assert "_my $cases$ &lt;b&gt;.jsonl" in text
    assert "coco: image-to-text R@1 (%)" in text
    assert {">0<", ">0.5<", ">1<"} <= set(re.findall(r">[\d.]+<", text))
    draw_line(along, tmp_path / "again.svg", "base to tuned")
    assert (tmp_path / "again.svg").read_text() == text  # the same numbers, the same file
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.svg", "new"]


def test_a_line_without_a_scored_case_is_not_drawn(tmp_path):
    with raises("E-RUN-EMPTY", tmp_path / "line.svg"):
        draw_line({0.0: [], 1.0: []}, tmp_path / "line.svg", "nothing")
    assert list(tmp_path.iterdir()) == []
