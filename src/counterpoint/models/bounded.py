"""A process that may take some seconds and some memory, for programs that come with a model.

A chat template and an ONNX graph are programs, a tokenizer an automaton with patterns: a folder
that is made for it keeps its reader busy without end, fills the memory, or ends the process.
`hub.py` asks. This file imports no other of ours:

    python -P bounded.py read|render|compute BYTES < REQUEST    JSON in, and JSON out
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

SECONDS: Final = 30
_LONGEST: Final = 2**20  # characters of a prompt
_TEXTS: Final = (
    "a dog and a cat",
    "Ein Hund\n\t \N{DOG FACE} 123,456.78 ...",
    "a" * 300,
    " " * 300,
)


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
    for what, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, SECONDS)):
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
