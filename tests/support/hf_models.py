"""Tiny models of transformers' own classes, with random weights, real tokenizers and processors."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as tf
from errors import raises
from PIL import Image

from counterpoint.cases.table import ImageRef
from counterpoint.images import Picture
from counterpoint.models.registry import LoadOptions, load_model

CONTEXT = 16
CAPTIONS = [
    "a red circle",
    "the Small green star and the striped heart",
    "a dog & a cat",
    "a large star above a small solid heart",
    "heart",
]
OVERLONG = "a large star above a small solid heart " * 4
SENTENCES = [*CAPTIONS, "two birds sit on the long branch of a tall tree", "a blue ring", "zebra"]


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    """A gradient with noise: resizing would make gray of noise alone, and all images alike."""
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 256, (4, 4, 3)).astype(np.uint8)
    smooth = np.asarray(Image.fromarray(corners).resize((width, height)), dtype=np.int64)
    grain = rng.integers(-20, 21, (height, width, 3))
    return Image.fromarray((smooth + grain).clip(0, 255).astype(np.uint8))


IMAGES = [noise(32, 32), noise(50, 40, 1), noise(20, 64, 2)]

# --- tokenizers --------------------------------------------------------------------------------


def words() -> list[str]:
    found = {word for text in SENTENCES for word in text.lower().split()}
    return sorted(found | {letter for word in found for letter in word})


def bert_tokenizer(**settings: Any) -> tf.BertTokenizer:
    """WordPiece: whole words, and letters for what it does not know."""
    pieces = {piece: None for word in words() for piece in (word, f"##{word[-1]}")}
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    vocabulary = {piece: number for number, piece in enumerate([*special, *pieces])}
    return tf.BertTokenizer(vocab=vocabulary, **settings)


def merged(end: str, special: tuple[str, ...]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Byte-pair merges that build each word letter by letter; `end` marks a word's last piece."""
    pieces = {letter: None for word in words() for letter in (word[-1], f"{word[-1]}{end}")}
    pieces |= {letter: None for word in words() for letter in word}
    merges: dict[tuple[str, str], None] = {}
    for word in words():
        letters = [*word[:-1], word[-1] + end]
        left = letters[0]
        for right in letters[1:]:
            merges[left, right] = None
            left += right
            pieces[left] = None
    every = dict.fromkeys([*special, *pieces])
    return {piece: number for number, piece in enumerate(every)}, list(merges)


def clip_tokenizer() -> tf.CLIPTokenizer:
    vocabulary, merges = merged("</w>", ("<|startoftext|>", "<|endoftext|>"))
    return tf.CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=CONTEXT)


def siglip2_tokenizer() -> tf.Siglip2Tokenizer:
    """As Google's repositories have it, but for padding on the left: nothing may come of that."""
    from tokenizers import processors

    vocabulary, merges = merged("", ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁"))
    tokenizer = tf.Siglip2Tokenizer(vocab=vocabulary, merges=merges, padding_side="left")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", vocabulary["<eos>"])]
    )
    return tokenizer


def siglip_tokenizer() -> tf.SiglipTokenizer:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "spiece.model"
        file.write_bytes(sentencepieces())
        return tf.SiglipTokenizer(
            vocab_file=str(file), model_max_length=CONTEXT, model_input_names=["input_ids"]
        )


@functools.cache
def sentencepieces() -> bytes:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text.lower() for text in SENTENCES]),
        model_writer=model,
        vocab_size=45,
        pad_id=-1,
        bos_id=-1,
        eos_id=1,
        unk_id=2,
        minloglevel=2,
    )
    return model.getvalue()


