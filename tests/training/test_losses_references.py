"""The losses against slow references: values and gradients."""

from __future__ import annotations

import math
from itertools import chain, product
from types import SimpleNamespace

import pytest
import torch
from loss_support import BIAS, NAMES, SCALE, SIZES, parts, value_and_gradients, wanted

pytestmark = pytest.mark.slow

# --- slow references: plain loops over floats, written from the formulas; each has its term's name


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def unit(vector):
    return [x / math.sqrt(dot(vector, vector)) for x in vector]


def apart(one, other):
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def cross_entropy(logits, target=0):
    return math.log(sum(math.exp(x) for x in logits)) - logits[target]


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else 0.0


MASKS = {"negatives": "has_negative", "hard_negatives": "hard_has_negative", "dense": "has_dense"}
MASKS["dense_negatives"] = "has_dense_negative"


def own(f, i, name="negatives"):
    """Those of an image that are there."""
    rows = zip(getattr(f, name)[i], getattr(f, MASKS[name])[i], strict=True)
    return [vector for vector, there in rows if there]


def every(f, name="negatives"):
    return list(chain(*(own(f, i, name) for i in range(len(getattr(f, name))))))


def chosen(*masks):
    return [i for i, marks in enumerate(zip(*masks, strict=True)) if all(marks)]


def twins(f):
    """Samples with an image of their first negative; and these images and negatives."""
    there = chosen(f.has_negative_image, [row[0] for row in f.has_negative])
    return [f.negative_images[i] for i in there], [f.negatives[i][0] for i in there]


def pairs(f, images, texts, extra=()):
    """Half of: each image among all texts and `extra`, each text among all images."""
    return mean(
        cross_entropy([f.scale * dot(images[i], text) for text in (*texts, *extra)], i) / 2
        + cross_entropy([f.scale * dot(texts[i], image) for image in images], i) / 2
        for i in range(len(images))
    )


def clip(f):
    return pairs(f, f.images, f.captions)


def clip_negatives(f):
    return pairs(f, f.images, f.captions, every(f))


def negclip(f):
    extra = every(f) + every(f, "hard_negatives")
    return pairs(f, f.images + f.hard_images, f.captions + f.hard_captions, extra)


def negatives(f):
    return mean(
        cross_entropy([f.scale * dot(image, text) for text in (f.captions[i], *own(f, i))])
        for i, image in enumerate(f.images)
        if own(f, i)
    )


def focal_of(powers, gamma, smoothing):
    value = 0.0
    for number, power in enumerate(powers):
        p = power / sum(powers)
        y = smoothing / len(powers) + (1 - smoothing if number == 0 else 0)
        value -= y * (1 - p) ** gamma * math.log(p)
    return value


def focal(f, gamma=2.0, smoothing=0.02):
    return mean(
        focal_of(
            [math.exp(f.scale * dot(image, text)) for text in (f.captions[i], *own(f, i))],
            *(gamma, smoothing),
        )
        for i, image in enumerate(f.images)
        if own(f, i)
    )


def analogy(f, symmetric=False):
    there, found = chosen(f.has_positive), []
    for queries in (f.images, f.captions):
        for place, i in enumerate(there):
            logits = [f.scale * dot(queries[i], f.positives[j]) for j in there]
            back = [f.scale * dot(f.positives[i], queries[j]) for j in there]
            found.append(cross_entropy(logits, place))
            if symmetric:
                found.append(cross_entropy(back, place))
    return mean(found)


def mil(f):
    def x(i, j):
        return sum(math.exp(f.scale * dot(f.images[i], text)) for text in own(f, j, "dense"))

    size = range(len(f.images))
    return mean(
        math.log(sum(x(i, j) + x(j, i) for j in size)) - math.log(x(i, i)) for i in size if x(i, i)
    )


def mil_negatives(f):
    found = []
    for i, image in enumerate(f.images):
        right, wrong = (
            sum(math.exp(f.scale * dot(image, text)) for text in own(f, i, name))
            for name in ("dense", "dense_negatives")
        )
        if right and wrong:
            found.append(math.log(right + wrong) - math.log(right))
    return mean(found)


def trohn_img(f):
    images, texts = twins(f)
    return pairs(f, f.images + images, f.captions + texts)


def tripletclip(f):
    images, texts = twins(f)
    return pairs(f, f.images, f.captions, texts) + pairs(f, images, texts, f.captions)


def intra_modal(f):
    return mean(
        cross_entropy(
            [f.scale * dot(image, caption), *(f.scale * dot(caption, n) for n in every(f))]
        )
        for image, caption in zip(f.images, f.captions, strict=True)
    )


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


