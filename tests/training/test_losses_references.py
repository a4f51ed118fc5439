"""The losses against slow references: values and gradients."""

from __future__ import annotations

import math

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


def slow_triplet_clip(
    images, captions, negatives, negative_images, scale, has_negative, has_negative_image
):
    twins = [i for i in range(len(images)) if has_negative_image[i] and has_negative[i][0]]
    false = [negatives[i][0] for i in twins]
    first = slow_pairs(images, captions, false, scale)
    return first + slow_pairs([negative_images[i] for i in twins], false, captions, scale)


def slow_intra_modal(images, captions, negatives, scale, has_negative):
    found = []
    for image, caption in zip(images, captions, strict=True):
        wrong = [scale * dot(caption, n) for n in listed(negatives, has_negative)]
        found.append(cross_entropy([scale * dot(image, caption), *wrong], 0))
    return mean(found)


def thresholds(images, captions, negatives, scale, has_negative, bound=5.0, **_):
    """Of the k-th negatives: the mean gap of those that are there, between 0 and the bound."""
    found = []
    for k in range(len(negatives[0])):
        gaps = [
            scale * (dot(images[i], captions[i]) - dot(images[i], negatives[i][k]))
            for i in range(len(images))
            if has_negative[i][k]
        ]
        found.append(min(max(mean(gaps), 0.0), bound))
    return {"known": found}


def slow_rank(images, captions, negatives, scale, has_negative, bound=5.0, known=None):
    if known is None:
        known = thresholds(images, captions, negatives, scale, has_negative, bound)["known"]
    found = []
    for i, image in enumerate(images):
        for k, negative in enumerate(negatives[i]):
            if has_negative[i][k]:
                over = known[k] + scale * (dot(image, negative) - dot(image, captions[i]))
                found.append(max(0.0, over))
    return mean(found)


def slow_text_grounded(captions, negatives, start_captions, scale, has_negative, factor=10.0):
    del scale
    found = []
    for i, caption in enumerate(captions):
        own = listed([negatives[i]], [has_negative[i]])
        if own:
            texts = [start_captions[i], *own]
            found.append(cross_entropy([factor * dot(caption, text) for text in texts], 0))
    return mean(found)


def slow_distill(
    images, captions, negatives, start_images, start_captions, start_negatives, scale, has_negative
):
    del scale

    def apart(one, other):
        return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))

    found = []
    for i in range(len(images)):
        value = apart(images[i], start_images[i]) + apart(captions[i], start_captions[i])
        for k, there in enumerate(has_negative[i]):
            value += apart(negatives[i][k], start_negatives[i][k]) if there else 0.0
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


def all_looks(image_tokens, caption_tokens, negative_tokens, **_):
    pairs = zip(image_tokens, caption_tokens, negative_tokens, strict=True)
    return {"seen": [looks(own + false, patches) for patches, own, false in pairs]}


def slow_focal_local(
    captions,
    negatives,
    image_tokens,
    caption_tokens,
    negative_tokens,
    scale,
    has_negative,
    has_caption_token,
    has_negative_token,
    gamma=2.0,
    smoothing=0.02,
    seen=None,
):
    del captions
    seen = seen or all_looks(image_tokens, caption_tokens, negative_tokens)["seen"]
    found = []
    for i, patches in enumerate(image_tokens):
        length = len(caption_tokens[i])
        words = caption_tokens[i] + negative_tokens[i]
        there = has_caption_token[i] + has_negative_token[i]
        powers = []
        for text in range(1 + len(negatives[i])):
            power = 0.0
            for w in range(text * length, (text + 1) * length):
                pooled = [
                    sum(seen[i][w][p] * patches[p][d] for p in range(len(patches)))
                    for d in range(len(words[w]))
                ]
                if there[w] and (text == 0 or has_negative[i][text - 1]):
                    power += math.exp(scale * dot(unit(pooled), unit(words[w])))
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


def slow_concepts(images, dense, scale, has_dense):
    return slow_phrases(lambda i, c: scale * dot(images[i], c), dense, has_dense)


def slow_concept_patches(images, dense, image_tokens, scale, has_dense):
    del images
    return slow_phrases(lambda i, c: scale * dot(pooled(image_tokens[i], c), c), dense, has_dense)


def slow_siglip_concepts(images, dense, scale, has_dense, bias):
    return slow_phrases_sigmoid(lambda i, c: scale * dot(images[i], c) + bias, dense, has_dense)


def slow_siglip_concept_patches(images, dense, image_tokens, scale, has_dense, bias):
    del images

    def score(i, c):
        return scale * dot(pooled(image_tokens[i], c), c) + bias

    return slow_phrases_sigmoid(score, dense, has_dense)


def slow_paraphrases(captions, positives, scale, has_positive):
    return mean(
        [
            cross_entropy([scale * dot(positives[i], caption) for caption in captions], i)
            for i, there in enumerate(has_positive)
            if there
        ]
    )


