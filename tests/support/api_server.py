"""A local chat endpoint that takes images and misbehaves as it is told to.

Its model prefers what `models_for_tests.naive_pair` prefers, so that every answer can be computed
beside it.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from models_for_tests import naive_pair, pixels
from PIL import Image

KEY = "secret-key-of-the-test"
ELSE = 0.2  # of the probability goes to tokens that are neither yes nor no


class Asked(NamedTuple):
    """A question that reached the model, whether or not its answer was sent as it should be."""

    shown: str
    size: tuple[int, int]
    type: str
    text: str
    captions: tuple[str, ...]
    body: dict[str, Any]


def probability(shown: str, caption: str) -> float:
    """P(yes) / (P(yes) + P(no))."""
    return 1 / (1 + math.exp(-2 * naive_pair(shown, caption)))


@dataclass
class Endpoint:
    """`faults` are used up one a request; the rest says how the model behaves."""

    url: str = ""
    faults: deque[str] = field(default_factory=deque)
    always_fault: str | None = None
    gives_logprobs: bool = True
    most_logprobs: int = 20
    thinks: bool = False  # takes neither max_tokens nor a temperature
    says: str | None = None  # instead of an answer
    mumbles: str | None = None  # of captions with this word: answers that cannot be read
    refuses: str | None = None  # captions with this word
    rejects: str | None = None  # questions with this word: HTTP 400
    counts_tokens: bool = True
    model: str = "snapshot-1"
    delay: float = 0.0
    takes: float = math.inf  # so many at a time; more are answered with 429
    prompt: float = math.inf  # so many questions, and whoever asks more waits long
    asked: list[Asked] = field(default_factory=list)
    answered: int = 0
    active: int = 0
    most_active: int = 0

    def captions(self) -> list[tuple[str, ...]]:
        return [asked.captions for asked in self.asked]


def read(body: dict[str, Any]) -> Asked:
    [message] = body["messages"]
    image, text = message["content"]
    head, _, data = image["image_url"]["url"].partition(",")
    opened = Image.open(io.BytesIO(base64.b64decode(data)))
    captions = tuple(re.findall(r'"([^"]*)"', text["text"]))
    shown = pixels(opened.convert("RGB"))
    return Asked(shown, opened.size, f"{head} {opened.format}", text["text"], captions, body)


def reject(endpoint: Endpoint, body: dict[str, Any]) -> str | None:
    if endpoint.thinks and {"max_tokens", "temperature", "logprobs"} & body.keys():
        return "use 'max_completion_tokens' instead"
    if body.get("top_logprobs", 0) > endpoint.most_logprobs:
        return f"top_logprobs must be at most {endpoint.most_logprobs}"
    return None


def answer(endpoint: Endpoint, asked: Asked) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
    message: dict[str, Any] = {"role": "assistant", "refusal": None}
    yes_no = len(asked.captions) == 1
    if yes_no:
        yes = probability(asked.shown, asked.captions[0])
        message["content"] = "Yes" if yes > 0.5 else "No"
    else:
        first, second = (naive_pair(asked.shown, caption) for caption in asked.captions)
        message["content"] = "A" if first > second else "B"
    says = endpoint.says
    if endpoint.mumbles and any(endpoint.mumbles in caption for caption in asked.captions):
        says = "Neither of them"
    if says is not None:
        message["content"] = says
    if endpoint.refuses and any(endpoint.refuses in caption for caption in asked.captions):
        message |= {"content": None, "refusal": "I cannot help with that."}
    if asked.body.get("logprobs") and endpoint.gives_logprobs:
        choice["logprobs"] = {"content": listed(says, yes if yes_no else 0.5)}
    usage = {"prompt_tokens": 100 + len(asked.text), "completion_tokens": 3}
    found = {"id": "1", "object": "chat.completion", "created": 1, "model": endpoint.model}
    found["choices"] = [choice | {"message": message}]
    return found | ({"usage": usage} if endpoint.counts_tokens else {})


def listed(says: str | None, yes: float) -> list[dict[str, Any]]:
    """A blank token, and the first that is none: yes and no in several spellings."""
    share = 1 - ELSE
    values = {"Yes": 0.7 * share * yes, " yes": 0.3 * share * yes, "The": ELSE}
    values |= {"No": 0.6 * share * (1 - yes), "NO": 0.4 * share * (1 - yes)}
    if says is not None:
        values = {says.split()[0]: 0.999, "No": 0.0005, "Yes": 0.0005}
    tops = [{"token": token, "logprob": math.log(p)} for token, p in values.items() if p]
    tops.sort(key=lambda top: -top["logprob"])
    blank = {"token": "\n", "logprob": -0.1, "top_logprobs": [{"token": "Yes", "logprob": -3.0}]}
    return [blank, tops[0] | {"top_logprobs": tops}]


def misbehave(fault: str, whole: bytes, key: str = KEY) -> Response:
    kind, _, more = fault.partition(" ")
    if kind == "cut":
        return Response(whole[: len(whole) // 2], media_type="application/json")
    if kind == "html":
        return Response("<html>Bad gateway</html>", media_type="text/html")
    if kind == "plain":  # all is well but the type
        return Response(whole, media_type="text/plain")
    if kind == "empty":
        return JSONResponse({"error": {"message": "no capacity"}})
    if kind == "filtered":
        error = {"message": "filtered", "code": "content_filter"}
        return JSONResponse({"error": error}, status_code=400)
    if kind == "quota":
        error = {"message": "You exceeded your quota.", "code": "insufficient_quota"}
        return JSONResponse({"error": error}, status_code=429)
    headers = {"Retry-After": more} if more else {}
    error = {"message": f"no, {key} will\nnot do."}
    return JSONResponse({"error": error}, status_code=int(kind), headers=headers)


class Server:
    """At `url`; each test gives it an endpoint of its own, since answers may outlive their test."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        self.endpoint = Endpoint()

    def new_endpoint(self) -> Endpoint:
        self.endpoint = Endpoint(self.url)
        return self.endpoint