def rank(f, bound=5.0, known=None):
    known = known or thresholds(f, bound)["known"]
    return mean(
        max(0.0, known[k] + f.scale * (dot(image, negative) - dot(image, f.captions[i])))
        for i, image in enumerate(f.images)
        for k, negative in enumerate(f.negatives[i])
        if f.has_negative[i][k]
    )


def text_grounded(f, factor=10.0):
    return mean(
        cross_entropy([factor * dot(text, t) for t in (f.start_captions[i], *own(f, i))])
        for i, text in enumerate(f.captions)
        if own(f, i)
    )


def distill(f):
    return mean(
        apart(f.images[i], f.start_images[i])
        + apart(f.captions[i], f.start_captions[i])
        + sum(
            apart(f.negatives[i][k], f.start_negatives[i][k])
            for k, there in enumerate(f.has_negative[i])
            if there
        )
        for i in range(len(f.images))
    )


def looks(words, patches):
    """How much each word looks at each patch: scaled to [0, 1], then to the sum 1."""
    found = []
    for word in words:
        scores = [dot(word, patch) for patch in patches]
        shares = [(x - min(scores)) / (max(scores) - min(scores)) for x in scores]
        found.append([share / sum(shares) for share in shares])
    return found


def all_looks(f, **_):
    rows = zip(f.image_tokens, f.caption_tokens, f.negative_tokens, strict=True)
    return {"seen": [looks(said + false, patches) for patches, said, false in rows]}


def weighted(shares, vectors):
    return [dot(shares, column) for column in zip(*vectors, strict=True)]


def focal_local(f, gamma=2.0, smoothing=0.02, seen=None):
    seen = seen or all_looks(f)["seen"]
    found = []
    for i, patches in enumerate(f.image_tokens):
        length = len(f.caption_tokens[i])
        words = f.caption_tokens[i] + f.negative_tokens[i]
        there = f.has_caption_token[i] + f.has_negative_token[i]
        powers = [
            sum(
                math.exp(f.scale * dot(unit(weighted(seen[i][w], patches)), unit(words[w])))
                for w in range(text * length, (text + 1) * length)
                if there[w] and (text == 0 or f.has_negative[i][text - 1])
            )
            for text in range(1 + len(f.negatives[i]))
        ]
        left = [power for power in powers if power]
        if powers[0] and len(left) > 1:
            found.append(focal_of(left, gamma, smoothing))
    return mean(found)


def phrases(f, score, sigmoid=False):
    """Each phrase against the other images, and against phrases of other images."""
    size = range(len(f.dense))
    both = [(j, phrase) for j in size for phrase in own(f, j, "dense")]
    if sigmoid:
        return mean(
            sum(
                math.log(1 + math.exp((-1 if i == j else 1) * (score(i, c) + f.bias))) for i in size
            )
            for j, c in both
        )
    return mean(
        cross_entropy([score(i, c) for i in size], j) / 2
        + cross_entropy([score(j, c), *(score(j, other) for a, other in both if a != j)]) / 2
        for j, c in both
    )


def pooled(f):
    """The score of a phrase with the patches of an image as the phrase sees them."""

    def score(i, phrase):
        powers = [math.exp(dot(patch, phrase)) for patch in f.image_tokens[i]]
        shares = [power / sum(powers) for power in powers]
        return f.scale * dot(unit(weighted(shares, f.image_tokens[i])), phrase)

    return score


def concepts(f, sigmoid=False):
    return phrases(f, lambda i, c: f.scale * dot(f.images[i], c), sigmoid)


def concept_patches(f):
    return phrases(f, pooled(f))


def siglip_concepts(f):
    return concepts(f, sigmoid=True)


def siglip_concept_patches(f):
    return phrases(f, pooled(f), sigmoid=True)


def paraphrases(f):
    return mean(
        cross_entropy([f.scale * dot(f.positives[i], caption) for caption in f.captions], i)
        for i in chosen(f.has_positive)
    )


def reconstruct(f):
    return mean(mean(f.reconstruction[i]) for i in chosen(f.has_positive))


def clic(f, contrast=0.5, own=0.5, apart=1.0):
    both = chosen(f.has_positive, [row[0] for row in f.has_negative])
    if not both:
        return clip(f)
    seen, said = [f.images[i] for i in both], [f.positives[i] for i in both]
    value = contrast / 2 * (clip(f) + pairs(f, seen, said))
    for texts in (f.captions, f.positives):
        value += (own / 2) * mean(
            cross_entropy([f.scale * dot(f.images[i], t) for t in (texts[i], f.negatives[i][0])])
            for i in both
        )
    return value + apart * mean(
        sum((a - b) ** 2 for a, b in zip(f.captions[i], f.positives[i], strict=True)) for i in both
    )


