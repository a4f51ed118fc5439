"""Training the heads of a detector: what they find, what is refused, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from benchmark_fixtures import write_parquet
from detector_support import HEADS, IDENTITY, families, save_noise
from engine_support import build
from errors import raises
from models_for_tests import is_sentence, run_engine
from typer.testing import CliRunner

from counterpoint import evaluate
from counterpoint._util.progress import Quiet
from counterpoint._util.store import Store
from counterpoint.cases.table import Case, ImageRef
from counterpoint.cli.encoders import detector_app
from counterpoint.evaluation.verifying import verify
from counterpoint.generation.export import detector_items
from counterpoint.generation.pairs import (
    Pair,
    read_pairs,
    tabulate,
    write_pairs as write_pairs_file,
)
from counterpoint.metrics import definitions
from counterpoint.models.detector.adapter import (
    CONFIG,
    WEIGHTS,
    DetectorHeads,
    LinearHead,
    SavedDetector,
    load,
    read,
    save,
)
from counterpoint.models.detector.training import (
    DetectorSettings,
    Examples,
    HeadResult,
    Split,
    fit,
    read_labelled,
    split,
    train,
)
from counterpoint.models.registry import LoadOptions, load_model
from counterpoint.runs import rows
from counterpoint.scoring.kinds import Work

__all__ = ["families"]  # fixtures
FAST = DetectorSettings(image_epochs=10, caption_epochs=10, learning_rate=0.05, batch=8)

pytestmark = pytest.mark.slow


# --- training ----------------------------------------------------------------------------------


def write_pairs(folder: Path, count: int = 60, *, clue: bool = True) -> Path:
    """`count` natural and as many synthetic pairs; without a clue, nothing tells them apart."""
    lines = []
    for number in range(2 * count):
        synthetic = bool(number % 2)
        low, high = (140, 256) if synthetic and clue else (0, 110)
        save_noise(folder / f"{number}.png", number, low, high)
        word = "fake" if synthetic and clue else "plain"
        label = "synthetic" if synthetic else "natural"
        lines.append({"image": f"{number}.png", "caption": f"{number} {word}", "label": label})
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def trained(pairs: Path, out: Path, encoder: str = "lantern:a", **options) -> list[HeadResult]:
    with Store(pairs.parent / "store") as store:
        work, given = Work(store, 16, Quiet()), {"settings": FAST, **options}
        return train(encoder, read_labelled(pairs), out, work, source=pairs, **given)


def test_training_finds_what_tells_the_two_apart(tmp_path: Path) -> None:
    image, caption = trained(write_pairs(tmp_path), tmp_path / "out")
    assert (image.name, caption.name) == ("image", "caption")
    assert image.accuracy == caption.accuracy == 1
    assert image.majority == 0.5 and image.left_out == () and image.notes == []
    assert (image.train, image.validation, image.test) == (96, 12, 12)
    assert image.steps == 120  # twelve batches an epoch


def test_a_trained_detector_is_a_model(tmp_path: Path) -> None:
    trained(write_pairs(tmp_path), tmp_path / "out")
    model = load(str(tmp_path / "out"), LoadOptions())
    for number in range(4):
        low, high = ((0, 110), (140, 256))[number % 2]
        save_noise(tmp_path / "new" / f"{number}.png", 1000 + number, low, high)
    images = [(ImageRef(f"new/{n}.png"), ImageRef(f"new/{n + 1}.png")) for n in (0, 2)]
    truth = ((True, False), (False, True))
    cases = build(
        Case("right", images[0], ("a plain dog", "a fake dog"), truth),
        Case("wrong", images[1], ("a fake cat", "a plain cat"), truth),
        root=tmp_path,
    )
    scores = run_engine(model, {"x": cases}, tmp_path / "s")["x"].scores.reshape(2, 2, 2)
    assert definitions.group(scores, np.stack([IDENTITY] * 2)).tolist() == [1, 0]
    told = model.describe()["detector"]
    assert told["settings"]["learning_rate"] == FAST.learning_rate
    assert [head["accuracy"] for head in told["heads"]] == [1, 1]
    assert set(told["versions"]) == {"counterpoint", "torch", "numpy"}
    json.dumps(told)


def test_the_same_training_gives_the_same_bytes(tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path, 20)
    for name in ("one", "two"):
        trained(pairs, tmp_path / name)
    for file in (WEIGHTS, CONFIG):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    trained(pairs, tmp_path / "three", settings=replace(FAST, seed=1))
    assert (tmp_path / "one" / WEIGHTS).read_bytes() != (tmp_path / "three" / WEIGHTS).read_bytes()


def examples(count: int, seed: int = 0, *, clue: float = 1.0) -> Examples:
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    vectors = rng.normal(size=(count, 4)).astype(np.float32)
    vectors[:, 0] += clue * (2 * labels - 1)
    keys = [str(n).encode() for n in range(count)]
    return Examples("caption", keys, vectors, np.arange(count), labels)


def test_a_step_is_adams_on_the_cross_entropy() -> None:
    side = examples(100)
    parts = split(side, 0.2, 0)
    settings = DetectorSettings(batch=1000, learning_rate=0.01)
    head, epoch = fit(side, parts, 1, settings, lambda _: None)
    labels = side.labels[parts.train]
    slope = ((0.5 - labels)[:, None] * side.vectors[parts.train]).mean(axis=0)
    # From 0, Adam's first step is the learning rate against the slope's sign.
    np.testing.assert_allclose(head.weight, -0.01 * np.sign(slope), rtol=1e-4)
    assert epoch == 1


def test_the_epoch_that_does_best_on_the_validation_part_is_kept() -> None:
    """What is learnt is the opposite of what the validation part asks: the first epoch is best."""
    side = examples(200, clue=3)
    turned = side._replace(labels=np.where(np.arange(200) < 40, 1 - side.labels, side.labels))
    parts = Split(np.arange(40, 160), np.arange(40), np.arange(160, 200))
    settings = DetectorSettings(batch=120, learning_rate=0.001)
    late, epoch = fit(side, parts, 200, settings, lambda _: None)
    early, first = fit(turned, parts, 200, settings, lambda _: None)
    assert epoch > 1 and np.abs(late.weight).max() > 1.5 * np.abs(early.weight).max()
    assert first < epoch


def test_parts_are_apart_and_have_both_labels_alike() -> None:
    side = examples(100)
    keys = [*side.keys[:50], *side.keys[:50]]  # every item twice, some with both labels
    side = side._replace(keys=keys, labels=np.array([0, 1] * 25 + [0, 1] * 20 + [1, 0] * 5))
    parts = split(side, 0.4, 7)
    assert sorted(np.concatenate(parts).tolist()) == list(range(100))
    found = [{keys[i] for i in part.tolist()} for part in parts]
    assert sum(map(len, found)) == len(set(keys)) == 50
    assert [len(part) for part in parts] == [60, 20, 20]
    assert all(0.3 < side.labels[part].mean() < 0.7 for part in parts)
    other = split(side, 0.4, 8)
    assert parts.test.tolist() != other.test.tolist()


@pytest.mark.parametrize("held_out", [0.1, 0.8])
def test_no_part_is_empty_even_of_the_smallest_table(held_out: float) -> None:
    side = examples(20)
    for part in split(side, held_out, 0):
        assert set(side.labels[part].tolist()) == {0, 1}


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_tables_may_lack_images_or_captions(ending: str, tmp_path: Path) -> None:
    table = pl.DataFrame(
        {
            "image": ["a.png", None, "a.png", "b.png", "a.png"],
            "caption": ["one", "two", "", "one", "one"],
            "label": ["natural", "Synthetic", "synthetic", "1", "natural"],
        }
    )
    path = tmp_path / f"t{ending}"
    table.write_csv(path) if ending == ".csv" else table.write_parquet(path)
    found = read_labelled(path)
    assert found.captions == [("one", 0), ("two", 1), ("one", 1), ("one", 0)]
    assert [(p.ref.path, label) for p, label in found.images] == [
        ("a.png", 0),
        ("a.png", 1),
        ("b.png", 1),
        ("a.png", 0),
    ]


def test_images_that_cannot_be_read_are_left_out_and_told(tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path)
    (tmp_path / "3.png").unlink()
    (tmp_path / "4.png").write_bytes(b"no picture")
    (tmp_path / "5.png").write_bytes((tmp_path / "7.png").read_bytes())  # one picture, two files
    image, caption = trained(pairs, tmp_path / "out")
    assert len(image.left_out) == 2 and caption.left_out == ()
    assert image.train + image.validation + image.test == 118  # the shared one counts twice
    [note] = image.notes
    assert "3.png" in note and "1 more" in note


# --- pairs files -------------------------------------------------------------------------------


def write_drawn(folder: Path, count: int = 60) -> Path:
    """A pairs file as `generate images` writes it: `count` captions with a negative and its image,
    the first of them twice; a positive; and a negative without an image."""
    told = {"type": "replace", "subtype": "obj", "method": "m", "version": "", "seed": 0}
    pairs, drawn = [], []
    for number in [0, *range(count)]:
        save_noise(folder / "photos" / f"{number}.png", number, 0, 110)
        save_noise(folder / "drawn" / f"{number}.png", 1000 + number, 140, 256)
        place, image = ImageRef(f"{number}.png"), f"drawn/{number}.png"
        texts = {"caption": f"{number} plain", "text": f"{number} fake"}
        pairs.append(Pair(source=str(number), image=place, **texts, kind="negative", **told))
        drawn.append(image)
    shared = {"source": "x", "image": ImageRef("0.png"), "caption": "0 plain"}
    pairs.append(Pair(**shared, text="0 also plain", kind="positive", **told))
    pairs.append(Pair(**shared, text="0 undrawn", kind="negative", **told))
    frame = tabulate(pairs).with_columns(
        text_image=pl.Series([*drawn, None, None], dtype=pl.String)
    )
    write_pairs_file(folder / "p.parquet", [frame], {"root": str(folder / "photos")})
    return folder / "p.parquet"


def test_each_negative_with_an_image_gives_four_examples(tmp_path: Path) -> None:
    items = detector_items(write_drawn(tmp_path, 2))
    assert items.captions == [("0 plain", 0), ("0 fake", 1)] * 2 + [("1 plain", 0), ("1 fake", 1)]
    assert [(p.root / p.ref.path, label) for p, label in items.images[2:]] == [
        (tmp_path / place, label)
        for place, label in [
            ("photos/0.png", 0),
            ("drawn/0.png", 1),
            ("photos/1.png", 0),
            ("drawn/1.png", 1),
        ]
    ]


def test_the_command_takes_a_pairs_file_with_drawn_images(tmp_path: Path) -> None:
    fast = ("--lr", 0.05, "--image-epochs", 10, "--train-batch", 8, "--json")
    done = command("train", "lantern:a", write_drawn(tmp_path), "-o", "out", *fast)
    assert done.exit_code == 0, done.output
    image, caption = json.loads(done.stdout)
    assert image["accuracy"] == caption["accuracy"] == 1
    used = image["train"] + image["validation"] + image["test"]
    assert used == 122 and image["majority"] == 0.5  # the caption with two negatives counts twice
    (tmp_path / "drawn").rename(tmp_path / "moved")
    assert "0 synthetic images" in command("train", "lantern:a", "p.parquet", "-o", "o").output


def test_a_pairs_file_without_drawn_images_is_refused(tmp_path: Path) -> None:
    pairs = write_drawn(tmp_path, 1)
    write_pairs_file(pairs, [read_pairs(pairs).filter(pl.col("text_image").is_null())], {})
    assert "generate images" in refused("E-EXAMPLES-FEW", detector_items, pairs)


def test_heads_read_the_towers_vectors_as_they_are() -> None:
    """The authors' heads follow the projection; unit vectors are for cosines."""
    captions = ["the red circle", "the small blue star and the ring"]
    units, plain = (
        load_model("world:base", LoadOptions("cpu", unit=unit)) for unit in (True, False)
    )
    found = plain.encode_captions(captions)
    lengths = np.linalg.norm(found, axis=1)
    assert (np.abs(lengths - 1) > 0.1).all() and lengths[0] != lengths[1]
    np.testing.assert_allclose(found / lengths[:, None], units.encode_captions(captions), atol=1e-6)
    assert plain.fingerprint != units.fingerprint  # the store keeps them apart


