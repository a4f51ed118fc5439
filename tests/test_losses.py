"""The losses against slow references, values and gradients; masks; what our own terms are for."""

from __future__ import annotations

import math
import subprocess
import sys
from inspect import signature

import numpy as np
import pytest
import torch

from counterpoint.errors import DataError, ModelError
from counterpoint.train.batches import Features
from counterpoint.train.losses import TERMS, Term, faults, loss, total, uses
from counterpoint.train.losses_counterpoint import (
    agreement,
    agreement_images,
    counterpart,
    hinge,
    hold,
    listwise,
)
from counterpoint.train.losses_published import (
    analogy,
    clip,
    clip_with_negatives,
    mil,
    negative_loss,
    negclip,
    trohn_img,
)

torch.set_num_threads(1)

# --- slow references: plain loops over floats, written from the formulas -------------------------


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def cross_entropy(logits, target):
    return math.log(sum(math.exp(x) for x in logits)) - logits[target]


def mean(values):
    return sum(values) / len(values) if values else 0.0


def slow_pairs(images, texts, extra, scale):
    """Half of: each image among all texts and `extra`, each text among all images."""
    found = []
    for i in range(len(images)):
        to_texts = [scale * dot(images[i], text) for text in [*texts, *extra]]
        to_images = [scale * dot(texts[i], image) for image in images]
        found.append((cross_entropy(to_texts, i) + cross_entropy(to_images, i)) / 2)
    return mean(found)


def slow_clip(images, captions, scale):
    return slow_pairs(images, captions, [], scale)


def listed(negatives, has_negative):
    return [
        n
        for row, there in zip(negatives, has_negative, strict=True)
        for n, yes in zip(row, there, strict=True)
        if yes
    ]


def slow_clip_negatives(images, captions, negatives, scale, has_negative):
    return slow_pairs(images, captions, listed(negatives, has_negative), scale)


def slow_negclip(
    images,
    captions,
    negatives,
    hard_images,
    hard_captions,
    hard_negatives,
    scale,
    has_negative,
    hard_has_negative,
):
    extra = listed(negatives, has_negative) + listed(hard_negatives, hard_has_negative)
    return slow_pairs(images + hard_images, captions + hard_captions, extra, scale)


def slow_negatives(images, captions, negatives, scale, has_negative):
    found = []
    for i, image in enumerate(images):
        own = listed([negatives[i]], [has_negative[i]])
        if own:
            found.append(cross_entropy([scale * dot(image, t) for t in [captions[i], *own]], 0))
    return mean(found)


def slow_focal(images, captions, negatives, scale, has_negative, gamma=2.0, smoothing=0.02):
    found = []
    for i, image in enumerate(images):
        own = listed([negatives[i]], [has_negative[i]])
        if not own:
            continue
        powers = [math.exp(scale * dot(image, text)) for text in [captions[i], *own]]
        value = 0.0
        for number, power in enumerate(powers):
            p = power / sum(powers)
            y = smoothing / len(powers) + (1 - smoothing if number == 0 else 0)
            value -= y * (1 - p) ** gamma * math.log(p)
        found.append(value)
    return mean(found)


def slow_analogy(images, captions, positives, scale, has_positive, symmetric=False):
    chosen = [i for i, yes in enumerate(has_positive) if yes]
    found = []
    for queries in (images, captions):
        for place, i in enumerate(chosen):
            there = [scale * dot(queries[i], positives[j]) for j in chosen]
            back = [scale * dot(positives[i], queries[j]) for j in chosen]
            found.append(cross_entropy(there, place))
            if symmetric:
                found.append(cross_entropy(back, place))
    return mean(found)


def slow_mil(images, dense, scale, has_dense):
    def x(i, j, k):
        return math.exp(scale * dot(images[i], dense[j][k])) if has_dense[j][k] else 0.0

    found = []
    for i in range(len(images)):
        own = sum(x(i, i, k) for k in range(len(dense[i])))
        every = sum(
            x(i, j, k) + x(j, i, k) for j in range(len(images)) for k in range(len(dense[j]))
        )
        if any(has_dense[i]):
            found.append(math.log(every) - math.log(own))
    return mean(found)


def slow_mil_negatives(images, dense, dense_negatives, scale, has_dense, has_dense_negative):
    found = []
    for i, image in enumerate(images):
        own = sum(math.exp(scale * dot(image, s)) for s in listed([dense[i]], [has_dense[i]]))
        wrong = sum(
            math.exp(scale * dot(image, s))
            for s in listed([dense_negatives[i]], [has_dense_negative[i]])
        )
        if own and wrong:
            found.append(math.log(own + wrong) - math.log(own))
    return mean(found)


