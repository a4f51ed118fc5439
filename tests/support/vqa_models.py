"""Tiny generative models of transformers' own classes, with random weights, as folders.

Each has its real processor, a tokenizer trained here on a few sentences, and a chat template in the
style of its family.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from hf_models import quiet
from PIL import Image
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer

from counterpoint.cases.table import ImageRef
from counterpoint.images import Picture

CAPTIONS = [
    "a dog",
    "the cat sits on a red mat, and the dog does not",
    'a "quoted" star: left of the ring!',
]
_CORPUS = [
    *CAPTIONS,
    'Does this figure show "a dog"? Please answer yes or no.',
    "USER: Describe the image. ASSISTANT: Yes No yes no",
    "user assistant model system Assistant: a picture of the red bird in a tree",
] * 20
TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "patch_size": 8,
    "image_size": 32,
}
_SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]


def tokenizer(blanks: str, added: list[str], **more: Any) -> Any:
    """A BPE tokenizer: `▁` writes blanks as sentencepiece does, `Ġ` as byte-level vocabularies."""
    inner = Tokenizer(models.BPE(unk_token="<unk>"))
    if blanks == "▁":
        inner.normalizer = normalizers.Replace(" ", "▁")
        inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
        inner.decoder = decoders.Metaspace()
        alphabet = ["\n"]
    else:
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(
        vocab_size=500, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(_CORPUS, trainer)
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B:1", special_tokens=[("<s>", 1)]
    )
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        **more,
    )
    made.add_special_tokens({"additional_special_tokens": added})
    return made


class Parts(NamedTuple):
    model: Any
    processor: Any


_LLAVA_CHAT = (
    "{% for m in messages %}{% if m.role == 'user' %}USER: {% else %}ASSISTANT: {% endif %}"
    "{% for c in m.content if c.type == 'image' %}<image>\n{% endfor %}"
    "{% for c in m.content if c.type == 'text' %}{{ c.text }} {% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
_QWEN_CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for c in m.content %}"
    "{% if c.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c.text }}"
    "{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_IDEFICS_CHAT = (
    "<s>{% for m in messages %}{{ m.role.capitalize() }}:"
    "{% for c in m.content %}{% if c.type == 'image' %}<image>{% else %}{{ c.text }}{% endif %}"
    "{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
_GEMMA_CHAT = (
    "<s>{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{% for c in m.content %}{% if c.type == 'image' %}<start_of_image>{% else %}"
    "{{ c.text | trim }}{% endif %}{% endfor %}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


def llava(chat: str | None = _LLAVA_CHAT) -> Parts:
    words = tokenizer("▁", ["<image>"])
    processor = transformers.LlavaProcessor(
        transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=32),
        words,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=chat,
    )
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**VISION),
        text_config=transformers.LlamaConfig(**TEXT, vocab_size=len(words)),
        image_token_id=processor.image_token_id,
    )
    return Parts(transformers.LlavaForConditionalGeneration(config), processor)


def qwen2_vl() -> Parts:
    added = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
    words = tokenizer("Ġ", [*added, "<|image_pad|>", "<|video_pad|>"])
    pixels = {"shortest_edge": 16 * 16, "longest_edge": 64 * 64}
    shape = {"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2, "size": pixels}
    processor = transformers.Qwen2VLProcessor(
        transformers.Qwen2VLImageProcessor(**shape),
        words,
        transformers.Qwen2VLVideoProcessor(**shape),
        chat_template=_QWEN_CHAT,
    )
    config = transformers.Qwen2VLConfig(
        vision_config={
            "depth": 2,
            "embed_dim": 32,
            "hidden_size": 32,
            "num_heads": 2,
            "mlp_ratio": 2,
            "patch_size": 8,
        },
        text_config={
            **TEXT,
            "vocab_size": len(words),
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [1, 1, 2],
            },
        },
        image_token_id=processor.image_token_id,
        video_token_id=processor.video_token_id,
        vision_start_token_id=words.convert_tokens_to_ids("<|vision_start|>"),
        vision_end_token_id=words.convert_tokens_to_ids("<|vision_end|>"),
    )
    return Parts(transformers.Qwen2VLForConditionalGeneration(config), processor)


def idefics3() -> Parts:
    grid = [f"<row_{i}_col_{j}>" for i in range(1, 7) for j in range(1, 7)]
    added = ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>"]
    words = tokenizer("Ġ", [*added, *grid])
    processor = transformers.Idefics3Processor(
        transformers.Idefics3ImageProcessor(
            size={"longest_edge": 64}, max_image_size={"longest_edge": 32}
        ),
        words,
        image_seq_len=4,
        chat_template=_IDEFICS_CHAT,
    )
    config = transformers.Idefics3Config(
        vision_config=VISION,
        text_config=transformers.LlamaConfig(**TEXT, vocab_size=len(words)),
        image_token_id=processor.image_token_id,
        scale_factor=2,
    )
    return Parts(transformers.Idefics3ForConditionalGeneration(config), processor)


def paligemma() -> Parts:
    words = tokenizer("▁", ["<image>"])
    images = transformers.SiglipImageProcessor(size={"height": 32, "width": 32})
    images.image_seq_length = 16
    processor = transformers.PaliGemmaProcessor(images, words)
    config = transformers.PaliGemmaConfig(
        vision_config=transformers.SiglipVisionConfig(**VISION),
        text_config=transformers.GemmaConfig(**TEXT, vocab_size=len(words)),
        image_token_index=processor.image_token_id,
        projection_dim=TEXT["hidden_size"],
    )
    return Parts(transformers.PaliGemmaForConditionalGeneration(config), processor)


def gemma3() -> Parts:
    named = {
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
        "image_token": "<image_soft_token>",
    }
    words = tokenizer("▁", ["<start_of_turn>", "<end_of_turn>"], extra_special_tokens=named)
    processor = transformers.Gemma3Processor(
        transformers.Gemma3ImageProcessor(size={"height": 32, "width": 32}),
        words,
        image_seq_length=4,
        chat_template=_GEMMA_CHAT,
    )
    config = transformers.Gemma3Config(
        vision_config=transformers.SiglipVisionConfig(**VISION),
        text_config=transformers.Gemma3TextConfig(
            **TEXT, vocab_size=len(words), sliding_window=12, sliding_window_pattern=2
        ),
        mm_tokens_per_image=4,
        boi_token_index=words.boi_token_id,
        eoi_token_index=words.eoi_token_id,
        image_token_index=words.image_token_id,
    )
    return Parts(transformers.Gemma3ForConditionalGeneration(config), processor)


def blip2() -> Parts:
    """No chat template, no cache to be had, and a processor that puts the image in by itself."""
    words = tokenizer("Ġ", ["<image>"])
    images = transformers.BlipImageProcessor(size={"height": 32, "width": 32})
    processor = transformers.Blip2Processor(images, words, num_query_tokens=4)
    config = transformers.Blip2Config(
        vision_config=VISION,
        qformer_config={**TEXT, "encoder_hidden_size": 32, "vocab_size": 8},
        text_config={
            "model_type": "opt",
            "hidden_size": 32,
            "word_embed_proj_dim": 32,
            "ffn_dim": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "vocab_size": len(words),
            "max_position_embeddings": 128,
        },
        num_query_tokens=4,
        image_token_index=words.convert_tokens_to_ids("<image>"),
    )
    return Parts(transformers.Blip2ForConditionalGeneration(config), processor)


ALL: dict[str, Callable[[], Parts]] = {
    "llava": llava,
    "qwen2_vl": qwen2_vl,
    "idefics3": idefics3,
    "paligemma": paligemma,
    "gemma3": gemma3,
}


def save(folder: Path, parts: Parts, seed: int = 0) -> Path:
    """A folder of this model, with weights large enough that every token matters.

    All of them are drawn anew: those that the model was made with come from torch's own generator,
    and so from whatever was drawn before.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in parts.model.named_parameters():
            norm = "norm" in name.lower() and name.endswith("weight")
            weight.normal_(mean=float(norm), std=0.25, generator=generator)
    with quiet():
        parts.model.save_pretrained(folder)
        parts.processor.save_pretrained(folder)
    return folder


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def pictures(folder: Path) -> list[Picture]:
    """Images of different shapes, so that prompts of different lengths come of them."""
    made = []
    for number, size in enumerate([(40, 40), (90, 40)]):
        path = folder / f"{number}.png"
        noise(*size, seed=number).save(path)
        made.append(Picture(ImageRef(str(path))))
    return made
