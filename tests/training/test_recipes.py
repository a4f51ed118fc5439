"""Recipes: what ships, how they are changed, and what is said of mistakes."""

from __future__ import annotations

import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from errors import raises
from hypothesis import given, strategies as st
from support import FEW
from typer.testing import CliRunner

from counterpoint._util.errors import CounterpointError
from counterpoint.training import list_recipes, load_recipe, merged, recipe_text
from counterpoint.training.reading import _WORDS, FOLDER, _keys_at, recipe_names
from counterpoint.training.steps import learning_rate

PATH = "data.path=train.parquet"
MISTAKES = tomllib.loads(Path(__file__).with_name("recipe_mistakes.toml").read_text())
ISSUE = (
    *("clip-ft", "negclip", "crepe-swap", "crepe-replace", "crepe-negate", "svlc", "svlc-pos"),
    *("dac", "hn", "hp", "hp-hn", "trohn-text", "trohn-img", "counterpoint"),
    *("crepe-scratch", "siglip", "ce-clip", "tripletclip", "fsc-clip", "degla"),
    *("read-clip", "clic", "c2lip", "clip-ft-hp", "clip-ft-aro"),
)
NOT_IN_THE_WORLD = ("negclip", "crepe-negate")
NO_BIAS_THERE = ("siglip", "c2lip")


def mistakes(name: str, *changes: str) -> str:
    """The sentence that says what is wrong."""
    with raises("E-RECIPE-INVALID") as caught:
        load_recipe(name, changes, world=True)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 800
    return message


# --- what ships --------------------------------------------------------------------------------


def test_every_recipe_of_the_issue_is_there():
    assert recipe_names() == sorted(ISSUE)
    assert [row["id"] for row in list_recipes()] == sorted((*ISSUE, "detector"))
    assert all(all(row.values()) for row in list_recipes())


def test_a_recipe_is_whole_and_its_header_says_how_to_launch_it():
    for name in ISSUE:
        recipe = load_recipe(name, [PATH])
        assert recipe.name == name and recipe.source and recipe.what
        header = [line for line in recipe_text(name).splitlines() if line.startswith("#")]
        assert any(line.startswith(f"#   counterpoint train {name} ") for line in header)
        assert any(
            line.startswith("#   torchrun ") and f" train {name} " in line for line in header
        )
        assert any("--world" in line for line in header)


def test_in_the_world_recipes_differ_in_their_loss_only():
    for name in sorted(set(ISSUE) - {*NOT_IN_THE_WORLD, *NO_BIAS_THERE}):
        recipe, control = load_recipe(name, world=True), load_recipe("clip-ft", world=True)
        for key in ("model", "steps", "batch", "lr", "warmup", "schedule", "seed", "precision"):
            assert getattr(recipe, key) == getattr(control, key)
        assert recipe.data.kind == "world"
        assert recipe.weight_decay == 0.1


def test_what_the_world_lacks_is_refused():
    for name in NOT_IN_THE_WORLD:
        assert "mistake: data: " in mistakes(name)


def test_controls_differ_from_their_papers_recipe_in_the_loss_alone():
    for control, paper in (("clip-ft-hp", "hp-hn"), ("clip-ft-aro", "negclip")):
        alone, whole = (load_recipe(name, [PATH]).settled() for name in (control, paper))
        for key in ("name", "from", "what", "data", "loss"):
            alone.pop(key), whole.pop(key)
        assert alone == whole
        assert [term.term for term in load_recipe(control, [PATH]).loss] == ["clip"]


def test_what_does_not_go_together_is_named():
    for change in ("decoder=none", "decoder=gpt", "loss.reconstruct.weight=0", "sharded=true"):
        assert "decoder" in mistakes("read-clip", change)
    for change in ("data.dense=2", "data.only=swap", "data.positives=false"):
        assert "mistake: data: " in mistakes("clic", change)  # two images have texts of their own
    for change in ("ema=none", "lora.rank=4", "sharded=true"):  # a teacher averages whole weights
        assert "1 mistake: ema_as=teacher " in mistakes("degla", change)
    assert "mistake: data: " in mistakes("hp", "data.phrases=true")
    assert "teacher" in mistakes("hp", "ema=0.9", "ema_as=teacher")
    assert "mistake: device: " in mistakes("hn", "device=tpu")


