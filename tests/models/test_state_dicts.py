"""Checkpoints as people save them, made into plain state dicts; LoRA against the plain formula."""

from __future__ import annotations

from argparse import Namespace

import pytest
import torch
from errors import raises
from hypothesis import given, settings, strategies as st

from counterpoint.models.openclip.state_dicts import (
    from_transformers,
    merge_lora,
    place_text_tower,
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


@pytest.mark.parametrize(
    "wrapper",
    ["state_dict", "model_state_dict", "model", "module", "net", "ema", "model_ema"],
)
def test_wrapped_weights_are_found_and_the_rest_is_named(wrapper):
    found = unwrap({"epoch": 5, wrapper: plain(), "optimizer": {"state": {0: torch.ones(1)}}})
    assert same(found.tensors, plain())
    assert found.unused == ("epoch", "optimizer")


def test_bare_weights_and_weights_wrapped_twice_are_found():
    assert same(unwrap(plain()).tensors, plain())
    found = unwrap({"model": {"state_dict": plain(), "step": 1}, "args": Namespace(lr=1)})
    assert same(found.tensors, plain())
    assert found.unused == ("args", "step")


def test_trained_weights_come_before_their_mean():
    mean = {name: value + 1 for name, value in plain().items()}
    found = unwrap({"ema": mean, "state_dict": plain()})
    assert same(found.tensors, plain())
    assert found.unused == ("ema",)


def test_values_that_are_no_tensors_are_named():
    found = unwrap({**plain(), "input_resolution": 224})
    assert same(found.tensors, plain())
    assert found.unused == ("input_resolution",)


@pytest.mark.parametrize("nothing", [{}, {"epoch": 1}, {"model": {}}, [1], 7, torch.ones(2)])
def test_a_file_without_weights_by_name_is_refused(nothing):
    with raises("E-WEIGHTS-BROKEN"):
        unwrap(nothing)


@pytest.mark.parametrize(
    "record",
    [
        {"lora_alpha": 16},
        {"args": Namespace(lora_alpha=16.0)},
        {"config": {"lora_alpha": 16}},
        {"hyper_parameters": {"lora_alpha": 16}},
    ],
)
def test_a_recorded_alpha_is_found(record):
    assert unwrap({"state_dict": plain(), **record}).alpha == 16
    assert unwrap({"state_dict": plain(), "args": Namespace(lora_alpha=None)}).alpha is None


# --- prefixes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prefix",
    [
        "module.",
        "model.",
        "clip.",
        "module.model.",
        "model.module.clip.",
        "_orig_mod.",
        "module._orig_mod.",
        "base_model.model.",
        "clip_model.",
    ],
)
def test_prefixes_are_cut(prefix):
    assert same(strip_prefixes({prefix + name: v for name, v in plain().items()}), plain())


def test_prefixes_inside_names_are_cut():
    named = {name.replace("visual.", "visual._orig_mod."): v for name, v in plain().items()}
    assert len(named.keys() - plain().keys()) == 2
    assert same(strip_prefixes(named), plain())


def test_plain_names_are_left_alone():
    with_head = {**plain(), "model.head.weight": torch.ones(1), "module.x": torch.ones(1)}
    assert same(strip_prefixes(with_head), with_head)


def test_a_second_copy_keeps_its_prefix():
    state = {f"{who}.{name}": v for who in ("teacher", "model") for name, v in plain().items()}
    found = strip_prefixes(state)
    assert plain().keys() <= found.keys()
    assert {f"teacher.{name}" for name in plain()} == found.keys() - plain().keys()


def test_a_weight_under_two_names_is_refused():
    with raises("E-WEIGHTS-AMBIGUOUS", "model."):
        strip_prefixes({"model.logit_scale": torch.ones(1), "logit_scale": torch.zeros(1)})