def slow_trohn_img(
    images, captions, negative_images, negatives, scale, has_negative_image, has_negative
):
    twins = [i for i in range(len(images)) if has_negative_image[i] and has_negative[i][0]]
    return slow_pairs(
        images + [negative_images[i] for i in twins],
        captions + [negatives[i][0] for i in twins],
        [],
        scale,
    )


def truths(i, captions, positives, has_positive):
    return [captions[i], *([positives[i]] if has_positive[i] else [])]


def slow_listwise(
    images,
    captions,
    negatives,
    scale,
    positives,
    has_positive,
    has_negative,
    margin=0.0,
    worst=True,
):
    found = []
    for i, image in enumerate(images):
        own = listed([negatives[i]], [has_negative[i]])
        sums = [
            sum(math.exp(scale * (dot(image, n) - dot(image, t) + margin)) for n in own)
            for t in truths(i, captions, positives, has_positive)
        ]
        if own:
            found.append(
                math.log(1 + sum(sums)) if worst else mean([math.log(1 + one) for one in sums])
            )
    return mean(found)


def slow_hinge(
    images,
    captions,
    negatives,
    scale,
    positives,
    has_positive,
    has_negative,
    margin=0.1,
    worst=False,
):
    found = []
    for i, image in enumerate(images):
        over = [
            max(0.0, scale * (dot(image, n) - dot(image, t) + margin))
            for n in listed([negatives[i]], [has_negative[i]])
            for t in truths(i, captions, positives, has_positive)
        ]
        if over:
            found.append(max(over) if worst else mean(over))
    return mean(found)


def slow_agreement(images, captions, positives, scale, has_positive):
    found = []
    for i, image in enumerate(images):
        x = abs(scale * (dot(image, captions[i]) - dot(image, positives[i])))
        if has_positive[i]:
            found.append(x * x / 2 if x < 1 else x - 0.5)
    return mean(found)


def slow_agreement_images(images, captions, positives, scale, has_positive):
    def shares(text):
        powers = [math.exp(scale * dot(text, image)) for image in images]
        return [power / sum(powers) for power in powers]

    found = []
    for i in range(len(images)):
        p, q = shares(captions[i]), shares(positives[i])
        one = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
        two = sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
        if has_positive[i]:
            found.append((one + two) / 2)
    return mean(found)


def slow_counterpart(
    images,
    captions,
    negatives,
    negative_images,
    scale,
    positives,
    has_positive,
    has_negative,
    has_negative_image,
    margin=0.0,
):
    found = []
    for i, (image, other) in enumerate(zip(images, negative_images, strict=True)):
        if not (has_negative_image[i] and has_negative[i][0]):
            continue
        n = negatives[i][0]
        gaps = [dot(image, n) - dot(other, n)]
        for t in truths(i, captions, positives, has_positive):
            gaps += [dot(other, t) - dot(image, t), dot(other, t) - dot(other, n)]
        found.append(math.log(1 + sum(math.exp(scale * (gap + margin)) for gap in gaps)))
    return mean(found)


def slow_hold(
    images,
    captions,
    scale,
    start_images,
    start_captions,
    positives,
    has_positive,
    start_positives,
    slack=0.0,
):
    found = []
    for i, image in enumerate(images):
        pairs = [(captions[i], start_captions[i])]
        if has_positive[i]:
            pairs.append((positives[i], start_positives[i]))
        for now, before in pairs:
            lost = dot(start_images[i], before) - dot(image, now) - slack
            found.append(scale * max(0.0, lost))
    return mean(found)


REFERENCES = [
    ("clip", slow_clip, {}),
    ("clip-negatives", slow_clip_negatives, {}),
    ("negclip", slow_negclip, {}),
    ("negatives", slow_negatives, {}),
    ("focal", slow_focal, {}),
    ("focal", slow_focal, {"gamma": 0.5, "smoothing": 0.3}),
    ("analogy", slow_analogy, {}),
    ("analogy", slow_analogy, {"symmetric": True}),
    ("mil", slow_mil, {}),
    ("mil-negatives", slow_mil_negatives, {}),
    ("trohn-img", slow_trohn_img, {}),
    ("listwise", slow_listwise, {}),
    ("listwise", slow_listwise, {"margin": 0.2, "worst": False}),
    ("hinge", slow_hinge, {}),
    ("hinge", slow_hinge, {"margin": 0.3, "worst": True}),
    ("agreement", slow_agreement, {}),
    ("agreement-images", slow_agreement_images, {}),
    ("counterpart", slow_counterpart, {"margin": 0.1}),
    ("hold", slow_hold, {}),
    ("hold", slow_hold, {"slack": 0.1}),
]
NAMES = sorted(TERMS.builtin)
OURS = {"listwise", "hinge", "agreement", "agreement-images", "counterpart", "hold"}
SCALE = 4.0
SIZES = [(1, 3, 1), (2, 1, 2), (3, 3, 2)]


