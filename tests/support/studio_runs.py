"""Small run folders for tests of the studio, with outcomes that are known beforehand."""

from __future__ import annotations

import re
import struct
import zlib
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from fastapi.testclient import TestClient
from support import part

from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.cases.table import Cases, ImageRef, caption_case
from counterpoint.runs import Run, save_run
from counterpoint.studio.app import create_app
from counterpoint.studio.security import Guard

TOKEN = "the-admin-token-of-the-tests"
BASE = "http://127.0.0.1:8765"
OUTCOMES = ("right", "brittle", "wrong", "tied")
SCORES = {  # of the original, the positive and the negative
    "right": (0.9, 0.8, 0.1),
    "brittle": (0.9, 0.1, 0.5),
    "wrong": (0.2, 0.1, 0.5),
    "tied": (0.9, 0.5, 0.5),
}
MARKUP = '<script>window.caught = 1</script> a <b>red</b> star & "more"'


def world(benchmark: str, size: int) -> Cases:
    return load_benchmark(f"{benchmark}:size={size}").cases


def repeated(cases: Cases, outcomes: tuple[str, ...] = OUTCOMES) -> np.ndarray:
    """Scores that give the cases these outcomes in turn."""
    return np.array([SCORES[name] for name in islice(cycle(outcomes), len(cases))]).reshape(-1)


def write_run(folder: Path, model: str, **parts: tuple[Cases, np.ndarray]) -> Path:
    made = {
        name.replace("_", "-"): part(cases, scores, name=name.replace("_", "-"))
        for name, (cases, scores) in parts.items()
    }
    save_run(Run(model, made, {"created": "today"}), folder)
    return folder


def write_runs(root: Path) -> Path:
    """Two models on three benchmarks: `mixed` has every outcome, `sure` is always right."""
    cases, squares = world("world-replace", 48), world("world-bi", 6)
    odd = Cases.build(
        [caption_case("odd", _picture(cases), [MARKUP], ["a blue star"], ("odd",))], source="test"
    )
    own = np.tile([0.9, 0.1, 0.2, 0.8], 6)
    for model, scores in (
        ("mixed", repeated(cases)),
        ("sure", repeated(cases, ("right",))),
    ):
        write_run(
            root / "all" / model,
            model,
            world_replace=(cases, scores),
            world_bi=(squares, own),
            odd=(odd, np.array([0.5, 0.1])),
        )
    return root


def _picture(cases: Cases) -> ImageRef:
    return cases.case(0).images[0]


def studio(root: Path, **options: Any) -> Any:
    return create_app(root, guard=Guard(TOKEN), **options)


def client(app: Any, *, admin: bool = True) -> TestClient:
    """A browser without a screen, logged in unless told otherwise."""
    made = TestClient(app, base_url=BASE)
    if admin:
        assert made.get("/", params={"token": TOKEN}).status_code == 200
    return made


def key_of(page: TestClient, model: str) -> str:
    """What stands for a model's run in addresses."""
    return re.search(rf'value="(\w+)"[^>]*>{model} ·', page.get("/browse").text)[1]


def png_header(width: int, height: int) -> bytes:
    """A PNG that says how large it is and holds nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
