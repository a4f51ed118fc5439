"""The line between two models: its ends, its middle, what is refused, what is saved and drawn."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
import typer
from errors import raises
from open_clip_models import (
    BASE,
    CAPTIONS,
    CLIP,
    CONFIG,
    CUSTOM,
    PREPROCESS,
    TEXT,
    VISION,
    WEIGHTS,
    load,
    noise,
    save_model,
    tokenizer_of,
)
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from counterpoint.cli.console import plainly
from counterpoint.cli.train import read_alphas, wise
from counterpoint.evaluation import Line, evaluate, evaluate_line, save_mixed
from counterpoint.evaluation.wise import Point
from counterpoint.models import LoadOptions
from counterpoint.models.openclip.adapter import MERGES
from counterpoint.runs import load_run
from counterpoint.scoring import Described, DualEncoder

pytestmark = pytest.mark.slow

CPU = LoadOptions("cpu")
SWAP = "world-swap:size=12"


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def shaken(source: Path, folder: Path, seed: int = 1, size: float = 0.05) -> Path:
    """A copy of a model folder whose weights have moved, as float32."""
    shutil.copytree(source, folder)
    generator = torch.Generator().manual_seed(seed)
    moved = {
        name: value.float() + size * torch.randn(value.shape, generator=generator)
        for name, value in load_file(source / WEIGHTS).items()
    }
    save_file(moved, folder / WEIGHTS)
    return folder


def id_of(folder: Path) -> str:
    return f"open_clip:local-dir:{folder}"


@pytest.fixture
def tiny(tmp_path) -> tuple[Path, Path]:
    base = save_model(tmp_path / "start")
    return base, shaken(base, tmp_path / "tuned")


@pytest.fixture
def line(tiny) -> Line:
    return Line(*map(id_of, tiny), CPU)


def vectors(model: DualEncoder) -> np.ndarray:
    images = [model.preprocess(noise(32, 32, seed)) for seed in range(3)]
    return np.concatenate([model.encode_captions(CAPTIONS), model.encode_images(images)])


# --- the line ----------------------------------------------------------------------------------


def test_the_ends_are_the_two_models_bit_for_bit(line, tiny):
    for alpha, folder in zip((0, 1, 0), (*tiny, tiny[0]), strict=True):
        alone = load(folder)
        assert line.at(alpha).fingerprint == alone.fingerprint
        assert vectors(line.at(alpha)).tobytes() == vectors(alone).tobytes()
    assert vectors(line.at(0)).tobytes() != vectors(line.at(1)).tobytes()


@pytest.mark.parametrize("alpha", [0.25, 0.5, 0.9])
def test_between_them_every_weight_is_the_weighted_mean(line, tiny, alpha):
    """Against NumPy, from the files; and against open_clip with these weights."""
    start, end = (load_file(folder / WEIGHTS) for folder in tiny)
    share = np.float32(alpha)
    expected = {
        name: np.float32(1 - alpha) * start[name].numpy() + share * end[name].numpy()
        for name in start
    }
    found = line.at(alpha).model.state_dict()
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert value.dtype == torch.float32
        assert value.numpy() == pytest.approx(expected[name], abs=1e-7)
    reference = open_clip.create_model(f"local-dir:{tiny[0]}").eval()
    reference.load_state_dict({name: torch.tensor(value) for name, value in expected.items()})
    with torch.inference_mode():
        straight = reference.encode_text(tokenizer_of(tiny[0])(CAPTIONS), normalize=True).numpy()
    assert line.at(alpha).encode_captions(CAPTIONS) == pytest.approx(straight, abs=1e-5)


def test_a_line_from_a_model_to_itself_stands_still(tiny):
    line = Line(id_of(tiny[0]), id_of(tiny[0]), CPU)
    whole = vectors(line.at(0))
    assert vectors(line.at(0.5)).tobytes() == whole.tobytes()
    assert vectors(line.at(0.3)) == pytest.approx(whole, abs=1e-4)


def test_points_of_one_line_do_not_disturb_each_other(line):
    points = [Point(line, alpha) for alpha in (0, 0.5, 1)]
    alone = {point.alpha: vectors(point).tobytes() for point in points}
    assert len(set(alone.values())) == 3
    assert len({point.fingerprint for point in points}) == 3
    for point in (points[1], points[0], points[2], points[1]):
        assert isinstance(point, DualEncoder) and isinstance(point, Described)
        assert vectors(point).tobytes() == alone[point.alpha]


def test_points_are_named_after_the_tuned_model(tmp_path):
    base = save_model(tmp_path / "start")
    for place, name in (("hn", "hn@0.5"), ("new/model", "new@0.5"), ("models", "models@0.5")):
        assert Line(id_of(base), id_of(shaken(base, tmp_path / place)), CPU).name(0.5) == name


def test_an_alpha_outside_the_line_is_refused(line):
    for alpha in (-0.1, 1.01, math.nan):
        with raises("E-OPTION-INVALID", "alpha"):
            line.at(alpha)


def test_weights_in_half_precision_are_mixed_in_float32(tmp_path):
    """The base of the world is stored in float16, a tuned model in float32."""
    tuned = shaken(BASE, tmp_path / "tuned", size=1e-4)
    found = Line("world:base", id_of(tuned), CPU).at(0.5).model.state_dict()
    start, end = (load_file(folder / WEIGHTS) for folder in (BASE, tuned))
    assert {value.dtype for value in start.values()} == {torch.float16}
    name = "visual.proj"
    assert torch.equal(found[name], 0.5 * start[name].float() + 0.5 * end[name])
    assert not torch.equal(found[name], found[name].half().float())


# --- evaluating it -----------------------------------------------------------------------------


def test_the_runs_of_the_ends_are_the_models_own(tmp_path):
    tuned = id_of(shaken(BASE, tmp_path / "my-hn", size=0.01))
    base = id_of(BASE)
    line = Line(base, tuned, CPU)
    runs = evaluate_line(line, [SWAP], [0, 0.5, 1], out=tmp_path / "line", batch_size=64)
    assert [run.model for run in runs] == ["my-hn@0", "my-hn@0.5", "my-hn@1"]
    assert [run.folder.name for run in runs] == ["my-hn-0", "my-hn-0.5", "my-hn-1"]
    for run, id in zip((runs[0], runs[2]), (base, tuned), strict=True):
        # Another store: nothing of what the line computed is used.
        out = tmp_path / "own" / id.replace("/", "-")
        own = evaluate(id, SWAP, out=out, store=tmp_path / "s", batch_size=64)
        assert own.manifest["fingerprint"] == run.manifest["fingerprint"]
        assert own.parts[SWAP].scores.tobytes() == run.parts[SWAP].scores.tobytes()
    half = load_run(runs[1].folder)
    assert half.manifest["model_info"]["wise"] == {
        "base": base,
        "tuned": tuned,
        "alpha": 0.5,
    }
    ends = [runs[0].parts[SWAP].scores, runs[2].parts[SWAP].scores]
    assert all(half.parts[SWAP].scores.tobytes() != end.tobytes() for end in ends)


def test_without_out_the_same_question_goes_to_the_same_place(line):
    first, again, other = (
        evaluate_line(line, [SWAP], alphas, limit=limit)[0].folder
        for alphas, limit in (([0.5], 4), ([0.5], 4), ([0.5], 5))
    )
    assert first == again != other
    assert first.parent.parent == Path("runs")
    assert first.name == "tuned-0.5"


# --- refusals ----------------------------------------------------------------------------------


def refused(base: Path | str, tuned: Path | str, code: str = "E-MODELS-DIFFER") -> str:
    """Why two models cannot be mixed."""
    ids = [id_of(end) if isinstance(end, Path) else end for end in (base, tuned)]
    with raises(code) as caught:
        Line(*ids, CPU)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 600 and message.endswith(".")
    return message


def test_models_of_two_architectures_are_refused(tmp_path):
    base = save_model(tmp_path / "base", CUSTOM)
    changes = [
        ({"quick_gelu": True}, "GELU in the base and QuickGELU in the tuned one"),
        ({"text_cfg": {**TEXT, "heads": 4}}, "heads of text is 2 in the base and 4"),
        ({"text_cfg": {**TEXT, "pool_type": "last"}}, "pool_type"),
        ({"text_cfg": {**TEXT, "layers": 3}}, "only one of them has a module"),
        ({"text_cfg": {**TEXT, "width": 48, "heads": 2}}, "48"),
        ({"text_cfg": {**TEXT, "no_causal_mask": True}}, "attn_mask"),
        ({"text_cfg": {**TEXT, "tokenizer_kwargs": {"clean": "canonicalize"}}}, "tokenizers"),
        ({"vision_cfg": {**VISION, "image_size": 48}}, "preprocess"),
        ({"embed_dim": 24}, "24"),
    ]
    for number, (change, says) in enumerate(changes):
        assert says in refused(base, save_model(tmp_path / str(number), {**CUSTOM, **change}))
    other = save_model(tmp_path / "mean", CUSTOM, {**PREPROCESS, "mean": [0.5, 0.4, 0.2]})
    assert "preprocess images differently" in refused(base, other)


def test_models_with_other_merges_are_refused(tiny):
    """Both tokenizers have as many tokens; another order of merges gives them other numbers."""
    import gzip

    merges = gzip.decompress((tiny[1] / MERGES).read_bytes()).decode().splitlines()
    swapped = [merges[0], merges[2], merges[1], *merges[3:]]
    (tiny[1] / MERGES).write_bytes(gzip.compress("\n".join(swapped).encode(), mtime=0))
    assert "tokenizers differ" in refused(*tiny)


def test_weights_that_are_no_numbers_are_refused(tiny):
    weights = load_file(tiny[1] / WEIGHTS)
    weights["visual.proj"][0, 0] = math.nan
    save_file(weights, tiny[1] / WEIGHTS)
    assert "visual.proj of the tuned one" in refused(*tiny)


def test_buffers_must_be_equal(tiny):
    """Two batch norms' statistics cannot be mixed: their squares do not mean that way."""
    base, tuned = (load(folder) for folder in tiny)
    for model, value in ((base, 1.0), (tuned, 2.0)):
        model.model.register_buffer("running_mean", torch.tensor([value]))
    from counterpoint.evaluation.wise import refuse_unlike

    with raises("E-MODELS-DIFFER", "a", "b") as caught:
        refuse_unlike(base, tuned, "a", "b")
    assert "running_mean differs" in str(caught.value)


