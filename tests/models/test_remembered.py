"""Models that are not loaded: only while nothing has changed, and with the same results."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from statistics import mode

import numpy as np
import pytest
from errors import raises
from open_clip_models import CAPTIONS, CLIP, CONFIG, CONTEXT, WEIGHTS, noise, save_model

from counterpoint._util.store import Store
from counterpoint.models import remembered
from counterpoint.models.openclip.adapter import MERGES, OpenClip
from counterpoint.models.registry import LoadOptions, world_folder
from counterpoint.models.remembered import RememberedEncoder, load_remembered

CPU = LoadOptions("cpu")


class Loads:
    """How often a model was loaded, and what from."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self._load = 0, remembered.load_model
        monkeypatch.setattr(remembered, "load_model", self.load)

    def load(self, id: str, options: LoadOptions) -> object:
        self.count += 1
        return self._load(id, options)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    return Loads(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_model(tmp_path / "m")


def opened(folder: Path, store: Path, options: LoadOptions = CPU) -> RememberedEncoder:
    with Store(store) as found:
        model = load_remembered(f"open_clip:local-dir:{folder}", options, found)
    assert isinstance(model, RememberedEncoder)
    return model


# --- the same as the model ----------------------------------------------------------------------


def test_a_second_time_it_is_not_loaded_and_says_the_same(loads, folder, tmp_path):
    with Store(tmp_path / "store") as store:
        first = load_remembered(f"open_clip:local-dir:{folder}", CPU, store)
        counts = first.count_tokens([*CAPTIONS, ""])
    assert loads.count == 1
    with Store(tmp_path / "store") as store:
        second = load_remembered(f"open_clip:local-dir:{folder}", CPU, store)
        assert second.count_tokens([*CAPTIONS, ""]).tolist() == counts.tolist()
        assert loads.count == 1
        real = first.model
        assert isinstance(real, OpenClip)
        assert second.fingerprint == real.fingerprint
        assert second.context_length == real.context_length == CONTEXT
        assert json.dumps(second.describe()) == json.dumps(real.describe())
        assert counts.tolist() == real.count_tokens([*CAPTIONS, ""]).tolist()


def test_what_has_to_be_computed_is_computed_by_the_model_itself(loads, folder, tmp_path):
    real = opened(folder, tmp_path / "store").model
    assert isinstance(real, OpenClip)
    later = opened(folder, tmp_path / "store")
    assert loads.count == 1
    assert (later.encode_captions(CAPTIONS) == real.encode_captions(CAPTIONS)).all()
    assert loads.count == 2
    image = noise(40, 30)
    found = later.encode_images([later.preprocess(image)])
    assert (found == real.encode_images([real.preprocess(image)])).all()
    assert loads.count == 2


def test_captions_that_were_not_counted_are_counted_once(loads, folder, tmp_path):
    with Store(tmp_path / "store") as store:
        load_remembered(f"open_clip:local-dir:{folder}", CPU, store).count_tokens(CAPTIONS[:2])
        later = load_remembered(f"open_clip:local-dir:{folder}", CPU, store)
        assert later.count_tokens(CAPTIONS[:2]).tolist() == [5, 10]
        assert loads.count == 1
        expected = later.count_tokens(CAPTIONS)
        assert loads.count == 2
        assert expected.dtype == np.int64
        last = load_remembered(f"open_clip:local-dir:{folder}", CPU, store)
        assert last.count_tokens(CAPTIONS).tolist() == expected.tolist()
        assert last.count_tokens([]).tolist() == []
    assert loads.count == 2


def test_a_store_that_cannot_be_written_is_enough_for_what_is_stored(loads, folder, tmp_path):
    id = f"open_clip:local-dir:{folder}"
    with Store(tmp_path / "store"):
        pass
    with Store(tmp_path / "store") as store:
        store._connection.execute("PRAGMA query_only = ON")
        model = load_remembered(id, CPU, store)
        assert model.count_tokens(CAPTIONS[:2]).tolist() == [5, 10]
    opened(folder, tmp_path / "store")
    assert loads.count == 2  # nothing could be kept


# --- nothing stale ------------------------------------------------------------------------------


def flip(path: Path, place: int = -1) -> None:
    """Change one byte; size and time of modification stay as they were."""
    stat, data = path.stat(), bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def change_config(folder: Path) -> None:
    (folder / CONFIG).write_text((folder / CONFIG).read_text().replace("bicubic", "bilinear"))


CHANGES = {
    "weights": lambda folder: flip(folder / WEIGHTS),
    "config": change_config,
    "merges": lambda folder: flip(folder / MERGES, 4),  # the time in the header of gzip
    "another file": lambda folder: (folder / "special_tokens_map.json").write_text("{}"),
    "a file less": lambda folder: (folder / "README.md").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_means_that_the_model_is_loaded(change, loads, folder, tmp_path):
    (folder / "README.md").write_text("a model")
    opened(folder, tmp_path / "store")
    opened(folder, tmp_path / "store")
    assert loads.count == 1
    CHANGES[change](folder)
    opened(folder, tmp_path / "store")
    assert loads.count == 2


@pytest.mark.parametrize("library", ["counterpoint", "torch", "open_clip_torch", "transformers"])
def test_another_version_means_that_the_model_is_loaded(
    library, loads, folder, tmp_path, monkeypatch
):
    opened(folder, tmp_path / "store")
    real = remembered.version
    monkeypatch.setattr(
        remembered, "version", lambda name: "0.0.0" if name == library else real(name)
    )
    opened(folder, tmp_path / "store")
    assert loads.count == 2


def test_other_options_mean_that_the_model_is_loaded(loads, folder, tmp_path):
    opened(folder, tmp_path / "store")
    other = opened(folder, tmp_path / "store", LoadOptions("cpu", "bf16"))
    assert loads.count == 2
    assert other.fingerprint != opened(folder, tmp_path / "store").fingerprint


def test_own_code_that_changed_means_that_the_model_is_loaded(loads, folder, tmp_path, monkeypatch):
    opened(folder, tmp_path / "store")
    monkeypatch.setattr(remembered, "_own_code", lambda: [("adapter.py", 1, 1)])
    opened(folder, tmp_path / "store")
    assert loads.count == 2


def test_code_of_a_models_own_is_never_taken_for_unchanged(loads, folder, tmp_path):
    trusting = LoadOptions("cpu", trust_remote_code=True)
    with Store(tmp_path / "store") as store:
        for _ in range(2):
            assert isinstance(
                load_remembered(f"open_clip:local-dir:{folder}", trusting, store), OpenClip
            )
    assert loads.count == 2


def test_files_that_change_during_a_run_are_an_error(folder, tmp_path):
    opened(folder, tmp_path / "store")
    later = opened(folder, tmp_path / "store")
    flip(folder / WEIGHTS)
    with raises("E-MODEL-CHANGED"):
        later.encode_captions(["a dog"])


def test_a_towers_files_on_the_hub_are_not_taken_for_known(tmp_path):
    folder = save_model(tmp_path / "m")
    config = json.loads((folder / CONFIG).read_text())
    config["model_cfg"]["text_cfg"]["hf_model_name"] = "roberta-base"
    (folder / CONFIG).write_text(json.dumps(config))
    assert remembered._files(f"open_clip:local-dir:{folder}") == []
    assert remembered._files("checkpoint:" + str(folder / WEIGHTS) + "@roberta-ViT-B-32") == []


def test_the_files_of_an_id(folder):
    weights = folder / WEIGHTS
    whole = sorted(path for path in folder.iterdir())
    assert remembered._files(f"open_clip:local-dir:{folder}") == whole
    assert remembered._files(f"hf:{folder}") == whole
    assert remembered._files(f"checkpoint:{weights}@local-dir:{folder}") == [weights, *whole]
    [first, config] = remembered._files(f"open_clip:ViT-B-32/{weights}")
    assert (first, config.name) == (weights, "ViT-B-32.json")
    (folder / "config.json").write_text("{}")
    assert folder / "config.json" in remembered._files(f"checkpoint:{weights}@ViT-B-32")
    assert {path.name for path in remembered._files("world:base")} >= {WEIGHTS, CONFIG, MERGES}
    for hub in ("open_clip:ViT-B-32-quickgelu/openai", "hf:org/repo", "open_clip:hf-hub:a/b"):
        assert remembered._files(hub) == []
    for other in ("random", "scratch:RN50", "blip-itm:x", f"open_clip:ViT-B-32/{folder}/none.pt"):
        assert remembered._files(other) == []
    (folder / "adapter_config.json").write_text("{}")
    assert remembered._files(f"hf:{folder}") == []


# --- whole runs ---------------------------------------------------------------------------------

CASES = 40  # each with an image of its own
BENCHMARK = f"world-swap:size={CASES}"
BASE = f"open_clip:local-dir:{world_folder('base')}"


def evaluate(model: str, out: Path, cache: Path) -> bool:
    """Run `counterpoint eval`; whether torch was imported."""
    words = ["eval", "-m", model, "-b", BENCHMARK, "--out", str(out), "--device", "cpu"]
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('torch' in sys.modules))\n"
        f"sys.argv = ['counterpoint', *{words!r}]\n"
        "from counterpoint.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "COUNTERPOINT_CACHE": str(cache)},
    )
    assert done.returncode == 0, done.stderr
    return {"True": True, "False": False}[done.stdout.splitlines()[-1]]