# --- refusals ----------------------------------------------------------------------------------


def refused(code: str, function, *args, **kwargs) -> str:
    with raises(code) as caught:
        function(*args, **kwargs)
    message = str(caught.value)
    assert is_sentence(message) and len(message) < 500
    return message


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"image": "a.png", "caption": "x", "label": "real"}, "row 2"),
        ({"image": "a.png", "caption": "x", "label": None}, "row 2"),
        ({"image": "", "caption": " ", "label": "natural"}, "row 2"),
    ],
)
def test_broken_rows_are_named(line: dict, said: str, tmp_path: Path) -> None:
    good = {"image": "a.png", "caption": "x", "label": "natural"}
    (tmp_path / "t.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(line)}\n")
    assert said in refused("E-ROW-MALFORMED", trained, tmp_path / "t.jsonl", tmp_path / "out")


def test_what_cannot_be_trained_on_is_refused(tmp_path: Path) -> None:
    pairs, out = write_pairs(tmp_path, 9), tmp_path / "out"
    assert "9 natural images" in refused("E-EXAMPLES-FEW", trained, pairs, out)
    for number in range(18):
        (tmp_path / f"{number}.png").unlink()
    said = refused("E-EXAMPLES-FEW", trained, pairs, out)
    assert "0 natural images" in said and "no such file" in said
    pairs = write_pairs(tmp_path, 12)
    (tmp_path / "only.csv").write_text("image,label\na.png,natural\n")
    refused("E-COLUMN-MISSING", trained, tmp_path / "only.csv", out)
    refused("E-FILE-MISSING", trained, tmp_path / "none.csv", out)
    refused("E-ENCODER-UNSUITABLE", trained, pairs, out, "lantern:judge")
    with raises("E-MODEL-UNKNOWN", "lantren"):
        trained(pairs, out, "lantren:a")
    assert not out.exists()
    refused("E-OUTPUT-EXISTS", trained, pairs, tmp_path)
    refused("E-OUTPUT-EXISTS", trained, pairs, pairs)