def test_models_that_are_not_open_clips_are_refused(tiny):
    assert "random" in refused(tiny[0], "random", "E-MODEL-UNSUITABLE")
    assert "blind:length" in refused("blind:length", tiny[0], "E-MODEL-UNSUITABLE")


# --- saving ------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0, 0.3, 1])
def test_the_saved_folder_is_the_same_model(line, tmp_path, alpha):
    save_mixed(line, alpha, tmp_path / "deep" / "saved")
    saved = load(tmp_path / "deep" / "saved")
    assert saved.fingerprint == line.at(alpha).fingerprint
    assert vectors(saved).tobytes() == vectors(line.at(alpha)).tobytes()
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["saved"]


def test_a_saved_model_scores_as_its_point_of_the_line(tmp_path):
    line = Line("world:base", id_of(shaken(BASE, tmp_path / "tuned", size=0.01)), CPU)
    [run] = evaluate_line(line, [SWAP], [0.4], out=tmp_path / "line")
    save_mixed(line, 0.4, tmp_path / "saved")
    own = evaluate(id_of(tmp_path / "saved"), SWAP, out=tmp_path / "own", store=tmp_path / "s")
    assert own.parts[SWAP].scores.tobytes() == run.parts[SWAP].scores.tobytes()


def test_what_is_saved_says_how_it_was_made(line, tiny, tmp_path):
    save_mixed(line, 0.5, tmp_path / "saved")
    [made] = [
        about["wise"]
        for path in (tmp_path / "saved").glob("*.json")
        if "wise" in (about := json.loads(path.read_text()))
    ]
    assert made["alpha"] == 0.5
    assert made["base"] == {"id": id_of(tiny[0]), "fingerprint": load(tiny[0]).fingerprint}
    assert made["tuned"] == {"id": id_of(tiny[1]), "fingerprint": load(tiny[1]).fingerprint}


