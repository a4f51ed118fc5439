"""One training step: forward, loss, backward, optimiser.

A batch goes through the towers at once, or in parts that fit into memory.

**Gradient caching** (Gao et al. 2021). A contrastive loss compares all samples of a batch, so the
loss cannot be computed in parts. The towers can: the vectors are computed in parts without a graph,
the loss gives the gradient of every vector, and each part is computed again for its backward pass.
The gradients are those of the whole batch, the memory is that of one part, and the towers run
forward twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from counterpoint.training.batches import MASKS, TOKENS, Batch, Features
from counterpoint.training.losses import terms as losses
from counterpoint.training.processes import join
from counterpoint.training.starts import Towers

if TYPE_CHECKING:
    from counterpoint.training.building import TrainingRun
    from counterpoint.training.decoders import Captioner

Values = dict[str, Tensor]
# From a rank's batch and the joined vectors to the loss and the values of its terms.
Objective = Callable[[Batch, Features], tuple[Tensor, Values]]
# In which order things are put together for the towers; (B, ...) or (B, k, ...).
_IMAGES: Final = ("images", "negative_images")
_TEXTS: Final = ("captions", "positives", "negatives", "dense", "dense_negatives")
_MASKS: Final = tuple(MASKS.values())
_BATCH_MASKS: Final = tuple(mask for name, mask in MASKS.items() if name not in TOKENS)


@dataclass(slots=True)
class Stepper:
    """What all steps of a run have in common. `towers` may be wrapped by DDP or FSDP."""

    towers: nn.Module
    objective: Objective
    part: int = 0  # samples of this rank that the towers hold at once; 0: all
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    scaler: torch.amp.GradScaler | None = None
    pad: int = 0

    def backward(self, batch: Batch, *, share: float, seed: int, last: bool) -> Values:
        """Add `share` of the loss's gradients to the parameters'; the terms' values are returned.

        `seed` is for whatever the towers draw (dropout). `last`: exchange gradients between ranks
        now; the earlier ones of several batches wait for it.
        """
        if self.part and self.part < len(batch.images):
            return self._cached(batch, share, seed, last)
        torch.manual_seed(seed)
        with self._waiting(not last):
            return self._backward(batch, self._encode(batch), share)

    def _cached(self, batch: Batch, share: float, seed: int, last: bool) -> Values:
        parts = list(split(batch, self.part))
        first: list[Features] = []
        for number, part in enumerate(parts):
            torch.manual_seed(seed + number)
            with torch.no_grad():
                first.append(self._encode(part))
        leaves = [_leaves(features) for features in first]
        # Scale and bias: their gradients are whole already, and go with the last part.
        own: dict[str, Any] = {
            n: v.detach().requires_grad_() for n, v in _scalars(first[-1]).items()
        }
        values = self._backward(batch, replace(stacked(leaves), **own), share)
        for number, (part, leaf) in enumerate(zip(parts, leaves, strict=True)):
            final = number == len(parts) - 1
            torch.manual_seed(seed + number)
            with self._waiting(not (final and last)):
                again = self._encode(part)
                carried = again.scale.new_zeros(())
                for name, value in _scalars(again).items():
                    grad = own[name].grad
                    carried = carried + value * (grad if final and grad is not None else 0)
                for vectors, grad in zip(_vectors(again), _gradients(leaf), strict=True):
                    if grad is not None:
                        carried = carried + (vectors * grad).sum()
                carried.backward()  # type: ignore[no-untyped-call]
        return values

    def _encode(self, batch: Batch) -> Features:
        return encode(self.towers, batch, 0, self.pad, self.autocast)

    def _backward(self, batch: Batch, features: Features, share: float) -> Values:
        loss, values = self.objective(batch, join(features))
        # Scale and bias are in it even where no term uses them: DDP waits for their gradients.
        loss = share * (loss + sum(0 * value for value in _scalars(features).values()))
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        loss.backward()  # type: ignore[no-untyped-call]
        return values

    def _waiting(self, wait: bool) -> AbstractContextManager[Any]:
        """DDP exchanges gradients in every backward pass unless told not to."""
        if wait and isinstance(self.towers, nn.parallel.DistributedDataParallel):
            return self.towers.no_sync()
        if isinstance(self.towers, torch.distributed.fsdp.FSDPModule):
            self.towers.set_requires_gradient_sync(not wait)
        return nullcontext()


# --- batches to towers and back ----------------------------------------------------------------


def pack(batch: Batch, pad: int = 0) -> tuple[Tensor, Tensor]:
    """All images and all texts of a batch, for one call of each tower.

    `pad` is the padding of the tokenizer; 0 is that of CLIP's.
    """
    images = [getattr(b, n) for b in _batches(batch) for n in _IMAGES if getattr(b, n) is not None]
    texts = [
        getattr(b, n).flatten(0, -2)
        for b in _batches(batch)
        for n in _TEXTS
        if getattr(b, n) is not None
    ]
    length = max(text.shape[1] for text in texts)
    padded = [nn.functional.pad(text, (0, length - text.shape[1]), value=pad) for text in texts]
    return torch.cat(images), torch.cat(padded)


def encode(
    towers: nn.Module,
    batch: Batch,
    part: int,
    pad: int,
    autocast: Callable[[], AbstractContextManager[Any]],
) -> Features:
    """The vectors of a batch, of which the towers hold `part` samples at once (0: all)."""
    parts = list(split(batch, part)) if part else [batch]
    found = []
    for one in parts:
        with autocast():
            found.append(unpack(one, *towers(*pack(one, pad))))
    return stacked(found) if len(found) > 1 else found[0]


def unpack(
    batch: Batch,
    images: Tensor,
    texts: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *tokens: Tensor | None,
) -> Features:
    """The vectors that came of `pack`, in their places, with the batch's masks. `tokens`: patches,
    words and which words are there, where the towers were asked for them."""
    shown, said = [images], [texts]

    def take(one: Batch) -> Features:
        found: dict[str, Any] = {name: getattr(one, name) for name in _BATCH_MASKS}
        for names, left, of_texts in ((_IMAGES, shown, False), (_TEXTS, said, True)):
            for name in names:
                given = getattr(one, name)
                if given is not None:
                    shape = given.shape[:-1] if of_texts else given.shape[:1]
                    head, left[0] = left[0].tensor_split([shape.numel()])
                    found[name] = head.view(*shape, -1)
        return Features(**found, scale=scale, bias=cast("Tensor", bias))

    features = take(batch)
    if tokens:
        features = replace(features, **_tokens(batch, *cast("tuple[Any, Any, Any]", tokens)))
    return features if batch.hard is None else replace(features, hard=take(batch.hard))


def _tokens(
    batch: Batch, patches: Tensor, words: Tensor | None, there: Tensor | None
) -> dict[str, Any]:
    """Those of images, captions and negatives; a negative that is not there has no words."""
    size = len(batch.images)
    found = {"image_tokens": patches[:size]}
    if words is None or there is None:
        return found
    found |= {"caption_tokens": words[:size], "has_caption_token": there[:size]}
    if batch.negatives is None:
        return found
    first, count = size * (1 if batch.positives is None else 2), batch.negatives.shape[1]
    rows = slice(first, first + size * count)  # after captions and positives
    said = there[rows].view(size, count, -1)
    if batch.has_negative is not None:
        said = said & batch.has_negative[..., None]
    return found | {
        "negative_tokens": words[rows].reshape(size, -1, words.shape[-1]),
        "has_negative_token": said.flatten(1),
    }


def only(batch: Batch, names: Collection[str]) -> Batch:
    """The batch without what no term of the loss reads; hard images go by `hard_...`."""
    kept = {
        name: getattr(batch, name)
        for name in (*_IMAGES, *_TEXTS)
        if name in names or name in ("images", "captions")
    }
    masks = {n: getattr(batch, n) for n in _BATCH_MASKS if n in names}
    inner = {name.removeprefix("hard_") for name in names if name.startswith("hard_")}
    hard = only(batch.hard, inner) if batch.hard is not None and inner else None
    return Batch(**kept, **masks, hard=hard, samples=batch.samples)


def split(batch: Batch, size: int) -> Iterator[Batch]:
    """Parts of `size` samples, in order."""
    for start in range(0, len(batch.images), size):
        yield _rows(batch, slice(start, start + size))


def _rows(batch: Batch, rows: slice) -> Batch:
    cut = {
        name: value[rows]
        for name in Batch.__slots__
        if isinstance(value := getattr(batch, name), Tensor)
    }
    hard = None if batch.hard is None else _rows(batch.hard, rows)
    return Batch(**cut, hard=hard, samples=batch.samples[rows])


def _batches(batch: Batch) -> list[Batch]:
    return [batch] if batch.hard is None else [batch, batch.hard]


# --- vectors as leaves of the second graph -----------------------------------------------------


def _scalars(features: Features) -> dict[str, Tensor]:
    """The model's own numbers among the features."""
    return {n: v for n in ("scale", "bias") if (v := getattr(features, n)) is not None}


