"""Detectors of what is synthetic: BiVLC's rule to the letter, and training the heads."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from engine_support import build
from models_for_tests import Judge, Towers, choice, is_sentence, pixels, ragged, run_engine
from PIL import Image
from support import gallery, owned
from typer.testing import CliRunner

from counterpoint import evaluate, metrics
from counterpoint.cases import PROMPTS, Case, Cases, ImageRef
from counterpoint.cli.detector import app
from counterpoint.detector_training import (
    Examples,
    Result,
    Settings,
    Split,
    fit,
    read_pairs,
    split,
    train,
)
from counterpoint.errors import CounterpointError, DataError, ModelError, NotFoundError
from counterpoint.models import FAMILIES, LoadOptions
from counterpoint.models.detector import Detector, case_scores, load
from counterpoint.models.detector_heads import CONFIG, WEIGHTS, Head, Heads, Saved, read, save
from counterpoint.progress import Quiet
from counterpoint.results import rows
from counterpoint.scoring.kinds import BenchmarkScorer, Described
from counterpoint.scoring.pictures import Picture
from counterpoint.scoring.store import Store
from counterpoint.scoring.work import Work

JUST_SYNTHETIC = math.nextafter(0.5, 1)
GRID = (0.0, 0.3, math.nextafter(0.5, 0), 0.5, JUST_SYNTHETIC, 0.7, 1.0)
IDENTITY = np.eye(2, dtype=bool)
SINGLE = ("image_to_text_0", "image_to_text_1", "text_to_image_0", "text_to_image_1")
FAST = Settings(image_epochs=10, caption_epochs=10, learning_rate=0.05, batch=8)


# --- the rule ----------------------------------------------------------------------------------


def rule(q: Sequence[float], p: Sequence[float]) -> dict[str, bool]:
    """The paper's verdicts on a case of two images (q) and two captions (p)."""
    found = {
        "image_to_text_0": round(q[0]) == 0 and p[0] < p[1],
        "image_to_text_1": round(q[1]) == 1 and p[0] < p[1],
        "text_to_image_0": round(p[0]) == 0 and q[0] < q[1],
        "text_to_image_1": round(p[1]) == 1 and q[0] < q[1],
    }
    found["image_to_text"] = found["image_to_text_0"] and found["image_to_text_1"]
    found["text_to_image"] = found["text_to_image_0"] and found["text_to_image_1"]
    found["group"] = found["image_to_text"] and found["text_to_image"]
    return found


def assert_rule(images: np.ndarray, captions: np.ndarray) -> dict[str, float]:
    """Our metrics on the scores give the rule's verdicts; returns how many are right."""
    truth = np.broadcast_to(IDENTITY, (len(images), 2, 2))
    scores = case_scores(images, captions, truth)
    assert scores.dtype == np.float32 and scores.shape == truth.shape
    expected = [rule(q, p) for q, p in zip(images.tolist(), captions.tolist(), strict=True)]
    for name in expected[0]:
        found = getattr(metrics, name)(scores, truth)
        assert found.tolist() == [float(verdicts[name]) for verdicts in expected], name
    return {name: np.mean([verdicts[name] for verdicts in expected]) for name in expected[0]}


def test_the_metrics_give_the_papers_verdicts_for_all_of_a_grid() -> None:
    every = np.array(list(itertools.product(GRID, repeat=4)))
    shares = assert_rule(every[:, :2], every[:, 2:])
    assert all(0 < share < 0.5 for share in shares.values())


def test_the_metrics_give_the_papers_verdicts_for_random_probabilities() -> None:
    rng = np.random.default_rng(0)
    fine = rng.random((4000, 4))
    coarse = rng.integers(0, 9, (4000, 4)) / 8  # ties, and many at 1/2
    # Neighbouring numbers, of which sums would be rounded to the same.
    near = np.nextafter(coarse, rng.integers(0, 2, coarse.shape))
    for values in (fine, coarse, near):
        shares = assert_rule(values[:, :2], values[:, 2:])
        assert shares["group"] > 0.05