def test_another_encoder_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    trained(write_pairs(tmp_path, 12), out)
    said = refused("E-ENCODER-CHANGED", load, str(out), LoadOptions(precision="bf16"))
    assert "lantern:a" in said
    told = json.loads((out / CONFIG).read_text())
    for encoder in ("lantern:b", "lantern:judge", f"detector:{out}", f"ensemble:detector:{out}"):
        (out / CONFIG).write_text(json.dumps({**told, "encoder": encoder}))
        code = "E-ENCODER-CHANGED" if encoder.startswith("lantern") else "E-ENCODER-UNSUITABLE"
        assert encoder in refused(code, load, str(out), LoadOptions())


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    assert CONFIG in refused("E-MODEL-MISSING", read, folder)
    save(folder, SavedDetector(HEADS, "lantern:a", "f", {"settings": {}}))
    back = read(folder)
    assert (back.encoder, back.fingerprint, back.info) == ("lantern:a", "f", {"settings": {}})
    for one, two in zip(back.heads, HEADS, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))

    good = (folder / CONFIG).read_text()
    for broken in ("{", "[]", "{}", '{"format": 2}'):
        (folder / CONFIG).write_text(broken)
        refused("E-MODEL-DAMAGED", read, folder)
    (folder / CONFIG).write_text(good.replace('"format": 2', '"format": 1'))
    assert "format 1" in refused("E-MODEL-FORMAT", read, folder)
    (folder / CONFIG).write_text(good)

    wrong = LinearHead(np.ones((2, 2), np.float32), np.zeros(1, np.float32))
    nan = LinearHead(np.full(2, np.nan, np.float32), np.zeros(1, np.float32))
    for heads, said in (
        (DetectorHeads(wrong, wrong), "shapes"),
        (DetectorHeads(nan, nan), "finite"),
    ):
        save(folder, SavedDetector(heads, "lantern:a", "f", {}))
        assert said in refused("E-MODEL-DAMAGED", read, folder)
    (folder / WEIGHTS).write_bytes(b"nothing")
    assert WEIGHTS in refused("E-MODEL-DAMAGED", read, folder)
    (folder / WEIGHTS).unlink()
    assert WEIGHTS in refused("E-MODEL-DAMAGED", read, folder)
    (tmp_path / "file").write_text("")
    refused(
        "E-OUTPUT-UNWRITABLE",
        save,
        tmp_path / "file" / "d",
        SavedDetector(HEADS, "lantern:a", "f", {}),
    )


