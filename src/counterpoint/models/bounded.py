"""Programs that come with a model, run in a process that may take some seconds and some memory.

A chat template and an ONNX graph are programs, a tokenizer an automaton with patterns, and merges
come compressed: a folder that is made for it keeps its reader busy without end, fills the memory,
or ends the process. This file is that process, too, which imports no other of ours:

    python -P bounded.py read|render|compute BYTES < REQUEST    JSON in, and JSON out
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

_SECONDS: Final = 30
_MEMORY: Final = 6 * 2**30  # bytes; the largest tokenizers that are in use take one
_LARGEST: Final = 256 * 2**20  # bytes of a file
_MERGES: Final = 32 * 2**20  # bytes of merges, without their compression: ten times open_clip's
_LONGEST: Final = 2**20  # characters of a prompt
_TEXTS: Final = (
    "a dog and a cat",
    "Ein Hund\n\t \N{DOG FACE} 123,456.78 ...",
    "a" * 300,
    " " * 300,
)
_TOKENIZERS: Final = ("tokenizer.json", "tokenizer/tokenizer.json", "tokenizer_2/tokenizer.json")
_OTHERS: Final = ("vocab*", "*merges*", "*.jinja", "*.txt", "*.model", "tokenizer*.json")


def why_unreadable(folder: Path) -> str:
    """Why the tokenizers in a model's folder cannot be read; empty if they can."""
    for path in sorted({path for name in _OTHERS for path in folder.glob(name)}):
        most = _MERGES if path.suffix == ".gz" else _LARGEST
        if path.is_file() and _is_larger(path, most):
            return f"{path.name} holds more than {most // 2**20} MiB"
    files = [str(folder / name) for name in _TOKENIZERS if (folder / name).is_file()]
    if not files or find_spec("tokenizers") is None:  # then nothing else reads them
        return ""
    return _run("read", {"files": files})[1]


def _is_larger(path: Path, most: int) -> bool:
    if path.suffix != ".gz":
        return path.stat().st_size > most
    size = 0
    with suppress(OSError, EOFError, zlib.error), gzip.open(path) as file:
        while size <= most and (part := file.read(2**20)):
            size += len(part)
    return size > most  # what is damaged is told by its reader


def why_unusable(graphs: Sequence[Path], shapes: Mapping[str, Sequence[int]]) -> str:
    """Why ONNX graphs cannot be computed, for inputs of ones; empty if they can."""
    # Weights may lie beside a graph, and are copied once or twice while it is prepared.
    room = sum(path.stat().st_size for one in graphs for path in one.parent.iterdir())
    request = {"files": [*map(str, graphs)], "shapes": dict(shapes)}
    return _run("compute", request, max(_MEMORY, 4 * room))[1]


def render_template(template: str, chats: Sequence[Any], **more: Any) -> list[str]:
    """Chats in the words of a template, as transformers renders them."""
    request = {"conversations": chats, "chat_template": template, **more}
    rendered, why = _rendered(json.dumps(request, default=str))
    if why:
        raise ValueError(f"its chat template {why}")
    return rendered


@cache
def _rendered(request: str) -> tuple[list[str], str]:
    return _run("render", json.loads(request))


def _run(task: str, request: object, memory: int = _MEMORY) -> tuple[Any, str]:
    """The answer of the process; or what is wrong, in words that follow a name."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", __file__, task, str(memory)],
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"does not end within {_SECONDS} seconds"
    if done.returncode:
        return None, "takes too much memory, or cannot be read at all"
    answer = json.loads(done.stdout)
    return answer["found"], answer["why"]


# --- in the process ------------------------------------------------------------------------------


def _read(files: list[str]) -> None:
    from tokenizers import Tokenizer

    for path in files:
        tokenizer = Tokenizer.from_file(path)
        for text in _TEXTS:
            tokenizer.encode(text)


def _compute(files: list[str], shapes: dict[str, list[int]]) -> None:
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    kinds = {"tensor(float16)": np.float16, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
    for path in files:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        inputs = {
            one.name: np.ones(shapes.get(one.name, [1]), dtype=kinds.get(one.type, np.float32))
            for one in session.get_inputs()
        }
        session.run(None, inputs)


def _render(**request: Any) -> list[str]:
    from transformers.utils.chat_template_utils import render_jinja_template

    rendered = list(render_jinja_template(**request)[0])
    if max(map(len, rendered)) > _LONGEST:
        raise ValueError(f"makes a prompt of more than {_LONGEST:,} characters")
    return rendered


def _limit(memory: int) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    for what, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, _SECONDS)):
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (most if hard < 0 else min(most, hard), hard))


def main(task: str, memory: str) -> None:
    _limit(int(memory))
    request = json.load(sys.stdin)
    answer, sys.stdout = sys.stdout, sys.stderr  # where libraries may print
    found, why = None, ""
    try:
        if task == "render":
            found = _render(**request)
        elif task == "compute":
            _compute(**request)
        else:
            _read(**request)
    except BaseException as error:  # compiled code that panics raises no Exception
        said = " ".join(str(error).split())[:200]
        why = f"cannot be used: {type(error).__name__}: {said}"
    json.dump({"found": found, "why": why}, answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
