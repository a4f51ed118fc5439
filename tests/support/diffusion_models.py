"""Tiny text-to-image pipelines of diffusers' own classes, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from hf_models import SMALL, clip_tokenizer

from counterpoint._util.store import Store
from counterpoint.generation.images.backends import DrawSettings
from counterpoint.generation.images.diffusion import Diffusion

SIDE = 16  # pixels of what they draw
NAMES = ("inpaint", "sd", "prude", "xl", "dpo")
SETTINGS = DrawSettings(candidates=2, steps=2, side=SIDE)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as opened:
        yield opened


def change(made: Diffusion, run: Callable[..., Any]) -> None:
    """Put something else in the pipeline's place."""
    made.opened = replace(made.opened, pipeline=run)


def text_encoder(kind: str) -> Any:
    words = clip_tokenizer()
    torch.manual_seed(1)
    ids = {f"{n}_token_id": getattr(words, f"{n}_token_id") for n in ("bos", "eos", "pad")}
    length = {"max_position_embeddings": words.model_max_length, "projection_dim": 16}
    return getattr(tf, kind)(tf.CLIPTextConfig(**SMALL, **ids, **length, vocab_size=len(words)))


def unet(seed: int = 0, **settings: Any) -> Any:
    from diffusers import UNet2DConditionModel

    torch.manual_seed(seed)
    return UNet2DConditionModel(
        block_out_channels=(8, 16),
        layers_per_block=1,
        norm_num_groups=4,
        sample_size=SIDE // 2,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
        **settings,
    )


def xl_unet(seed: int = 0) -> Any:
    added = {"addition_embed_type": "text_time", "addition_time_embed_dim": 8}
    return unet(
        seed, cross_attention_dim=32, projection_class_embeddings_input_dim=6 * 8 + 16, **added
    )


def shared_parts() -> dict[str, Any]:
    from diffusers import AutoencoderKL, EulerDiscreteScheduler

    torch.manual_seed(2)
    vae = AutoencoderKL(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=4,
        sample_size=SIDE,
    )
    parts = {"vae": vae, "tokenizer": clip_tokenizer(), "scheduler": EulerDiscreteScheduler()}
    return {**parts, "text_encoder": text_encoder("CLIPTextModel")}


def prude() -> dict[str, Any]:
    """A safety checker that holds every image back."""
    from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker

    vision = {**SMALL, "image_size": 32, "patch_size": 16}
    checker = StableDiffusionSafetyChecker(tf.CLIPConfig(vision_config=vision, projection_dim=8))
    checker.concept_embeds_weights.data.fill_(-2.0)  # every cosine is above it
    size = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    return {"safety_checker": checker, "feature_extractor": tf.CLIPImageProcessor(**size)}


def save_models(folder: Path, names: Sequence[str] = NAMES) -> dict[str, Path]:
    """Stable Diffusion, with a safety checker, for inpainting, SDXL, and another UNet for it."""
    tf.logging.disable_progress_bar()
    for name in names:
        if name == "dpo":
            xl_unet(seed=9).save_pretrained(folder / name / "unet")
        else:
            _pipeline(name).save_pretrained(folder / name)
    return {name: folder / name for name in names}


def _pipeline(name: str) -> Any:
    import diffusers

    none = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
    if name == "xl":
        xl = {
            "text_encoder_2": text_encoder("CLIPTextModelWithProjection"),
            "tokenizer_2": clip_tokenizer(),
            "unet": xl_unet(),
        }
        return diffusers.StableDiffusionXLPipeline(**shared_parts(), **xl, add_watermarker=False)
    if name == "inpaint":
        filling = {**shared_parts(), "unet": unet(cross_attention_dim=16, in_channels=9)}
        return diffusers.StableDiffusionInpaintPipeline(**filling, **none)
    sd = {**shared_parts(), "unet": unet(cross_attention_dim=16)}
    return diffusers.StableDiffusionPipeline(**sd, **(prude() if name == "prude" else none))