def test_an_architecture_of_open_clips_own_gets_a_config(tmp_path):
    """Weights files in a named architecture: no folder brings a config or merges."""
    cfg = {**CLIP, "text_cfg": {**TEXT, "vocab_size": 49408}, "quick_gelu": True}
    (tmp_path / "tiny-wise.json").write_text(json.dumps(cfg))
    open_clip.add_model_config(tmp_path / "tiny-wise.json")
    try:
        folders = [save_model(tmp_path / "a", cfg)]
        folders.append(shaken(folders[0], tmp_path / "b"))
        line = Line(*(f"open_clip:tiny-wise/{folder / WEIGHTS}" for folder in folders), CPU)
        save_mixed(line, 0.5, tmp_path / "saved")
        saved = load(tmp_path / "saved")
        assert vectors(saved).tobytes() == vectors(line.at(0.5)).tobytes()
        assert not (tmp_path / "saved" / MERGES).exists()
        # A folder and a named architecture write the same preprocessing differently.
        mixed = Line(line.base, id_of(tmp_path / "saved"), CPU)
        assert vectors(mixed.at(1)).tobytes() == vectors(saved).tobytes()
        assert [mixed.at(end).fingerprint for end in (0, 1)] == [*mixed.fingerprints]
    finally:
        open_clip.factory._MODEL_CONFIG_PATHS.remove(tmp_path / "tiny-wise.json")
        open_clip.factory._rescan_model_configs()


