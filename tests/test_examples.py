"""What examples/ shows works as it stands there: the notebook, and the container's recipe."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "examples" / "first-steps.ipynb"


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    book = nbformat.read(NOTEBOOK, as_version=4)
    assert all(
        not cell.get("outputs") for cell in book.cells
    )  # numbers are those of whoever runs it
    nbclient.NotebookClient(
        book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()  # raises at the first cell that fails
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    shown = [output["data"] for output in outputs if "data" in output]
    assert sum("image/png" in data for data in shown) == 1  # the picture of a case
    assert sum("<table" in data.get("text/html", "") for data in shown) >= 4
    assert not any("ipywidgets" in str(data) for data in shown)  # rich's complaint at every step


def test_the_text_tower_of_the_built_model_gives_the_mean_of_its_tokens(monkeypatch) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setitem(sys.modules, "onnx_dinov2", ModuleType("onnx_dinov2"))  # it needs onnx
    build = importlib.import_module("build_dino_minilm")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
    )
    text = transformers.BertModel(config).eval()
    tokens = torch.randint(5, 50, (3, 7))
    mask = torch.ones_like(tokens)
    mask[1, 4:] = 0  # a shorter text
    with torch.no_grad():
        states = text(tokens, attention_mask=mask).last_hidden_state
        means = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        made = build.pooled_by_mean(text)(tokens, attention_mask=mask).pooler_output
    alike = torch.nn.functional.cosine_similarity
    assert alike(made, means - means.mean(1, keepdim=True)).min() > 0.999
    assert alike(made, states[:, 0]).max() < 0.99  # which BertModel would take


def instructions(text: str) -> list[tuple[str, str]]:
    """Of a Dockerfile, with lines joined that end in a backslash."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^#.*\n", "", text))
    return [(line.split()[0], line.split(None, 1)[1]) for line in joined.splitlines() if line]


def test_the_container_is_built_from_what_is_here() -> None:
    """No container can be built where the tests run; what its recipe names is held against it."""
    found = instructions((ROOT / "Dockerfile").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [word for word, _ in found].count("FROM") == 3  # what both share, CPU, CUDA
    ignored = (ROOT / ".dockerignore").read_text().split()
    for sources in (shlex.split(rest)[:-1] for word, rest in found if word == "COPY"):
        for source in sources:
            assert (ROOT / source).exists()
            assert ignored[0] == "*" and f"!{source}" in ignored  # only what is copied is sent
    arguments = dict(rest.split("=", 1) for word, rest in found if word == "ARG" and "=" in rest)
    extras = arguments["EXTRAS"].strip('"').split(",")
    assert set(extras) <= set(project["optional-dependencies"])
    assert arguments["PYTHON"] in project["requires-python"]
    [entry] = {rest for word, rest in found if word == "ENTRYPOINT"}
    assert entry.strip('["]') in project["scripts"]
    installs = [rest for word, rest in found if word == "RUN" and "pip install" in rest]
    assert installs and all("-c constraints.txt" in line for line in installs)
    users = [rest for word, rest in found if word == "USER"]
    assert users and users[-1] != "root"
