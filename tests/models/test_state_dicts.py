"""Checkpoints as people save them, made into plain state dicts; LoRA against the plain formula."""

from __future__ import annotations

import pytest
import torch
from errors import raises

from counterpoint.models.weights import (
    merge_lora,
    strip_prefixes,
    unwrap,
)


def plain() -> dict[str, torch.Tensor]:
    return {
        "visual.proj": torch.arange(6.0).reshape(2, 3),
        "visual.conv1.weight": torch.ones(2, 3, 4, 4),
        "token_embedding.weight": torch.ones(5, 2),
        "logit_scale": torch.tensor(4.6),
    }


def same(one: dict, two: dict) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[k], two[k]) for k in one)


# --- unwrapping --------------------------------------------------------------------------------


def test_trained_weights_come_before_their_mean():
    mean = {name: value + 1 for name, value in plain().items()}
    found = unwrap({"ema": mean, "state_dict": plain()})
    assert same(found.tensors, plain())
    assert found.unused == ("ema",)


@pytest.mark.parametrize("nothing", [{}, {"epoch": 1}, {"model": {}}, [1], 7, torch.ones(2)])
def test_a_file_without_weights_by_name_is_refused(nothing):
    with raises("E-WEIGHTS-BROKEN"):
        unwrap(nothing)


# --- prefixes ----------------------------------------------------------------------------------


def test_plain_names_are_left_alone():
    with_head = {**plain(), "model.head.weight": torch.ones(1), "module.x": torch.ones(1)}
    assert same(strip_prefixes(with_head), with_head)


def test_a_weight_under_two_names_is_refused():
    with raises("E-WEIGHTS-AMBIGUOUS", "model."):
        strip_prefixes({"model.logit_scale": torch.ones(1), "logit_scale": torch.zeros(1)})


# --- LoRA --------------------------------------------------------------------------------------


def test_pefts_convolution_and_loralibs_embedding():
    a, b = torch.randn(2, 3, 4, 4), torch.randn(5, 2, 1, 1)
    state = {"c.weight": torch.zeros(5, 3, 4, 4), "c.lora_A.d.weight": a, "c.lora_B.d.weight": b}
    expected = torch.einsum("or,rchw->ochw", b[:, :, 0, 0], a) * 8 / 2
    torch.testing.assert_close(merge_lora(state)[0]["c.weight"], expected)
    a, b = torch.randn(2, 9), torch.randn(4, 2)
    state = {"e.weight": torch.zeros(9, 4), "e.lora_A": a, "e.lora_B": b}
    torch.testing.assert_close(merge_lora(state)[0]["e.weight"], (b @ a).T / 2)


def test_an_alpha_beside_its_factors_comes_first():
    factors = {"f.lora_A": torch.ones(2, 3), "f.lora_B": torch.ones(4, 2)}
    state = {"f.weight": torch.zeros(4, 3), **factors, "f.lora_alpha": torch.tensor(6.0)}
    merged, note = merge_lora(state, alpha=100)
    assert merged.keys() == {"f.weight"}
    assert merged["f.weight"].unique().tolist() == [6.0]  # 6 / 2 * (1 * 1 + 1 * 1)
    assert note == "1 LoRA updates merged: alpha 6 (of the file), rank 2."


def test_half_precision_is_merged_in_single():
    state = {
        "f.weight": torch.ones(1, 1, dtype=torch.float16),
        "f.lora_A": torch.full((1, 1), 1e-4, dtype=torch.float16),
        "f.lora_B": torch.ones(1, 1, dtype=torch.float16),
    }
    merged = merge_lora(state)[0]["f.weight"]
    assert merged.dtype == torch.float32
    assert float(merged) > 1  # float16 would have rounded the update away


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"f.lora_A": (2, 3), "f.lora_B": (4, 2)}, "not the weight they belong to"),
        ({"f.weight": (4, 3), "f.lora_A": (2, 3)}, "only one of the two"),
        ({"f.weight": (4, 3), "f.lora_A": (6, 3), "f.lora_B": (4, 2)}, "do not fit"),
        ({"f.weight": (4, 3), "f.lora_A": (2, 3), "f.lora_B": (5, 2)}, "do not fit"),
        (
            {"f.weight": (4, 3), "f.lora_magnitude_vector.default.weight": (4,)},
            "cannot be merged",
        ),
        (
            {
                "f.weight": (4, 3),
                "f.lora_A.one.weight": (2, 3),
                "f.lora_B.one.weight": (4, 2),
                "f.lora_A.two.weight": (2, 3),
                "f.lora_B.two.weight": (4, 2),
            },
            "two LoRA adapters",
        ),
    ],
)
def test_factors_that_cannot_be_merged_are_refused(state, why):
    with raises("E-LORA-INVALID"):
        merge_lora({name: torch.ones(shape) for name, shape in state.items()})
