"""Images by a diffusion pipeline: batched, each with a seed of its own, kept as they are made."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from counterpoint.errors import CounterpointError, ModelError
from counterpoint.generate.images.backends import Drawn, Made, Settings, Want, seed_of
from counterpoint.generate.images.files import ImageFolder
from counterpoint.generate.methods import Refusal
from counterpoint.models.torch_models import Place, memory_errors, quiet
from counterpoint.progress import Advance
from counterpoint.scoring.batch_size import BatchSize
from counterpoint.scoring.store import digest
from counterpoint.scoring.work import Work

if TYPE_CHECKING:
    from PIL import Image

UNSAFE: Final = Refusal("the model's safety checker held the image back")
BLACK: Final = Refusal("the image is all black (half precision may overflow: try --precision fp32)")
EMPTY: Final = Refusal("the text is empty")
_TOKENIZERS: Final = ("tokenizer", "tokenizer_2", "tokenizer_3")
_ENDLESS: Final = 10**6  # what transformers says of a tokenizer without a limit is larger


@dataclass(frozen=True, slots=True)
class Opened:
    """A pipeline on its device, in one precision; `takes` are the arguments of a call."""

    id: str
    pipeline: Any
    place: Place
    precision: str
    takes: Mapping[str, inspect.Parameter]
    fingerprint: str

    def describe(self) -> dict[str, Any]:
        names = ("diffusers", "transformers", "torch")
        return {
            "model": self.id,
            "class": type(self.pipeline).__name__,
            "fingerprint": self.fingerprint,
            "device": self.place.device,
            "precision": self.precision,
            "versions": {name: version(name) for name in names},
        }


class _Order(NamedTuple):
    """One image to draw; `name` is a digest of all that it depends on."""

    prompt: str
    seed: int
    name: str


class Diffusion:
    """Draws with a pipeline, and keeps what it draws in a folder."""

    def __init__(self, opened: Opened, settings: Settings, folder: ImageFolder, work: Work) -> None:
        self.opened, self.folder, self.progress = opened, folder, work.progress
        self.settings, self.fingerprint = settings, opened.fingerprint
        self.call = _call(opened, settings)
        owner = f"{opened.fingerprint} images of {settings.side} pixels"
        self.size = BatchSize(work.batch, work.store, owner)
        self.drawn = self.found = self.cut = 0

    def draw(self, wants: Sequence[Want]) -> list[list[Drawn]]:
        """A text that several wants share is drawn once."""
        numbers = range(self.settings.candidates)
        texts = dict.fromkeys(want.text for want in wants if want.text.strip())
        orders = {text: [self._order(text, number) for number in numbers] for text in texts}
        self.cut += self._count_cut([each[0].prompt for each in orders.values()])
        made = self._make([order for each in orders.values() for order in each])
        refused: list[Drawn] = [EMPTY] * len(numbers)
        return [
            [made[order.name] for order in orders[want.text]] if want.text in orders else refused
            for want in wants
        ]

    def describe(self) -> Mapping[str, Any]:
        names = ("candidates", "seed", "suffix")
        return {
            **self.opened.describe(),
            "settings": {**{name: getattr(self.settings, name) for name in names}, **self.call},
            "drawn": self.drawn,
            "found": self.found,
            "cut": self.cut,
        }

    def _order(self, text: str, candidate: int) -> _Order:
        prompt = text.strip().removesuffix(".").rstrip() + self.settings.suffix
        seed = seed_of(self.settings.seed, text, candidate)
        how = repr(sorted(self.call.items()))
        name = digest("drawing", self.fingerprint, prompt, str(seed), how).hex()
        return _Order(prompt, seed, f"{name}-{candidate}")

    def _make(self, orders: Sequence[_Order]) -> dict[str, Drawn]:
        advance = self.progress.start("images", len(orders))
        made: dict[str, Drawn] = {}
        missing = []
        for order in orders:
            found = self.folder.find(order.name)
            if found is None:
                missing.append(order)
            else:
                made[order.name] = Made(found, order.seed) if isinstance(found, str) else found
        self.found += len(made)
        advance(len(made))
        return made | self._all(missing, advance)

    def _all(self, orders: Sequence[_Order], advance: Advance) -> dict[str, Drawn]:
        made: dict[str, Drawn] = {}
        while len(made) < len(orders):
            chosen = orders[len(made) : len(made) + self.size.size]
            made |= self._batch(chosen)
            advance(len(chosen))
        return made

    def _batch(self, orders: Sequence[_Order]) -> dict[str, Drawn]:
        """Draw and keep, in halves where memory runs out."""
        try:
            found = self._run(orders)
        except MemoryError as error:
            self.size.halve(len(orders), error)
            return self._all(orders, lambda _: None)
        made: dict[str, Drawn] = {}
        for order, image in zip(orders, found, strict=True):
            if isinstance(image, Refusal):
                made[order.name] = self.folder.refuse(order.name, image)
            else:
                made[order.name] = Made(self.folder.keep(order.name, image), order.seed)
        self.drawn += len(orders)
        return made

    @memory_errors
    def _run(self, orders: Sequence[_Order]) -> list[Image.Image | Refusal]:
        # On the CPU: the noise is then the same on every device.
        chances = [torch.Generator("cpu").manual_seed(order.seed) for order in orders]
        with explained(self.opened.id, "does not draw"), self.opened.place.running():
            answer = self.opened.pipeline(
                prompt=[order.prompt for order in orders],
                generator=chances,
                output_type="pil",
                **self.call,
            )
        unsafe = getattr(answer, "nsfw_content_detected", None) or [False] * len(orders)
        return [
            UNSAFE if flag else BLACK if not image.convert("RGB").getbbox() else image
            for image, flag in zip(answer.images, unsafe, strict=True)
        ]

    def _count_cut(self, prompts: Sequence[str]) -> int:
        """How many prompts no text encoder sees to the end."""
        readers = [getattr(self.opened.pipeline, name, None) for name in _TOKENIZERS]
        limits = {reader.model_max_length: reader for reader in readers if reader is not None}
        if not prompts or not limits or max(limits) >= _ENDLESS:
            return 0
        longest = max(limits)
        found = limits[longest](list(prompts), verbose=False)["input_ids"]
        return sum(len(ids) > longest for ids in found)


def _call(opened: Opened, settings: Settings) -> dict[str, Any]:
    """The settings as this pipeline takes them; what it does not take is not passed."""
    default = opened.takes["num_inference_steps"].default
    wanted = {
        "num_inference_steps": default if settings.steps is None else settings.steps,
        "guidance_scale": settings.guidance,
        "height": settings.side,
        "width": settings.side,
    }
    return {name: value for name, value in wanted.items() if name in opened.takes}


@contextlib.contextmanager
def explained(id: str, what: str) -> Iterator[None]:
    """No log lines or warnings of the library; whatever it raises becomes one sentence."""
    try:
        with quiet():
            yield
    except (CounterpointError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # diffusers and its loaders raise anything
        why = " ".join(str(error).split())[:300].rstrip(".")
        raise ModelError(f"{id} {what}: {type(error).__name__}: {why}.") from None
