"""Protocols, caption formats, and names that were misspelt."""

from __future__ import annotations

import json

import pytest
from errors import raises
from hypothesis import given, strategies as st
from support import FEW

from counterpoint._util.errors import CounterpointError, NotFoundError
from counterpoint._util.registry import Registry, did_you_mean
from counterpoint.cases import CAPTION_FORMATS
from counterpoint.metrics import AVERAGES, PROTOCOLS, Protocol, get_protocol

DROPPED = '.!"()*#:;~'


# --- protocols ---------------------------------------------------------------------------------


def test_protocols_use_what_exists() -> None:
    for name, protocol in PROTOCOLS.items():
        assert get_protocol(name) is protocol
        assert protocol.name == name
        assert protocol.summary
        assert protocol.caption_format in CAPTION_FORMATS
        assert {protocol.average, *protocol.averages} <= set(AVERAGES)


@pytest.mark.parametrize(
    ("name", "tie", "average", "caption_format", "overlong"),
    [
        ("strict", "wrong", "micro", "raw", "leave out"),
        ("hard-positives", "wrong", "micro", "raw", "leave out"),
        ("sugarcrepe", "wrong", "micro", "raw", "leave out"),
        ("bivlc", "wrong", "micro", "raw", "leave out"),
        ("vg-relation", "wrong", "macro", "raw", "leave out"),
        ("vg-attribution", "wrong", "macro", "raw", "leave out"),
        ("aro-order", "right", "micro", "aro", "cut"),
        ("crepe", "wrong", "types-macro", "raw", "cut"),
    ],
)
def test_protocols_are_the_papers(
    name: str, tie: str, average: str, caption_format: str, overlong: str
) -> None:
    found = get_protocol(name)
    assert (found.tie, found.average) == (tie, average)
    assert (found.caption_format, found.overlong) == (caption_format, overlong)


def test_sugarcrepe_prints_all_four_averages() -> None:
    assert set(get_protocol("sugarcrepe").averages) == {"micro", "macro", "types", "types-macro"}


def test_a_protocol_describes_every_choice() -> None:
    protocol = Protocol(
        "mine", "", tie="half", average="types", exclude=frozenset({"a", "b"}), min_count=25
    )
    text = protocol.describe()
    for said in ("mine", "half", "types", "raw", "2 groups excluded", "at least 25", "left out"):
        assert said in text
    assert "cut" in get_protocol("crepe").describe()
    assert "excluded" not in get_protocol("strict").describe()


def test_an_unknown_protocol_is_refused_with_a_hint() -> None:
    with raises("E-PROTOCOL-UNKNOWN", "sugercrepe") as error:
        get_protocol("sugercrepe")
    assert "'sugarcrepe'" in str(error.value)


# --- caption formats ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("A man, in RED; running!", "a man, in red running"),
        ('"Two  cats" (on)\ta mat.', "two cats on a mat"),
        ("black-and-white man's dog?", "black-and-white man's dog?"),
        ("a.b", "a b"),
        (" ".join(f"w{i}" for i in range(31)), " ".join(f"w{i}" for i in range(30))),
        ("", ""),
    ],
)
def test_aro_captions_by_hand(caption: str, expected: str) -> None:
    assert CAPTION_FORMATS["aro"](caption) == expected


@FEW
@given(st.text(alphabet=st.characters(codec="ascii")))
def test_aro_captions_are_clean_and_stay_so(caption: str) -> None:
    found = CAPTION_FORMATS["aro"](caption)
    assert not set(found) & set(DROPPED)
    assert found == found.lower()
    assert len(found.split()) <= 30
    assert found == " ".join(found.split())
    assert CAPTION_FORMATS["aro"](found) == found


@pytest.mark.slow
@FEW
@given(st.text(alphabet=st.characters(codec="latin-1")))
def test_raw_captions_are_untouched(caption: str) -> None:
    assert CAPTION_FORMATS["raw"](caption) == caption


# --- names -------------------------------------------------------------------------------------


def test_a_misspelt_name_gets_the_nearest_and_the_list() -> None:
    text = did_you_mean("model", "clip-b23", ["clip-b32", "siglip", "clip-l14"])
    assert text == (
        "no model is called 'clip-b23'. Did you mean 'clip-b32'? Known: clip-b32, clip-l14, siglip."
    )


def test_a_far_name_gets_the_list_only() -> None:
    text = did_you_mean("model", "zzz", ["clip", "siglip"])
    assert "Did you mean" not in text
    assert "clip, siglip" in text


def test_a_long_list_is_cut() -> None:
    names = [f"name-{i:02}" for i in range(30)]
    text = did_you_mean("benchmark", "x", names)
    assert "name-11" in text and "name-12" not in text and text.endswith(" and more.")
    assert "and more" not in did_you_mean("benchmark", "x", names[:12])


def test_a_registry_imports_on_demand() -> None:
    registry = Registry(
        "thing", "counterpoint.no-such-group", {"dumps": "json:dumps", "no": "no:x"}
    )
    assert registry.get("dumps") is json.dumps
    assert registry.names() == ["dumps", "no"]
    with raises("E-THING-UNKNOWN", "dump") as error:
        registry.get("dump")
    assert "'dumps'" in str(error.value)
    with pytest.raises(ModuleNotFoundError):  # listed, and imported only when asked for
        registry.get("no")


def test_every_refusal_is_one_of_ours() -> None:
    assert issubclass(NotFoundError, CounterpointError)
