"""Training steps: gradients, towers, what is trained, and updates."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from errors import raises
from open_clip_models import (
    ALL_CLASSES,
    CAPTIONS,
    CLIP,
    CUSTOM,
    LAST,
    load,
    save_model,
    straight_captions,
)
from training import (
    CPU,
    last_checkpoint,
    run_small,
    small_recipe,
    tensors,
    tiny_start,
    weights,
)

from counterpoint.training import loop
from counterpoint.training.batches import Batch, only, pack, split, unpack
from counterpoint.training.losses import terms as losses
from counterpoint.training.setup import build, decayed, groups, prepare
from counterpoint.training.steps import Loss, Stepper, clip_gradients, tokens_read, update
from counterpoint.training.towers import Towers, open_start

pytestmark = pytest.mark.slow
TERMS = [
    losses.Term(name, weight)
    for name, weight in (
        *(("clip", 1.0), ("negclip", 0.5), ("negatives", 0.7), ("analogy", 0.3), ("mil", 0.2)),
        *(("mil-negatives", 0.4), ("trohn-img", 0.6), ("listwise", 0.5), ("hold", 0.1)),
        *(("distill", 0.3), ("text-grounded", 0.2), ("tripletclip", 0.3), ("focal-local", 0.4)),
    )
]


@pytest.fixture(scope="module")
def start(tmp_path_factory) -> Path:
    return save_model(tmp_path_factory.mktemp("start"))


def random_batch(size: int = 7, seed: int = 0, *, hard: bool = True, length: int = 9) -> Batch:
    made = torch.Generator().manual_seed(seed)

    def images() -> torch.Tensor:
        return torch.randn(size, 3, 32, 32, generator=made)

    def texts(*inner: int) -> torch.Tensor:
        tokens = torch.randint(1, 600, (size, *inner, length), generator=made)
        lengths = torch.randint(2, length + 1, (size, *inner, 1), generator=made)
        places = torch.arange(length)
        tokens = torch.where(places < lengths, tokens, 0)
        return torch.where(places == lengths - 1, 678, tokens)  # the end of a text

    def mask(*inner: int) -> torch.Tensor:
        found = torch.rand(size, *inner, generator=made) < 0.7
        found[0] = True
        return found

    return Batch(
        images(),
        texts(),
        texts(),
        mask(),
        texts(2),
        mask(2),
        images(),
        mask(),
        texts(3),
        mask(3),
        texts(3),
        mask(3),
        random_batch(size, seed + 1, hard=False) if hard else None,
        list(range(size)),
    )


def towers_of(folder: Path) -> Towers:
    return Towers(load(folder))


def gradients(
    towers: Towers, batch: Batch, part: int, terms=TERMS, frozen: Towers | None = None
) -> dict[str, torch.Tensor]:
    towers.zero_grad()
    towers.tokens = tokens_read(terms)
    loss = Loss(terms, frozen, nullcontext, part)
    Stepper(towers, loss, part).backward(batch, share=1.0, seed=3, last=True)
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in towers.named_parameters()
    }


def close(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor], tolerance: float) -> bool:
    largest = max(float(g.abs().max()) for g in one.values())
    return all(float((one[n] - two[n]).abs().max()) <= tolerance * largest for n in one)


# --- gradients ---------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [1, 2, 3, 6, 7, 100])
def test_gradient_caching_gives_the_gradients_of_the_whole_batch(start, part):
    towers, frozen = towers_of(start).double(), towers_of(start).double()
    batch = _wide(random_batch())
    with torch.no_grad():  # another start, so that `hold` has something to hold
        for weight in frozen.parameters():
            weight.add_(0.05)
    whole = gradients(towers, batch, 0, frozen=frozen)
    assert float(whole["clip.logit_scale"].abs()) > 0
    assert all(float(g.abs().max()) > 0 for n, g in whole.items() if n.endswith("proj"))
    assert close(whole, gradients(towers, batch, part, frozen=frozen), 1e-6)


def _wide(batch: Batch) -> Batch:
    for name in ("images", "negative_images"):
        setattr(batch, name, getattr(batch, name).double())
    if batch.hard is not None:
        _wide(batch.hard)
    return batch


def test_caching_repeats_what_the_towers_draw(start):
    """With dropout, the second pass must meet the vectors that the loss was computed from."""
    towers = towers_of(start)
    drop = torch.nn.Dropout(0.5)
    seen: list[torch.Tensor] = []

    def dropped(module, given, out):
        seen.append(drop(out).detach().clone())
        return drop(out) * 1.0

    towers.clip.visual.register_forward_hook(dropped)
    batch = random_batch(6)
    towers.train()
    gradients(towers, batch, 2, TERMS[:4])
    assert len(seen) == 6
    first, second = seen[:3], seen[3:]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], first[1])


def test_accumulated_gradients_are_the_mean_of_each_batchs_own(start):
    towers = towers_of(start)
    one, two = random_batch(4, 1), random_batch(4, 2)
    own = [gradients(towers, b, 0, TERMS[:4]) for b in (one, two)]
    towers.zero_grad()
    stepper = Stepper(towers, Loss(TERMS[:4], None, nullcontext))
    for batch, last in ((one, False), (two, True)):
        stepper.backward(batch, share=0.5, seed=0, last=last)
    both = {n: p.grad for n, p in towers.named_parameters()}
    assert close({n: (own[0][n] + own[1][n]) / 2 for n in both}, both, 1e-6)


@pytest.mark.parametrize("config", [CLIP, CUSTOM], ids=["clip", "custom"])
def test_tokens_are_of_images_captions_and_negatives(tmp_path, config):
    """Patches and words as open_clip's layers give them, and vectors as without them."""
    towers = Towers(load(save_model(tmp_path / "start", config))).eval()
    batch = random_batch(5, hard=False)
    batch.captions[:, 0] = batch.negatives[..., 0] = 677  # the sign that begins a text
    plain = unpack(batch, *towers(*pack(batch)))
    towers.tokens = tokens_read(TERMS)
    found = unpack(batch, *towers(*pack(batch)))
    for name in ("images", "captions", "negatives", "dense", "negative_images"):
        assert torch.equal(getattr(found, name), getattr(plain, name))
    ends = batch.captions.argmax(1)
    last = found.caption_tokens[torch.arange(5), ends]
    torch.testing.assert_close(torch.nn.functional.normalize(last, dim=1), found.captions)
    words = found.negative_tokens.view(5, 2, 9, -1)
    last = words.gather(
        2, batch.negatives.argmax(2)[..., None, None].expand(5, 2, 1, words.shape[3])
    )
    last = torch.nn.functional.normalize(last[:, :, 0], dim=2)
    torch.testing.assert_close(last, found.negatives)
    assert torch.equal(found.has_caption_token.sum(1), (batch.captions != 0).sum(1) - 1)
    said = found.has_negative_token.view(5, 2, 9)
    assert torch.equal(said.any(2), batch.has_negative)
    side = towers.clip.visual.grid_size[0]
    assert found.image_tokens.shape[:2] == (5, side * side)
    assert found.image_tokens.shape[2] == found.images.shape[1]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_parts_unpack_to_what_was_packed(size):
    """Towers that give every image and text its own content back."""
    batch = random_batch(size)
    images, texts = pack(batch)
    assert len(images) == 4 * size and len(texts) == 2 * (2 + 2 + 3 + 3) * size
    features = unpack(batch, images.flatten(1), texts.float(), torch.ones(()))
    for mine, given in ((features, batch), (features.hard, batch.hard)):
        assert torch.equal(mine.images, given.images.flatten(1))
        for name in ("captions", "positives", "negatives", "dense", "dense_negatives"):
            assert torch.equal(getattr(mine, name), getattr(given, name).float())
        assert mine.has_negative is given.has_negative
    rows = list(split(batch, 2))
    assert sum(len(part.images) for part in rows) == size
    assert [n for part in rows for n in part.samples] == batch.samples


