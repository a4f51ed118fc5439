"""Serve a GGUF language model on this machine as an OpenAI-compatible endpoint, with llama.cpp.

    pip install xllamacpp
    python scripts/serve_gguf.py MODEL.gguf --port 8080
    OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=local counterpoint generate ...

It answers until Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from importlib import import_module
from pathlib import Path
from typing import Any


def parameters(asked: argparse.Namespace) -> Any:
    """llama.cpp's own settings."""
    found = import_module("xllamacpp").CommonParams()
    found.model.path = str(asked.model)
    found.model_alias = {asked.name or asked.model.stem}
    found.port = asked.port
    found.n_parallel = asked.parallel
    found.n_ctx = asked.context * asked.parallel  # llama.cpp divides it among the requests
    found.cpuparams.n_threads = found.cpuparams_batch.n_threads = asked.threads
    found.warmup = False
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--name", default="", help="what the model is called (the file's name)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--parallel", type=int, default=2, help="requests at a time")
    parser.add_argument("--context", type=int, default=2048, help="tokens of a request")
    asked = parser.parse_args()
    if not asked.model.is_file():
        parser.error(f"{asked.model}: no such file")
    try:
        server = import_module("xllamacpp").Server(parameters(asked))
    except ImportError:
        parser.error("it needs llama.cpp: pip install xllamacpp")
    except RuntimeError as error:  # a broken file, a port in use: llama.cpp has said more above
        parser.error(f"{asked.model}: {error}")
    print(f"OPENAI_BASE_URL={server.listening_address}/v1", flush=True)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()


if __name__ == "__main__":
    main()