def test_data_holds_what_the_loss_reads_and_nothing_else():
    for name in ISSUE:
        from counterpoint.training.losses.terms import uses
        from counterpoint.training.recipe import terms_of

        recipe = load_recipe(name, [PATH])
        read = uses(terms_of(recipe.loss))
        assert bool(recipe.data.negatives) == ("negatives" in read)
        assert recipe.data.positives == ("positives" in read)
        assert recipe.data.negative_images == ("negative_images" in read)
        assert bool(recipe.data.hard_images) == ("hard_images" in read)
        assert bool(recipe.data.dense) == ("dense" in read)


# --- changes -----------------------------------------------------------------------------------


def test_changes_reach_every_corner():
    changes = ("lr=3e-5", "hn_weight=0.25", "only=swap", "lora.rank=8", "betas=[0.8, 0.9]")
    recipe = load_recipe("hp-hn", [*changes, "epochs=2", "clamp_scale=none"], world=True)
    assert recipe.lr == 3e-5 and recipe.betas == (0.8, 0.9)
    assert {t.term: t.weight for t in recipe.loss}["negatives"] == 0.25
    assert recipe.data.only == "swap" and recipe.clamp_scale is None
    assert recipe.lora is not None and recipe.lora.rank == 8
    assert (recipe.epochs, recipe.steps) == (2, None)  # one takes the other's place


def test_every_way_of_writing_a_float(tmp_path):
    """YAML 1.1 reads 1e-2 as a text: as a change, and in a file."""
    path = tmp_path / "mine.yaml"
    for written in ("1e-2", "1E-2", "1.e-2", "+1.0e-2", ".1e-1", "0.01"):
        recipe = load_recipe("counterpoint", [f"margin={written}", "steps=1e3"], world=True)
        shipped = recipe_text("counterpoint").replace("margin: 0.05", f"margin: {written}")
        path.write_text(shipped, encoding="utf-8")
        for found in (recipe, load_recipe(str(path), ["steps=1000"], world=True)):
            assert {t.term: t.options for t in found.loss}["listwise"] == {"margin": 0.01}
            assert found.steps == 1000


def test_an_own_file_is_a_recipe(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(recipe_text("hn"), encoding="utf-8")
    assert load_recipe(str(path), world=True) == load_recipe("hn", world=True)


@pytest.mark.slow
@given(weight=st.floats(0, 10), seed=st.integers(0, 2**40), only=st.sampled_from(["swap", "null"]))
@FEW
def test_the_folder_follows_what_the_weights_depend_on(weight, seed, only):
    changes = [f"hn_weight={weight!r}", f"seed={seed}", f"only={only}"]
    recipe = load_recipe("hn", changes, world=True)
    again = load_recipe("hn", [*reversed(changes), "log_every=3", "keep=9"], world=True)
    other = load_recipe("hn", [*changes, f"seed={seed + 1}"], world=True)
    assert recipe.folder == again.folder != other.folder
    assert {t.term: t.weight for t in recipe.loss}["negatives"] == weight


def test_merging_leaves_the_shipped_recipe_alone():
    before = merged("hp-hn")
    load_recipe("hp-hn", ["hn_weight=0", "data.size=5"], world=True)
    assert merged("hp-hn") == before


# --- mistakes ----------------------------------------------------------------------------------


def test_all_mistakes_at_once():
    message = mistakes("hp-hn", "lr=-1", "bath=3", "lora.rnk=3", "data.kind=wrld", "precision=int8")
    assert all(f"{key}: " in message for key in ("bath", "data.kind", "lora.rnk", "lr"))
    for told in ("did you mean 'batch'?", "did you mean 'rank'?", "'wrld'", "'int8'"):
        assert told in message


def test_each_mistake_names_its_key():
    for changes, key, named in MISTAKES["wrong"]:
        message = mistakes("hp-hn", *changes)
        assert key in message and named in message


def test_an_unknown_key_suggests_the_right_one():
    for change, meant in MISTAKES["unknown"]:
        message = mistakes("hp-hn", change)
        assert message.partition("unknown key")[1]
        assert f"did you mean {meant!r}?" in message if meant else "did you mean" not in message


def test_every_word_of_other_programs_stands_for_a_key():
    keys = {key for section in ([], ["data"], ["lora"]) for key in _keys_at(section)}
    words = merged(str(_WORDS))
    every = [word for of_key in words.values() for word in of_key]
    assert set(words) <= keys and not keys & set(every) and len(every) == len(set(every))


def test_a_change_without_a_value():
    with raises("E-RECIPE-CHANGE", "lr"):
        load_recipe("hp-hn", ["lr"])


def test_data_that_is_not_named_is_asked_for():
    from counterpoint.training.loop import train

    with raises("E-DATA-MISSING"):
        train(load_recipe("hn"))


def test_unknown_recipes():
    with raises("E-RECIPE-UNKNOWN", "negclp") as caught:
        load_recipe("negclp")
    assert "Did you mean 'negclip'?" in str(caught.value)
    with raises("E-RECIPE-UNKNOWN", "detector") as caught:
        load_recipe("detector")
    assert "counterpoint detector train" in str(caught.value)
    with raises("E-FILE-UNREADABLE", Path("/nowhere/at/all.yaml")):
        load_recipe("/nowhere/at/all.yaml")


BOMB = "a: &a [x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghij")
)


