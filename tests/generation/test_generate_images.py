"""Images for texts: scenes that are right, the best chosen, all other rows as they were."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import typer
from errors import raises
from hypothesis import strategies as st
from typer.testing import CliRunner

from counterpoint._util.progress import Quiet
from counterpoint._util.store import Store
from counterpoint.cases.table import ImageRef
from counterpoint.cli import generate_images
from counterpoint.cli.console import plainly
from counterpoint.generation.images.backends import DrawnImage, DrawSettings, Want
from counterpoint.generation.images.candidates import (
    MARGIN,
    NOT_SHOWN,
    ImageChooser,
    make_images,
    open_chooser,
)
from counterpoint.generation.images.world import ENTAILED, NOT_A_CAPTION, NOT_A_TEXT, WorldBackend
from counterpoint.generation.pairs import (
    Pair,
    Rejection,
    read_about,
    read_pairs,
    tabulate,
    write_pairs,
)
from counterpoint.images.pictures import Picture
from counterpoint.models.registry import load_model
from counterpoint.scoring.kinds import Work
from counterpoint.world.edits import Edit, replacements, swaps
from counterpoint.world.grammar import holds, read
from counterpoint.world.scenes import Scene, read_scene


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    with Store(tmp_path / "store") as store:
        yield Work(store, 64, Quiet())


def edits(seed: int, count: int) -> list[Edit]:
    makers = (replacements(seed), swaps(seed))
    return [edit for make in makers for edit in islice(make, count)]


def want(edit: Edit) -> Want:
    return Want(edit.negative, edit.original, f"world:{edit.scene.code()}")


def world(candidates: int = 1, seed: int = 0) -> WorldBackend:
    return WorldBackend(DrawSettings(candidates=candidates, seed=seed), Quiet())


def scene_of(drawn: Any) -> Scene:
    assert isinstance(drawn, DrawnImage)
    return read_scene(drawn.path.removeprefix("world:"))


def differences(one: Scene, other: Scene) -> int:
    """Values that differ; a place is one value."""
    pairs = zip(one.things, other.things, strict=True)
    names = ("shape", "size", "colour", "texture")
    return sum(
        sum(getattr(a, n) != getattr(b, n) for n in names) + ((a.x, a.y) != (b.x, b.y))
        for a, b in pairs
    )


# --- the world ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_scenes_show_the_text_and_not_the_caption():
    """A thousand scenes for edits of every kind; the reader of captions judges them."""
    asked = edits(3, 125)
    drawn = world(4).draw([want(edit) for edit in asked])
    for edit, candidates in zip(asked, drawn, strict=True):
        found = [scene_of(each) for each in candidates]
        assert all(holds(read(edit.negative), scene) for scene in found)
        assert not any(holds(read(edit.original), scene) for scene in found)
        assert len({scene.code() for scene in found}) == len({c.seed for c in candidates}) == 4


@pytest.mark.slow
def test_the_first_scene_is_changed_no_more_than_by_hand():
    asked = edits(4, 200)
    drawn = [scene_of(each) for [each] in world().draw([want(edit) for edit in asked])]
    changes = [
        (differences(edit.scene, scene), differences(edit.scene, edit.negative_scene))
        for edit, scene in zip(asked, drawn, strict=True)
    ]
    assert all(found <= expected for found, expected in changes)
    assert min(found for found, _ in changes) == 1


def test_scenes_depend_on_seed_and_text_alone():
    asked = [want(edit) for edit in edits(5, 8)]
    assert world(2).draw(asked) == [world(2).draw([each])[0] for each in asked]
    assert world(2).draw(asked) != world(2, seed=1).draw(asked)
    again = world().draw([asked[0], asked[0]])
    assert again[0] == again[1]


@pytest.mark.parametrize("image", [None, "photo.jpg", "world:nonsense", "world:0.5;small,red"])
def test_without_a_scene_to_start_from_one_is_made_up(image):
    [edit] = islice(swaps(1), 1)
    [[one, two]] = world(2).draw([Want(edit.negative, edit.original, image)])
    assert holds(read(edit.negative), scene_of(one)) and one.path != two.path
    assert not holds(read(edit.original), scene_of(two))


def test_another_object_may_not_keep_the_caption_true():
    """Two red circles: to make one of them blue leaves the caption as true as it was."""
    thing = "small,red,solid,circle,0.167,0.167;small,red,solid,circle,0.5,0.167"
    start = f"world:0.5;{thing};small,black,solid,star,0.5,0.5"
    caption = "the red circle and the star"
    asked = Want("the blue circle and the star", caption, start)
    [[one]] = world().draw([asked])
    assert holds(read("the blue circle and the star"), scene_of(one))
    assert not holds(read(caption), scene_of(one))
    assert differences(read_scene(start.removeprefix("world:")), scene_of(one)) == 2


@pytest.mark.parametrize(
    ("text", "caption", "refusal"),
    [
        ("a dog on a mat", "the red circle and the star", NOT_A_TEXT),
        ("", "the red circle and the star", NOT_A_TEXT),
        ("the red circle and the star", "a dog on a mat", NOT_A_CAPTION),
        ("the small red circle and the star", "the red circle and the star", ENTAILED),
        ("the star and the crimson circle", "the red circle and the star", ENTAILED),
        ("a star below a circle", "a circle above a star", ENTAILED),
        ("a star below a circle", "the circle and the star", ENTAILED),
    ],
)
def test_what_no_scene_can_show_is_refused_with_the_reason(text, caption, refusal):
    assert world(2).draw([Want(text, caption)]) == [[refusal, refusal]]


def test_captions_as_written_in_files_are_read():
    [[one]] = world().draw([Want("The blue star and the ring.", "The red star and the ring.")])
    assert holds(read("the blue star and the ring"), scene_of(one))


# --- choosing ----------------------------------------------------------------------------------

NUMBERS = st.sampled_from([None, 0.0, 0.25, 0.5, 1.0])


class Scorer:
    """Likes what it is told to like: scores by (image, text)."""

    fingerprint = "scorer"

    def __init__(self, scores: dict[tuple[str, str], float]) -> None:
        self.scores = scores

    def score_pairs(self, pictures: Sequence[Picture], captions: Sequence[str]) -> np.ndarray:
        asked = zip(pictures, captions, strict=True)
        return np.array([self.scores[picture.ref.path, caption] for picture, caption in asked])


def test_a_scorer_must_see_the_image(tmp_path, work):
    with raises("E-MODEL-UNSUITABLE", "blind:length"):
        open_chooser("blind:length", None, tmp_path, work)


# --- files -------------------------------------------------------------------------------------


def rows(count: int = 4) -> list[Pair]:
    """Negatives, and for the first two a positive and a pair that a check has refused."""
    made = []
    for number, edit in enumerate(islice(swaps(7), count)):
        image = ImageRef(f"world:{edit.scene.code()}")
        base = (str(number), image, edit.original)
        end = ("swap", "att", "rule", "1", 0, ("minimal",))
        made.append(Pair(*base, edit.negative, "negative", *end))
        if number < 2:
            made.append(Pair(*base, edit.positive, "positive", *end))
            made.append(Pair(*base, edit.negative, "negative", *end, refused="grammar: no"))
    return made


def pairs_file(folder: Path, made: list[Pair] | None = None) -> Path:
    write_pairs(folder / "pairs.parquet", [tabulate(made or rows())], {"seed": 5})
    return folder / "pairs.parquet"


def table(path: Path) -> pl.DataFrame:
    return read_pairs(path, rejected=True)


def test_only_negatives_that_passed_get_images(tmp_path):
    pairs, out = pairs_file(tmp_path), tmp_path / "o.parquet"
    counts = make_images(pairs, out, world(), None)
    before, after = table(pairs), table(out)
    assert (counts.negatives, counts.positives, counts.refused_pairs) == (4, 2, 2)
    assert counts.with_images == counts.chosen == 4 and not counts.refused
    drawn = (after["kind"] == "negative") & (after["refused"] == "")
    assert after.filter(~drawn).equals(before.filter(~drawn))
    images = ["text_images", "text_image"]
    assert after.drop(images).equals(before.drop(images))
    for one, chosen in after.filter(drawn).select(images).iter_rows():
        assert [image["path"] for image in one] == [chosen] and one[0]["score"] is None
    about = read_about(out)
    assert about["seed"] == 5 and about["images"]["counts"]["chosen"] == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.parquet", "pairs.parquet"]
    first = out.read_bytes()
    make_images(pairs, out, world(), None)
    assert out.read_bytes() == first


def test_several_candidates_wait_for_someone_to_choose(tmp_path):
    out = tmp_path / "o.parquet"
    counts = make_images(pairs_file(tmp_path), out, world(3), None)
    negatives = table(out).filter(pl.col("text_images").list.len() > 0)
    assert negatives["text_images"].list.len().to_list() == [3] * 4
    assert negatives["text_image"].is_null().all() and counts.chosen == 0


class Fixed:
    """A backend that gives every text the same three images, the second of them refused."""

    fingerprint = "fixed"
    images = ("world:0.5;small,red,solid,star,0.5,0.5", "world:0.5;small,red,solid,ring,0.5,0.5")

    def draw(self, wants: Sequence[Want]) -> list[list[Any]]:
        a, b = self.images
        return [[DrawnImage(a, 1), Rejection("too dark"), DrawnImage(b, 3)] for _ in wants]

    def describe(self) -> dict[str, Any]:
        return {"model": "fixed"}


@pytest.mark.parametrize(
    ("least", "chosen", "margin"),
    [(None, 1, -0.5), (-1.0, 1, -0.5), (0.0, 0, 0.25), (0.25, None, -0.5)],
)
def test_the_scorers_choice_stands_in_the_file(tmp_path, work, least, chosen, margin):
    """The second scores the text better, but the caption better still."""
    [pair] = rows(1)[:1]
    a, b = Fixed.images
    text, caption = pair.text, pair.caption
    scores = {(a, text): 0.25, (a, caption): 0.0, (b, text): 0.5, (b, caption): 1.0}
    chooser = ImageChooser("scorer", Scorer(scores), least, tmp_path, work)
    out = tmp_path / "o.parquet"
    counts = make_images(pairs_file(tmp_path, [pair]), out, Fixed(), chooser)
    [row] = table(out).to_dicts()
    assert row["text_image"] == (None if chosen is None else Fixed.images[chosen])
    assert [image["score"] for image in row["text_images"]] == [0.25, 0.5]
    assert [image["seed"] for image in row["text_images"]] == [1, 3]
    assert row["scores"] == [{"name": MARGIN, "value": margin}]
    shown = {} if chosen is not None else {NOT_SHOWN.reason: 1}
    assert dict(counts.refused) == {"too dark": 1, **shown}
    about = read_about(out)["images"]
    assert about["choose"]["margin"] == least and about["counts"]["refused"]["too dark"] == 1


def test_images_that_cannot_be_scored_are_counted(tmp_path, work):
    class Gone(Fixed):
        images = ("gone.png", Fixed.images[1])

    [pair] = rows(1)[:1]
    b = Fixed.images[1]
    chooser = ImageChooser(
        "s", Scorer({(b, pair.text): 1, (b, pair.caption): 0}), 0, tmp_path, work
    )
    out = tmp_path / "o.parquet"
    counts = make_images(pairs_file(tmp_path, [pair]), out, Gone(), chooser)
    [row] = table(out).to_dicts()
    assert row["text_image"] == b
    assert [image["score"] for image in row["text_images"]] == [None, 1.0]
    [(why, number)] = counts.unscored.items()
    assert "gone.png: no such file" in why and number == 1


# --- the command line --------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    app = typer.Typer()
    app.command("images")(plainly(generate_images.images))
    app.command("neighbours")(plainly(generate_images.neighbours))
    return lambda *asked: CliRunner().invoke(app, [str(each) for each in asked])


@pytest.mark.slow
def test_the_world_chooses_its_own_images(run, tmp_path):
    out = tmp_path / "o.parquet"
    asked = ("images", pairs_file(tmp_path, rows(12)), "-o", out, "-m", "world")
    done = run(*asked, "--candidates", 3, "--choose", "world:base", "--margin", 0, "--json")
    assert done.exit_code == 0, done.output
    [told] = json.loads(done.stdout)
    images = table(out).filter(pl.col("text_images").list.len() > 0)
    assert told["counts"]["negatives"] == len(images) == 12
    model = load_model("world:base")
    for row in images.to_dicts():
        opened = [Picture(ImageRef(image["path"])).open() for image in row["text_images"]]
        seen = model.encode_images([model.preprocess(image) for image in opened])
        said = seen @ model.encode_captions([row["text"], row["caption"]]).T
        able = np.where(said[:, 0] > said[:, 1], said[:, 0], -2)
        best = row["text_images"][int(able.argmax())]["path"] if able.max() > -2 else None
        assert row["text_image"] == best
        np.testing.assert_allclose(
            [image["score"] for image in row["text_images"]], said[:, 0], atol=1e-5
        )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--margin", "0.1"), "--choose MODEL"),
        (("--candidates", "5"), "candidates"),
        (("--side", "100"), "multiple of 8"),
        (("--device", "tpu"), "auto, cpu, cuda, cuda:N or mps"),
        (("-m", "world", "--guidance", "3"), "no effect with -m world"),
    ],
)
def test_wrong_usage_is_told(run, tmp_path, options, said):
    done = run("images", "p.parquet", "-o", tmp_path / "o.parquet", *options)
    assert done.exit_code == 2 and said in " ".join(done.output.split())