# --- LoRA --------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 7),
    columns=st.integers(1, 7),
    rank=st.integers(1, 5),
    alpha=st.one_of(st.none(), st.floats(0.1, 64)),
    form=st.sampled_from(["loralib", "attention", "peft", "peft-base"]),
    seed=st.integers(0, 1000),
)
def test_merging_is_the_plain_formula(rows, columns, rank, alpha, form, seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((rows, columns), (rank, columns), (rows, rank))
    weight, a, b = (torch.randn(shape, generator=generator) for shape in shapes)
    base, names = {
        "loralib": ("x.fc.weight", "x.fc.lora_{}"),
        "attention": ("x.in_proj_weight", "x.in_proj_weight_lora_{}"),
        "peft": ("x.fc.weight", "x.fc.lora_{}.default.weight"),
        "peft-base": ("x.fc.base_layer.weight", "x.fc.lora_{}.default.weight"),
    }[form]
    state = {base: weight, names.format("A"): a, names.format("B"): b, "x.bias": torch.ones(1)}
    before = {name: value.clone() for name, value in state.items()}
    merged, note = merge_lora(state, alpha)
    default = 8 if "peft" in form else 1
    scale = (default if alpha is None else alpha) / rank
    assert merged.keys() == {base.replace(".base_layer", ""), "x.bias"}
    expected = [
        [
            float(weight[i, j]) + scale * sum(float(b[i, k]) * float(a[k, j]) for k in range(rank))
            for j in range(columns)
        ]
        for i in range(rows)
    ]
    torch.testing.assert_close(
        merged[base.replace(".base_layer", "")], torch.tensor(expected), rtol=1e-4, atol=1e-4
    )
    assert same(state, before)  # what was given is left as it was
    assert note is not None and f"rank {rank}" in note
    assert ("records none" in note) is (alpha is None)


def test_loralibs_convolution_counts_its_kernel():
    """Its factors have r rows for each row of the kernel, and the scale is alpha / r."""
    out, channels, kernel, rank = 5, 3, 4, 2
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(out, channels, kernel, kernel, generator=generator)
    a = torch.randn(rank * kernel, channels * kernel, generator=generator)
    b = torch.randn(out * kernel, rank * kernel, generator=generator)
    state = {"conv1.weight": weight, "conv1.lora_A": a, "conv1.lora_B": b}
    expected = weight + (b @ a).view(weight.shape) * (1 / rank)
    torch.testing.assert_close(merge_lora(state).state["conv1.weight"], expected)
    assert "rank 2" in str(merge_lora(state).note)


def test_pefts_convolution_and_loralibs_embedding():
    a, b = torch.randn(2, 3, 4, 4), torch.randn(5, 2, 1, 1)
    state = {"c.weight": torch.zeros(5, 3, 4, 4), "c.lora_A.d.weight": a, "c.lora_B.d.weight": b}
    expected = torch.einsum("or,rchw->ochw", b[:, :, 0, 0], a) * 8 / 2
    torch.testing.assert_close(merge_lora(state).state["c.weight"], expected)
    a, b = torch.randn(2, 9), torch.randn(4, 2)
    state = {"e.weight": torch.zeros(9, 4), "e.lora_A": a, "e.lora_B": b}
    torch.testing.assert_close(merge_lora(state).state["e.weight"], (b @ a).T / 2)


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
    merged = merge_lora(state).state["f.weight"]
    assert merged.dtype == torch.float32
    assert float(merged) > 1  # float16 would have rounded the update away


def test_without_factors_nothing_changes():
    state = plain()
    assert merge_lora(state) == (state, None)


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


# --- names -------------------------------------------------------------------------------------


def test_transformers_attention_becomes_one_matrix_in_the_order_q_k_v():
    layer = "vision_model.encoder.layers.3.self_attn"
    state = {
        f"{layer}.{part}_proj.{kind}": torch.full((2, 2) if kind == "weight" else (2,), float(n))
        for n, part in enumerate("kvq")
        for kind in ("weight", "bias")
    }
    found = from_transformers(state)
    place = "visual.transformer.resblocks.3.attn.in_proj_"
    assert found[place + "weight"][:, 0].tolist() == [2, 2, 0, 0, 1, 1]  # q, k, v
    assert found[place + "bias"].tolist() == [2, 2, 0, 0, 1, 1]
    assert len(found) == 2


def test_other_names_are_left_as_they_are():
    assert same(from_transformers(plain()), plain())
    strange = {"vision_model.head.probe": torch.ones(1), "logit_bias": torch.ones(1)}
    assert same(from_transformers(strange), strange)


def test_text_towers_move_in_and_out():
    state = {**plain(), "transformer.resblocks.0.ln_1.bias": torch.ones(2)}
    state |= {"visual.transformer.x": torch.ones(1), "text_projection": torch.ones(1)}
    inside = place_text_tower(state, inside=True)
    moved = {"token_embedding.weight", "transformer.resblocks.0.ln_1.bias", "text_projection"}
    assert inside.keys() == (state.keys() - moved) | {f"text.{name}" for name in moved}
    assert same(place_text_tower(inside, inside=True), inside)
    assert same(place_text_tower(inside, inside=False), state)
    assert same(place_text_tower(state, inside=False), state)
