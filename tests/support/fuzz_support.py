"""Fuzzing: seeded mutations of bytes and of JSON values, and readers to feed them to."""

from __future__ import annotations

import copy
import json
import random
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from counterpoint._util.errors import CounterpointError

Inputs = Callable[[int, int], Iterator[bytes]]  # how many, and the seed
LONGEST = 1000  # characters of a message
_GROWTH = 2**20  # KiB

# What readers of text and of binary headers stumble over.
_BYTES = (
    *(b"\0", b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"[" * 3000, b"{", b'"', b"\\ud800", b"NaN"),
    *(b"-1", b"9" * 5000, b"1e999", b"null", b"true", "²".encode(), b"\xef\xbb\xbf", b"\r\n"),
    *(b"x" * 2000, "\u202e".encode(), b"all", b"..", b"/dev/zero", b"]" * 50),
    *(b"text:", b"world:", b"shuffle-rows:1:", b"parquet:a#b/1"),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**63, 10**30, 0.5, -1e308, float("nan")),
    *(float("inf"), "", "x", "²", "\0", "../..", "/dev/zero", "a" * 5000, "\ud800", [], {}),
    *([None], [[]], {"": None}, ["x", 1], {"trust_remote_code": True}, "true", "all", "NaN"),
    *(
        "é",
        "\ufeff",
        "\u202e",
        "text:",
        "world:",
        "shuffle-rows:1:",
        "parquet:a#b/1",
        "[",
        "9" * 5000,
    ),
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
    if kind == 0 and place is not root:
        del place[key]
    elif kind == 1 and isinstance(place, dict):
        place[rng.choice(("", "x", "auto_map", "\0", key + "_"))] = place.pop(key)
    elif kind == 1 and place is not root:
        place.append(copy.deepcopy(place[key]))
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


# --- readers -----------------------------------------------------------------------------------


class Target(NamedTuple):
    """`run` takes the bytes of a file and a folder of its own, empty or used.

    It returns, or raises a CounterpointError of one sentence; everything else is a defect.
    """

    run: Callable[[bytes, Path], None]
    inputs: Inputs


def of_json(*values: Any) -> Inputs:
    """Changes of JSON values, or of what functions without arguments make."""

    def inputs(count: int, seed: int) -> Iterator[bytes]:
        for value in values:
            yield from json_texts(_made(value), count // len(values), seed)

    return inputs


def of_bytes(*starts: bytes | Callable[[], bytes]) -> Inputs:
    """Changes of bytes, or of what functions without arguments make."""

    def inputs(count: int, seed: int) -> Iterator[bytes]:
        for start in starts:
            yield from mutations(_made(start), count // len(starts), seed)

    return inputs


def of_lines(rows: list[Any]) -> Inputs:
    """JSON Lines: changed rows, and changed bytes."""

    def inputs(count: int, seed: int) -> Iterator[bytes]:
        whole = "\n".join(map(json.dumps, rows)).encode()
        for text in json_texts(rows[0], count // 2, seed):
            yield whole + b"\n" + text
        yield from mutations(whole, count - count // 2, seed)

    return inputs


def _made(start: Any) -> Any:
    return start() if callable(start) else start


def ends(target: Target, count: int, folder: Path) -> Counter[str]:
    """How many inputs of a reader end in a result, and how many in a sentence."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found: Counter[str] = Counter()
    for number, data in enumerate(target.inputs(count, 0)):
        try:
            target.run(data, folder)
            found["result"] += 1
        except CounterpointError as error:
            message = str(error)
            assert "\n" not in message and len(message) < LONGEST, message[:300]
            message.encode()
            found["sentence"] += 1
        except Exception as error:
            raise AssertionError(f"input {number}, {data[:300]!r}") from error
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < _GROWTH
    return found