def _names(features: Features) -> list[str]:
    return [n for n in (*_IMAGES, *_TEXTS, *TOKENS) if getattr(features, n) is not None]


def _leaves(features: Features) -> Features:
    own = {n: getattr(features, n).detach().requires_grad_() for n in _names(features)}
    return replace(features, **own, hard=features.hard and _leaves(features.hard))


def _vectors(features: Features) -> list[Tensor]:
    mine = [getattr(features, name) for name in _names(features)]
    return mine if features.hard is None else mine + _vectors(features.hard)


def _gradients(features: Features) -> list[Tensor | None]:
    return [vectors.grad for vectors in _vectors(features)]


def stacked(parts: list[Features]) -> Features:
    """Parts one after the other, as one batch."""
    names = [n for n in (*_names(parts[0]), *_MASKS) if getattr(parts[0], n) is not None]
    whole: dict[str, Any] = {
        name: torch.cat([getattr(part, name) for part in parts]) for name in names
    }
    hard = [part.hard for part in parts if part.hard is not None]
    return replace(parts[0], **whole, hard=stacked(hard) if hard else parts[0].hard)


# --- the loss of a recipe ----------------------------------------------------------------------


_START = "start_"


class Loss:
    """The terms of a recipe. `start` is a frozen copy of the start, if a term asks for its vectors;
    as a teacher it is given other weights after every step.

    `fields` is what the terms read of a batch; the rest need not be encoded.
    """

    def __init__(
        self,
        terms: Sequence[losses.Term],
        start: Towers | None,
        autocast: Callable[[], AbstractContextManager[Any]],
        part: int = 0,
    ) -> None:
        self.terms, self.start, self.autocast, self.part = terms, start, autocast, part
        self.fields = fields_of(terms)
        self.captioner: Captioner | None = None  # says positives from the vectors of captions

    def __call__(
        self, batch: Batch, features: Features, *, alone: bool = False
    ) -> tuple[Tensor, Values]:
        """`alone`: the batch is of this rank only, and no other waits for it."""
        if self.start is not None:
            vectors = self._vectors_of_start(batch)
            features = replace(features, start=vectors if alone else join(vectors))
        features = self.read(batch, features)
        values = losses.loss(features, self.terms)
        total = losses.total(values, self.terms)
        return total, {name: value.detach() for name, value in values.items()}

    def read(self, batch: Batch, features: Features) -> Features:
        """With the losses of the decoder, where there is one. Of one process: no other's texts are
        here."""
        if self.captioner is None or batch.positives is None:
            return features
        told = self.captioner(features.captions, batch.positives)
        return replace(features, reconstruction=told)

    @torch.no_grad()
    def teach(self, weights: Mapping[str, Tensor]) -> None:
        """Let the frozen copy have these weights, by the names of the trained towers."""
        assert self.start is not None
        held = dict(self.start.named_parameters())
        torch._foreach_copy_([held[name] for name in weights], list(weights.values()))

    @torch.no_grad()
    def _vectors_of_start(self, batch: Batch) -> Features:
        assert self.start is not None
        names = {n.removeprefix(_START) for n in losses.uses(self.terms) if n.startswith(_START)}
        return encode(self.start, only(batch, names), self.part, self.start.pad, self.autocast)