def test_no_score_of_a_pair_alone_could_do_that() -> None:
    """The same image and captions, as image 0 and as image 1, must be ordered differently."""
    natural, sure, unsure = 0.1, 0.2, 0.8
    first = rule((natural, 0.9), (sure, unsure))
    second = rule((0.3, natural), (unsure, sure))
    assert first["image_to_text_0"]  # so it must score `sure` above `unsure`
    assert not second["image_to_text_1"]  # so it must not
    truth = IDENTITY[None]
    as_first = case_scores(np.array([[natural, 0.9]]), np.array([[sure, unsure]]), truth)[0, 0]
    as_second = case_scores(np.array([[0.3, natural]]), np.array([[unsure, sure]]), truth)[0, 1]
    assert as_first[0] > as_first[1] and not as_second[1] > as_second[0]


def test_swapped_captions_are_known_by_the_truth() -> None:
    every = np.array(list(itertools.product(GRID, repeat=4)))
    straight = case_scores(
        every[:, :2], every[:, 2:], np.broadcast_to(IDENTITY, (len(every), 2, 2))
    )
    crossed = np.broadcast_to(IDENTITY[::-1], (len(every), 2, 2))
    swapped = case_scores(every[:, :2], every[:, :1:-1], crossed)
    np.testing.assert_array_equal(swapped, straight[:, :, ::-1])


@pytest.mark.parametrize(("positives", "negatives"), [(1, 1), (2, 1), (1, 3)])
def test_one_image_is_not_asked(positives: int, negatives: int) -> None:
    count = positives + negatives
    every = np.array(list(itertools.product(GRID[1:6], repeat=1 + count)))
    truth = np.broadcast_to(np.arange(count) < positives, (len(every), 1, count))
    scores = case_scores(every[:, :1], every[:, 1:], truth)
    original = [p[0] < min(p[positives:]) for _, *p in every.tolist()]
    augmented = [max(p[:positives]) < min(p[positives:]) for _, *p in every.tolist()]
    assert metrics.original_accuracy(scores, truth).tolist() == original
    assert metrics.augmented_accuracy(scores, truth).tolist() == augmented
    assert 0.05 < np.mean(augmented) <= np.mean(original) < 0.5


# --- in the engine -----------------------------------------------------------------------------

WIDTH = 16
RNG = np.random.default_rng(3)
HEADS = Heads(
    *(Head(RNG.normal(size=WIDTH).astype(np.float32), np.float32([b])) for b in (0.1, -0.2))
)


def detector(encoder: Towers | None = None, heads: Heads = HEADS) -> Detector:
    chosen = encoder or Towers()
    return Detector(chosen, Saved(heads, "towers", chosen.fingerprint, {"heads": []}))


def chance_synthetic(head: Head, vector: np.ndarray) -> float:
    return 1 / (1 + math.exp(-(float(vector @ head.weight.astype(float)) + float(head.bias[0]))))


def probabilities(case: Case, root: Path | None) -> tuple[list[float], list[float]]:
    encoder = Towers()
    shown = [pixels(Picture(ref, root).open()) for ref in case.images]
    images = [encoder.encode_images([one])[0].astype(float) for one in shown]
    captions = [encoder.encode_captions([one])[0].astype(float) for one in case.captions]
    return (
        [chance_synthetic(HEADS.image, vector) for vector in images],
        [chance_synthetic(HEADS.caption, vector) for vector in captions],
    )


def two_by_two(root: Path, count: int) -> Cases:
    names = [f"{n}.png" for n in range(2 * count)]
    for number, name in enumerate(names):
        save_noise(root / name, number)
    truth = ((True, False), (False, True))
    return build(
        *(
            Case(
                str(n),
                (ImageRef(names[2 * n]), ImageRef(names[2 * n + 1])),
                (f"yes {n}", f"no {n}"),
                truth,
            )
            for n in range(count)
        ),
        root=root,
    )