def test_saving_replaces_its_own_work_and_nothing_else(line, tiny, tmp_path):
    for alpha in (0.5, 0.6):
        save_mixed(line, alpha, tmp_path / "saved")
        assert load(tmp_path / "saved").fingerprint == line.at(alpha).fingerprint
    with raises("E-OUTPUT-EXISTS", tmp_path / "saved"):
        save_mixed(Line(line.base, line.base), 0.5, tmp_path / "saved")
    before = (tiny[0] / CONFIG).read_bytes()
    (tmp_path / "file").write_text("mine")
    for other in (tiny[0], tmp_path / "file"):
        with raises("E-OUTPUT-EXISTS", other):
            save_mixed(line, 0.5, other)
    assert (tiny[0] / CONFIG).read_bytes() == before
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_would_load_as_another_model_is_not_kept(line, tmp_path, monkeypatch):
    """As for a tokenizer that only an architecture's name says."""
    from counterpoint.evaluation import wise as wise_saving

    def without_merges(folder: Path, *rest: object) -> None:
        written(folder, *rest)
        config = json.loads((folder / CONFIG).read_text())
        config["model_cfg"]["quick_gelu"] = True
        (folder / CONFIG).write_text(json.dumps(config))

    written = wise_saving.fill_folder
    monkeypatch.setattr(wise_saving, "fill_folder", without_merges)
    with raises("E-MODEL-CHANGED", "tuned@0.5"):
        save_mixed(line, 0.5, tmp_path / "saved")
    assert not [p for p in tmp_path.iterdir() if p.name.startswith((".", "saved"))]


# --- the command -------------------------------------------------------------------------------


def command(*arguments: str):
    app = typer.Typer()
    app.command()(plainly(wise))
    return CliRunner().invoke(app, [*map(str, arguments), "--device", "cpu"])


def test_the_command_prints_the_line_draws_it_and_saves_a_point(tiny):
    done = command(
        *(id_of(tiny[0]), id_of(tiny[1]), "-b", SWAP, "-b", "world-replace:size=10"),
        *("--alphas", "0,1,0.5", "--out", "line", "--plot", "line.svg", "--save", "0.5", "half"),
        "--json",
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    whole = [r for r in found if r["group"] == "all" and r["metric"] == "augmented_accuracy"]
    assert [(r["alpha"], r["model"]) for r in whole[::2]] == [
        (0.0, "tuned@0"),
        (0.5, "tuned@0.5"),
        (1.0, "tuned@1"),
    ]
    assert [r["chance"] for r in whole] == [pytest.approx(1 / 3)] * 6
    assert sorted(p.name for p in Path("line").iterdir()) == ["tuned-0", "tuned-0.5", "tuned-1"]
    assert "</svg>" in Path("line.svg").read_text()
    assert load(Path("half")).fingerprint == Line(*map(id_of, tiny), CPU).at(0.5).fingerprint


def test_the_table_has_a_line_for_each_alpha(tiny):
    done = command(id_of(tiny[0]), id_of(tiny[1]), "-b", SWAP, "--alphas", "0,0.25,1")
    assert done.exit_code == 0, done.output
    text = done.stdout
    for alpha in ("0", "0.25", "1"):
        assert re.search(rf"alpha {alpha} +│ +12 │( +[\d.]+ (±|\[)[^│]+│){{3}}", text)
    assert re.search(r"chance +│ +│ +50.0 +│ +33.3 +│ +33.3", text)
    assert f"alpha 0 = {id_of(tiny[0])}" in text and f"alpha 1 = {id_of(tiny[1])}" in text
    assert "saved 3 runs in runs/wise-tuned" in text


def test_wrong_usage_is_status_2():
    app = typer.Typer()
    app.command()(plainly(wise))
    for arguments in (
        [],
        ["-b", SWAP, "--alphas", "0,half"],
        ["-b", SWAP, "--alphas", "0,1.5"],
        ["-b", SWAP, "--plot", "line.gif"],
        ["--save", "2", "folder"],
        ["-b", SWAP, "--device", "tpu"],
    ):
        assert CliRunner().invoke(app, ["a", "b", *arguments]).exit_code == 2


def test_a_taken_folder_is_said_before_the_work(tiny, monkeypatch):
    monkeypatch.setattr("counterpoint.evaluation.wise.evaluate_line", None)  # would be a TypeError
    ids = [id_of(folder) for folder in tiny]
    taken = command(*ids, "-b", SWAP, "--save", "0.5", str(tiny[0]))
    assert (taken.exit_code, taken.stdout) == (1, "")


def test_alphas_are_sorted_and_each_counted_once():
    assert read_alphas("1, 0,0.50,0.5") == [0, 0.5, 1]
