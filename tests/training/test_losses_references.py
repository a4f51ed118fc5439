"""The losses against slow references: values and gradients."""

from __future__ import annotations

import math
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from loss_support import BIAS, NAMES, SCALE, SIZES, parts, value_and_gradients, wanted

pytestmark = pytest.mark.slow

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


def slow_clip(f):
    return slow_pairs(f.images, f.captions, [], f.scale)


def listed(negatives, has_negative):
    return [
        n
        for row, there in zip(negatives, has_negative, strict=True)
        for n, yes in zip(row, there, strict=True)
        if yes
    ]


def slow_clip_negatives(f):
    return slow_pairs(f.images, f.captions, listed(f.negatives, f.has_negative), f.scale)


def slow_negclip(f):
    extra = listed(f.negatives, f.has_negative) + listed(f.hard_negatives, f.hard_has_negative)
    return slow_pairs(f.images + f.hard_images, f.captions + f.hard_captions, extra, f.scale)


def slow_negatives(f):
    found = []
    for i, image in enumerate(f.images):
        own = listed([f.negatives[i]], [f.has_negative[i]])
        if own:
            found.append(cross_entropy([f.scale * dot(image, t) for t in [f.captions[i], *own]], 0))
    return mean(found)


def slow_focal(f, gamma=2.0, smoothing=0.02):
    found = []
    for i, image in enumerate(f.images):
        own = listed([f.negatives[i]], [f.has_negative[i]])
        if not own:
            continue
        powers = [math.exp(f.scale * dot(image, text)) for text in [f.captions[i], *own]]
        value = 0.0
        for number, power in enumerate(powers):
            p = power / sum(powers)
            y = smoothing / len(powers) + (1 - smoothing if number == 0 else 0)
            value -= y * (1 - p) ** gamma * math.log(p)
        found.append(value)
    return mean(found)


def slow_analogy(f, symmetric=False):
    chosen = [i for i, yes in enumerate(f.has_positive) if yes]
    found = []
    for queries in (f.images, f.captions):
        for place, i in enumerate(chosen):
            there = [f.scale * dot(queries[i], f.positives[j]) for j in chosen]
            back = [f.scale * dot(f.positives[i], queries[j]) for j in chosen]
            found.append(cross_entropy(there, place))
            if symmetric:
                found.append(cross_entropy(back, place))
    return mean(found)


def slow_mil(f):
    def x(i, j, k):
        return math.exp(f.scale * dot(f.images[i], f.dense[j][k])) if f.has_dense[j][k] else 0.0

    found = []
    for i in range(len(f.images)):
        own = sum(x(i, i, k) for k in range(len(f.dense[i])))
        every = sum(
            x(i, j, k) + x(j, i, k) for j in range(len(f.images)) for k in range(len(f.dense[j]))
        )
        if any(f.has_dense[i]):
            found.append(math.log(every) - math.log(own))
    return mean(found)


def slow_mil_negatives(f):
    found = []
    for i, image in enumerate(f.images):
        own = sum(math.exp(f.scale * dot(image, s)) for s in listed([f.dense[i]], [f.has_dense[i]]))
        wrong = sum(
            math.exp(f.scale * dot(image, s))
            for s in listed([f.dense_negatives[i]], [f.has_dense_negative[i]])
        )
        if own and wrong:
            found.append(math.log(own + wrong) - math.log(own))
    return mean(found)


def slow_trohn_img(f):
    twins = [i for i in range(len(f.images)) if f.has_negative_image[i] and f.has_negative[i][0]]
    return slow_pairs(
        f.images + [f.negative_images[i] for i in twins],
        f.captions + [f.negatives[i][0] for i in twins],
        [],
        f.scale,
    )


def slow_triplet_clip(f):
    twins = [i for i in range(len(f.images)) if f.has_negative_image[i] and f.has_negative[i][0]]
    false = [f.negatives[i][0] for i in twins]
    first = slow_pairs(f.images, f.captions, false, f.scale)
    return first + slow_pairs([f.negative_images[i] for i in twins], false, f.captions, f.scale)


def slow_intra_modal(f):
    found = []
    for image, caption in zip(f.images, f.captions, strict=True):
        wrong = [f.scale * dot(caption, n) for n in listed(f.negatives, f.has_negative)]
        found.append(cross_entropy([f.scale * dot(image, caption), *wrong], 0))
    return mean(found)