# --- batches -----------------------------------------------------------------------------------

MASKS = {  # of which vectors each says that they are there
    "has_positive": ("positives", "start_positives"),
    "has_negative": ("negatives",),
    "has_negative_image": ("negative_images",),
    "has_dense": ("dense",),
    "has_dense_negative": ("dense_negatives",),
    "hard_has_negative": ("hard_negatives",),
}


def parts(sizes, there, seed=0, width=3):
    """All that a term may ask for, by the parameter's name. `there`: all, none, or some."""
    count, k, m = sizes
    rng = np.random.default_rng((seed, count, k, m))
    shapes = {"negatives": (k,), "hard_negatives": (k,), "dense": (m,), "dense_negatives": (m,)}
    names = ["images", "captions", "positives", "negative_images", "hard_images", "hard_captions"]
    names += ["start_images", "start_captions", "start_positives", *shapes]
    found = {}
    for name in names:
        vectors = rng.standard_normal((count, *shapes.get(name, ()), width))
        found[name] = torch.tensor(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))
    for mask, (vectors, *_) in MASKS.items():
        chosen = {"all": 1.0, "none": 0.0, "some": 0.6}[there]
        shape = tuple(found[vectors].shape[:-1])
        found[mask] = torch.tensor(rng.random(shape) < chosen)
    return found


def bundled(given):
    """The same as the loop has it: vectors of the batch, and those of the start."""

    def features(prefix):
        return Features(
            **{
                name.removeprefix(prefix): value
                for name, value in given.items()
                if name.startswith(prefix) and (prefix or not name.startswith(("hard_", "start_")))
            }
        )

    batch = features("")
    batch.hard = features("hard_")
    return batch, features("start_")


EVERY = frozenset(parts(SIZES[0], "all"))


def wanted(name):
    """The parameters of a term that are no option."""
    return [p for p in signature(TERMS.get(name)).parameters if p in EVERY]


def value_and_gradients(name, given, options=None, scale=SCALE):
    """By way of `loss`, as the loop does it."""
    leaves = {
        part: value.clone().requires_grad_() if value.is_floating_point() else value
        for part, value in given.items()
    }
    dtype = given["images"].dtype
    factor = torch.tensor(scale, dtype=dtype, requires_grad=True)
    term = Term(name, 1.0, options or {})
    batch, start = bundled(leaves)
    values = loss(batch, factor, [term], start)
    assert list(values) == [name]
    if values[name].requires_grad:
        values[name].backward()
    grads = {part: leaf.grad for part, leaf in leaves.items() if leaf.grad is not None}
    if factor.grad is not None:
        grads["scale"] = factor.grad
    return values[name].detach(), grads


# --- against the references --------------------------------------------------------------------


def plainly(name, given):
    return {part: given[part].tolist() for part in wanted(name)}


def slowly(reference, name, given, options, scale=SCALE):
    return reference(**plainly(name, given), scale=scale, **options)


def slow_gradient(reference, name, given, options, part, step=1e-6):
    """Central differences, one number after the other."""
    plain, slopes = plainly(name, given), []
    for place in range(given[part].numel()):
        ends = []
        for sign in (1, -1):
            moved = given[part].clone()
            moved.view(-1)[place] += sign * step
            ends.append(reference(**plain | {part: moved.tolist()}, scale=SCALE, **options))
        slopes.append((ends[0] - ends[1]) / (2 * step))
    return torch.tensor(slopes, dtype=torch.float64).view_as(given[part])


