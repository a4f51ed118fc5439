"""`detector:FOLDER`: tells natural from synthetic, and answers a benchmark with that alone.

Miranda et al. 2024 (BiVLC) ask whether a model that only detects what was generated would do well:
a linear head on a frozen encoder for images, another for captions (natural 0, synthetic 1); they
read the towers' vectors as they are, not of unit length. In a
case of two images and two captions, image 0 and caption 0 are natural, the others synthetic. With q
the images' and p the captions' probabilities of being synthetic, and round(1/2) = 0:

    image 0 is right    if round(q0) = 0 and p0 < p1
    image 1 is right    if round(q1) = 1 and p0 < p1
    caption 0 is right  if round(p0) = 0 and q0 < q1
    caption 1 is right  if round(p1) = 1 and q0 < q1

No score of a pair alone can give this: an image that looks natural would have to prefer the more
natural caption if it is image 0, and no caption at all if it is image 1. The rule knows which is
which, and so must the score. `case_scores` gives every case scores that the ordinary metrics, with
ties wrong, turn into exactly these verdicts.

In a case of one image (SugarCrepe and its like) the authors do not ask the image: a true caption is
right if it looks more natural than the false ones. Cases of other shapes are left out.

A gallery whose classes are `natural` and `synthetic` (bivlc/image-detection, bivlc/text-detection)
asks for the detection itself: images are judged by the head for images, and texts that stand in
their place by the head for captions.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from safetensors.numpy import load as parse_tensors, save_file
from scipy.special import expit
from scipy.stats import rankdata

from counterpoint._util.errors import DataError, ModelError, NotFoundError
from counterpoint._util.store import Store, digest
from counterpoint._util.untrusted import described, parse_json, read_regular, shown
from counterpoint._util.writing import whole_folder
from counterpoint.cases import DETECTION, Block, Cases, is_gallery
from counterpoint.metrics import Overlong
from counterpoint.models.registry import LoadOptions, load_model, records_in
from counterpoint.scoring import (
    Described,
    DualEncoder,
    Scored,
    Share,
    Work,
    encode_plan,
    make_plan,
    stored,
    unscored,
    used_captions,
    used_images,
)

CONFIG: Final = "detector.json"
WEIGHTS: Final = "detector.safetensors"
_FORMAT: Final = 2  # 1: heads on unit vectors
_PIECE: Final = 16_384  # vectors in memory at a time
_OTHER_SHAPE: Final = (
    "a detector answers cases of one image, of two images with a caption each, or of the classes "
    "natural and synthetic, and no others."
)


class LinearHead(NamedTuple):
    """A linear classifier of vectors."""

    weight: np.ndarray  # (d,) float32
    bias: np.ndarray  # (1,) float32

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """That each is synthetic (n,), in float64: in float32 those of a sure head would tie."""
        if vectors.shape[1] != len(self.weight):
            raise ModelError(
                "E-MODEL-DAMAGED",
                f"a detector's heads read vectors of {len(self.weight)} numbers, and its encoder "
                f"gives {vectors.shape[1]}; train it again.",
            )
        found = np.einsum("nd,d->n", vectors.astype(np.float64), self.weight.astype(np.float64))
        return np.asarray(expit(found + self.bias))


class DetectorHeads(NamedTuple):
    """Both give the probability of being synthetic."""

    image: LinearHead
    caption: LinearHead


class SavedDetector(NamedTuple):
    """The content of a detector's folder."""

    heads: DetectorHeads
    encoder: str  # a model id
    fingerprint: str  # of the encoder that the heads were trained on
    info: Mapping[str, Any]  # how they were trained


def save(folder: Path, detector: SavedDetector) -> None:
    """Write the folder, in place of an older one."""
    tensors = {
        f"{name}.{part}": np.ascontiguousarray(array, dtype=np.float32)
        for name, head in detector.heads._asdict().items()
        for part, array in head._asdict().items()
    }
    about = {"format": _FORMAT, "encoder": detector.encoder}
    about |= {"encoder_fingerprint": detector.fingerprint, **detector.info}
    with whole_folder(folder, ModelError) as draft:
        save_file(tensors, draft / WEIGHTS)
        (draft / CONFIG).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        shutil.copymode(draft / CONFIG, draft / WEIGHTS)  # safetensors writes for its owner only


