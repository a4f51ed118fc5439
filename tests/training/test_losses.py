"""The losses: masks, precision, how they hang together, and terms by name."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from errors import raises
from loss_support import MASKS, NAMES, SCALE, bundled, parts, value_and_gradients

from counterpoint.training import Features
from counterpoint.training.losses.terms import TERMS, Term, faults, loss, total, uses

# --- what is not there -------------------------------------------------------------------------


def test_what_is_masked_changes_nothing_and_gets_no_gradient():
    for name in NAMES:
        given = parts((4, 3, 2), "some", seed=3)
        value, grads = value_and_gradients(name, given)
        rng = torch.Generator().manual_seed(0)
        moved = dict(given)
        for mask, hidden in MASKS.items():
            for part in hidden:
                other = 1e3 * torch.randn(given[part].shape, generator=rng, dtype=torch.float64)
                moved[part] = torch.where(given[mask][..., None], given[part], other)
                if part in grads:
                    assert (grads[part][~given[mask]] == 0).all()
        again, others = value_and_gradients(name, moved)
        assert torch.equal(value, again) and grads.keys() == others.keys()
        for part in grads:
            assert torch.equal(grads[part], others[part])


def test_no_mask_means_all_are_there():
    for name in NAMES:
        given = parts((3, 2, 2), "all")
        bare = {part: value for part, value in given.items() if part not in MASKS}
        assert torch.equal(value_and_gradients(name, given)[0], value_and_gradients(name, bare)[0])


def test_without_negatives_or_positives_the_others_remain():
    given = parts((4, 3, 2), "none")
    plain = value_and_gradients("clip", given)[0]
    for name in ("clip-negatives", "trohn-img"):
        assert torch.allclose(value_and_gradients(name, given)[0], plain, rtol=1e-14)
    sigmoid = value_and_gradients("siglip", given)[0]
    for name in ("siglip-negatives", "siglip-trohn-img"):
        assert torch.allclose(value_and_gradients(name, given)[0], sigmoid, rtol=1e-14)
    names = ("negatives", "focal", "analogy", "mil", "mil-negatives", "listwise", "hinge")
    for name in (*names, "siglip-own", "siglip-positives"):
        value, grads = value_and_gradients(name, given)
        assert value == 0 and grads and not any(grad.any() for grad in grads.values())


def test_the_order_of_samples_does_not_matter():
    for name in NAMES:
        given = parts((4, 3, 2), "some", seed=5)
        order = torch.tensor([2, 0, 3, 1])
        value, grads = value_and_gradients(name, given)
        turned, others = value_and_gradients(name, {p: v[order] for p, v in given.items()})
        torch.testing.assert_close(value, turned, rtol=1e-12, atol=0)
        for part, grad in grads.items():
            expected = grad if part in ("scale", "bias") else grad[order]
            torch.testing.assert_close(others[part], expected, rtol=1e-10, atol=1e-12)


# --- precision ---------------------------------------------------------------------------------


def test_autocast_does_not_make_it_coarse():
    for name in NAMES:
        exact = parts((4, 3, 2), "some", seed=2, width=16)
        given = {p: v.float() if v.is_floating_point() else v for p, v in exact.items()}
        expected = value_and_gradients(name, exact, scale=50.0)[0]
        with torch.autocast("cpu", torch.bfloat16):
            value, _ = value_and_gradients(name, given, scale=50.0)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("gap", [1.0, -1.0, 0.0])
def test_sure_and_hopeless_batches_stay_finite_in_float32(gap):
    """Right texts at cosine `gap` and wrong ones at its opposite, under CLIP's largest scale."""
    given = {p: v.float() for p, v in parts((4, 3, 2), "all", width=8).items()}
    axes = torch.eye(4, 8)
    right = (gap * axes + math.sqrt(1 - gap * gap) * torch.eye(8)[4:]).float()
    for part, vectors in given.items():
        if part in MASKS:
            given[part] = vectors.bool()
            continue
        if part == "reconstruction":  # no vector, but losses
            given[part] = vectors.abs()
            continue
        is_image = part.endswith("images")
        one = axes if is_image else right if "negatives" not in part else -right
        given[part] = (one if vectors.ndim == 2 else one[:, None]).expand_as(vectors).clone()
    for name in NAMES:
        value, grads = value_and_gradients(name, given, scale=100.0)
        assert value.isfinite() and value >= 0, name
        assert all(grad.isfinite().all() for grad in grads.values()), name


# --- how the losses hang together --------------------------------------------------------------