# --- the command line --------------------------------------------------------------------------


def command(*words: object):
    root = typer.Typer()
    root.add_typer(detector_app)
    return CliRunner().invoke(root, ["detector", *map(str, words)])


def test_the_command_trains_and_says_how_well(tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path)
    fast = ("--lr", 0.05, "--image-epochs", 10, "--train-batch", 8)
    done = command("train", "lantern:a", pairs, "-o", "out", *fast)
    assert done.exit_code == 0, done.output
    assert "image head: 100.0 % of 12 held-out images right" in done.stdout
    assert "caption head: 100.0 % of 12" in done.stdout and "50.0 %" in done.stdout
    assert "-m detector:out" in done.stdout
    again = command("train", "lantern:a", pairs, "-o", "other", "--json")
    assert [row["name"] for row in json.loads(again.stdout)] == ["image", "caption"]
    assert "note: the image head was trained for 1 steps only" in again.stderr


def test_the_command_fails_in_one_line(tmp_path: Path) -> None:
    done = command("train", "lantern:a", "none.csv", "-o", "out")
    assert done.exit_code == 1 and done.stderr.splitlines()[0].endswith("[E-FILE-MISSING]")
    pairs = write_pairs(tmp_path, 2)
    for wrong in (("--device", "tpu"), ("--lr", "0"), ("--held-out", "0.9")):
        assert command("train", "lantern:a", pairs, "-o", "out", *wrong).exit_code == 2