def read(folder: Path) -> SavedDetector:
    """The detector of a folder."""
    if not (folder / CONFIG).is_file():
        raise NotFoundError(
            "E-MODEL-MISSING",
            f"detector:{folder}: there is no {CONFIG} in it; `counterpoint detector train` makes "
            "such a folder.",
        )
    try:
        told = parse_json((folder / CONFIG).read_bytes(), CONFIG)
        known = told.pop("format")
        encoder, fingerprint = (told.pop(name) for name in ("encoder", "encoder_fingerprint"))
        if not (isinstance(encoder, str) and isinstance(fingerprint, str)):
            raise TypeError("the encoder is not named by texts")
    except (OSError, DataError, KeyError, AttributeError, TypeError) as error:
        why = f"detector:{folder}: {CONFIG} is damaged ({described(error)}); train again."
        raise ModelError("E-MODEL-DAMAGED", why) from None
    if known != _FORMAT:
        raise ModelError(
            "E-MODEL-FORMAT",
            f"detector:{folder}: {CONFIG} has format {shown(known)}, this version reads {_FORMAT}; "
            "train again.",
        )
    return SavedDetector(_read_heads(folder), encoder, fingerprint, told)


def _read_heads(folder: Path) -> DetectorHeads:
    try:
        tensors = parse_tensors(read_regular(folder / WEIGHTS))
        return DetectorHeads(*(_head(tensors, name) for name in DetectorHeads._fields))
    except Exception as error:  # a damaged file makes the library raise anything
        why = f"detector:{folder}: {WEIGHTS} cannot be used ({described(error)})."
        raise ModelError("E-MODEL-DAMAGED", why) from None


def _head(tensors: Mapping[str, np.ndarray], name: str) -> LinearHead:
    weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
    if weight.ndim != 1 or bias.shape != (1,):
        raise ValueError(f"the {name} head has shapes {weight.shape} and {bias.shape}")
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise ValueError(f"the {name} head has numbers that are not finite")
    return LinearHead(weight.astype(np.float32), bias.astype(np.float32))