def slow_reconstruct(captions, positives, reconstruction, scale, has_positive):
    del captions, positives, scale
    rows = zip(reconstruction, has_positive, strict=True)
    return mean([mean(row) for row, there in rows if there])


def slow_clic(
    images,
    captions,
    positives,
    negatives,
    scale,
    has_positive,
    has_negative,
    contrast=0.5,
    own=0.5,
    apart=1.0,
):
    both = [i for i in range(len(images)) if has_positive[i] and has_negative[i][0]]
    if not both:
        return slow_clip(images, captions, scale)
    seen, said = [images[i] for i in both], [positives[i] for i in both]
    value = contrast * (slow_clip(images, captions, scale) + slow_clip(seen, said, scale)) / 2
    for texts in (captions, positives):
        value += (own / 2) * mean(
            [
                cross_entropy([scale * dot(images[i], t) for t in (texts[i], negatives[i][0])], 0)
                for i in both
            ]
        )
    moved = [
        sum((a - b) ** 2 for a, b in zip(captions[i], positives[i], strict=True)) for i in both
    ]
    return value + apart * mean(moved)


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


def slow_siglip(images, captions, scale, bias):
    return slow_sigmoid(images, captions, [], scale, bias)


def slow_siglip_negatives(images, captions, negatives, scale, has_negative, bias):
    return slow_sigmoid(images, captions, listed(negatives, has_negative), scale, bias)


def slow_siglip_negclip(
    images,
    captions,
    negatives,
    hard_images,
    hard_captions,
    hard_negatives,
    scale,
    has_negative,
    hard_has_negative,
    bias,
):
    extra = listed(negatives, has_negative) + listed(hard_negatives, hard_has_negative)
    return slow_sigmoid(images + hard_images, captions + hard_captions, extra, scale, bias)


def slow_siglip_own(images, captions, negatives, scale, has_negative, bias):
    del captions
    found = []
    for i, image in enumerate(images):
        own = listed([negatives[i]], [has_negative[i]])
        if own:
            found.append(mean([math.log(1 + math.exp(scale * dot(image, n) + bias)) for n in own]))
    return mean(found)


def slow_siglip_positives(images, positives, scale, has_positive, bias):
    chosen = [i for i, yes in enumerate(has_positive) if yes]
    there = [[part[i] for i in chosen] for part in (images, positives)]
    return slow_sigmoid(*there, [], scale, bias)


def slow_siglip_trohn_img(
    images, captions, negative_images, negatives, scale, has_negative_image, has_negative, bias
):
    twins = [i for i in range(len(images)) if has_negative_image[i] and has_negative[i][0]]
    return slow_sigmoid(
        images + [negative_images[i] for i in twins],
        captions + [negatives[i][0] for i in twins],
        [],
        scale,
        bias,
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


def plainly(name, given):
    bias = {"bias": BIAS} if name.startswith("siglip") else {}
    return {part: given[part].tolist() for part in wanted(name)} | bias


def slowly(reference, name, given, options, scale=SCALE, **others):
    return reference(**plainly(name, given) | others, scale=scale, **options)


def constants(name, plain, options):
    return CONSTANTS[name](**plain, scale=SCALE, **options) if name in CONSTANTS else {}


def slow_gradient(reference, name, given, options, part, step=1e-6):
    """Central differences, one number after the other."""
    plain, slopes = plainly(name, given), []
    plain |= constants(name, plain, options)
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
        if name == "rank" and (given["has_negative"].sum(0) == 1).any():
            continue  # a negative alone is exactly at its threshold, where the slope jumps
        vectors = [part for part in wanted(name) if given[part].is_floating_point()]
        assert grads.keys() <= {*vectors, "scale", "bias"}
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
    fixed = constants(name, plainly(name, given), options)
    ends = [
        slowly(reference, name, given, options, SCALE + step, **fixed) for step in (1e-6, -1e-6)
    ]
    if name in SCALELESS:
        assert "scale" not in grads and ends[0] == ends[1]
    elif name in OURS:
        assert "scale" not in grads and ends[0] != ends[1]
    else:
        assert float(grads["scale"]) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)


@pytest.mark.parametrize(("name", "reference", "options"), REFERENCES)
def test_only_sigmoid_losses_have_a_gradient_of_the_bias(name, reference, options):
    given = parts((4, 3, 2), "some", seed=1)
    _, grads = value_and_gradients(name, given, options)
    assert ("bias" in grads) == name.startswith("siglip")
    if "bias" in grads:
        ends = [slowly(reference, name, given, options, bias=BIAS + h) for h in (1e-6, -1e-6)]
        assert float(grads["bias"]) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)


def test_every_term_has_a_reference():
    assert {name for name, *_ in REFERENCES} == set(NAMES)