def test_detection_is_a_benchmark(tmp_path: Path) -> None:
    """BiVLC's Table 4, on a set whose synthetic images are light and whose captions say so."""

    def picture(seed: int, low: int) -> dict[str, object]:
        save_noise(tmp_path / "x.png", seed, low, low + 100)
        return {"bytes": (tmp_path / "x.png").read_bytes(), "path": f"{seed}.png"}

    rows_, lines = [], []
    for n in range(30):
        kinds = {"type": "replace", "subtype": "obj"}
        texts = {"caption": f"a dog {n}", "negative_caption": f"a fake {n}"}
        rows_.append({"image": picture(n, 0), "negative_image": picture(n, 150), **texts, **kinds})
        for column, text, label in (("image", "caption", 0), ("negative_image", "x", 1)):
            place = f"parquet:bivlc/test.parquet#{column}/{n}"
            lines.append({"image": place, "caption": f"{text} {n}", "label": str(label)})
    write_parquet(tmp_path / "data/bivlc/test.parquet", rows_)
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ("train", "lantern:a", "d.jsonl", "-o", "det", "--images", "data")
    done = command(*words, "--image-epochs", "30", "--lr", "0.1")
    assert done.exit_code == 0, done.output
    names = ["bivlc/image-detection", "bivlc/text-detection"]
    run = evaluate("detector:det", names, data=tmp_path / "data", out="run", device="cpu")
    found = {r.benchmark: r for r in rows(run, resamples=10) if r.metric == "accuracy@1"}
    assert found[names[0]].value > 0.9 and found[names[0]].n == 60
    assert abs(found[names[1]].value - 0.5) < 0.3 and found[names[1]].n == 60  # it learned noise
    checks = [check for check in verify(run, "CLIP_Det") if check.metric == "accuracy@1"]
    assert {check.benchmark: check.published for check in checks} == {names[0]: 1.0, names[1]: 0.57}