def thresholds(f, bound=5.0):
    """Of the k-th negatives: the mean gap of those that are there, between 0 and the bound."""
    found = []
    for k in range(len(f.negatives[0])):
        gaps = [
            f.scale * (dot(f.images[i], f.captions[i]) - dot(f.images[i], f.negatives[i][k]))
            for i in range(len(f.images))
            if f.has_negative[i][k]
        ]
        found.append(min(max(mean(gaps), 0.0), bound))
    return {"known": found}


def slow_rank(f, bound=5.0, known=None):
    if known is None:
        known = thresholds(f, bound)["known"]
    found = []
    for i, image in enumerate(f.images):
        for k, negative in enumerate(f.negatives[i]):
            if f.has_negative[i][k]:
                over = known[k] + f.scale * (dot(image, negative) - dot(image, f.captions[i]))
                found.append(max(0.0, over))
    return mean(found)


def slow_text_grounded(f, factor=10.0):
    found = []
    for i, caption in enumerate(f.captions):
        own = listed([f.negatives[i]], [f.has_negative[i]])
        if own:
            texts = [f.start_captions[i], *own]
            found.append(cross_entropy([factor * dot(caption, text) for text in texts], 0))
    return mean(found)


def slow_distill(f):

    def apart(one, other):
        return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))

    found = []
    for i in range(len(f.images)):
        value = apart(f.images[i], f.start_images[i]) + apart(f.captions[i], f.start_captions[i])
        for k, there in enumerate(f.has_negative[i]):
            value += apart(f.negatives[i][k], f.start_negatives[i][k]) if there else 0.0
        found.append(value)
    return mean(found)


def unit(vector):
    length = math.sqrt(dot(vector, vector))
    return [x / length for x in vector]


def looks(words, patches):
    """How much each word looks at each patch: scaled to [0, 1], then to the sum 1."""
    found = []
    for word in words:
        scores = [dot(word, patch) for patch in patches]
        shares = [(x - min(scores)) / (max(scores) - min(scores)) for x in scores]
        found.append([share / sum(shares) for share in shares])
    return found


def all_looks(f, **_):
    pairs = zip(f.image_tokens, f.caption_tokens, f.negative_tokens, strict=True)
    return {"seen": [looks(own + false, patches) for patches, own, false in pairs]}


def slow_focal_local(f, gamma=2.0, smoothing=0.02, seen=None):
    seen = seen or all_looks(f)["seen"]
    found = []
    for i, patches in enumerate(f.image_tokens):
        length = len(f.caption_tokens[i])
        words = f.caption_tokens[i] + f.negative_tokens[i]
        there = f.has_caption_token[i] + f.has_negative_token[i]
        powers = []
        for text in range(1 + len(f.negatives[i])):
            power = 0.0
            for w in range(text * length, (text + 1) * length):
                pooled = [
                    sum(seen[i][w][p] * patches[p][d] for p in range(len(patches)))
                    for d in range(len(words[w]))
                ]
                if there[w] and (text == 0 or f.has_negative[i][text - 1]):
                    power += math.exp(f.scale * dot(unit(pooled), unit(words[w])))
            powers.append(power)
        left = [power for power in powers if power]
        if not powers[0] or len(left) == 1:
            continue
        value = 0.0
        for number, power in enumerate(left):
            p = power / sum(left)
            y = smoothing / len(left) + (1 - smoothing if number == 0 else 0)
            value -= y * (1 - p) ** gamma * math.log(p)
        found.append(value)
    return mean(found)


def slow_phrases(score, dense, has_dense):
    """Each phrase against the other images, and against phrases of other images."""
    phrases = [(j, k) for j, row in enumerate(has_dense) for k, there in enumerate(row) if there]
    found = []
    for j, k in phrases:
        to_images = [score(i, dense[j][k]) for i in range(len(dense))]
        others = [score(j, dense[a][b]) for a, b in phrases if a != j]
        right = to_images[j]
        found.append((cross_entropy(to_images, j) + cross_entropy([right, *others], 0)) / 2)
    return mean(found)


