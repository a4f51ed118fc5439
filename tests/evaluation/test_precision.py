"""Precision: explicit, recorded, in the fingerprint, and checked against float32."""

from __future__ import annotations

import numpy as np
import pytest
from errors import raises
from typer.testing import CliRunner

from counterpoint import evaluate, load_run
from counterpoint._util.progress import Quiet
from counterpoint._util.store import Store
from counterpoint.benchmarks import load_benchmark
from counterpoint.cli.app import app
from counterpoint.evaluation import check_precision
from counterpoint.evaluation.devices import choose
from counterpoint.metrics import get_protocol
from counterpoint.models import LoadOptions, load_model
from counterpoint.models.registry import PRECISIONS
from counterpoint.scoring import Work

pytestmark = pytest.mark.slow

BENCH = "world-swap:size=40"


def test_every_precision_gives_unit_float32(tmp_path):
    whole = load_model("world:base", LoadOptions("cpu")).encode_captions(["a red square"])
    for precision in PRECISIONS:
        model = load_model("world:base", LoadOptions("cpu", precision))
        vectors = model.encode_captions(["a red square", "a blue circle above a white star"])
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
        np.testing.assert_allclose(vectors[:1], whole, atol=1e-6 if "32" in precision else 0.03)


def test_precisions_do_not_share_results():
    models = [load_model("world:base", LoadOptions("cpu", p)) for p in PRECISIONS]
    assert len({model.fingerprint for model in models}) == len(PRECISIONS)
    assert load_model("world:base", LoadOptions("cpu")).fingerprint == models[0].fingerprint


def test_the_run_records_it(tmp_path):
    few = "world-swap:size=4"
    evaluate("world:base", few, precision="bf16", out=tmp_path / "run", store=tmp_path)
    manifest = load_run(tmp_path / "run").manifest
    assert manifest["options"]["precision"] == manifest["model_info"]["precision"] == "bf16"
    assert manifest["model_info"]["dtype"] == "bfloat16"  # of the weights
    with raises("E-PRECISION-UNKNOWN", "fp8"):
        evaluate("world:base", few, precision="fp8", store=tmp_path)


def test_changed_verdicts_are_counted(tmp_path):
    benchmark, cases = load_benchmark(BENCH)
    tables = {"world": (cases, get_protocol(benchmark.protocol))}
    [same] = check_precision("world:base", tables, LoadOptions("cpu"), store=tmp_path)
    assert (same.flipped, same.largest) == (0, 0.0) and same.verdicts == 3 * 40
    [flips] = check_precision("world:base", tables, LoadOptions("cpu", "bf16"), store=tmp_path)
    assert 0 < flips.largest < 0.05
    runs = [
        evaluate("world:base", BENCH, precision=p, out=tmp_path / p, store=tmp_path)
        for p in ("bf16", "fp32")
    ]
    low, high = (run.parts[BENCH].scores.reshape(-1, 3) for run in runs)
    assert flips.largest == pytest.approx(np.abs(low - high).max(), rel=1e-6)

    def outcomes(scores):
        above = scores[:, :2] > scores[:, 2:]
        return np.stack([above[:, 0], above.all(axis=1), above.any(axis=1) ^ above.all(axis=1)])

    assert flips.flipped == int((outcomes(low) != outcomes(high)).sum())


def test_the_command_says_how_many(tmp_path, monkeypatch):
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path))
    command = [
        "eval",
        "-m",
        "world:base",
        "-b",
        "world-swap:size=10",
        "--out",
        str(tmp_path / "run"),
    ]
    done = CliRunner().invoke(app, [*command, "--precision", "bf16", "--check-precision"])
    assert done.exit_code == 0, done.output
    assert "bf16 changes" in done.stderr and "of 30 verdicts of a sample" in done.stderr


# --- auto ----------------------------------------------------------------------------------------