def truths(f, i):
    return [f.captions[i], *([f.positives[i]] if f.has_positive[i] else [])]


def gaps(f, i, margin):
    """Of each true text: by how much each negative is too high."""
    image = f.images[i]
    return [
        [f.scale * (dot(image, n) - dot(image, t) + margin) for n in own(f, i)]
        for t in truths(f, i)
    ]


def listwise(f, margin=0.0, worst=True):
    found = []
    for i in range(len(f.images)):
        sums = [sum(map(math.exp, row)) for row in gaps(f, i, margin)]
        if own(f, i):
            each = [math.log(1 + one) for one in ([sum(sums)] if worst else sums)]
            found.append(mean(each))
    return mean(found)


def hinge(f, margin=0.1, worst=False):
    found = []
    for i in range(len(f.images)):
        over = [max(0.0, gap) for row in gaps(f, i, margin) for gap in row]
        if over:
            found.append(max(over) if worst else mean(over))
    return mean(found)


def agreement(f):
    found = []
    for i in chosen(f.has_positive):
        x = abs(f.scale * (dot(f.images[i], f.captions[i]) - dot(f.images[i], f.positives[i])))
        found.append(x * x / 2 if x < 1 else x - 0.5)
    return mean(found)


def agreement_images(f):
    def shares(text):
        powers = [math.exp(f.scale * dot(text, image)) for image in f.images]
        return [power / sum(powers) for power in powers]

    found = []
    for i in chosen(f.has_positive):
        both = zip(shares(f.captions[i]), shares(f.positives[i]), strict=True)
        found.append(sum((p - q) * math.log(p / q) for p, q in both) / 2)
    return mean(found)


def counterpart(f, margin=0.0):
    found = []
    for i in chosen(f.has_negative_image, [row[0] for row in f.has_negative]):
        image, other, n = f.images[i], f.negative_images[i], f.negatives[i][0]
        all_gaps = [dot(image, n) - dot(other, n)]
        for t in truths(f, i):
            all_gaps += [dot(other, t) - dot(image, t), dot(other, t) - dot(other, n)]
        found.append(math.log(1 + sum(math.exp(f.scale * (gap + margin)) for gap in all_gaps)))
    return mean(found)


def hold(f, slack=0.0):
    found = []
    for i, image in enumerate(f.images):
        before = [f.start_captions[i], f.start_positives[i]]
        for now, then in zip(truths(f, i), before, strict=False):
            lost = dot(f.start_images[i], then) - dot(image, now) - slack
            found.append(f.scale * max(0.0, lost))
    return mean(found)


def sigmoid(f, images, texts, extra=()):
    """Every image with every text: right with its own, wrong with all others and with `extra`."""
    total = 0.0
    for (i, image), (j, text) in product(enumerate(images), enumerate([*texts, *extra])):
        x = f.scale * dot(image, text) + f.bias
        total += math.log(1 + math.exp(-x if i == j else x))
    return total / max(1, len(images))


def siglip(f):
    return sigmoid(f, f.images, f.captions)


def siglip_negatives(f):
    return sigmoid(f, f.images, f.captions, every(f))


def siglip_negclip(f):
    extra = every(f) + every(f, "hard_negatives")
    return sigmoid(f, f.images + f.hard_images, f.captions + f.hard_captions, extra)


def siglip_own(f):
    return mean(
        mean(math.log(1 + math.exp(f.scale * dot(image, n) + f.bias)) for n in own(f, i))
        for i, image in enumerate(f.images)
        if own(f, i)
    )


def siglip_positives(f):
    there = chosen(f.has_positive)
    return sigmoid(f, *([part[i] for i in there] for part in (f.images, f.positives)))


def siglip_trohn_img(f):
    images, texts = twins(f)
    return sigmoid(f, f.images + images, f.captions + texts)


OPTIONS = [
    ("focal", {"gamma": 0.5, "smoothing": 0.3}),
    ("analogy", {"symmetric": True}),
    ("rank", {"bound": 0.5}),
    ("text-grounded", {"factor": 3.0}),
    ("focal-local", {"gamma": 1.0, "smoothing": 0.1}),
    ("clic", {"contrast": 0.7, "own": 0.2, "apart": 0.3}),
    ("listwise", {"margin": 0.2, "worst": False}),
    ("hinge", {"margin": 0.3, "worst": True}),
    ("counterpart", {"margin": 0.1}),
    ("hold", {"slack": 0.1}),
]
REFERENCES = [
    (name, globals()[name.replace("-", "_")], options)
    for name, options in [*((name, {}) for name in NAMES), *OPTIONS]
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
