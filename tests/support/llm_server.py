"""The misbehaving endpoint of `api_server`, with a language model behind it that takes texts.

What it answers follows from the question by simple rules, so that a test can compute it beside it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import api_server
import pytest
from api_server import Endpoint
from fastapi.responses import Response, StreamingResponse

MARK = "zebra"


class Asked(NamedTuple):
    """A question that reached the model."""

    label: str  # what the answer should start with
    caption: str
    question: str  # the last message
    body: dict[str, Any]


def read(body: dict[str, Any]) -> Asked:
    question = body["messages"][-1]["content"]
    [caption] = re.findall(r'^Sentence: "([^"]*)"', question.split("\n\n")[-1], re.MULTILINE)
    instruction = body["messages"][0]["content"].split("\n\n")[0]
    labels = re.findall(r'starts with "([\w ]+):"', instruction)
    label = labels[0] if labels else "swap" if "Swapped:" in instruction else ""
    label = "chain" if "\nPicked " in instruction else label
    label = label or ("and" if 'the word "and"' in instruction else "")
    return Asked(label, caption, question, body)


def part(asked: Asked, name: str) -> str:
    [found] = re.findall(rf'^{name}: "([^"]*)"', asked.question, re.MULTILINE)
    return found


def reply(asked: Asked) -> str:
    """Locates the first and the last word, proposes a number of zebras, replaces, adds, swaps."""
    names = re.findall(r"\w+", asked.caption)
    if asked.label in ("Things", "Adjectives", "Relations"):
        return f"{asked.label}: {names[0]}, {names[-1]}"
    if asked.label == "chain":
        instruction = asked.body["messages"][0]["content"].split("\n\n")[0]
        listed, picked, new, _ = re.findall(r"^([\w ]+):", instruction, re.MULTILINE)
        added = f"{MARK}{asked.body['seed'] % 1000}"
        text = re.sub(rf"\b{names[0]}\b", added, asked.caption)
        if "Then add" in instruction:
            text = re.sub(rf"\b{names[0]}\b", f"{names[0]} {added}", asked.caption)
        first = f"{listed}: {names[0]}, {names[-1]}\n{picked}: {names[0]}"
        return f"{first}\n{new}: {added}\nNew sentence: {text}"
    if asked.label.startswith("New ") and asked.label != "New sentence":
        return f"{asked.label}: {MARK}{asked.body['seed'] % 1000}"
    if asked.label == "New sentence" and "Part" in asked.question:
        old, new = part(asked, "Part"), part(asked, "New words")
        return "New sentence: " + re.sub(rf"\b{old}\b", new, asked.caption)
    if asked.label == "New sentence":
        old, new = part(asked, "Thing"), re.findall(r'New \w+: "([^"]*)"', asked.question)[0]
        return "New sentence: " + re.sub(rf"\b{old}\b", f"{old} {new}", asked.caption)
    first, last = names[0], names[-1]
    if not asked.label:
        return re.sub(rf"\b{last}\b", f"{MARK}s", asked.caption)
    swap = {first: last, last: first}
    text = re.sub(rf"\b({first}|{last})\b", lambda found: swap[found[0]], asked.caption)
    if asked.label == "swap":
        return f"Possible: Yes\nSwapped: {first}, {last}\nNew sentence: {text}"
    return text


def answer(endpoint: Endpoint, asked: Asked) -> dict[str, Any]:
    message = {"role": "assistant", "content": reply(asked)}
    if endpoint.says is not None:
        message["content"] = endpoint.says
    if endpoint.refuses and endpoint.refuses in asked.caption:
        message |= {"content": None, "refusal": "I cannot help with that."}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    if endpoint.says == "":
        choice["finish_reason"] = "length"
    found = {"id": "1", "object": "chat.completion", "created": 1, "model": endpoint.model}
    usage = {"prompt_tokens": len(asked.question), "completion_tokens": 3}
    return found | {"choices": [choice], "usage": usage}


def reject(endpoint: Endpoint, body: dict[str, Any]) -> str | None:
    if endpoint.thinks and {"max_tokens", "temperature", "seed"} & body.keys():
        return "use 'max_completion_tokens' instead"
    if "too much" in body["messages"][-1]["content"]:
        return "the request exceeds the context"
    return None


_MISBEHAVE = api_server.misbehave


def misbehave(fault: str, whole: bytes, key: str = api_server.KEY) -> Response:
    """Also `reset`: the connection ends in the middle of the answer."""
    if fault != "reset":
        return _MISBEHAVE(fault, whole, key)

    async def half() -> Any:
        yield whole[: len(whole) // 2]
        raise ConnectionResetError

    headers = {"Content-Length": str(len(whole))}
    return StreamingResponse(half(), media_type="application/json", headers=headers)


def take_over(patch: pytest.MonkeyPatch) -> None:
    """From here on `api_server` serves this model."""
    for function in (read, answer, reject, misbehave):
        patch.setattr(api_server, function.__name__, function)