@pytest.mark.slow
def test_odd_files_are_refused_in_one_sentence(tmp_path):
    path = tmp_path / "odd.yaml"
    for text in (
        *("", "- a", "lr: 1\nlr: 2", "name: [", "a: !!python/object/apply:os.getcwd []", "\0"),
        *("knobs: true\nodd: 1", "knobs: [lr]", "[" * 600, "a: {" * 600, "a: &a [*a]"),
        *(BOMB.replace("j:", "lr:"), f"seed: {'9' * 5000}", f"lr: 0x{'f' * 5000}"),
        *("a: !!int ''", "a: !!float ''", "a: !!bool 'x'", "? [a]\n: b", "a: !!timestamp 'x'"),
        *(f"model: {'x' * 300_000}", "\n".join(f"key{n}: 1" for n in range(5000))),
        f"loss: [{{term: {'x' * 10_000}}}]",
        f"loss: [{{term: hold, options: {{margin: 0x{'f' * 5000}}}}}]",
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(CounterpointError) as caught:
            load_recipe(str(path), ["lr=1"])
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 3000, text[:24]


def test_odd_changes_are_refused_in_one_sentence():
    for change in (
        *("loss.²=1", "loss.٣٣٣=1", f"loss.{'9' * 5000}=1", "loss.²", "=", "lr=[", "lr.x=1"),
        *(f"seed={'9' * 5000}", f"seed=0x{'f' * 5000}", f"{'k' * 5000}=1", "knobs=true"),
        *("lr=" + "[" * 600, "data=&a [*a]", "loss.negatives.options={x: 1}", "\0=1", "seed=-1"),
    ):
        with pytest.raises(CounterpointError) as caught:
            load_recipe("hp-hn", [change, "lr=2"], world=True)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 3000


# --- the learning rate -------------------------------------------------------------------------


@given(steps=st.integers(1, 500), warmup=st.integers(0, 600), peak=st.floats(1e-8, 1))
def test_the_rate_rises_to_its_peak_and_falls_to_nearly_nothing(steps, warmup, peak):
    rates = [learning_rate(step, steps, peak, warmup) for step in range(steps)]
    assert all(0 < rate <= peak * (1 + 1e-12) for rate in rates)
    rise, fall = rates[:warmup], rates[warmup:]
    assert rise == sorted(rise) and fall == sorted(fall, reverse=True)
    if fall:
        assert fall[0] == pytest.approx(peak)
        constant = learning_rate(steps - 1, steps, peak, warmup, "constant")
        assert constant == peak


def test_the_rate_as_open_clip_has_it():
    assert learning_rate(0, 100, 1.0, 10) == 0.1
    assert learning_rate(9, 100, 1.0, 10) == 1.0
    assert learning_rate(10, 100, 1.0, 10) == 1.0
    assert learning_rate(55, 100, 1.0, 10) == pytest.approx(0.5)


# --- the command line --------------------------------------------------------------------------


def show(*arguments: str):
    import typer

    from counterpoint.cli.console import plainly
    from counterpoint.cli.train import train

    app = typer.Typer()
    app.command()(plainly(train))
    return CliRunner().invoke(app, ["--show", *arguments])


def test_show_prints_the_file_as_it_is():
    assert show("hp-hn").output.strip() == (FOLDER / "hp-hn.yaml").read_text().strip()


def test_show_with_changes_prints_a_recipe_that_means_the_same(tmp_path: Path):
    result = show("hp-hn", "--world", "hn_weight=0.5", "only=swap")
    path = tmp_path / "shown.yaml"
    path.write_text(result.output, encoding="utf-8")
    assert load_recipe(str(path)) == load_recipe("hp-hn", ["hn_weight=.5", "only=swap"], world=True)


def test_show_refuses_what_training_would():
    result = show("hp-hn", "bath=1")
    assert result.exit_code == 1 and "[E-RECIPE-INVALID]" in result.output
