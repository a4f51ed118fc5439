"""Tiny text models of transformers' own classes: CoLA's classifiers, Vera, causal models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

tf = pytest.importorskip("transformers")

WORDS = [
    "a",
    "the",
    "red",
    "blue",
    "dog",
    "cat",
    "is",
    "running",
    "on",
    "grass",
    "and",
    ".",
    "black",
]
ROWS = 32128  # of T5's embedding


def save_tokenizer(
    folder: Path, size: int, ends: str, pad: bool = True, words: Sequence[str] = WORDS
) -> None:
    """Whole words; `ends` is what stands around a text, with $A for the text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    names = ["<pad>", "<unk>", "<s>", "</s>", *words]
    names += [f"<extra_{number}>" for number in range(size - len(names))]
    inner = Tokenizer(models.WordLevel({n: i for i, n in enumerate(names)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single=ends, special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    special |= {"pad_token": "<pad>"} if pad else {}
    tf.PreTrainedTokenizerFast(
        tokenizer_object=inner, model_max_length=32, **special
    ).save_pretrained(folder)


def randomise(model: torch.nn.Module, seed: int = 0, std: float = 0.3) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=std, generator=generator)
    return model.eval()


def save(model: torch.nn.Module, folder: Path) -> None:
    from transformers.utils import logging

    logging.disable_progress_bar()
    model.save_pretrained(folder)
    logging.enable_progress_bar()


def grammar_model(**settings: object) -> torch.nn.Module:
    small = {"vocab_size": 64, "dim": 16, "hidden_dim": 32, "n_heads": 2, "n_layers": 2}
    config = tf.DistilBertConfig(**small, max_position_embeddings=32, **settings)
    return randomise(tf.DistilBertForSequenceClassification(config))


def save_grammar(folder: Path, words: Sequence[str] = WORDS, **settings: object) -> torch.nn.Module:
    model = grammar_model(**settings)
    save(model, folder)
    save_tokenizer(folder, 64, "<s> $A </s>", words=words)
    return model


def save_roberta(folder: Path, words: Sequence[str] = WORDS) -> torch.nn.Module:
    """As TROHN's grammar model: classes without names, positions that start after padding."""
    small = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "pad_token_id": 0}
    config = tf.RobertaConfig(
        **small, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=34
    )
    model = randomise(tf.RobertaForSequenceClassification(config))
    save(model, folder)
    save_tokenizer(folder, 64, "<s> $A </s>", words=words)
    return model


def t5_config(rows: int = ROWS) -> object:
    small = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    return tf.T5Config(vocab_size=rows, decoder_start_token_id=0, **small)


def save_vera(
    folder: Path, temperature: float = 1.7, words: Sequence[str] = WORDS
) -> torch.nn.Module:
    model = randomise(tf.T5EncoderModel(t5_config()))
    with torch.no_grad():
        model.shared.weight[32098, 0] = 0.25
        model.shared.weight[32097, 0] = temperature
    save(model, folder)
    save_tokenizer(folder, 32100, "$A </s>", words=words)
    return model


def save_lm(folder: Path, kind: str = "llama", pad: bool = True) -> torch.nn.Module:
    ids = {"bos_token_id": 2, "eos_token_id": 3}
    small = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    small |= {"num_hidden_layers": 2, "max_position_embeddings": 32, "vocab_size": 64}
    gpt2 = {"n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 32, "vocab_size": 64}
    model = {
        "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**small, **ids)),
        "gpt2": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(**gpt2, **ids)),
    }[kind]()
    save(randomise(model), folder)
    save_tokenizer(folder, 64, "$A", pad)
    return model
