"""Does a change of the code change a number, a text or a weight? Digests of what commands make.

    PYTHONPATH=OLD/src python scripts/same_bytes.py DATA > before.txt    # OLD: another checkout
    python scripts/same_bytes.py DATA > after.txt
    diff before.txt after.txt

DATA is a data root, as of `eval --data`. A line is a digest and what it is of: the rows of each
benchmark for four models, the pairs of each method from captions of the data, the weights of a
training that was killed and went on; and of a command that is refused, its sentence.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from counterpoint.__main__ import main as counterpoint

MODELS = ("random", "blind:length", "world:base", "world:counterpoint")
CAPTIONS = "coco/coco_karpathy_test.json"
TRAINING = ("train", "hp-hn", "--world", "batch=8", "precision=fp32", "benchmarks=[]")


def told(*words: str) -> tuple[bool, str]:
    """Whether a command did it, and what it printed on standard output, or else its sentence."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    sys.argv = ["counterpoint", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            counterpoint()
        except SystemExit as end:
            status = int(end.code or 0)
    sentences = [line for line in err.getvalue().splitlines() if line.startswith("error: ")]
    return not status, out.getvalue() if not status else "\n".join(sentences)


def show(what: str, content: bytes | str) -> None:
    found = content.encode() if isinstance(content, str) else content
    print(hashlib.sha256(found).hexdigest()[:16], what, flush=True)


def listed(kind: str) -> list[dict[str, Any]]:
    return json.loads(told("ls", kind, "--json")[1])


def show_numbers(data: Path, limit: int) -> None:
    models = [word for model in MODELS for word in ("-m", model)]
    for benchmark in listed("benchmarks"):
        words = ("-b", benchmark["id"], "--data", str(data), "--limit", str(limit))
        done, said = told("eval", *models, *words, "--allow-missing", "--json")
        show(f"eval {benchmark['id']}{'' if done else ': ' + said[:90]}", said)


def show_texts(data: Path, limit: int) -> None:
    images = json.loads((data / CAPTIONS).read_text())
    rows = [{"image": one["image"], "caption": text} for one in images for text in one["caption"]]
    Path("captions.jsonl").write_text("\n".join(map(json.dumps, rows[: 50 * limit : 10])))
    for number, method in enumerate([None, *listed("methods")]):
        verb = method["makes"] if method else "negatives"
        choice = ("-M", method["id"]) if method else ()
        name = f"{number}.parquet"
        done, said = told("generate", verb, "captions.jsonl", *choice, "--seed", "3", "-o", name)
        content = pl.read_parquet(name).write_ndjson() if done else said
        title = f"generate {verb} {method['id'] if method else ''}"
        show(f"{title}{'' if done else ': ' + content[:90]}", content)


def show_weights() -> None:
    for changes in ((), ("lora.rank=4",), ("accumulate=2",)):
        for folder in ("whole", "resumed"):
            words = (*TRAINING, "steps=8", "save_every=2", *changes, f"out={folder}")
            if folder == "resumed":
                kill_after_step_four(start(*words))
            done = start(*words)
            sentence = done.communicate()[1].decode()
            if done.returncode:
                sys.exit(f"train {' '.join(changes)}: {sentence}")
            show(f"train {' '.join(changes)}, {folder}", b"".join(weights(Path(folder))))
            shutil.rmtree(folder)


def start(*words: str) -> subprocess.Popen[bytes]:
    program = "from counterpoint.__main__ import main; main()"
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", program, *words], **streams)


def kill_after_step_four(training: subprocess.Popen[bytes]) -> None:
    while training.poll() is None and not [*Path("resumed").rglob("step-00000004")]:
        time.sleep(0.01)
    training.kill()
    training.communicate()


def weights(folder: Path) -> Iterable[bytes]:
    paths = sorted((folder / "model").glob("*.safetensors"))
    assert paths, folder
    return (path.read_bytes() for path in paths)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", choices=("eval", "generate", "train"))
    parser.add_argument("--limit", type=int, default=60, help="cases; captions are ten times these")
    options = parser.parse_args()
    data = options.data.absolute()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["COUNTERPOINT_CACHE"] = str(Path(folder, "cache"))
        os.chdir(folder)
        parts = {
            "eval": lambda: show_numbers(data, options.limit),
            "generate": lambda: show_texts(data, options.limit),
            "train": show_weights,
        }
        for name in [options.only] if options.only else parts:
            parts[name]()


if __name__ == "__main__":
    main()