def slow_phrases_sigmoid(score, dense, has_dense):
    phrases = [(j, k) for j, row in enumerate(has_dense) for k, there in enumerate(row) if there]
    return mean(
        [
            sum(
                math.log(1 + math.exp((-1 if i == j else 1) * score(i, dense[j][k])))
                for i in range(len(dense))
            )
            for j, k in phrases
        ]
    )


def pooled(patches, phrase):
    """The patches of an image as a phrase sees them: a vector of length 1."""
    powers = [math.exp(dot(patch, phrase)) for patch in patches]
    seen = [
        sum(power * patch[d] for power, patch in zip(powers, patches, strict=True)) / sum(powers)
        for d in range(len(phrase))
    ]
    return unit(seen)


def slow_concepts(f):
    return slow_phrases(lambda i, c: f.scale * dot(f.images[i], c), f.dense, f.has_dense)


def slow_concept_patches(f):
    return slow_phrases(
        lambda i, c: f.scale * dot(pooled(f.image_tokens[i], c), c), f.dense, f.has_dense
    )


def slow_siglip_concepts(f):
    return slow_phrases_sigmoid(
        lambda i, c: f.scale * dot(f.images[i], c) + f.bias, f.dense, f.has_dense
    )


def slow_siglip_concept_patches(f):

    def score(i, c):
        return f.scale * dot(pooled(f.image_tokens[i], c), c) + f.bias

    return slow_phrases_sigmoid(score, f.dense, f.has_dense)


def slow_paraphrases(f):
    return mean(
        [
            cross_entropy([f.scale * dot(f.positives[i], caption) for caption in f.captions], i)
            for i, there in enumerate(f.has_positive)
            if there
        ]
    )


def slow_reconstruct(f):
    rows = zip(f.reconstruction, f.has_positive, strict=True)
    return mean([mean(row) for row, there in rows if there])


def slow_clic(f, contrast=0.5, own=0.5, apart=1.0):
    both = [i for i in range(len(f.images)) if f.has_positive[i] and f.has_negative[i][0]]
    if not both:
        return slow_pairs(f.images, f.captions, [], f.scale)
    seen, said = [f.images[i] for i in both], [f.positives[i] for i in both]
    value = contrast / 2 * slow_pairs(f.images, f.captions, [], f.scale)
    value += contrast / 2 * slow_pairs(seen, said, [], f.scale)
    for texts in (f.captions, f.positives):
        value += (own / 2) * mean(
            [
                cross_entropy(
                    [f.scale * dot(f.images[i], t) for t in (texts[i], f.negatives[i][0])], 0
                )
                for i in both
            ]
        )
    moved = [
        sum((a - b) ** 2 for a, b in zip(f.captions[i], f.positives[i], strict=True)) for i in both
    ]
    return value + apart * mean(moved)


def truths(i, f):
    return [f.captions[i], *([f.positives[i]] if f.has_positive[i] else [])]


def slow_listwise(f, margin=0.0, worst=True):
    found = []
    for i, image in enumerate(f.images):
        own = listed([f.negatives[i]], [f.has_negative[i]])
        sums = [
            sum(math.exp(f.scale * (dot(image, n) - dot(image, t) + margin)) for n in own)
            for t in truths(i, f)
        ]
        if own:
            found.append(
                math.log(1 + sum(sums)) if worst else mean([math.log(1 + one) for one in sums])
            )
    return mean(found)


def slow_hinge(f, margin=0.1, worst=False):
    found = []
    for i, image in enumerate(f.images):
        over = [
            max(0.0, f.scale * (dot(image, n) - dot(image, t) + margin))
            for n in listed([f.negatives[i]], [f.has_negative[i]])
            for t in truths(i, f)
        ]
        if over:
            found.append(max(over) if worst else mean(over))
    return mean(found)


def slow_agreement(f):
    found = []
    for i, image in enumerate(f.images):
        x = abs(f.scale * (dot(image, f.captions[i]) - dot(image, f.positives[i])))
        if f.has_positive[i]:
            found.append(x * x / 2 if x < 1 else x - 0.5)
    return mean(found)


def slow_agreement_images(f):
    def shares(text):
        powers = [math.exp(f.scale * dot(text, image)) for image in f.images]
        return [power / sum(powers) for power in powers]

    found = []
    for i in range(len(f.images)):
        p, q = shares(f.captions[i]), shares(f.positives[i])
        one = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
        two = sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
        if f.has_positive[i]:
            found.append((one + two) / 2)
    return mean(found)