def save_noise(path: Path, seed: int, low: int = 0, high: int = 256) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).integers(low, high, (4, 4, 3)).astype(np.uint8)
    Image.fromarray(values).save(path)


def test_the_engine_gives_the_papers_verdicts(tmp_path: Path) -> None:
    cases = two_by_two(tmp_path, 30)
    found = run_engine(detector(), {"x": cases}, tmp_path / "store")["x"]
    assert found.left_out == {} and np.isfinite(found.scores).all()
    scores = found.scores.reshape(-1, 2, 2)
    truth = np.broadcast_to(IDENTITY, scores.shape)
    expected = [rule(*probabilities(cases.case(row), tmp_path)) for row in range(30)]
    for name in (*SINGLE, "image_to_text", "text_to_image", "group"):
        verdicts = getattr(metrics, name)(scores, truth).tolist()
        assert verdicts == [float(one[name]) for one in expected], name
    assert 0 < sum(one["image_to_text_0"] for one in expected) < 30


def test_other_shapes_missing_images_and_texts_are_left_out(tmp_path: Path) -> None:
    pair = two_by_two(tmp_path, 1).case(0)
    both_true = ((True, True), (False, True))
    cases = build(
        replace(pair, id="pair"),
        replace(pair, id="unclear", truth=both_true),
        gallery(
            owned(6), "g", images=[f"{n % 2}.png" for n in range(6)], captions=list("abcdefghijkl")
        ),
        choice("one", "0.png", "yes", "no", "never"),
        choice("gone", "gone.png", "yes", "no"),
        choice("text", "text:a dog", "a hound", "a cat"),
        choice("long", "1.png", "one two three four", "one"),
        root=tmp_path,
    )
    model = detector(Towers(context=5))
    found = run_engine(model, {"x": cases}, tmp_path / "store", overlong="leave out")["x"]
    assert sorted(found.left_out) == [1, 2, 4, 5, 6] and found.lost_images == {}
    assert all(is_sentence(why) for why in found.left_out.values())
    assert "two images with a caption each" in found.left_out[1]
    assert "gone.png" in found.left_out[4] and "too long" in found.left_out[6]
    starts = cases.pair_offsets
    for row in range(len(cases)):
        gone = np.isnan(found.scores[starts[row] : starts[row + 1]])
        assert gone.all() if row in found.left_out else not gone.any()

    cut = run_engine(model, {"x": cases}, tmp_path / "store")["x"]
    assert sorted(cut.left_out) == [1, 2, 4, 5] and cut.cut_captions == 1


def test_nothing_but_other_shapes_is_no_trouble(tmp_path: Path) -> None:
    cases = build(gallery(owned(6), "gallery"), root=tmp_path)
    found = run_engine(detector(), {"x": cases}, tmp_path / "store")["x"]
    assert list(found.left_out) == [0]


def test_a_caption_of_several_prompts_has_their_mean_probability(tmp_path: Path) -> None:
    save_noise(tmp_path / "a.png", 0)
    texts = [f"word {n}" for n in range(6)]
    chances = probabilities(Case("", (), tuple(texts), ()), None)[1]
    order = np.argsort(chances)
    groups = [order[[0, 5]], order[[1]], order[[2, 3]]]
    means = np.array([[np.mean([chances[i] for i in group]) for group in groups]])
    assert means.argmin() == 1  # by their first prompts, it would be 0
    captions = [PROMPTS.join(texts[i] for i in group) for group in groups]
    cases = build(choice("1", "a.png", *captions), root=tmp_path)
    found = run_engine(detector(), {"x": cases}, tmp_path / "store")["x"].scores
    truth = np.array([[[True, False, False]]])
    np.testing.assert_array_equal(found, case_scores(np.array([[0.2]]), means, truth).reshape(-1))


