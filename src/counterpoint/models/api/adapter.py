"""`api:MODEL`: any OpenAI-compatible chat endpoint that takes images (vLLM, Ollama, ...).

OPENAI_BASE_URL and OPENAI_API_KEY say where. Where the endpoint gives log probabilities, a pair's
score is P(yes) / (P(yes) + P(no)) of the first token of the answer to `Does this figure show
"{caption}"? Please answer yes or no.`; where it gives none, the model chooses between every two
captions of an image, in both orders, and a caption's score is its mean share (`scoring.items`).
A probe at loading finds out which; `api:MODEL?mode=logprobs` or `?mode=choice` asks for one.
`?side=N` is the longer side of the images that are sent at most (1024), `?image=png` sends them
without loss, `?parallel=N` runs N requests at a time. An
answer that is a refusal or cannot be read counts as 0.5, and is counted; those that cannot be read
are asked for again by the next run, and more than a tenth of them are an error. The cases of a
request that the endpoint rejects (HTTP 400 and its like) are left out.
"""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple, Self

import numpy as np
from PIL import Image

from counterpoint._util.errors import MissingExtraError, ModelError
from counterpoint._util.store import digest
from counterpoint.cases import Cases
from counterpoint.images import Picture
from counterpoint.metrics import Overlong
from counterpoint.models.api.endpoint import (
    CHOICE,
    IMAGES,
    LOGPROBS,
    ApiOptions,
    ChatAnswer,
    ask_choice,
    ask_yes,
    first_wins,
    read_answer,
    read_model,
    yes_share,
)
from counterpoint.models.registry import LoadOptions
from counterpoint.scoring import (
    Computed,
    RefusedInputsError,
    Scored,
    Work,
    Workers,
    compute,
    in_threads,
    once,
    score_by_choices,
)

try:
    import openai

    from counterpoint.models.api.client import Client, RejectedRequestError
except ImportError:
    raise MissingExtraError("api:...", "vlm") from None

_MIDPOINT: Final = 0.5  # the score of an answer that is a refusal or cannot be read
_PROBE_RETRIES: Final = 2  # a mistyped address should not cost a minute
# Endpoints differ in what they take, so these are tried in turn. Some list fewer than 20 tokens.
# Models that think before they answer take no temperature, and another name for the limit.
_REQUESTS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    (LOGPROBS, {"max_tokens": 4, "temperature": 0, "logprobs": True, "top_logprobs": 20}),
    (LOGPROBS, {"max_tokens": 4, "temperature": 0, "logprobs": True, "top_logprobs": 5}),
    (CHOICE, {"max_tokens": 16, "temperature": 0}),
    (CHOICE, {"max_completion_tokens": 4096}),
)
_CAPTIONS: Final = ("a red square", "two blue birds on a branch")


