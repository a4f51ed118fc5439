"""Images for training: decoded no larger than needed, and prepared in part on the device."""

from __future__ import annotations

import io
import os

import numpy as np
import torch
from errors import raises
from open_clip import SimpleTokenizer
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from torchvision.transforms import Compose, RandomErasing
from train_data_support import preprocess, same, tokenize, training_file

from counterpoint._util.processes import NICE
from counterpoint.models import split_transform
from counterpoint.training.data import open_data
from counterpoint.training.data.loading import Setting
from counterpoint.training.data.table import decode
from counterpoint.training.recipe import DataConfig


def jpeg(size=(640, 480)) -> bytes:
    rng = np.random.default_rng(0)
    smooth = Image.fromarray(rng.integers(0, 255, (6, 8, 3), dtype=np.uint8)).resize(size)
    buffer = io.BytesIO()
    smooth.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def test_a_jpeg_is_decoded_no_larger_than_needed_and_looks_the_same():
    small, whole = decode(jpeg(), "a", 224), decode(jpeg(), "a", 640)
    assert small.size == (320, 240) and whole.size == (640, 480)
    one, other = (np.asarray(i.resize((64, 64), Image.Resampling.BICUBIC)) for i in (small, whole))
    assert np.abs(one.astype(int) - other).mean() < 1
    assert decode(jpeg((300, 230)), "a", 224).size == (300, 230)  # never too small


def transform(side: int = 32):
    return image_transform_v2(
        PreprocessCfg(size=(side, side), mean=(0.5, 0.4, 0.3)), is_train=False
    )


def test_the_end_of_a_preprocessing_may_be_left_to_the_device(tmp_path):
    """Bit for bit the same, for all images of a batch."""
    path = training_file(tmp_path)
    config = DataConfig(kind="pairs", path=path, workers=0, negative_images=True, hard_images=2)
    whole, split = (open_data(Setting(config, transform(), tokenize, 6, 0)) for _ in range(2))
    assert whole.split is None
    split.split = split_transform(transform())  # as on a GPU
    prepared = split.prepare(1, 1).content
    assert prepared.images.dtype == prepared.hard.images.dtype == torch.uint8
    assert prepared.images.permute(0, 2, 3, 1).is_contiguous()  # no worker sorts it by colour
    assert same(split.batch(1, 1), whole.batch(1, 1))


def test_texts_have_the_ids_of_the_tokenizer_itself(tmp_path):
    config = DataConfig(kind="pairs", path=training_file(tmp_path), workers=0, hard_images=2)
    own = SimpleTokenizer(context_length=12)
    quick, plain = (
        open_data(Setting(config, preprocess, tokenizer, 6, 0))
        for tokenizer in (own, lambda texts: own(texts))
    )
    assert quick.tokenize is not own and plain.tokenize is not own
    for epoch in range(3):
        assert same(quick.batch(epoch, 1), plain.batch(epoch, 1))


def test_workers_give_way_to_the_process_that_trains(tmp_path):
    config = DataConfig(kind="pairs", path=training_file(tmp_path), workers=1)
    data = open_data(
        Setting(config, lambda image: torch.full((3, 4, 4), float(os.nice(0))), tokenize, 6, 0)
    )
    stream = data.stream(0, 1)
    assert set(next(stream).images.ravel().tolist()) == {min(19.0, os.nice(0) + NICE)}
    stream.close()


def test_what_is_more_than_a_normalisation_is_not_taken_apart():
    for whole in (preprocess, Compose([*transform().transforms, RandomErasing(1.0)])):
        assert split_transform(whole) is None


def test_an_augmentation_of_the_picture_may_be_taken_apart():
    augmenting = image_transform_v2(PreprocessCfg(size=32), is_train=True)
    rng = np.random.default_rng(1)
    image = Image.fromarray(rng.integers(0, 255, (50, 60, 3), dtype=np.uint8))
    first, levels = split_transform(augmenting)
    torch.manual_seed(3)
    found = levels(torch.from_numpy(first(image)).permute(2, 0, 1)[None])[0]
    torch.manual_seed(3)
    assert torch.equal(found, augmenting(image))


def test_images_that_cannot_be_used():
    with raises("E-IMAGE-BROKEN", "a"):
        decode(b"", "a", 8)
    with raises("E-IMAGE-BROKEN", "a"):
        decode(jpeg()[:2000], "a", 640)
    with raises("E-IMAGE-NARROW", "a"):
        decode(jpeg((800, 2)), "a", 8)