def xlm_tokenizer(**settings: Any) -> tf.XLMRobertaTokenizer:
    special = [(piece, 0.0) for piece in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces = {piece: None for word in words() for piece in (f"▁{word}", word)}
    return tf.XLMRobertaTokenizer(
        vocab=[*special, *((piece, -float(len(pieces))) for piece in pieces), ("<mask>", 0.0)],
        **settings,
    )


# --- models ------------------------------------------------------------------------------------

SMALL = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
VISION = {**SMALL, "image_size": 32, "patch_size": 16}


def text(tokenizer: Any, **settings: Any) -> dict[str, Any]:
    ids = {f"{n}_token_id": getattr(tokenizer, f"{n}_token_id") for n in ("bos", "eos", "pad")}
    positions = {"max_position_embeddings": CONTEXT}
    return {**SMALL, **positions, "vocab_size": len(tokenizer), **ids, **settings}


def pixels(kind: Any, **settings: Any) -> Any:
    side = {"height": 32, "width": 32}
    return kind(**{"size": side, "crop_size": side, **settings})


def clip() -> tuple[Any, Any, Any]:
    tokenizer = clip_tokenizer()
    config = tf.CLIPConfig(text_config=text(tokenizer), vision_config=VISION, projection_dim=12)
    return (
        tf.CLIPModel(config),
        tokenizer,
        pixels(tf.CLIPImageProcessor, size={"shortest_edge": 32}),
    )


def siglip() -> tuple[Any, Any, Any]:
    tokenizer = siglip_tokenizer()
    config = tf.SiglipConfig(text_config=text(tokenizer, projection_size=16), vision_config=VISION)
    return tf.SiglipModel(config), tokenizer, pixels(tf.SiglipImageProcessor)


def siglip2() -> tuple[Any, Any, Any]:
    tokenizer = siglip2_tokenizer()
    config = tf.Siglip2Config(
        text_config=text(tokenizer, projection_size=16),
        vision_config={**SMALL, "patch_size": 8, "num_patches": 16},
    )
    processor = tf.Siglip2ImageProcessor(patch_size=8, max_num_patches=16)
    return tf.Siglip2Model(config), tokenizer, processor


def align() -> tuple[Any, Any, Any]:
    tokenizer = bert_tokenizer(model_max_length=CONTEXT)
    vision = tf.AlignVisionConfig(
        image_size=32,
        width_coefficient=1.0,
        depth_coefficient=1.0,
        kernel_sizes=[3, 3],
        in_channels=[32, 8],
        out_channels=[8, 32],
        strides=[1, 2],
        num_block_repeats=[1, 1],
        expand_ratios=[1, 2],
        hidden_dim=32,
    )
    config = tf.AlignConfig(
        text_config=text(tokenizer, max_position_embeddings=40),
        vision_config=vision.to_dict(),
        projection_dim=32,
    )
    processor = pixels(
        tf.EfficientNetImageProcessor,
        rescale_factor=1 / 127.5,
        rescale_offset=True,
        do_normalize=False,
    )
    return tf.AlignModel(config), tokenizer, processor


def altclip() -> tuple[Any, Any, Any]:
    tokenizer = xlm_tokenizer()
    settings = text(tokenizer, max_position_embeddings=CONTEXT + 2, project_dim=16)
    config = tf.AltCLIPConfig(text_config=settings, vision_config=VISION, projection_dim=12)
    return tf.AltCLIPModel(config), tokenizer, pixels(tf.CLIPImageProcessor)


def chinese_clip() -> tuple[Any, Any, Any]:
    tokenizer = bert_tokenizer()
    config = tf.ChineseCLIPConfig(
        text_config=text(tokenizer), vision_config=VISION, projection_dim=12
    )
    return tf.ChineseCLIPModel(config), tokenizer, pixels(tf.ChineseCLIPImageProcessor)


def metaclip_2() -> tuple[Any, Any, Any]:
    tokenizer = xlm_tokenizer(model_max_length=CONTEXT)
    config = tf.MetaClip2Config(
        text_config=text(tokenizer), vision_config=VISION, projection_dim=12
    )
    return tf.MetaClip2Model(config), tokenizer, pixels(tf.CLIPImageProcessor)


def flava(kind: Any = None) -> tuple[Any, Any, Any]:
    tokenizer = bert_tokenizer()
    config = tf.FlavaConfig(
        text_config=text(tokenizer),
        image_config={**VISION, "vocab_size": 20},
        multimodal_config=SMALL,
        image_codebook_config={"hidden_size": 4, "vocab_size": 20, "num_blocks_per_group": 1},
        hidden_size=16,
        projection_dim=12,
    )
    return (kind or tf.FlavaModel)(config), tokenizer, pixels(tf.FlavaImageProcessor)


def vit_bert() -> tuple[Any, Any, Any]:
    tokenizer = bert_tokenizer()
    config = tf.VisionTextDualEncoderConfig.from_vision_text_configs(
        tf.ViTConfig(**VISION), tf.BertConfig(**text(tokenizer)), projection_dim=12
    )
    return tf.VisionTextDualEncoderModel(config), tokenizer, pixels(tf.ViTImageProcessor)


def dinov2_bert() -> tuple[Any, Any, Any]:
    tokenizer = bert_tokenizer()
    trunk = {k: v for k, v in VISION.items() if k != "intermediate_size"}
    config = tf.VisionTextDualEncoderConfig.from_vision_text_configs(
        tf.Dinov2Config(**trunk), tf.BertConfig(**text(tokenizer)), projection_dim=12
    )
    return tf.VisionTextDualEncoderModel(config), tokenizer, pixels(tf.ViTImageProcessor)


def clip_roberta() -> tuple[Any, Any, Any]:
    tokenizer = xlm_tokenizer()
    settings = text(tokenizer, max_position_embeddings=CONTEXT + 2)
    config = tf.VisionTextDualEncoderConfig.from_vision_text_configs(
        tf.CLIPVisionConfig(**VISION), tf.XLMRobertaConfig(**settings), projection_dim=12
    )
    return tf.VisionTextDualEncoderModel(config), tokenizer, pixels(tf.CLIPImageProcessor)


def blip(kind: Any = None, room: int = 0) -> tuple[Any, Any, Any]:
    """`room` is for words that the tokenizer lacks: BLIP's own [DEC] and [ENC]."""
    tokenizer = bert_tokenizer()
    size = {"vocab_size": len(tokenizer) + room, "encoder_hidden_size": 16}
    config = tf.BlipConfig(
        text_config=text(tokenizer, sep_token_id=tokenizer.sep_token_id, **size),
        vision_config=VISION,
        image_text_hidden_size=12,
        projection_dim=12,
    )
    return (kind or tf.BlipForImageTextRetrieval)(config), tokenizer, pixels(tf.BlipImageProcessor)


def blip_2() -> tuple[Any, Any, Any]:
    tokenizer = bert_tokenizer()
    config = tf.Blip2Config(
        vision_config=VISION,
        qformer_config=text(
            tokenizer,
            encoder_hidden_size=16,
            cross_attention_frequency=1,
            use_qformer_text_input=True,
        ),
        text_config={"model_type": "opt", "hidden_size": 16, "word_embed_proj_dim": 16},
        num_query_tokens=4,
        image_text_hidden_size=12,
    )
    return tf.Blip2ForImageTextRetrieval(config), tokenizer, pixels(tf.BlipImageProcessor)


DUALS: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "clip": clip,
    "siglip": siglip,
    "siglip2": siglip2,
    "align": align,
    "altclip": altclip,
    "chinese_clip": chinese_clip,
    "flava": flava,
    "metaclip_2": metaclip_2,
    "vit-bert": vit_bert,
    "clip-roberta": clip_roberta,
}