class _Api:
    """A chat model behind an endpoint: what both ways of asking share."""

    requests_each = 1

    def __init__(self, client: Client, options: ApiOptions, probed: ProbeAnswer) -> None:
        self.client, self.options, self.probed = client, options, probed
        self.estimate, self.refused, self.unread, self.rejected = "", 0, 0, 0
        # A name may come to mean another model: what the endpoint says it runs goes in.
        served = (client.endpoint.name, client.endpoint.shown(), probed.answer.model)
        images = (options.side, options.image, IMAGES[options.image])
        how = (probed.mode, probed.request, images, ask_yes("x"), ask_choice("x", "y"))
        self.fingerprint = digest("api 1", *served, json.dumps(how)).hex()
        self.workers: Workers = _InFlight(self)
        self._counting = threading.Lock()

    def announce(self, items: int) -> str:
        count, probe = items * self.requests_each, self.probed.answer
        self.estimate = f"{count:,} requests"
        if probe.tokens_in:  # the probe's image is large: this is rather too much
            tokens = (count * probe.tokens_in, count * probe.tokens_out)
            self.estimate += f", about {sum(tokens):,} tokens{self._cost(*tokens)}"
        return self.estimate

    def describe(self) -> Mapping[str, Any]:
        usage, refused, unread = self.client.usage, self.refused, self.unread
        cost = self._cost(usage.tokens_in, usage.tokens_out)
        notes = [
            "scored by P(yes) of the first token of its answers."
            if self.probed.mode == LOGPROBS
            else "scored by forced choice in both orders: a caption's score is its share.",
            f"{usage.answers:,} answers ({usage.retries:,} requests repeated) took "
            f"{usage.tokens_in:,} tokens in and {usage.tokens_out:,} out{cost}.",
        ]
        if not self.probed.readable:
            text = self.probed.answer.text
            notes.append(f"its answer to a probe could not be read: {text!r:.80}.")
        if refused or unread:
            notes.append(
                f"of {usage.answers:,} answers {refused:,} were refusals and {unread:,} could not "
                f"be read; each of them counts as {_MIDPOINT}."
            )
        if self.rejected:
            notes.append(f"rejected requests: {self.rejected:,}; their cases are left out.")
        if len(usage.models) > 1:
            notes.append(f"the endpoint changed its model on the way: {sorted(usage.models)}.")
        return {
            "endpoint": self.client.endpoint.shown(),
            "mode": self.probed.mode,
            "request": self.probed.request,
            "image": f"{self.options.image}, longer side at most {self.options.side}",
            "served": sorted(usage.models),
            "estimate": self.estimate,
            "parallel": self.client.parallel,
            "usage": {
                **{n: getattr(usage, n) for n in ("answers", "retries", "tokens_in", "tokens_out")},
                "refused": refused,
                "unread": unread,
                "rejected": self.rejected,
            },
            "price": self.client.endpoint.price,
            "versions": {"openai": openai.__version__},
            "notes": [f"{self.client.endpoint.name}: {note}" for note in notes],
        }

    def _cost(self, tokens_in: int, tokens_out: int) -> str:
        price = self.client.endpoint.price
        return f", ${(tokens_in * price[0] + tokens_out * price[1]) / 1e6:,.2f}" if price else ""

    def _ask(
        self, pictures: Sequence[Picture], texts: Sequence[str]
    ) -> list[ChatAnswer | RejectedRequestError]:
        """The answers to a question about each picture, which is encoded once for all of them."""
        images, places = once(pictures)
        urls = list(in_threads(lambda image: data_url(image.open(), self.options), images))
        asked = zip(places, texts, strict=True)
        bodies = [_body(urls[place], text, self.probed.request) for place, text in asked]
        return self.client.chat(bodies, read_answer)

    def _counted(
        self, answer: ChatAnswer | RejectedRequestError, read: Callable[[ChatAnswer], float | None]
    ) -> float | _Unread | RejectedRequestError:
        with self._counting:  # several batches are counted at a time
            if isinstance(answer, RejectedRequestError):
                self.rejected += 1
                return answer
            value = read(answer)
            if value is not None and not answer.refused:
                return value
            self.refused += answer.refused
            self.unread += not answer.refused
            return _MIDPOINT if answer.refused else _Unread(answer.text)


class _Unread(str):
    """An answer that cannot be read."""


class _InFlight:
    """Computes so many batches at a time that there are always requests to send (`Workers`).

    While the last answers of a batch are awaited, those of the next are asked for.
    """

    def __init__(self, model: _Api) -> None:
        self.model, self.client = model, model.client
        self.ahead, self.patience, self._pool = 0, 0.0, ThreadPoolExecutor(1)

    def submit(self, task: str, columns: Sequence[Sequence[Any]]) -> Future[Computed]:
        # A slow endpoint gets no batch beyond the first, so that a stop costs one batch.
        requests = max(1, len(columns[0]) * self.model.requests_each)
        self.ahead = (2 * self.client.parallel - 1) // requests
        return self._pool.submit(compute, self.model, task, columns)

    def tune(self, task: str, item: Sequence[Any]) -> None:
        """Any size is as good."""

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(2 * self.client.parallel)
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.client.cancel()
        self._pool.shutdown()


def _scores(
    found: Iterable[Sequence[float | _Unread | RejectedRequestError]],
    score: Callable[..., float],
) -> np.ndarray:
    """What `score` makes of the answers to each input."""
    values: list[float] = []
    reasons: dict[int, str] = {}
    unread: dict[int, Sequence[str]] = {}
    for number, answers in enumerate(found):
        rejected = [str(each) for each in answers if isinstance(each, RejectedRequestError)]
        if rejected:
            reasons[number] = rejected[0]
            continue
        if texts := [each for each in answers if isinstance(each, _Unread)]:
            unread[number] = texts
        values.append(score(*(_MIDPOINT if isinstance(a, _Unread) else a for a in answers)))
    if reasons or unread:
        raise RefusedInputsError(np.array(values), reasons, unread)
    return np.array(values)