@pytest.mark.parametrize("there", ["all", "some", "none"])
@pytest.mark.parametrize(("name", "reference", "options"), REFERENCES)
def test_values_and_gradients_agree_with_a_slow_reference(name, reference, options, there):
    for sizes in SIZES:
        given = parts(sizes, there)
        value, grads = value_and_gradients(name, given, options)
        assert value == pytest.approx(slowly(reference, name, given, options), abs=1e-12, rel=1e-12)
        vectors = [part for part in wanted(name) if given[part].is_floating_point()]
        assert grads.keys() <= {*vectors, "scale"}
        for part in vectors:
            found = grads.get(part, torch.zeros_like(given[part]))
            if part.startswith("start_"):
                assert not found.any()
                continue
            expected = slow_gradient(reference, name, given, options, part)
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("name", "reference", "options"), REFERENCES)
def test_values_agree_whatever_is_missing(name, reference, options):
    """Such as a dense negative without its caption, or an image without its negative."""
    with torch.autograd.set_detect_anomaly(
        True
    ):  # a NaN on the way back is an error even if dropped
        for seed in range(25):
            given = parts((3, 2, 2), "some", seed)
            value, grads = value_and_gradients(name, given, options)
            expected = slowly(reference, name, given, options)
            assert value == pytest.approx(expected, abs=1e-12, rel=1e-12)
            assert all(grad.isfinite().all() for grad in grads.values())


@pytest.mark.parametrize(("name", "reference", "options"), REFERENCES)
def test_the_scale_has_its_gradient_or_none_at_all(name, reference, options):
    given = parts((4, 3, 2), "some", seed=1)
    _, grads = value_and_gradients(name, given, options)
    ends = [slowly(reference, name, given, options, SCALE + step) for step in (1e-6, -1e-6)]
    if name in OURS:
        assert "scale" not in grads and ends[0] != ends[1]
    else:
        assert float(grads["scale"]) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)


def test_every_term_has_a_reference():
    assert {name for name, *_ in REFERENCES} == set(NAMES)


# --- what is not there -------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_what_is_masked_changes_nothing_and_gets_no_gradient(name):
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


@pytest.mark.parametrize("name", NAMES)
def test_no_mask_means_all_are_there(name):
    given = parts((3, 2, 2), "all")
    bare = {part: value for part, value in given.items() if part not in MASKS}
    assert torch.equal(value_and_gradients(name, given)[0], value_and_gradients(name, bare)[0])


def test_without_negatives_or_positives_the_others_remain():
    given = parts((4, 3, 2), "none")
    plain = value_and_gradients("clip", given)[0]
    for name in ("clip-negatives", "trohn-img"):
        assert torch.allclose(value_and_gradients(name, given)[0], plain, rtol=1e-14)
    for name in ("negatives", "focal", "analogy", "mil", "mil-negatives", "listwise", "hinge"):
        value, grads = value_and_gradients(name, given)
        assert value == 0 and grads and not any(grad.any() for grad in grads.values())


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_samples_does_not_matter(name):
    given = parts((4, 3, 2), "some", seed=5)
    order = torch.tensor([2, 0, 3, 1])
    value, grads = value_and_gradients(name, given)
    turned, others = value_and_gradients(name, {p: v[order] for p, v in given.items()})
    torch.testing.assert_close(value, turned, rtol=1e-12, atol=0)
    for part, grad in grads.items():
        expected = grad if part == "scale" else grad[order]
        torch.testing.assert_close(others[part], expected, rtol=1e-10, atol=1e-12)


# --- precision ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_autocast_and_narrow_vectors_do_not_make_it_coarse(name):
    wide = parts((4, 3, 2), "some", seed=2, width=16)
    narrow = {p: v.bfloat16() if v.is_floating_point() else v for p, v in wide.items()}
    same = {p: v.float() if v.is_floating_point() else v for p, v in narrow.items()}
    exact = {p: v.double() if v.is_floating_point() else v for p, v in narrow.items()}
    expected = value_and_gradients(name, exact, scale=50.0)[0]
    for given in (narrow, same):
        with torch.autocast("cpu", torch.bfloat16):
            value, _ = value_and_gradients(name, given, scale=50.0)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("gap", [1.0, -1.0, 0.0])
@pytest.mark.parametrize("name", NAMES)
def test_sure_and_hopeless_batches_stay_finite_in_float32(name, gap):
    """Right texts at cosine `gap` and wrong ones at its opposite, under CLIP's largest scale."""
    given = {p: v.float() for p, v in parts((4, 3, 2), "all", width=8).items()}
    axes = torch.eye(4, 8)
    right = (gap * axes + math.sqrt(1 - gap * gap) * torch.eye(8)[4:]).float()
    for part, vectors in given.items():
        if part in MASKS:
            given[part] = vectors.bool()
            continue
        is_image = part.endswith("images")
        one = axes if is_image else right if "negatives" not in part else -right
        given[part] = (one if vectors.ndim == 2 else one[:, None]).expand_as(vectors).clone()
    value, grads = value_and_gradients(name, given, scale=100.0)
    assert value.isfinite() and value >= 0
    assert all(grad.isfinite().all() for grad in grads.values())