# --- folders -----------------------------------------------------------------------------------


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """transformers talks while it builds and saves."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    tf.logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        tf.logging.enable_progress_bar()


def save(folder: Path, build: Callable[[], tuple[Any, Any, Any]], seed: int = 0) -> Path:
    """A folder as the hub has them, of a model whose every weight matters."""
    with quiet():
        model, tokenizer, processor = build()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                norm = "norm" in name.lower() and name.endswith("weight")
                spread = 4 / weight[0].numel() ** 0.5 if weight.ndim == 4 else 0.3
                weight.normal_(mean=float(norm), std=spread, generator=generator)
        for part in (model, tokenizer, processor):
            part.save_pretrained(folder)
    return folder


def load(family: str, folder: Path, precision: str = "fp32") -> Any:
    return load_model(f"{family}:{folder}", LoadOptions("cpu", precision))


def refusal(id: str, code: str, **data: object) -> str:
    """The message with which a model is refused: it must be one line that a user can read."""
    with raises(code, *data.values()) as caught:
        load_model(id, LoadOptions("cpu"))
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message and len(message) < 700
    assert "Traceback" not in message
    return message


def pairs(folder: Path) -> tuple[list[Picture], list[str]]:
    """Every image with some captions, as the engine asks: pairs of one image side by side."""
    for number, image in enumerate(IMAGES):
        image.save(folder / f"{number}.png")
    pictures = [Picture(ImageRef(f"{number}.png"), folder) for number in (0, 0, 0, 1, 1, 2)]
    return pictures, [*CAPTIONS[:3], CAPTIONS[0], CAPTIONS[3], OVERLONG]


def calls(module: torch.nn.Module, act: Callable[[], Any]) -> list[int]:
    """How many items each call of a module was given while `act` ran."""
    seen: list[int] = []
    handle = module.register_forward_hook(
        lambda _, args, kwargs, out: seen.append(len(next(iter((*args, *kwargs.values()))))),
        with_kwargs=True,
    )
    try:
        act()
    finally:
        handle.remove()
    return seen