class ApiYes(_Api):
    """A PairScorer."""

    def score_pairs(self, pictures: Sequence[Picture], captions: Sequence[str]) -> np.ndarray:
        answers = self._ask(pictures, [ask_yes(caption) for caption in captions])
        return _scores(([self._counted(answer, yes_share)] for answer in answers), float)


class ApiChoice(_Api):
    """A ChoiceScorer. A model that always says A says so in both orders, and all captions tie."""

    requests_each = 2

    def score_choices(
        self, pictures: Sequence[Picture], firsts: Sequence[str], seconds: Sequence[str]
    ) -> np.ndarray:
        both = [*zip(firsts, seconds, strict=True)]
        orders = [order for a, b in both for order in ((a, b), (b, a))]
        twice = [picture for picture in pictures for _ in range(2)]
        answers = self._ask(twice, [ask_choice(*order) for order in orders])
        wins = [
            self._counted(answer, partial(first_wins, first=a, second=b))
            for answer, (a, b) in zip(answers, orders, strict=True)
        ]
        # The share of the caption that stands first in the first order and second in the second.
        both_orders = zip(wins[0::2], wins[1::2], strict=True)
        return _scores(both_orders, lambda first, second: (first + 1 - second) / 2)

    def score_benchmarks(
        self, benchmarks: Mapping[str, Cases], overlong: Mapping[str, Overlong], work: Work
    ) -> dict[str, Scored]:
        del overlong  # an endpoint says itself when a caption is too long
        return score_by_choices(self, benchmarks, work)


def load(rest: str, load_options: LoadOptions) -> ApiYes | ApiChoice:
    """`MODEL`, or `MODEL?mode=choice&side=512&image=png&parallel=64`."""
    del load_options  # the endpoint has a device and a precision of its own
    endpoint, options = read_model(rest)
    client = Client(endpoint, options.parallel)
    probed = probe(client, options)
    kind = ApiYes if probed.mode == LOGPROBS else ApiChoice
    return kind(client, options, probed)


class ProbeAnswer(NamedTuple):
    """The way of asking that worked, and the answer to it."""

    mode: str
    request: dict[str, Any]
    answer: ChatAnswer
    readable: bool


def probe(client: Client, options: ApiOptions) -> ProbeAnswer:
    """The first way of asking whose answer can be read, else the first that was answered at all.

    The image is as large as any that will be sent, so that its tokens are not too low an estimate.
    """
    image, id = data_url(_drawing(options.side), options), client.endpoint.name
    answered: dict[str, ProbeAnswer] = {}
    rejected: RejectedRequestError | None = None
    for mode, more in _REQUESTS:
        if options.mode not in ("", mode) or (mode == LOGPROBS and mode in answered):
            continue
        request = {"model": id.removeprefix("api:"), **more}
        text = ask_yes(_CAPTIONS[0]) if mode == LOGPROBS else ask_choice(*_CAPTIONS)
        body = _body(image, text, request)
        [answer] = client.chat([body], read_answer, retries=_PROBE_RETRIES)
        if isinstance(answer, RejectedRequestError):
            rejected = answer
            continue
        value = yes_share(answer) if mode == LOGPROBS else first_wins(answer, *_CAPTIONS)
        found = ProbeAnswer(mode, request, answer, value is not None)
        if found.readable:
            return found
        answered.setdefault(mode, found)
    if CHOICE in answered:
        return answered[CHOICE]
    if LOGPROBS in answered:
        why = f"{id}: the endpoint gives no log probabilities of yes and no; use ?mode=choice."
        raise ModelError("E-LOGPROBS-MISSING", why)
    why = f"{str(rejected).rstrip('.')}; the model probably takes no images."
    raise ModelError("E-REQUEST-REJECTED", why)


def _body(url: str, text: str, request: Mapping[str, Any]) -> dict[str, Any]:
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]
    return {"messages": [{"role": "user", "content": content}], **request}


def data_url(image: Image.Image, options: ApiOptions) -> str:
    """The image, made smaller if it is too large, as it is sent."""
    small = image.copy()
    small.thumbnail((options.side, options.side), Image.Resampling.LANCZOS, reducing_gap=None)
    file = io.BytesIO()
    small.save(file, options.image, **IMAGES[options.image])
    return f"data:image/{options.image};base64,{base64.b64encode(file.getvalue()).decode()}"


def _drawing(side: int) -> Image.Image:
    """A red square on white, of the shape of most photographs."""
    drawing = Image.new("RGB", (side, side * 3 // 4), "white")
    drawing.paste("red", (side // 4, side // 8, side * 3 // 4, side * 5 // 8))
    return drawing