# --- towers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(ALL_CLASSES))
def test_texts_come_out_as_open_clip_encodes_them(tmp_path, kind):
    folder = save_model(tmp_path / "model", ALL_CLASSES[kind])
    towers = towers_of(folder)
    tokens = load(folder).tokenizer(CAPTIONS)
    if towers.cuts_padding:
        longest = int((tokens != towers.pad).any(0).nonzero().max()) + 1
        tokens = tokens[:, :longest]
    vectors = towers(None, tokens)[1].detach().numpy()
    assert np.abs(vectors - straight_captions(folder, CAPTIONS)).max() < 1e-5


def test_cut_padding_gives_the_same_gradients(start):
    towers, whole = towers_of(start), towers_of(start)
    whole.cuts_padding = False
    batch, terms = random_batch(5), TERMS[:8]
    expected = gradients(whole, batch, 0, terms)
    assert close(expected, gradients(towers, batch, 0, terms), 1e-5)


def test_texts_apart_by_length_give_the_same_gradients(start, monkeypatch):
    """As on a CPU: pieces of texts of about one length, each cut to its longest."""
    towers, whole = towers_of(start), towers_of(start)
    batch, terms = random_batch(5), TERMS[:8]
    expected = gradients(whole, batch, 0, terms)
    monkeypatch.setattr("counterpoint.training.towers._TOGETHER", 16)
    read, shapes = towers._read, []

    def seen(tokens: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(tokens.shape))
        return read(tokens)

    monkeypatch.setattr(towers, "_read", seen)
    assert close(expected, gradients(towers, batch, 0, terms), 1e-5)
    texts, longest = pack(batch)[1].shape
    assert sum(rows for rows, _ in shapes) == texts and {rows for rows, _ in shapes[:-1]} == {16}
    lengths = [length for _, length in shapes]
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1] == longest