def slow_counterpart(f, margin=0.0):
    found = []
    for i, (image, other) in enumerate(zip(f.images, f.negative_images, strict=True)):
        if not (f.has_negative_image[i] and f.has_negative[i][0]):
            continue
        n = f.negatives[i][0]
        gaps = [dot(image, n) - dot(other, n)]
        for t in truths(i, f):
            gaps += [dot(other, t) - dot(image, t), dot(other, t) - dot(other, n)]
        found.append(math.log(1 + sum(math.exp(f.scale * (gap + margin)) for gap in gaps)))
    return mean(found)


def slow_hold(f, slack=0.0):
    found = []
    for i, image in enumerate(f.images):
        pairs = [(f.captions[i], f.start_captions[i])]
        if f.has_positive[i]:
            pairs.append((f.positives[i], f.start_positives[i]))
        for now, before in pairs:
            lost = dot(f.start_images[i], before) - dot(image, now) - slack
            found.append(f.scale * max(0.0, lost))
    return mean(found)


def slow_sigmoid(images, texts, extra, scale, bias):
    """Every image with every text: right with its own, wrong with all others and with `extra`."""

    def x(image, text):
        return scale * dot(image, text) + bias

    total = 0.0
    for i, image in enumerate(images):
        for j, text in enumerate(texts):
            total -= math.log(1 / (1 + math.exp(-x(image, text) if i == j else x(image, text))))
        total += sum(math.log(1 + math.exp(x(image, text))) for text in extra)
    return total / max(1, len(images))


def slow_siglip(f):
    return slow_sigmoid(f.images, f.captions, [], f.scale, f.bias)


def slow_siglip_negatives(f):
    return slow_sigmoid(f.images, f.captions, listed(f.negatives, f.has_negative), f.scale, f.bias)


def slow_siglip_negclip(f):
    extra = listed(f.negatives, f.has_negative) + listed(f.hard_negatives, f.hard_has_negative)
    return slow_sigmoid(
        f.images + f.hard_images, f.captions + f.hard_captions, extra, f.scale, f.bias
    )


def slow_siglip_own(f):
    found = []
    for i, image in enumerate(f.images):
        own = listed([f.negatives[i]], [f.has_negative[i]])
        if own:
            found.append(
                mean([math.log(1 + math.exp(f.scale * dot(image, n) + f.bias)) for n in own])
            )
    return mean(found)


def slow_siglip_positives(f):
    chosen = [i for i, yes in enumerate(f.has_positive) if yes]
    there = [[part[i] for i in chosen] for part in (f.images, f.positives)]
    return slow_sigmoid(*there, [], f.scale, f.bias)


def slow_siglip_trohn_img(f):
    twins = [i for i in range(len(f.images)) if f.has_negative_image[i] and f.has_negative[i][0]]
    return slow_sigmoid(
        f.images + [f.negative_images[i] for i in twins],
        f.captions + [f.negatives[i][0] for i in twins],
        [],
        f.scale,
        f.bias,
    )


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
    ("tripletclip", slow_triplet_clip, {}),
    ("intra-modal", slow_intra_modal, {}),
    ("rank", slow_rank, {}),
    ("rank", slow_rank, {"bound": 0.5}),
    ("text-grounded", slow_text_grounded, {}),
    ("text-grounded", slow_text_grounded, {"factor": 3.0}),
    ("distill", slow_distill, {}),
    ("focal-local", slow_focal_local, {}),
    ("focal-local", slow_focal_local, {"gamma": 1.0, "smoothing": 0.1}),
    ("concepts", slow_concepts, {}),
    ("concept-patches", slow_concept_patches, {}),
    ("paraphrases", slow_paraphrases, {}),
    ("reconstruct", slow_reconstruct, {}),
    ("clic", slow_clic, {}),
    ("clic", slow_clic, {"contrast": 0.7, "own": 0.2, "apart": 0.3}),
    ("siglip-concepts", slow_siglip_concepts, {}),
    ("siglip-concept-patches", slow_siglip_concept_patches, {}),
    ("siglip", slow_siglip, {}),
    ("siglip-negatives", slow_siglip_negatives, {}),
    ("siglip-negclip", slow_siglip_negclip, {}),
    ("siglip-own", slow_siglip_own, {}),
    ("siglip-positives", slow_siglip_positives, {}),
    ("siglip-trohn-img", slow_siglip_trohn_img, {}),
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
# What has no gradient is computed once, and given to the reference: arguments, or nothing.
CONSTANTS = {"rank": thresholds, "focal-local": all_looks}
SCALELESS = {"text-grounded", "distill", "reconstruct"}
OURS = {"listwise", "hinge", "agreement", "agreement-images", "counterpart", "hold"}


