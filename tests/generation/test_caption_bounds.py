"""Files of captions that are made to hurt: bounds, and messages that stay short."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from errors import raises
from hypothesis import given, strategies as st
from support import FEW

from counterpoint._util.errors import CounterpointError
from counterpoint.generation.inputs import json_files
from counterpoint.generation.inputs.captions import open_captions
from counterpoint.generation.inputs.json_files import DEPTH, LENGTH, json_items
from counterpoint.generation.scene_graphs import read_graphs, read_sizes


def refusal(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(CounterpointError) as caught:
        list(open_captions(str(path)))
    message = str(caught.value)
    assert len(message) < 600 and message.endswith(".") and "\n" not in message
    return message


# --- one JSON document -------------------------------------------------------------------------


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"caption":'])
def test_deep_nesting_takes_no_memory(tmp_path: Path, opening: str) -> None:
    """The parser names the place of every bracket: 40,000 of them took 3.9 GB."""
    tracemalloc.start()
    try:
        message = refusal(tmp_path / "a.json", opening * 40_000)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()
    assert f"nested more than {DEPTH} levels deep" in message


@pytest.mark.parametrize("read", [read_sizes, lambda path: list(read_graphs(path))])
def test_scene_graphs_are_bounded_too(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.json").write_text("[" * 40_000)
    with raises("E-JSON-INVALID"):
        read(tmp_path / "a.json")


def test_as_deep_as_is_allowed(tmp_path: Path) -> None:
    inner = "[" * (DEPTH - 2) + "]" * (DEPTH - 2)
    (tmp_path / "a.json").write_text(f'[{{"caption": "a", "x": {inner}}}]')
    assert len(list(open_captions(str(tmp_path / "a.json")))) == 1
    message = refusal(tmp_path / "a.json", f'[{{"caption": "a", "x": [{inner}]}}]')
    assert "levels deep" in message


@pytest.mark.slow
@pytest.mark.parametrize("value", ['"{}"', "{}"], ids=["text", "number"])
def test_a_long_text_is_refused_while_it_is_read(tmp_path: Path, value: str) -> None:
    """Each further block made the parser begin again: 16 MB took minutes."""
    long = value.replace("{}", "1" * (3 * LENGTH))
    message = refusal(tmp_path / "a.json", f'[{{"caption": {long}}}]')
    assert f"more than {LENGTH:,} bytes" in message


@pytest.mark.slow
def test_a_text_of_a_megabyte_is_read(tmp_path: Path) -> None:
    text = "a \\u00e4 [{\\" * 100_000 + '"'
    (tmp_path / "a.json").write_text(json.dumps([{"caption": text}]))
    [source] = open_captions(str(tmp_path / "a.json"))
    assert source.caption == text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.text('ab"\\[]{},:\n\u20ac'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('k"\\['), inner),
    max_leaves=20,
)


@pytest.mark.slow
@given(VALUES, st.integers(1, 9), st.booleans())
@FEW
def test_blocks_of_any_size_give_the_same(
    tmp_path_factory: pytest.TempPathFactory, value: Any, size: int, plain: bool
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "a.json"
    path.write_text(json.dumps([value], ensure_ascii=plain), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_files, "_BUFFER", size)
        assert list(json_items(path, "item")) == [value]
        patch.setattr(json_files, "DEPTH", depth([value]))
        assert list(json_items(path, "item")) == [value]
        patch.setattr(json_files, "DEPTH", depth([value]) - 1)
        with raises("E-JSON-INVALID"):
            list(json_items(path, "item"))


def depth(value: Any) -> int:
    inner = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    )
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


# --- every form --------------------------------------------------------------------------------

LONG = "x" * 1_000_000
DEEP = "[" * 900 + "]" * 900
MESSAGES = {
    "caption.jsonl": json.dumps({"caption": [[LONG] * 5]}),
    "list.jsonl": json.dumps([LONG]),
    "deep.jsonl": f'{{"caption": [{DEEP}]}}',
    "too-deep.jsonl": '{"caption": ' + "[" * 100_000,
    "digits.jsonl": f'{{"caption": "a", "id": {"9" * 5000}}}',
    "box.jsonl": '{"caption": "a", "image": "i", "box": [1, 2, 3, 2147483648]}',
    "key.jsonl": json.dumps({LONG: 1}),
    "surrogate-key.jsonl": '{"\\ud800": 1}',
    "image.json": json.dumps([{"caption": "a", "image": {"path": [LONG]}}]),
    "id.json": json.dumps([{"caption": "a", "id": {LONG: 1}}]),
    "digits.json": f'[{{"caption": "a", "id": {"9" * 5000}}}]',
    "exponent.json": '[{"caption": "a", "id": 1e999}]',
    "half.json": '[{"caption": "\\udc00\\ud800"}]',
    "coco.json": json.dumps({"annotations": [{"image_id": LONG, "caption": "a"}]}),
    "row.json": json.dumps({LONG: {"caption": 5}}),
    "names.csv": f"{LONG},b\n1,2\n",
    "names.tsv": "\x1b[31mred\tb\n1\t2\n",
    "field.csv": "caption\n" + "x" * 17_000_000,
    "quote.csv": 'caption\n"' + "x" * 17_000_000,
}


@pytest.mark.slow
def test_messages_are_short_and_can_be_printed(tmp_path: Path) -> None:
    for name, content in MESSAGES.items():
        message = refusal(tmp_path / name, content)
        assert name in message
        message.encode()
        assert message.isprintable()


def test_parquet_with_odd_values(tmp_path: Path) -> None:
    for column, values in {
        "caption": [[[LONG]]],
        "image": [[LONG]],
        "box": [[2**40, 1, 1, 1]],
        "id": [[LONG, LONG]],
    }.items():
        frame = pl.DataFrame({"caption": ["a"], "image": ["i.jpg"], column: values})
        frame.write_parquet(tmp_path / "a.parquet")
        content = (tmp_path / "a.parquet").read_bytes()
        assert "a.parquet: row 1: " in refusal(tmp_path / "a.parquet", content)


@pytest.mark.parametrize("option", ["seed", "size"])
def test_numbers_of_the_world_have_an_end(option: str) -> None:
    with raises("E-OPTION-INVALID", option):
        open_captions(f"world:{option}={'9' * 5000}")
