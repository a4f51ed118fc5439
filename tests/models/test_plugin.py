"""A model from somebody else's package: installed by pip, found by its entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from cli_support import Command, counterpoint, own_place

__all__ = ["counterpoint", "own_place"]  # fixtures

pytestmark = pytest.mark.slow

MODULE = '''
"""A matching model with no maintained package, in thirty lines."""

import numpy as np


class Matcher:
    """Likes captions that name the colour of the picture."""

    def __init__(self, strength):
        self.strength = strength
        self.fingerprint = f"matcher 1 {strength}"

    def score_pairs(self, pictures, captions):
        colours = [np.asarray(picture.open()).mean(axis=(0, 1)) for picture in pictures]
        names = ("red", "green", "blue")
        return np.array(
            [
                self.strength * sum(c for c, name in zip(colour, names) if name in caption)
                for colour, caption in zip(colours, captions)
            ]
        )


def load(rest, options):
    return Matcher(float(rest or 1))
'''
META = "Metadata-Version: 2.1\nName: my-matcher\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
POINTS = """
[counterpoint.models]
matcher = my_matcher:load
broken = my_broken:load
renamed = my_matcher:lod
[counterpoint.benchmarks]
broken-benchmark = my_broken:BENCHMARK
[counterpoint.rules]
broken-rule = my_broken:RULE
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip installed a package that brings a model."""
    folder = tmp_path_factory.mktemp("plugin")
    wheel = folder / "my_matcher-1.0-py3-none-any.whl"
    info = "my_matcher-1.0.dist-info"
    files = {
        "my_matcher.py": MODULE,
        "my_broken.py": "import a_package_that_is_not_installed",
        f"{info}/METADATA": META,
        f"{info}/WHEEL": WHEEL,
        f"{info}/entry_points.txt": POINTS,
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in files))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--disable-pip-version-check", "--target", str(folder / "site"), str(wheel)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return folder / "site"


def in_a_process(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]),
        "COUNTERPOINT_CACHE": str(folder / "cache"),
    }
    command = [sys.executable, "-m", "counterpoint", *arguments]
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120
    )


def test_it_is_evaluated_like_any_other(site: Path, tmp_path: Path) -> None:
    command = ("eval", "-m", "matcher:2", "-b", "world-bi:size=30", "--out", "run", "--json")
    done = in_a_process(site, tmp_path, *command)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {row["model"] for row in rows} == {"matcher:2"} and rows[0]["n"] == 30
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert manifest["fingerprint"] == "matcher 1 2.0"


def test_a_plug_in_that_cannot_be_imported_is_one_sentence(
    site: Path, counterpoint: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others work, and it is marked where plug-ins are listed."""
    monkeypatch.syspath_prepend(site)
    for id, why in (
        ("broken:x", "ModuleNotFoundError: No module named 'a_package_that_is_not_installed'"),
        ("renamed:x", "AttributeError: module 'my_matcher' has no attribute 'lod'"),
    ):
        done = counterpoint("eval", "-m", id, "-b", "world-bi:size=5")
        assert done.code == 1 and f"({why})" in done.err
        assert done.err.startswith("error: the plug-in 'my_")
    done = counterpoint("ls", "--json")
    assert done.code == 0, done.err
    told = {row["id"]: row["what"] for row in json.loads(done.out) if "what" in row}
    for id in ("broken", "renamed", "broken-benchmark", "broken-rule"):
        assert told[id].startswith("broken: the plug-in 'my_")
    assert told["matcher:..."] == "from an installed plug-in"
