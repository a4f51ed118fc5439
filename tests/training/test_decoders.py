"""Frozen decoders: what they say from a vector, and what of it is trained."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from errors import raises
from open_clip_models import load, save_model
from safetensors.torch import load_file, save_file
from training import run_small, small_recipe, tensors

from counterpoint.training.decoders import Captioner, WordDecoder, open_captioner
from counterpoint.training.processes import Ranks
from counterpoint.training.setup import build
from counterpoint.training.towers import Towers

pytestmark = pytest.mark.slow
CPU = Ranks(0, 1, torch.device("cpu"))


def small_captioner() -> Captioner:
    torch.manual_seed(0)
    return Captioner(WordDecoder(20, 8, 2, 2, 10), 8, 5, seed=3).double()


@torch.no_grad()
def test_the_loss_is_that_of_one_word_after_the_other():
    captioner = small_captioner()
    vectors = torch.randn(3, 5, dtype=torch.float64)
    texts = torch.tensor([[18, 4, 5, 19, 0, 0], [18, 7, 19, 0, 0, 0], [18, 3, 3, 3, 3, 19]])
    found = captioner(vectors, texts)
    for row, text in enumerate(texts.tolist()):
        words = [word for word in text if word]
        losses = []
        for place in range(1, len(words)):
            memory = captioner.projection(vectors[row : row + 1])
            logits = captioner.decoder(memory, torch.tensor([words[:place]]))[0, -1]
            losses.append(float(logits.logsumexp(0) - logits[words[place]]))
        assert float(found[row]) == pytest.approx(sum(losses) / len(losses), rel=1e-6)


def test_gradients_reach_the_vectors_and_the_projection_and_not_the_decoder():
    captioner = small_captioner().train()
    vectors = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    captioner(vectors, torch.tensor([[18, 4, 19], [18, 5, 19]])).sum().backward()
    assert vectors.grad is not None and vectors.grad.abs().max() > 0
    assert captioner.projection.weight.grad is not None
    assert all(p.grad is None and not p.requires_grad for p in captioner.decoder.parameters())
    assert not captioner.decoder.training


def test_the_worlds_decoder_says_captions_from_their_vectors(tmp_path):
    """From other vectors than their own it says them worse, once the projection is fitted."""
    run = build(small_recipe(tmp_path, "batch=32", "model=world:base", name="read-clip"), CPU)
    batch = next(iter(run.data.stream()))
    captioner = run.loss.captioner
    assert captioner is not None
    with torch.no_grad():
        vectors = run.stepper.towers(batch.images, batch.captions)[1]
    optimiser = torch.optim.Adam(captioner.projection.parameters(), lr=0.03)
    first = float(captioner(vectors, batch.captions).detach().mean())
    for _ in range(40):
        optimiser.zero_grad()
        loss = captioner(vectors, batch.captions).mean()
        loss.backward()
        optimiser.step()
    turned = float(captioner(vectors.roll(1, 0), batch.captions).detach().mean())
    last = float(loss.detach())
    assert last < 0.8 * first and last < 0.7 * turned and math.isfinite(turned)


def test_the_projection_is_trained_and_not_saved_with_the_model(tmp_path):
    run_small(tmp_path, name="read-clip")
    last = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    kept = tensors(last / "weights.safetensors")
    assert "captioner.projection.weight" in kept
    assert not any(name.startswith("captioner.decoder") for name in kept)
    saved = tensors(tmp_path / "run" / "model" / "open_clip_model.safetensors")
    assert not any("captioner" in name for name in saved)


def test_what_has_no_decoder_is_refused_in_one_sentence(tmp_path):
    with raises("E-MODEL-UNSUITABLE", "world"):
        other = load(save_model(tmp_path / "start"))
        other.tokenizer.vocab_size = 49408
        open_captioner("world", other, Towers(other), 0)
    with raises("E-MODEL-MISSING", "decoder=hf:nowhere-at-all"):
        other = load(tmp_path / "start")
        open_captioner("hf:nowhere-at-all", other, Towers(other), 0)
    recipe = small_recipe(tmp_path, name="read-clip")
    with raises("E-MODEL-UNSUITABLE", "world") as caught:
        build(recipe, Ranks(0, 2, torch.device("cpu")))
    assert "one process" in str(caught.value)


def tiny_t5(folder: Path) -> Path:
    tf = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = [
        "<pad>",
        "</s>",
        "<unk>",
        *["the", "a", "red", "blue", "circle", "square", "and", "above", "of"],
    ]
    model = tokenizers.models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="<unk>")
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    tokenizer = tf.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    torch.manual_seed(0)
    config = tf.T5Config(
        vocab_size=len(words), d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2,
        decoder_start_token_id=0,
    )  # fmt: skip
    tf.T5ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_an_encoder_decoder_of_transformers_reads_the_words_of_the_text_tower(tmp_path):
    start = load(save_model(tmp_path / "start"))
    captioner = open_captioner(f"hf:{tiny_t5(tmp_path / 't5')}", start, Towers(start), seed=0)
    texts = start.tokenizer(["the red circle", "a blue square above the red circle"])
    ids, there = captioner.ids(texts)
    assert ids.tolist() == [
        [0, 3, 5, 7, 1, 0, 0, 0, 0],
        [0, 4, 6, 8, 10, 3, 5, 7, 1],
    ]
    assert there.sum(1).tolist() == [5, 9]
    vectors = torch.randn(2, 16, requires_grad=True)
    found = captioner(vectors, texts)
    assert found.shape == (2, 1) and found.isfinite().all()
    found.sum().backward()
    assert vectors.grad is not None and vectors.grad.abs().max() > 0
    trained = run_small(tmp_path, f"decoder=hf:{tmp_path / 't5'}", name="read-clip", out="t5-run")
    assert trained.steps == 6


def test_a_decoder_that_lacks_weights_is_refused(tmp_path):
    """transformers would draw them at random, and the loss would say nothing of captions."""
    folder = Path(tiny_t5(tmp_path / "t5"))
    tensors = load_file(folder / "model.safetensors")
    gone = sorted(name for name in tensors if "decoder" in name and "SelfAttention.q" in name)[0]
    save_file({k: v for k, v in tensors.items() if k != gone}, folder / "model.safetensors")
    start = load(save_model(tmp_path / "start"))
    with raises("E-WEIGHTS-MISSING", gone):
        open_captioner(f"hf:{folder}", start, Towers(start), seed=0)