# --- how the losses hang together --------------------------------------------------------------


def test_one_sample_alone_is_always_right():
    given = parts((1, 1, 1), "all")
    assert clip(given["images"], given["captions"], torch.tensor(SCALE)) == 0


def test_focal_without_focus_is_the_negatives_loss():
    given = parts((4, 3, 2), "some")
    plain = value_and_gradients("negatives", given)[0]
    assert torch.allclose(
        value_and_gradients("focal", given, {"gamma": 0, "smoothing": 0})[0], plain
    )
    assert value_and_gradients("focal", given)[0] < plain


def test_listwise_without_positives_is_the_negatives_loss():
    given = parts((4, 3, 2), "some")
    bare = {part: v for part, v in given.items() if "positive" not in part}
    expected = value_and_gradients("negatives", given)[0]
    for worst in (True, False):
        value = value_and_gradients("listwise", bare, {"worst": worst})[0]
        assert torch.allclose(value, expected)


def test_negclip_is_twice_the_batch():
    given = parts((3, 2, 1), "some")
    masks = given["has_negative"], given["hard_has_negative"]
    names = ("images", "captions", "negatives")
    whole = [torch.cat((given[name], given[f"hard_{name}"])) for name in names]
    expected = clip_with_negatives(*whole, torch.tensor(SCALE), torch.cat(masks))
    assert torch.equal(value_and_gradients("negclip", given)[0], expected)
    assert negclip.__doc__ and "NegCLIP" in negclip.__doc__


def test_mil_is_never_below_log_two():
    axes = torch.eye(4)
    assert float(mil(axes, axes[:, None], torch.tensor(100.0))) == pytest.approx(
        math.log(2), abs=1e-5
    )


def test_analogy_with_captions_for_positives_is_half_of_clip():
    given = parts((4, 1, 1), "all")
    images, captions, scale = given["images"], given["captions"], torch.tensor(SCALE)
    both = analogy(images, captions, captions, scale, symmetric=True)
    apart = clip(images, captions, scale) + clip(captions, captions, scale)
    assert torch.allclose(both, apart / 2)


def test_trohn_img_sees_the_twins():
    given = parts((4, 1, 1), "all")
    named = [given[n] for n in ("images", "captions", "negative_images", "negatives")]
    one = torch.tensor([True, False, False, False])
    images = torch.cat((named[0], named[2][:1]))
    texts = torch.cat((named[1], named[3][:1, 0]))
    value = trohn_img(*named, torch.tensor(SCALE), has_negative_image=one)
    assert torch.allclose(value, clip(images, texts, torch.tensor(SCALE)))


# --- what our own terms are for ----------------------------------------------------------------


def scored(*scores):
    """Texts (1, 3) that have these scores with the image [1, 0, 0]."""
    return [torch.tensor([[s, math.sqrt(1 - s * s), 0.0]]).requires_grad_() for s in scores]


IMAGE = torch.tensor([[1.0, 0.0, 0.0]])
CLIP_SCALE = torch.tensor(100.0)


def test_no_published_loss_sees_a_positive_below_its_negative_but_listwise_does():
    caption, positive, negative = scored(0.4, 0.1, 0.3)  # brittle: the positive fails
    fine = negative_loss(IMAGE, caption, negative[:, None], CLIP_SCALE)
    assert fine + analogy(IMAGE, caption, positive, CLIP_SCALE) < 1e-3
    for worst in (True, False):
        value = listwise(
            IMAGE, caption, negative[:, None], CLIP_SCALE, positive, margin=0.0, worst=worst
        )
        assert value > 5


def test_the_worst_true_text_and_the_best_negative_get_the_gradient():
    caption, positive, good, bad = scored(0.4, 0.2, 0.0, 0.3)
    negatives = torch.stack((good, bad), 1)
    listwise(IMAGE, caption, negatives, CLIP_SCALE, positive).backward()
    along = [float(text.grad[0, 0]) for text in (caption, positive, good, bad)]
    assert along == pytest.approx([0, -100, 0, 100], abs=0.02)