def case_scores(images: np.ndarray, captions: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Scores (n, k, m) from probabilities (n, k) and (n, m) of being synthetic.

    A pair of one kind gets the sum of how sure the detector is of both, a mixed pair its negative:
    so an image that looks natural prefers captions the more natural they are, and so on. That alone
    would also reward an image or a caption for being taken for the wrong kind together with its
    counterpart. So a pair of which both are taken for the wrong kind is scored below all others if
    it is true, and above all others if it is not. How sure is a rank within the case: whole
    numbers, among which no rounding makes or breaks a tie.
    """
    if images.shape[1] == 1:
        images = np.zeros_like(images)  # natural, whatever it looks like
    image, caption = _sureness(images)[:, :, None], _sureness(captions)[:, None, :]
    sum_of_both = np.abs(image) + np.abs(caption)
    scores = np.where((image > 0) == (caption > 0), sum_of_both, -sum_of_both)
    image_is_natural = (np.arange(truth.shape[1]) == 0)[None, :, None]
    caption_is_natural = truth[:, :1]  # true of image 0
    mistaken = ((image > 0) != image_is_natural) & ((caption > 0) != caption_is_natural)
    beyond = truth.shape[1] + truth.shape[2] + 1
    return np.where(mistaken, np.where(truth, -beyond, beyond), scores).astype(np.float32)


def _sureness(synthetic: np.ndarray) -> np.ndarray:
    """Above 0 for what looks natural, the higher the surer; below 0 for what looks synthetic."""
    ranks = rankdata(synthetic, method="dense", axis=1)
    return np.where(synthetic <= 0.5, synthetic.shape[1] + 1 - ranks, -ranks)


class Detector:
    """Two heads on a frozen encoder."""

    def __init__(
        self, encoder: DualEncoder, saved: SavedDetector, records: tuple[str, ...] = ()
    ) -> None:
        self.encoder, self.heads, self.info = encoder, saved.heads, saved.info
        self.training_records = records
        numbers = (array.astype("<f4").tobytes() for head in self.heads for array in head)
        self.fingerprint = digest("detector 1", encoder.fingerprint, *numbers).hex()

    def score_benchmarks(
        self, benchmarks: Mapping[str, Cases], overlong: Mapping[str, Overlong], work: Work
    ) -> dict[str, Scored]:
        plan, scored = make_plan(benchmarks), unscored(benchmarks)
        for name, cases in benchmarks.items():
            for block in cases.blocks():
                others = block.rows[~_answered(block, cases)].tolist()
                scored[name].left_out |= dict.fromkeys(others, _OTHER_SHAPE)
        image_keys, text_keys = encode_plan(self.encoder, plan, overlong, scored, work)
        images = np.full(len(plan.pictures), np.nan)
        used = used_images(plan, scored)
        texts = np.array([plan.pictures[n].ref.text is not None for n in used], dtype=bool)
        for head, some in ((self.heads.image, used[~texts]), (self.heads.caption, used[texts])):
            keys = [image_keys[number] for number in some.tolist()]
            images[some] = _probabilities(head, keys, work.store)
        captions, used = np.full(len(plan.captions), np.nan), used_captions(plan, scored)
        prompts, begins = plan.prompts_of(used)
        found = _probabilities(self.heads.caption, text_keys[prompts].tolist(), work.store)
        if len(used):  # a caption of several prompts has their mean
            captions[used] = np.add.reduceat(found, begins) / np.diff([*begins, len(prompts)])
        for name, cases in benchmarks.items():
            _fill(scored[name], cases, plan.shares[name], images, captions)
        return scored

    def describe(self) -> Mapping[str, Any]:
        told = dict(self.encoder.describe()) if isinstance(self.encoder, Described) else {}
        records = [*told.pop("training_records", ()), *self.training_records]
        told |= {"training_records": records} if records else {}
        return {**told, "detector": dict(self.info)}


def _probabilities(head: LinearHead, keys: list[bytes], store: Store) -> np.ndarray:
    pieces = (keys[start : start + _PIECE] for start in range(0, len(keys), _PIECE))
    return np.concatenate([np.empty(0), *(head.probabilities(stored(p, store)) for p in pieces)])


def _asks_detection(block: Block, cases: Cases) -> bool:
    """Whether this is a gallery of what is natural and what is synthetic."""
    (row, *others), shape = block.rows.tolist(), block.truth.shape[1:]
    if others or shape[1] != len(DETECTION) or not is_gallery(*shape):
        return False
    return tuple(cases.frame["captions"][row].to_list()) == DETECTION


def _answered(block: Block, cases: Cases) -> np.ndarray:
    """Which cases of a block the rule is for."""
    shape = block.truth.shape[1:]
    if _asks_detection(block, cases):
        return np.ones(len(block.rows), dtype=bool)
    if block.texts or block.questions or (shape[0] != 1 and shape != (2, 2)):
        return np.zeros(len(block.rows), dtype=bool)
    if shape[0] == 1:
        return np.ones(len(block.rows), dtype=bool)
    own = (block.truth.sum(axis=1) == 1) & (block.truth.sum(axis=2) == 1)
    return np.asarray(own.all(axis=1))


def _fill(
    scored: Scored, cases: Cases, share: Share, images: np.ndarray, captions: np.ndarray
) -> None:
    starts, layout = cases.pair_offsets, share.layout
    for block in cases.blocks():
        rows, truth = block.rows, block.truth
        kept = ~np.isin(rows, list(scored.left_out))
        if not kept.any():
            continue
        rows, truth = rows[kept], truth[kept]
        k, m = truth.shape[1:]
        left = share.images[layout.images[rows][:, None] + np.arange(k)]
        right = share.captions[layout.captions[rows][:, None] + np.arange(m)]
        if _asks_detection(block, cases):
            found = _detected(images[left])
        else:
            found = case_scores(images[left], captions[right], truth)
        scored.scores[starts[rows][:, None] + np.arange(k * m)] = found.reshape(len(rows), -1)


def _detected(synthetic: np.ndarray) -> np.ndarray:
    """Scores (n, k, 2) of both classes from probabilities (n, k); round(1/2) = 0 is natural."""
    taken = np.stack([synthetic <= 0.5, synthetic > 0.5], axis=2)
    return (taken + np.stack([1 - synthetic, synthetic], axis=2)).astype(np.float32)


def load(rest: str, options: LoadOptions) -> Detector:
    """A folder that `counterpoint detector train` has made."""
    saved = read(Path(rest))
    id = f"detector:{rest}"
    if saved.encoder.partition(":")[0] in ("detector", "ensemble"):  # or a folder could name itself
        raise ModelError(
            "E-ENCODER-UNSUITABLE", f"{id}: its encoder {saved.encoder} is not a dual encoder."
        )
    # The folder names the encoder, not the command: its code is not trusted.
    encoder = load_model(saved.encoder, replace(options, trust_remote_code=False, unit=False))
    if not isinstance(encoder, DualEncoder) or encoder.fingerprint != saved.fingerprint:
        raise ModelError(
            "E-ENCODER-CHANGED",
            f"{id}: its encoder {saved.encoder} is not the one it was trained on (weights, "
            "preprocessing, tokenizer and precision must be the same); train again.",
        )
    return Detector(encoder, saved, records_in(rest))