def test_vectors_are_those_the_encoder_has_stored(tmp_path: Path) -> None:
    cases = {"x": two_by_two(tmp_path, 3)}
    run_engine(Towers(), cases, tmp_path / "store")
    encoder = Towers()
    run_engine(detector(encoder), cases, tmp_path / "store")
    assert encoder.images == encoder.captions == []


def test_a_sure_head_does_not_tie() -> None:
    """In float32 both probabilities are 1."""
    head = Head(np.full(1, 20, np.float32), np.zeros(1, np.float32))
    one, two = head.probabilities(np.float32([[0.99], [1.0]]))
    assert one < two and np.float32(one) == np.float32(two) == 1


def test_the_fingerprint_covers_encoder_and_heads() -> None:
    first = detector().fingerprint
    assert first == detector().fingerprint
    moved = HEADS.image._replace(bias=HEADS.image.bias + np.float32(1e-3))
    others = [
        detector(Towers("another")),
        detector(heads=HEADS._replace(image=moved)),
        detector(heads=Heads(HEADS.caption, HEADS.image)),
    ]
    assert len({first, *(other.fingerprint for other in others)}) == 4
    assert isinstance(detector(), BenchmarkScorer) and isinstance(detector(), Described)
    assert detector().describe() == {"detector": {"heads": []}}


# --- training ----------------------------------------------------------------------------------


class Lantern(Towers):
    """Sees the light of an image and the word "fake" in a caption, beside much noise."""

    def preprocess(self, image: Image.Image) -> str:
        return f"{pixels(image)} {np.asarray(image).mean()}"

    def _encode(self, contents: Sequence[str]) -> np.ndarray:
        vectors = super()._encode(contents)
        vectors[:, 0] = [self.signal(content) for content in contents]
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    @staticmethod
    def signal(content: str) -> float:
        try:
            return 2.0 if float(content.split()[-1]) > 128 else -2.0
        except ValueError:
            return 2.0 if "fake" in content else -2.0


def load_lantern(rest: str, options: LoadOptions) -> object:
    """`lantern:NAME`, or `lantern:judge`, which is no encoder."""
    return Judge() if rest == "judge" else Lantern(f"lantern {rest} {options.precision}")