def fields_of(terms: Sequence[losses.Term]) -> frozenset[str]:
    """The fields of a batch that the terms read of either model."""
    return frozenset(name.removeprefix(_START) for name in losses.uses(terms))


def tokens_read(terms: Sequence[losses.Term]) -> frozenset[str]:
    """Which patches and words the terms read."""
    return losses.uses(terms).intersection(TOKENS)


def needs_start(terms: Sequence[losses.Term]) -> bool:
    return any(name.startswith(_START) for name in losses.uses(terms))


Schedule = Literal["cosine", "constant"]


def learning_rate(
    step: int, steps: int, peak: float, warmup: int = 0, schedule: Schedule = "cosine"
) -> float:
    """Of step 0 to `steps` - 1: rises in a line over `warmup` steps, then falls as a cosine to 0.

    As open_clip's trainer: step 0 has peak / warmup, and the cosine starts at the peak. A warm-up
    longer than the run stops where the run does.
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    if schedule == "constant":
        return peak
    done = (step - warmup) / max(1, steps - warmup)
    return peak * 0.5 * (1 + math.cos(math.pi * done))


@torch.no_grad()
def update(run: TrainingRun, step: int) -> dict[str, Tensor | float]:
    """Take the step. What comes back is for the log; tensors are still on the device."""
    recipe = run.recipe
    rate = learning_rate(step, run.steps, recipe.lr, recipe.warmup, recipe.schedule)
    for group in run.optimiser.param_groups:
        group["lr"] = rate
    for scalar in run.model.scalars if recipe.sharded else ():  # FSDP does not look after them
        if scalar.grad is not None:
            torch.distributed.all_reduce(scalar.grad)
            scalar.grad /= run.ranks.size
    scaler = run.stepper.scaler
    if scaler is not None:
        scaler.unscale_(run.optimiser)
    norm = clip_gradients(list(run.parameters.values()), recipe.grad_clip)
    if scaler is None:
        run.optimiser.step()
    else:
        scaler.step(run.optimiser)  # left out where a gradient overflowed; the scale then falls
        scaler.update()
    scale = run.model.scale
    if recipe.clamp_scale is not None:
        scale.clamp_(0, max(math.log(recipe.clamp_scale), run.model.least_clamp))
    if recipe.ema is not None:
        own = [local(p) for p in run.parameters.values()]
        torch._foreach_lerp_([local(a) for a in run.averaged.values()], own, 1 - recipe.ema)
        if recipe.ema_as == "teacher":
            run.loss.teach(run.averaged)
    told: dict[str, Tensor | float] = {"lr": rate, "grad_norm": norm}
    told["scale"] = scale.detach().exp().reshape(())
    if run.model.bias is not None:
        told["bias"] = run.model.bias.detach().reshape(())
    return told


def clip_gradients(parameters: list[torch.nn.Parameter], limit: float | None) -> Tensor:
    """The norm of all gradients, which are scaled down to `limit` if it is larger.

    torch's own function does not take sharded and whole tensors together.
    """
    grads = [p.grad for p in parameters if p.grad is not None]
    whole = [g for g in grads if not isinstance(g, DTensor)]
    sharded = [g.to_local() for g in grads if isinstance(g, DTensor)]
    squares = _squares(whole, parameters[0].device)
    if sharded:
        shared = _squares(sharded, sharded[0].device)
        torch.distributed.all_reduce(shared)
        squares = squares + shared
    norm = squares.sqrt()
    if limit is not None:
        torch._foreach_mul_([*whole, *sharded], (limit / (norm + 1e-6)).clamp(max=1.0))
    return norm


def _squares(tensors: list[Tensor], device: torch.device) -> Tensor:
    if not tensors:
        return torch.zeros((), device=device)
    return torch.stack(torch._foreach_norm(tensors)).square().sum()


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a sharded tensor, sharing its memory; others as they are."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