@pytest.mark.parametrize("worst", [True, False])
def test_beyond_the_margin_nothing_is_pushed(worst):
    caption, positive, negative = scored(0.5, 0.45, 0.2)
    args = (IMAGE, caption, negative[:, None], CLIP_SCALE, positive)
    options = {"margin": 0.1, "worst": worst}
    assert hinge(*args, **options) == 0
    listwise(*args, **options).backward()
    assert max(float(text.grad.abs().max()) for text in (caption, positive, negative)) < 1e-3
    assert hinge(*args, margin=0.3, worst=True).item() == pytest.approx(5.0, rel=1e-4)
    assert hinge(*args, margin=0.3).item() == pytest.approx(2.5, rel=1e-4)


def test_agreement_pulls_both_ways_and_no_harder_than_a_cross_entropy():
    caption, positive = scored(0.5, 0.3)
    agreement(IMAGE, caption, positive, CLIP_SCALE).backward()
    assert float(caption.grad[0, 0]) == -float(positive.grad[0, 0]) == 100
    same = scored(0.4)[0]
    assert agreement(IMAGE, same, same, CLIP_SCALE) == 0
    assert agreement_images(torch.eye(3), torch.eye(3), torch.eye(3), CLIP_SCALE) == 0


def test_counterpart_is_small_only_where_the_group_is_right():
    """Image and twin, caption and negative: BiVLC's square."""
    twin = torch.tensor([[0.0, 1.0, 0.0]])
    right = counterpart(IMAGE, IMAGE, twin[:, None], twin, CLIP_SCALE, margin=0.1)
    blind = counterpart(IMAGE, IMAGE, IMAGE[:, None], twin, CLIP_SCALE)
    assert right < 1e-6 and blind > 50


def test_hold_asks_only_for_what_was_lost():
    before = scored(0.3)[0].detach()
    for now, expected in ((0.3, 0), (0.5, 0), (0.2, 10), (0.28, 2)):
        text = scored(now)[0]
        value = hold(IMAGE, text, CLIP_SCALE, IMAGE, before)
        value.backward()
        assert float(value.detach()) == pytest.approx(expected, abs=1e-4)
        assert float(text.grad[0, 0]) == (-100 if expected else 0)
    assert hold(IMAGE, scored(0.28)[0], CLIP_SCALE, IMAGE, before, slack=0.05) == 0


# --- by name -----------------------------------------------------------------------------------


def test_the_loss_of_a_recipe_is_the_weighted_sum_of_its_terms():
    batch, start = bundled(parts((4, 3, 2), "some"))
    scale = torch.tensor(SCALE)
    terms = [Term("clip"), Term("negatives", 0.5), Term("focal", 0.0), Term("hold", 2.0)]
    values = loss(batch, scale, terms, start)
    assert list(values) == ["clip", "negatives", "hold"]
    expected = values["clip"] + 0.5 * values["negatives"] + 2 * values["hold"]
    assert torch.allclose(total(values, terms), expected)
    with pytest.raises(ModelError, match="no term with a weight"):
        total({}, [Term("clip", 0.0)])


def test_options_reach_the_term():
    batch, _ = bundled(parts((4, 3, 2), "some"))
    found = [
        loss(batch, torch.tensor(SCALE), [Term("listwise", 1.0, {"margin": margin})])["listwise"]
        for margin in (0.0, 0.2)
    ]
    assert found[0] < found[1]


def test_a_term_without_its_data_is_refused_unless_it_has_no_weight():
    given = parts((2, 1, 1), "all")
    bare = Features(given["images"], given["captions"])
    scale = torch.tensor(SCALE)
    assert list(loss(bare, scale, [Term("clip"), Term("analogy", 0.0)])) == ["clip"]
    with pytest.raises(DataError, match="'negatives' needs negatives, and the data has none"):
        loss(bare, scale, [Term("negatives")])
    with pytest.raises(DataError, match="'negclip' needs hard images"):
        loss(
            Features(given["images"], given["captions"], negatives=given["negatives"]),
            scale,
            [Term("negclip")],
        )
    with pytest.raises(DataError, match="'hold' needs the vectors of the start"):
        loss(bare, scale, [Term("hold")])


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


@pytest.mark.parametrize("name", NAMES)
def test_every_term_says_its_formula(name):
    function = TERMS.get(name)
    assert function.__doc__ and len(function.__doc__) > 80
    assert signature(function).parameters.keys() >= {"images", "scale"}


def test_names_are_known_without_torch():
    program = "import sys; from counterpoint.train.losses import TERMS; "
    program += "print(len(TERMS.names()) > 9, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "True False", done.stderr