def test_siglip_is_that_of_open_clip():
    from open_clip.loss import SigLipLoss

    f = bundled(parts((5, 1, 1), "all", width=8))
    expected = SigLipLoss()(f.images, f.captions, f.scale, f.bias)
    assert torch.allclose(loss(f, [Term("siglip")])["siglip"], expected, rtol=1e-12)


# --- by name -----------------------------------------------------------------------------------


def test_the_loss_of_a_recipe_is_the_weighted_sum_of_its_terms():
    batch = bundled(parts((4, 3, 2), "some"))
    terms = [Term("clip"), Term("negatives", 0.5), Term("focal", 0.0), Term("hold", 2.0)]
    values = loss(batch, terms)
    assert list(values) == ["clip", "negatives", "hold"]
    expected = values["clip"] + 0.5 * values["negatives"] + 2 * values["hold"]
    assert torch.allclose(total(values, terms), expected)
    with raises("E-LOSS-EMPTY"):
        total({}, [Term("clip", 0.0)])


def test_a_term_without_its_data_is_refused_unless_it_has_no_weight():
    given = parts((2, 1, 1), "all")
    bare = Features(given["images"], given["captions"], torch.tensor(SCALE))
    assert list(loss(bare, [Term("clip"), Term("analogy", 0.0)])) == ["clip"]
    with raises("E-LOSS-INPUT-MISSING", "negatives", "negatives"):
        loss(bare, [Term("negatives")])
    with raises("E-LOSS-INPUT-MISSING", "negclip"):
        loss(replace(bare, negatives=given["negatives"]), [Term("negclip")])
    with raises("E-LOSS-INPUT-MISSING", "hold"):
        loss(bare, [Term("hold")])
    with raises("E-LOSS-INPUT-MISSING", "siglip", "bias"):
        loss(bare, [Term("siglip")])


def test_what_the_terms_use_is_known_beforehand():
    assert uses([Term("clip"), Term("negclip", 0.0)]) == {"images", "captions"}
    assert {"negatives", "has_negative"} <= uses([Term("negatives")])
    assert {"hard_images", "hard_negatives"} <= uses([Term("negclip")])
    assert {"start_images", "start_captions"} <= uses([Term("hold")])
    assert "margin" not in uses([Term("listwise")]) and "scale" not in uses([Term("listwise")])


def test_all_faults_of_the_terms_are_told_at_once():
    assert faults([Term(name) for name in NAMES]) == []
    assert faults([Term("listwise", 1, {"margin": 0, "worst": False})]) == []
    found = faults(
        [
            Term("clip"),
            Term("clip", math.nan),
            Term("clip", 1.0, {"margin": 1}),
            Term("listwize"),
            Term("listwise", 1.0, {"margn": 0.1}),
            Term("hinge", 1.0, {"margin": "0.1", "worst": 1}),
            Term("focal", -1.0, {"gamma": True, "smoothing": -0.1}),
        ]
    )
    told = (
        "'clip' is there twice",
        "weight of 'clip' is nan",
        "'clip' is there twice",
        "'clip' has no options",
        "Did you mean 'listwise'?",
        "Did you mean 'margin'?",
        "option margin of 'hinge' must be a number >= 0, not '0.1'",
        "option worst of 'hinge' must be true or false, not 1",
        "weight of 'focal' is -1.0",
        "option gamma of 'focal' must be a number >= 0, not True",
        "option smoothing of 'focal' must be a number >= 0, not -0.1",
    )
    assert len(found) == len(told)
    for sentence, part in zip(found, told, strict=True):
        assert part in sentence


def test_every_term_says_its_formula():
    for name in NAMES:
        function = TERMS.get(name)
        assert function.__doc__ and len(function.__doc__) > 80
        assert {"images", "captions", "image_tokens"} & {*function.reads[0]}


def test_names_are_known_without_torch():
    program = "import sys; from counterpoint.training.losses.terms import TERMS; "
    program += "print(len(TERMS.names()) > 9, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "True False", done.stderr


def test_no_published_loss_sees_a_positive_below_its_negative_but_listwise_does():
    along = (torch.tensor([[s, math.sqrt(1 - s * s)]]) for s in (0.4, 0.1, 0.3))
    caption, positive, negative = along  # brittle: the positive fails
    texts = {"positives": positive, "negatives": negative[:, None]}
    batch = Features(torch.tensor([[1.0, 0.0]]), caption, torch.tensor(100.0), **texts)
    terms = [Term(name) for name in ("negatives", "analogy", "listwise")]
    values = loss(batch, terms)
    assert values["negatives"] + values["analogy"] < 1e-3 and values["listwise"] > 5
