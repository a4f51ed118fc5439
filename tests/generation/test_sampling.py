"""Balanced sampling: what is kept has no type, word or edit above its share."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
import typer
from errors import raises
from hypothesis import given, strategies as st
from typer.testing import CliRunner

from counterpoint.cases.table import ImageRef
from counterpoint.cli.console import plainly
from counterpoint.cli.pairs import export
from counterpoint.generation.export.groups import Group, Text, changed_words, read_caps, sampled
from counterpoint.generation.pairs import Pair, tabulate, write_pairs

NOUNS = ("dog", "cat", "bus")
FIELDS = ("negative", "replace", "att", "m", "1", 0)
COLOURS = ("red", "blue", "green", "pink")


def made(choices: list[tuple[int, int, int]]) -> list[Group]:
    """One caption per choice: a noun, an old and a new colour; equal colours are an addition."""
    groups = []
    for number, (noun, old, new) in enumerate(choices):
        added = old == new
        caption = f"a {NOUNS[noun]}" if added else f"a {COLOURS[old]} {NOUNS[noun]}"
        text = Text(f"a {COLOURS[new]} {NOUNS[noun]}", "add/att" if added else "replace/att", None)
        groups.append(Group(str(number), f"{number}.jpg", None, caption, [], [text]))
    return groups


def kept(groups: list[Group], caps: dict[str, float], seed: int = 0):
    left_out: Counter[str] = Counter()
    cap = ",".join(f"{name}={share!r}" for name, share in caps.items())
    chosen = sampled(lambda _: iter(groups), Path("p.parquet"), seed, cap=cap)
    return list(chosen(left_out)), left_out


choices = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 3)), max_size=60)


@given(choices, st.floats(0.5, 1), st.floats(0.3, 1), st.floats(0.1, 1), st.integers(0, 3))
def test_no_key_has_more_than_its_share(drawn, of_type, of_word, of_edit, seed):
    groups = made(drawn)
    caps = {"type": of_type, "word": of_word, "edit": of_edit}
    values = [
        {text.label for group in groups for text in group.negatives},
        {changed_words(group.caption, group.negatives[0].text)[1] for group in groups},
        {changed_words(group.caption, group.negatives[0].text) for group in groups},
    ]
    if groups and any(
        cap * len(known) < 1 for cap, known in zip(caps.values(), values, strict=True)
    ):
        with raises("E-CAP-IMPOSSIBLE"):
            kept(groups, caps, seed)
        return
    found, left_out = kept(groups, caps, seed)
    counts = [Counter[object](), Counter[object](), Counter[object]()]
    for group in found:
        [text] = group.negatives
        old, new = changed_words(group.caption, text.text)
        for counter, key in zip(counts, (text.label, new[-1:], (old, new)), strict=True):
            counter[key] += 1
    for cap, counter in zip(caps.values(), counts, strict=True):
        assert max(counter.values(), default=0) <= max(1, int(cap * len(found) + 1e-9))
    dropped = sum(n for reason, n in left_out.items() if reason.endswith("above its cap"))
    assert len(found) + dropped == len(groups)  # nothing is dropped in silence
    shuffled = random.Random(seed).sample(groups, len(groups))
    again, counted = kept(shuffled, caps, seed)
    assert {group.source for group in again} == {group.source for group in found}
    assert counted == left_out


def test_another_seed_draws_other_texts():
    groups = made([(n % 3, 0, 1 + n % 3) for n in range(60)] + [(0, 0, 1)] * 60)
    draws = [{group.source for group in kept(groups, {"word": 0.4}, seed)[0]} for seed in range(3)]
    assert draws[0] != draws[1] != draws[2]


@pytest.mark.parametrize(
    ("caption", "text", "changed"),
    [
        ("A red dog.", "A blue dog.", (("red",), ("blue",))),
        ("An old man", "A young man", (("old",), ("young",))),
        ("a cat on a mat", "a cat next to a mat", (("on",), ("next", "to"))),
        ("a bus", "a pink bus", ((), ("pink",))),
        ("a red dog and a blue cat", "a blue dog and a red cat", ((), ())),
    ],
)
def test_what_changed(caption, text, changed):
    assert changed_words(caption, text) == changed


def test_a_cap_that_is_none():
    for text in ("word", "word=0", "word=2", "word=0.1,word=0.2", "kind=0.5", "="):
        with raises("E-OPTION-INVALID"):
            read_caps(text)


def run(*words: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(plainly(export))
    result = CliRunner().invoke(app, words)
    return result.exit_code, " ".join(result.output.split())


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    colours = ["blue"] * 30 + ["green"] * 10 + ["pink"] * 10
    pairs = [
        Pair(str(n), ImageRef(f"{n}.png"), "a red bus", f"a {colour} bus", *FIELDS)
        for n, colour in enumerate(colours)
    ]
    write_pairs(tmp_path / "p.parquet", [tabulate(pairs)], {})
    for form, out in (("benchmark", "b.parquet"), ("training", "t.jsonl")):
        status, said = run("p.parquet", "--as", form, "-o", out, "--cap", "word=0.4")
        assert status == 0, said
        # 13 of 33 are at most 40 %: 17 of the 30 are left out
        assert "17 negatives with a new word above its cap" in said
    cap = ("-o", "x.jsonl", "--cap", "word=0.4")
    assert run("p.parquet", "--as", "training", *cap, "--balance", "att,rel")[0] != 0
    assert run("p.parquet", "--as", "hf", *cap)[0] == 2
