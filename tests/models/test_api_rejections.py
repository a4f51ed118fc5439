"""Requests that an endpoint rejects: their cases are left out, and the rest goes on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from api_server import KEY, Endpoint
from api_support import endpoint, load, pair, score, server
from engine_support import build, naive
from errors import raises
from models_for_tests import choice, is_sentence, run_engine, write_images
from support import gallery
from typer.testing import CliRunner

from counterpoint.cases.table import Cases
from counterpoint.cli.app import app

__all__ = ["endpoint", "server"]  # fixtures
MODES = pytest.mark.parametrize("mode", ["logprobs", "choice"])


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def several(root: Path, count: int, bad: tuple[int, ...] = ()) -> Cases:
    """An image and two captions for each case; captions of those in `bad` hold a bad word."""
    names = [f"{n}.png" for n in range(count)]
    write_images(root, *names)
    cases = (
        choice(str(n), name, f"yes {n}", f"{'bad' if n in bad else 'no'} {n}")
        for n, name in enumerate(names)
    )
    return build(*cases, root=root)


@pytest.mark.slow
@MODES
def test_a_rejected_request_costs_its_case_alone(
    mode: str, endpoint: Endpoint, tmp_path: Path
) -> None:
    cases, model = several(tmp_path, 6, bad=(1, 4)), load(f"m?image=png&mode={mode}")
    endpoint.rejects = "bad"
    found = run_engine(model, {"bench": cases}, tmp_path / "store")["bench"]
    assert sorted(found.left_out) == [1, 4]
    for why in found.left_out.values():
        assert is_sentence(why) and "rejects a request" in why and KEY not in why
    whole = score(load(f"m?image=png&mode={mode}"), several(tmp_path, 6), tmp_path / "other")
    kept = np.repeat([n not in (1, 4) for n in range(6)], 2)
    assert np.isnan(found.scores[~kept]).all()
    np.testing.assert_array_equal(found.scores[kept], whole[kept])
    rejected = model.describe()["usage"]["rejected"]
    assert rejected == (2 if mode == "logprobs" else 4)
    assert any(f"rejected requests: {rejected};" in note for note in model.describe()["notes"])


@pytest.mark.slow
@MODES
def test_the_next_run_asks_for_nothing_else(mode: str, endpoint: Endpoint, tmp_path: Path) -> None:
    """Rejections are not kept: a server may be set up differently the next day."""
    cases, rest = several(tmp_path, 40, bad=tuple(range(36))), f"m?image=png&mode={mode}"
    endpoint.rejects = "bad"
    run_engine(load(rest), {"bench": cases}, tmp_path / "store", batch=80)
    for still, left_out in (("bad", 36), (None, 0)):  # all that is asked now is rejected
        endpoint.rejects, model = still, load(rest)
        before = len(endpoint.asked)
        found = run_engine(model, {"bench": cases}, tmp_path / "store", batch=80)["bench"]
        assert len(found.left_out) == left_out
        assert all("bad" in asked.text for asked in endpoint.asked[before:])


@pytest.mark.slow
@MODES
def test_a_model_that_rejects_everything_is_not_asked_for_long(
    mode: str, endpoint: Endpoint, tmp_path: Path
) -> None:
    model = load(f"m?image=png&mode={mode}")
    before, endpoint.always_fault = len(endpoint.asked), "400"
    with raises("E-MODEL-REFUSES", 40) as error:
        score(model, several(tmp_path, 100), tmp_path, batch=40)
    assert is_sentence(error.value) and "rejects a request" in str(error.value)
    assert "the model refuses all of the first 40 questions" in str(error.value)
    assert len(endpoint.asked) - before == 40 * model.requests_each


@pytest.mark.slow
def test_one_image_that_is_rejected_with_every_text_is_no_bad_model(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    """A gallery loses the image, and goes on."""
    names = [f"{n}.png" for n in range(5)]
    write_images(tmp_path, *names)
    texts = [f"caption {n}" for n in range(40)]
    truth = np.eye(5, 40, dtype=bool)
    truth[0, 5:] = True
    cases = build(gallery(truth, images=names, captions=texts), root=tmp_path)
    model = load("m?image=png")
    endpoint.faults.extend(["400"] * 40)
    found = run_engine(model, {"bench": cases}, tmp_path / "store", batch=40)["bench"]
    assert list(found.left_out_images[0]) == [0] and not found.left_out
    np.testing.assert_allclose(found.scores[40:], naive(cases, pair)[40:], rtol=1e-6)
    assert np.isnan(found.scores[:40]).all()


@pytest.mark.slow
def test_on_the_command_line(endpoint: Endpoint, tmp_path: Path) -> None:
    write_images(tmp_path, *(f"{n}.png" for n in range(3)))
    lines = [
        {"id": f"c{n}", "images": [f"{n}.png"], "captions": [f"yes {n}", f"{word} {n}"]}
        | {"truth": [[True, False]]}
        for n, word in enumerate(("no", "bad", "no"))
    ]
    Path("c.jsonl").write_text("\n".join(map(json.dumps, lines)))
    endpoint.rejects = "bad"
    command = ["eval", "-m", "api:m?image=png", "-b", "c.jsonl", "--out", "run"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 3, done.output
    assert "rejected requests: 1;" in done.stderr
    [left_out] = json.loads(Path("run/run.json").read_text())["benchmarks"]["c.jsonl"]["left_out"]
    assert "c1" in str(left_out) and "rejects a request" in str(left_out)
    assert CliRunner().invoke(app, [*command, "--allow-missing"]).exit_code == 0
