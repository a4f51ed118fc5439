"""Find out how an endpoint wants to be asked, and whether it gives log probabilities."""

from __future__ import annotations

import base64
import io
from typing import Any, Final, NamedTuple

from PIL import Image

from counterpoint.errors import ModelError
from counterpoint.models.api_answers import Answer, ask_choice, ask_yes, first_wins, yes_share
from counterpoint.models.api_client import Client, Question, RequestError
from counterpoint.models.api_settings import CHOICE, IMAGES, LOGPROBS, Settings

_ATTEMPTS: Final = 3  # who has mistyped an address should not wait for two minutes
# What endpoints take differs, so these are tried in turn: some list fewer than twenty tokens, and
# models that think before they answer take no temperature, and another name for the limit.
_REQUESTS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    (LOGPROBS, {"max_tokens": 4, "temperature": 0, "logprobs": True, "top_logprobs": 20}),
    (LOGPROBS, {"max_tokens": 4, "temperature": 0, "logprobs": True, "top_logprobs": 5}),
    (CHOICE, {"max_tokens": 16, "temperature": 0}),
    (CHOICE, {"max_completion_tokens": 4096}),
)
_CAPTIONS: Final = ("a red square", "two blue birds on a branch")


class Found(NamedTuple):
    """The way to ask that worked, and the answer to it."""

    mode: str
    request: dict[str, Any]
    answer: Answer
    readable: bool


def probe(client: Client, name: str, settings: Settings) -> Found:
    """The first way of asking whose answer can be read, else the first that was answered at all.

    The image is as large as any that will be sent, so that its tokens are not too low an estimate.
    """
    image = data_url(_drawing(settings.side), settings)
    answered: dict[str, Found] = {}
    rejected: RequestError | None = None
    for mode, more in _REQUESTS:
        if settings.mode not in ("", mode) or (mode == LOGPROBS and mode in answered):
            continue
        request = {"model": name, **more}
        text = ask_yes(_CAPTIONS[0]) if mode == LOGPROBS else ask_choice(*_CAPTIONS)
        [answer] = client.ask([Question("", text)], lambda _: image, request, _ATTEMPTS)
        if isinstance(answer, RequestError):
            rejected = answer
            continue
        value = yes_share(answer) if mode == LOGPROBS else first_wins(answer, *_CAPTIONS)
        found = Found(mode, request, answer, value is not None)
        if found.readable:
            return found
        answered.setdefault(mode, found)
    if CHOICE in answered:
        return answered[CHOICE]
    if LOGPROBS in answered:
        raise ModelError(
            f"api:{name}: the endpoint gives no log probabilities of yes and no; use ?mode=choice."
        )
    raise ModelError(f"{str(rejected).rstrip('.')}; perhaps the model takes no images.")


def data_url(image: Image.Image, settings: Settings) -> str:
    """The image, made smaller if it is too large, as it is sent."""
    small = image.copy()
    small.thumbnail((settings.side, settings.side), Image.Resampling.LANCZOS, reducing_gap=None)
    file = io.BytesIO()
    small.save(file, settings.image, **IMAGES[settings.image])
    return f"data:image/{settings.image};base64,{base64.b64encode(file.getvalue()).decode()}"


def _drawing(side: int) -> Image.Image:
    """A red square on white, of the shape of most photographs."""
    drawing = Image.new("RGB", (side, side * 3 // 4), "white")
    drawing.paste("red", (side // 4, side // 8, side * 3 // 4, side * 5 // 8))
    return drawing