@pytest.fixture(autouse=True)
def families(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours = {"lantern": f"{__name__}:load_lantern", "detector": "counterpoint.models.detector:load"}
    monkeypatch.setattr(FAMILIES, "builtin", {**FAMILIES.builtin, **ours})
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


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


def trained(pairs: Path, out: Path, encoder: str = "lantern:a", **options) -> list[Result]:
    with Store(pairs.parent / "store") as store:
        return train(encoder, pairs, out, Work(store, 16, Quiet()), **{"settings": FAST, **options})


def test_training_finds_what_tells_the_two_apart(tmp_path: Path) -> None:
    image, caption = trained(write_pairs(tmp_path), tmp_path / "out")
    assert (image.name, caption.name) == ("image", "caption")
    assert image.accuracy == caption.accuracy == 1
    assert image.majority == 0.5 and image.left_out == () and image.notes == []
    assert (image.train, image.validation, image.test) == (96, 12, 12)
    assert image.steps == 120  # twelve batches an epoch


def test_training_finds_nothing_in_noise(tmp_path: Path) -> None:
    results = trained(write_pairs(tmp_path, 150, clue=False), tmp_path / "out")
    # 30 test items: three standard errors are 0.27
    assert all(0.23 < result.accuracy < 0.77 for result in results)
    assert all(result.test == 30 for result in results)


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
    assert metrics.group(scores, np.stack([IDENTITY] * 2)).tolist() == [1, 0]
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
    return Examples("caption", [str(n).encode() for n in range(count)], vectors, labels)


def test_a_step_is_adams_on_the_cross_entropy() -> None:
    side = examples(100)
    parts = split(side, 0.2, 0)
    settings = Settings(batch=1000, learning_rate=0.01)
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
    settings = Settings(batch=120, learning_rate=0.001)
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
    import polars as pl

    table = pl.DataFrame(
        {
            "image": ["a.png", None, "a.png", "b.png", "a.png"],
            "caption": ["one", "two", "", "one", "one"],
            "label": ["natural", "Synthetic", "synthetic", "1", "natural"],
        }
    )
    path = tmp_path / f"t{ending}"
    table.write_csv(path) if ending == ".csv" else table.write_parquet(path)
    found = read_pairs(path, tmp_path)
    assert found.captions == [("one", 0), ("two", 1), ("one", 1)]
    assert [(p.ref.path, label) for p, label in found.images] == [
        ("a.png", 0),
        ("a.png", 1),
        ("b.png", 1),
    ]


def test_images_that_cannot_be_read_are_left_out_and_told(tmp_path: Path) -> None:
    pairs = write_pairs(tmp_path)
    (tmp_path / "3.png").unlink()
    (tmp_path / "4.png").write_bytes(b"no picture")
    (tmp_path / "5.png").write_bytes((tmp_path / "7.png").read_bytes())  # one picture, two files
    image, caption = trained(pairs, tmp_path / "out")
    assert len(image.left_out) == 2 and caption.left_out == ()
    assert image.train + image.validation + image.test == 117
    [note] = image.notes
    assert "3.png" in note and "1 more" in note


def test_few_steps_are_told(tmp_path: Path) -> None:
    image, _ = trained(write_pairs(tmp_path), tmp_path / "out", settings=Settings())
    [note] = image.notes
    assert "1 steps" in note and "--image-epochs" in note


# --- refusals ----------------------------------------------------------------------------------


def refused(kind: type[CounterpointError], function, *args, **kwargs) -> str:
    with pytest.raises(kind) as caught:
        function(*args, **kwargs)
    message = str(caught.value)
    assert is_sentence(message) and len(message) < 500
    return message


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"image": "a.png", "caption": "x", "label": "real"}, "row 2: the label must be"),
        ({"image": "a.png", "caption": "x", "label": None}, "row 2: the label must be"),
        ({"image": "", "caption": " ", "label": "natural"}, "row 2 has neither"),
    ],
)
def test_broken_rows_are_named(line: dict, said: str, tmp_path: Path) -> None:
    good = {"image": "a.png", "caption": "x", "label": "natural"}
    (tmp_path / "t.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(line)}\n")
    assert said in refused(DataError, trained, tmp_path / "t.jsonl", tmp_path / "out")


def test_what_cannot_be_trained_on_is_refused(tmp_path: Path) -> None:
    pairs, out = write_pairs(tmp_path, 9), tmp_path / "out"
    assert "9 natural images" in refused(DataError, trained, pairs, out)
    for number in range(18):
        (tmp_path / f"{number}.png").unlink()
    said = refused(DataError, trained, pairs, out)
    assert "0 natural images" in said and "no such file" in said
    pairs = write_pairs(tmp_path, 12)
    (tmp_path / "only.csv").write_text("image,label\na.png,natural\n")
    assert "'caption' is missing" in refused(DataError, trained, tmp_path / "only.csv", out)
    assert "no such file" in refused(DataError, trained, tmp_path / "none.csv", out)
    assert "two towers" in refused(ModelError, trained, pairs, out, "lantern:judge")
    with pytest.raises(NotFoundError, match="Did you mean 'lantern'"):
        trained(pairs, out, "lantren:a")
    assert not out.exists()
    assert "already" in refused(ModelError, trained, pairs, tmp_path)
    assert "already" in refused(ModelError, trained, pairs, pairs)