@pytest.mark.parametrize("kind", list(ALL_CLASSES))
def test_attention_is_told_of_a_mask_that_is_causal_and_of_no_other(tmp_path, kind, monkeypatch):
    towers = towers_of(save_model(tmp_path / "model", ALL_CLASSES[kind]))
    tokens = load(tmp_path / "model").tokenizer(CAPTIONS)
    tower = towers._text_tower()
    mask = getattr(tower, "attn_mask", None)
    seen = None if mask is None else (mask == 0).tolist()
    causal = (
        seen == [[j <= i for j in range(len(seen))] for i in range(len(seen))] if seen else False
    )
    told: list[bool] = []
    inner = torch.nn.functional.scaled_dot_product_attention

    def attention(*args, **kwargs):
        told.append(kwargs.get("is_causal", args[5] if len(args) > 5 else False))
        return inner(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    towers(None, tokens)
    assert told and set(told) == {causal and getattr(tower, "cls_emb", None) is None}
    assert {"clip": True, "coca": False, "both-ways": False}.get(kind) in (None, told[0])


# --- what is trained ---------------------------------------------------------------------------


def test_weight_decay_is_for_matrices(start):
    towers = towers_of(start)
    named = dict(towers.named_parameters())
    kept = {name for name, p in named.items() if not decayed(name, p)}
    assert "clip.logit_scale" in kept
    assert all(("bias" in n) or (".ln_" in n) or named[n].ndim < 2 for n in kept)
    assert "clip.visual.conv1.weight" not in kept and "clip.token_embedding.weight" not in kept
    chosen = groups(named, 0.3)
    assert {g["weight_decay"] for g in chosen} == {0.3, 0.0}
    assert sum(len(g["params"]) for g in chosen) == len(named)


@pytest.mark.parametrize("config", [CLIP, CUSTOM], ids=["clip", "custom"])
@pytest.mark.parametrize("freeze", ["image", "text"])
def test_a_frozen_tower_stands_still_and_the_other_moves(tmp_path, freeze, config):
    tiny_start(tmp_path / "start", config)
    run_small(tmp_path, f"freeze={freeze}", "steps=2")
    before, after = load(tmp_path / "start").model.state_dict(), weights(tmp_path / "run")
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    of_images = {name for name in moved if name.startswith("visual.")}
    assert (not of_images) == (freeze == "image")
    assert (moved - of_images == {"logit_scale"}) == (freeze == "text")


@pytest.mark.parametrize("config", [CLIP, CUSTOM], ids=["clip", "custom"])
def test_lora_moves_only_its_factors_and_merges_into_an_ordinary_model(tmp_path, config):
    tiny_start(tmp_path / "start", config)
    recipe = small_recipe(tmp_path, "lora.rank=3", "lora.alpha=6", "steps=3")
    start = open_start(recipe.model, "cpu")
    before = {name: value.clone() for name, value in start.model.state_dict().items()}
    batch = random_batch(4)
    plain = Towers(start)(*pack(batch))
    trained = prepare(recipe, start)
    assert torch.equal(trained.towers(*pack(batch))[1], plain[1])  # B is zero
    names = trained.trainable()
    assert names and all("lora_" in name for name in names)
    assert any("in_proj_weight" in n for n in names) and any("conv1" in n for n in names)
    loop.train(recipe)
    after = weights(tmp_path / "run")
    assert after.keys() == before.keys()
    for name, value in after.items():
        change = value - before[name]
        if change.abs().max() > 0:
            assert np.linalg.matrix_rank(change.flatten(1).numpy(), tol=1e-5) <= 3
            assert name.endswith(("in_proj_weight", "proj.weight", "c_fc.weight", "conv1.weight"))
    saved = {n.rpartition("/")[2] for n in tensors(last_checkpoint(tmp_path / "run") / "weights")}
    assert all("lora_" in name for name in saved)  # frozen weights are the start's


def test_starts_that_cannot_be_trained(tmp_path):
    with raises("E-MODEL-UNSUITABLE", "blind:length"):
        open_start("blind:length", "cpu")


# --- updates -----------------------------------------------------------------------------------


def test_activation_checkpointing_changes_nothing(tmp_path):
    run_small(tmp_path, "steps=3", out="plain")
    for extra in ([], ["lora.rank=2"]):
        run_small(tmp_path, "steps=3", *extra, out=f"without{len(extra)}")
        run_small(
            tmp_path, "steps=3", "checkpoint_activations=true", *extra, out=f"with{len(extra)}"
        )
        one, two = (weights(tmp_path / f"{n}{len(extra)}") for n in ("without", "with"))
        assert all(torch.allclose(one[name], two[name], atol=1e-6) for name in one)


def test_a_model_that_shows_no_words_is_refused_in_one_sentence(tmp_path):
    with raises("E-MODEL-UNSUITABLE", "focal-local") as caught:
        run_small(tmp_path, f"model={tiny_start(tmp_path / 'other', LAST)}", name="fsc-clip")
    assert "words of texts" in str(caught.value)


def test_a_teacher_is_the_moving_average_and_the_result_is_the_student(tmp_path):
    run = build(small_recipe(tmp_path, "ema=0.5", name="degla"), CPU)
    assert run.loss.start is not None
    before = {n: p.clone() for n, p in run.loss.start.named_parameters()}
    batch = next(iter(run.data.stream()))
    run.stepper.backward(only(batch, run.loss.fields), share=1, seed=0, last=True)
    update(run, 0)
    moved = 0
    for name, mine in run.parameters.items():
        teacher = run.loss.start.get_parameter(name)
        torch.testing.assert_close(teacher, (before[name] + mine) / 2)
        moved += not torch.equal(before[name], teacher)
        assert not teacher.requires_grad
    assert moved > 5
    state = loop.final_state(run)
    assert torch.equal(state["visual.proj"], run.parameters["clip.visual.proj"])


def test_clipping_is_torchs(start):
    towers = towers_of(start)
    for limit in (0.01, 1e9, None):
        gradients(towers, random_batch(4), 0, TERMS[:4])
        parameters = [p for p in towers.parameters() if p.grad is not None]
        copies = [torch.nn.Parameter(p.detach().clone()) for p in parameters]
        for copy, p in zip(copies, parameters, strict=True):
            copy.grad = p.grad.clone()
        expected = torch.nn.utils.clip_grad_norm_(copies, limit or math.inf)
        assert clip_gradients(parameters, limit) == pytest.approx(float(expected), rel=1e-5)
        for copy, p in zip(copies, parameters, strict=True):
            assert torch.allclose(copy.grad, p.grad, rtol=1e-4)


def test_moving_averages_and_the_clamp(tmp_path):
    recipe = small_recipe(tmp_path, "ema=0.75", "clamp_scale=5")
    run = build(recipe, CPU)
    expected = {n: p.detach().clone() for n, p in run.parameters.items()}
    batches = run.data.stream(0, 3)
    for step in range(3):
        run.optimiser.zero_grad()
        batch = only(next(batches), run.loss.fields)
        run.stepper.backward(batch, share=1.0, seed=0, last=True)
        update(run, step)
        for name, p in run.parameters.items():
            expected[name] = 0.75 * expected[name] + 0.25 * p.detach()
    assert float(run.model.scale.detach().exp()) <= 5.0001
    assert all(torch.allclose(run.averaged[n], expected[n], atol=1e-6) for n in expected)
    done = loop.train(recipe)
    assert done is not None
    last = tensors(last_checkpoint(tmp_path / "run") / "weights")
    final = weights(tmp_path / "run")
    assert all(torch.equal(final[n], last[f"average/clip.{n}"]) for n in final)
    assert any(not torch.equal(final[n], last[f"clip.{n}"]) for n in final)