class Rounded:
    """world:base on a make-believe GPU, whose lower precisions are off by so much."""

    lanes, device = 1, "make-believe"
    off = {"fp32": 0.0, "tf32": 1e-6, "bf16": 0.05, "fp16": 0.05}  # noqa: RUF012
    overflows = False

    def __init__(self, options: LoadOptions) -> None:
        self.model = load_model("world:base", LoadOptions("cpu"))
        self.noise = max(self.off[options.precision], 0.05 if options.decode == "gpu" else 0)
        self.bad = self.overflows and options.precision == "fp16"
        self.fingerprint = f"{self.model.fingerprint} {options}"
        self.context_length = self.model.context_length
        self.preprocess, self.count_tokens = self.model.preprocess, self.model.count_tokens

    def describe(self):
        return {"device": "cuda:0", "decoder": "Pillow"}

    def encode_images(self, images):
        return self.model.encode_images(images)

    def encode_captions(self, captions):
        vectors = self.model.encode_captions(captions)
        # Of the caption alone: batches may be cut differently from one call to the next.
        noise = self.noise * np.stack(
            [np.random.default_rng([*c.encode()]).normal(size=vectors.shape[1]) for c in captions]
        )
        return np.full_like(vectors, np.nan) if self.bad else (vectors + noise).astype(np.float32)


def chosen(monkeypatch, tmp_path, precision="auto", decode="exact", **changes):
    kind = type("Rounded", (Rounded,), changes)
    monkeypatch.setattr(
        "counterpoint.evaluation.devices.load_model", lambda id, options: kind(options)
    )
    loaded = load_benchmark(BENCH)
    tables = {"world": (loaded.cases, loaded.read_by(None))}
    with Store(tmp_path) as store:
        options = LoadOptions("cpu", precision, decode=decode)
        return choose("world:base", tables, options, Work(store, 64, Quiet()))


def test_auto_takes_the_fastest_that_changes_nothing(monkeypatch, tmp_path):
    found = chosen(monkeypatch, tmp_path)
    assert (found.options.precision, found.options.decode) == ("tf32", "exact")
    assert [
        f"{p} " in note for p, note in zip(("fp16", "bf16", "tf32"), found.notes, strict=True)
    ] == [True] * 3
    assert sum(flip.changed for flip in found.flips) == 0 and found.flips[0].cases == 40
    fine = {**Rounded.off, "fp16": 1e-6}
    assert chosen(monkeypatch, tmp_path / "2", off=fine).options.precision == "fp16"
    bad = dict.fromkeys(Rounded.off, 0.05) | {"fp32": 0.0}
    assert chosen(monkeypatch, tmp_path / "3", off=bad).options.precision == "fp32"


def test_auto_passes_by_a_precision_that_overflows(monkeypatch, tmp_path):
    fine = dict.fromkeys(Rounded.off, 0.0)
    found = chosen(monkeypatch, tmp_path, off=fine, overflows=True)
    assert found.options.precision == "bf16"
    assert "fp16 cannot be used" in found.notes[0]


def test_auto_judges_the_decoder_too(monkeypatch, tmp_path):
    found = chosen(monkeypatch, tmp_path, precision="fp32", decode="auto")
    assert (found.options.precision, found.options.decode) == ("fp32", "exact")
    assert "decoded on the GPU" in found.notes[0]


def test_the_decoder_is_held_against_the_precision_that_was_asked_for(monkeypatch, tmp_path):
    """bf16 itself changes verdicts here, which says nothing about the decoder."""
    found = chosen(monkeypatch, tmp_path, precision="bf16", decode="auto")
    assert (found.options.precision, found.options.decode) == ("bf16", "gpu")


def test_a_family_that_leaves_decoding_to_pillow_is_not_asked(monkeypatch, tmp_path):
    plain = {"describe": lambda self: {"device": "cuda:0"}}
    found = chosen(monkeypatch, tmp_path, precision="fp32", decode="auto", **plain)
    assert found.options.decode == "exact" and not any("JPEG" in n for n in found.notes)


def test_auto_is_float32_on_a_cpu(tmp_path):
    run = evaluate("world:base", BENCH, precision="auto", decode="auto", out=tmp_path / "auto")
    plain = evaluate("world:base", BENCH, out=tmp_path / "plain")
    assert run.manifest["model_info"]["precision"] == "fp32"
    assert run.manifest["options"]["precision"] == "auto"
    np.testing.assert_array_equal(run.parts[BENCH].scores, plain.parts[BENCH].scores)