def test_another_encoder_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    trained(write_pairs(tmp_path, 12), out)
    said = refused(ModelError, load, str(out), LoadOptions(precision="bf16"))
    assert "not the one it was trained on" in said and "lantern:a" in said
    told = json.loads((out / CONFIG).read_text())
    for encoder in ("lantern:b", "lantern:judge", f"detector:{out}", f"ensemble:detector:{out}"):
        (out / CONFIG).write_text(json.dumps({**told, "encoder": encoder}))
        assert encoder in refused(ModelError, load, str(out), LoadOptions())


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    assert CONFIG in refused(NotFoundError, read, folder)
    save(folder, Saved(HEADS, "lantern:a", "f", {"settings": {}}))
    back = read(folder)
    assert (back.encoder, back.fingerprint, back.info) == ("lantern:a", "f", {"settings": {}})
    for one, two in zip(back.heads, HEADS, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))

    good = (folder / CONFIG).read_text()
    for broken in ("{", "[]", "{}", '{"format": 1}'):
        (folder / CONFIG).write_text(broken)
        assert "damaged" in refused(ModelError, read, folder)
    (folder / CONFIG).write_text(good.replace('"format": 1', '"format": 2'))
    assert "format 2" in refused(ModelError, read, folder)
    (folder / CONFIG).write_text(good)

    wrong = Head(np.ones((2, 2), np.float32), np.zeros(1, np.float32))
    nan = Head(np.full(2, np.nan, np.float32), np.zeros(1, np.float32))
    for heads, said in ((Heads(wrong, wrong), "shapes"), (Heads(nan, nan), "finite")):
        save(folder, Saved(heads, "lantern:a", "f", {}))
        assert said in refused(ModelError, read, folder)
    (folder / WEIGHTS).write_bytes(b"nothing")
    assert WEIGHTS in refused(ModelError, read, folder)
    (folder / WEIGHTS).unlink()
    assert WEIGHTS in refused(ModelError, read, folder)
    (tmp_path / "file").write_text("")
    assert "cannot be saved" in refused(
        ModelError, save, tmp_path / "file" / "d", Saved(HEADS, "lantern:a", "f", {})
    )


# --- the command line --------------------------------------------------------------------------


def command(*words: object):
    root = typer.Typer()
    root.add_typer(app)
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
    assert done.exit_code == 1 and done.stderr == "error: none.csv: no such file.\n"
    pairs = write_pairs(tmp_path, 2)
    for wrong in (("--device", "tpu"), ("--lr", "0"), ("--held-out", "0.9")):
        assert command("train", "lantern:a", pairs, "-o", "out", *wrong).exit_code == 2


def test_a_detector_of_the_world_plays_a_benchmark(tmp_path: Path) -> None:
    """World images of original and negative scenes are alike: the check finds no shortcut there."""
    from counterpoint.benchmarks import load_benchmark

    cases = load_benchmark("world-bi:size=15,seed=3")[1]
    lines = [
        {"image": ref.path, "caption": text, "label": label}
        for row in range(len(cases))
        for one in [cases.case(row)]
        for ref, text, label in zip(one.images, one.captions, ("natural", "synthetic"), strict=True)
    ]
    (tmp_path / "w.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = command("train", "world:base", "w.jsonl", "-o", "det", "--device", "cpu")
    assert done.exit_code == 0, done.output
    [run] = evaluate("detector:det", "world-bi:size=10", device="cpu", out="run")
    found = {row.metric: row.value for row in rows(run, groups=False, resamples=10)}
    assert found["group"] <= min(found["image_to_text"], found["text_to_image"]) < 0.9
    assert not run.left_out and run.manifest["model_info"]["detector"]["heads"][0]["test"] == 4


def test_ragged_tables_keep_what_fits(tmp_path: Path) -> None:
    cases = ragged(tmp_path, 30)
    found = run_engine(detector(), {"x": cases}, tmp_path / "store")["x"]
    shapes = zip(cases.image_counts.tolist(), cases.caption_counts.tolist(), strict=True)
    fits = [k == 1 for k, _ in shapes]  # two by two has one true cell here: no caption each
    assert [row not in found.left_out for row in range(30)] == fits
    assert 0 < sum(fits) < 30