def application(server: Server) -> FastAPI:
    app = FastAPI()

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        endpoint = server.endpoint
        endpoint.active += 1
        endpoint.most_active = max(endpoint.most_active, endpoint.active)
        try:
            if endpoint.active > endpoint.takes:
                return misbehave("429", b"")
            return await respond(endpoint, request)
        finally:
            endpoint.active -= 1

    return app


async def respond(endpoint: Endpoint, request: Request) -> Response:
    key = request.headers["authorization"].removeprefix("Bearer ")
    if key != KEY:
        return misbehave("401", b"", key)
    body = await request.json()
    if why := reject(endpoint, body):
        return JSONResponse({"error": {"message": why}}, status_code=400)
    asked = read(body)
    endpoint.asked.append(asked)
    fault = endpoint.faults.popleft() if endpoint.faults else endpoint.always_fault
    if endpoint.rejects and endpoint.rejects in asked.text:
        fault = "400"
    held = len(endpoint.asked) > endpoint.prompt
    await asyncio.sleep(30.0 if held else 2.0 if fault == "slow" else endpoint.delay)
    whole = json.dumps(answer(endpoint, asked)).encode()
    if fault and fault != "slow":
        return misbehave(fault, whole)
    endpoint.answered += 1
    return Response(whole, media_type="application/json")


@contextmanager
def serve(port: int = 0) -> Iterator[Server]:
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        served = Server(listening.getsockname()[1])
        config = uvicorn.Config(
            application(served),
            log_level="critical",
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        limit = time.monotonic() + 20
        while not server.started:
            assert time.monotonic() < limit
            time.sleep(0.005)
        try:
            yield served
        finally:
            server.should_exit = True
            thread.join(20)
