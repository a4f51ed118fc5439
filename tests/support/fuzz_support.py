"""Seeded mutations for fuzzers: of bytes, and of the structure of JSON values."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

# What readers of text and of binary headers stumble over.
_BYTES = (
    *(b"\0", b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"[" * 3000, b"{", b'"', b"\\ud800", b"NaN"),
    *(b"-1", b"9" * 5000, b"1e999", b"null", b"true", "²".encode(), b"\xef\xbb\xbf", b"\r\n"),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**63, 10**30, 0.5, -1e308, float("nan")),
    *(float("inf"), "", "x", "²", "\0", "../..", "/dev/zero", "a" * 5000, "\ud800", [], {}),
    *([None], [[]], {"": None}, ["x", 1], {"trust_remote_code": True}),
)


def mutations(start: bytes, count: int, seed: int) -> Iterator[bytes]:
    """`count` texts like `start`, each with one to four changes."""
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        data = bytearray(start)
        for _ in range(rng.choice((1, 1, 2, 4))):
            _change(data, rng)
        yield bytes(data)


def _change(data: bytearray, rng: random.Random) -> None:
    # Headers matter more than what follows them.
    end = len(data) if rng.random() < 0.5 else min(len(data), 600)
    here = rng.randrange(end + 1)
    there = min(len(data), here + rng.choice((1, 1, 4, 16, 200)))
    kind = rng.randrange(7)
    if kind == 0 and here < len(data):
        data[here] ^= 1 << rng.randrange(8)
    elif kind == 1:
        data[here:there] = b""
    elif kind == 2:
        data[here:here] = rng.choice(_BYTES)
    elif kind == 3:
        data[here:there] = rng.choice(_BYTES)
    elif kind == 4:
        data[here:there] = rng.randbytes(there - here)
    elif kind == 5:
        data[here:here] = data[here:there] * rng.choice((1, 3))
    elif rng.random() < 0.5:
        del data[here:]


def json_mutations(value: Any, count: int, seed: int) -> Iterator[Any]:
    """`count` values like `value`, each with one to three of its parts changed."""
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        changed = [copy.deepcopy(value)]  # in a list, so that the whole can be changed as well
        for _ in range(rng.choice((1, 1, 2, 3))):
            _change_part(changed, rng)
        yield changed[0]


def _change_part(root: list[Any], rng: random.Random) -> None:
    place, key = rng.choice(list(_places(root)))
    kind = rng.randrange(5)
    if kind == 0 and isinstance(place, dict):
        del place[key]
    elif kind == 1 and isinstance(place, dict):
        place[rng.choice(("", "x", "auto_map", "\0", key + "_"))] = place.pop(key)
    elif kind == 2:
        place[key] = [place[key]]
    else:
        place[key] = copy.deepcopy(rng.choice(_VALUES))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every part of a value, as what holds it and its key there."""
    items: Any = value.items() if isinstance(value, dict) else ()
    for key, part in enumerate(value) if isinstance(value, list) else items:
        yield value, key
        yield from _places(part)


def json_texts(value: Any, count: int, seed: int) -> Iterator[bytes]:
    """JSON files like that of `value`: half with other content, half with other bytes."""
    for changed in json_mutations(value, count // 2, seed):
        yield json.dumps(changed).encode()
    yield from mutations(json.dumps(value).encode(), count - count // 2, seed)