def facts(run: Path) -> tuple[bytes, dict]:
    """All scores, and the manifest without what is of this run alone."""
    manifest = json.loads((run / "run.json").read_text())
    for name in ("created", "command"):
        del manifest[name]
    return (run / "scores.parquet").read_bytes(), manifest


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> Path:
    """A run of a model of torch, and its cache."""
    place = tmp_path_factory.mktemp("first")
    assert evaluate(BASE, place / "run", place / "cache") is True
    return place


@pytest.mark.slow
def test_a_second_run_needs_no_torch_and_has_the_same_bytes(tmp_path):
    folder = save_model(tmp_path / "m", CLIP)
    model = f"checkpoint:{shutil.copy(folder / WEIGHTS, tmp_path / 'w.safetensors')}"
    model += f"@local-dir:{folder}"
    assert evaluate(model, tmp_path / "a", tmp_path / "cache") is True
    assert evaluate(model, tmp_path / "b", tmp_path / "cache") is False
    assert facts(tmp_path / "a") == facts(tmp_path / "b")


def delete_vectors(cache: Path, chosen: slice) -> None:
    """Vectors lie in the order in which they were computed: those of images come first."""
    with sqlite3.connect(cache / "store" / "results.sqlite") as connection:
        rows = connection.execute("SELECT rowid, length(value) FROM results ORDER BY rowid")
        sizes = dict(rows.fetchall())
        vector = mode(size for size in sizes.values() if size > 200)
        vectors = [row for row, size in sizes.items() if size == vector]
        assert len(vectors) > 2 * CASES
        connection.executemany(
            "DELETE FROM results WHERE rowid = ?", [(row,) for row in vectors[chosen]]
        )


@pytest.mark.slow
@pytest.mark.parametrize("lost", [slice(CASES), slice(CASES, None), slice(0)])
def test_a_store_with_gaps_loads_the_model_and_gives_the_same_bytes(lost, first, tmp_path):
    cache = shutil.copytree(first / "cache", tmp_path / "cache")
    delete_vectors(cache, lost)
    if lost != slice(0):
        assert evaluate(BASE, tmp_path / "b", cache) is True
        assert facts(tmp_path / "b") == facts(first / "run")
    assert evaluate(BASE, tmp_path / "c", cache) is False
    assert facts(tmp_path / "c") == facts(first / "run")