# --- against the references --------------------------------------------------------------------


def fields(name, given, **others):
    """What a term reads, as lists of floats."""
    own = {"scale": SCALE, "bias": BIAS} | {part: given[part].tolist() for part in wanted(name)}
    return SimpleNamespace(**own | others)


def constants(name, given, options):
    return CONSTANTS[name](fields(name, given), **options) if name in CONSTANTS else {}


def slow_gradient(reference, name, given, options, part, step=1e-6):
    """Central differences, one number after the other."""
    fixed, slopes = constants(name, given, options), []
    for place in range(given[part].numel()):
        ends = []
        for sign in (1, -1):
            moved = given[part].clone()
            moved.view(-1)[place] += sign * step
            ends.append(
                reference(fields(name, given, **{part: moved.tolist()}), **options, **fixed)
            )
        slopes.append((ends[0] - ends[1]) / (2 * step))
    return torch.tensor(slopes, dtype=torch.float64).view_as(given[part])


def slope(reference, name, given, options, number, middle):
    """Of the scale or the bias."""
    fixed = constants(name, given, options)
    ends = [
        reference(fields(name, given, **{number: middle + step}), **options, **fixed)
        for step in (1e-6, -1e-6)
    ]
    return (ends[0] - ends[1]) / 2e-6


def agree(reference, name, given, options):
    """The gradients, if the value is that of the reference."""
    value, grads = value_and_gradients(name, given, options)
    expected = reference(fields(name, given), **options)
    assert value == pytest.approx(expected, abs=1e-12, rel=1e-12), (name, options)
    return grads


@pytest.mark.parametrize("there", ["all", "some", "none"])
def test_values_and_gradients_agree_with_a_slow_reference(there):
    for (name, reference, options), sizes in product(REFERENCES, SIZES):
        given = parts(sizes, there)
        grads = agree(reference, name, given, options)
        if name == "rank" and (given["has_negative"].sum(0) == 1).any():
            continue  # a negative alone is exactly at its threshold, where the slope jumps
        vectors = [part for part in wanted(name) if given[part].is_floating_point()]
        assert grads.keys() <= {*vectors, "scale", "bias"}, name
        for part in vectors:
            found = grads.get(part, torch.zeros_like(given[part]))
            if part.startswith("start_"):
                assert not found.any(), name
                continue
            expected = slow_gradient(reference, name, given, options, part)
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7, msg=f"{name} {part}")


def test_values_agree_whatever_is_missing():
    """Such as a dense negative without its caption, or an image without its negative."""
    for name, reference, options in REFERENCES:
        with torch.autograd.set_detect_anomaly(True):  # a NaN on the way back is an error
            for seed in range(25):
                grads = agree(reference, name, parts((3, 2, 2), "some", seed), options)
                assert all(grad.isfinite().all() for grad in grads.values()), name


def test_scale_and_bias_have_their_gradients_or_none_at_all():
    given = parts((4, 3, 2), "some", seed=1)
    for name, reference, options in REFERENCES:
        _, grads = value_and_gradients(name, given, options)
        expected = slope(reference, name, given, options, "scale", SCALE)
        assert ("scale" in grads) == (name not in SCALELESS | OURS), name
        assert (expected == 0) == (name in SCALELESS), name
        if "scale" in grads:
            assert float(grads["scale"]) == pytest.approx(expected, rel=1e-6), name
        assert ("bias" in grads) == name.startswith("siglip")
        if "bias" in grads:
            expected = slope(reference, name, given, options, "bias", BIAS)
            assert float(grads["bias"]) == pytest.approx(expected, rel=1e-6), name


def test_every_term_has_a_reference():
    assert {name for name, *_ in REFERENCES} == set(NAMES)
