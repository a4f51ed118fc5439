"""Training data from files: what a batch holds, that it depends on numbers only, and what fails."""

from __future__ import annotations

import multiprocessing
import random
import socket
import time
from collections import Counter

import polars as pl
import pytest
import torch
from errors import raises
from PIL import Image
from pydantic import ValidationError
from train_data_support import (
    CONTEXT,
    SIZE,
    TENSORS,
    colour,
    opened,
    preprocess,
    rows_of,
    said,
    same,
    tokenize,
    training_file,
)

from counterpoint._util import processes
from counterpoint.training.data import open_data
from counterpoint.training.data.loading import Problems, Setting
from counterpoint.training.recipe import DataConfig


@pytest.fixture
def worker_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers hand over memory through sockets of this machine, which are no network."""
    refuse, connect = socket.socket.connect, socket.SocketType.connect

    def local(self: socket.socket, address) -> None:
        (connect if self.family == socket.AF_UNIX else refuse)(self, address)

    monkeypatch.setattr(socket.socket, "connect", local)


# A training file


def test_a_batch_holds_what_the_rows_say(tmp_path):
    data = opened(training_file(tmp_path), batch=SIZE, negatives=2)
    batch = data.batch(0, 0)
    rows = rows_of()
    assert sorted(batch.samples) == list(range(SIZE))
    assert batch.images.shape == (SIZE, 3, 4, 4)
    texts = {name: said(getattr(batch, name)) for name in ("captions", "positives", "negatives")}
    for place, n in enumerate(batch.samples):
        row = rows[n]
        assert batch.images[place, :, 0, 0].tolist() == list(colour(n))
        assert texts["captions"][place] == row["caption"]
        assert batch.has_positive[place] == bool(row["positives"])
        found = [
            t
            for t, has in zip(texts["negatives"][place], batch.has_negative[place], strict=True)
            if has
        ]
        assert len(set(found)) == len(found) == min(2, len(row["negatives"]))
        assert set(found) <= set(row["negatives"])
        if row["positives"]:
            assert texts["positives"][place] in row["positives"]
        else:
            assert texts["positives"][place] == row["caption"]  # a stand-in, masked
    assert not data.problems.counts


def test_texts_share_the_length_of_the_longest(tmp_path):
    path = training_file(tmp_path)
    batch = opened(path, batch=SIZE).batch(0, 0)
    longest = max(len(text) for text in said(batch.captions) + said(batch.positives))
    longest = max(longest, *(len(text) for texts in said(batch.negatives) for text in texts))
    assert batch.captions.shape == (SIZE, longest)
    assert batch.negatives.shape == (SIZE, 1, longest)
    config = DataConfig(kind="pairs", path=path, workers=0)
    whole = open_data(Setting(config, preprocess, tokenize, SIZE, 0, cut=False)).batch(0, 0)
    assert whole.captions.shape == (SIZE, CONTEXT)
    assert torch.equal(whole.captions[:, :longest], batch.captions)


def test_what_is_not_asked_for_is_not_there(tmp_path):
    batch = opened(training_file(tmp_path), negatives=0, positives=False).batch(0, 0)
    assert [n for n in TENSORS if getattr(batch, n) is not None] == ["images", "captions"]
    assert batch.hard is None


def test_a_batch_depends_on_seed_epoch_and_step_only(tmp_path):
    path = training_file(tmp_path)
    asked = {"negatives": 1, "negative_images": True, "hard_images": 3}
    one, other = opened(path, **asked), opened(path, **asked)
    backwards = {(e, s): other.batch(e, s) for e in (1, 0) for s in (2, 0, 1)}
    assert all(same(one.batch(e, s), batch) for (e, s), batch in backwards.items())
    assert not same(one.batch(0, 0), one.batch(1, 0))
    assert not same(one.batch(0, 0), opened(path, seed=1, **asked).batch(0, 0))


def test_every_negative_comes_before_any_comes_again(tmp_path):
    data = opened(training_file(tmp_path), batch=SIZE)
    met: dict[int, list[str]] = {n: [] for n in range(SIZE)}
    for epoch in range(3):
        batch = data.batch(epoch, 0)
        for place, n in enumerate(batch.samples):
            if batch.has_negative[place, 0]:
                met[n].append(said(batch.negatives[place, 0]))
    for n, row in enumerate(rows_of()):
        assert set(met[n]) == set(row["negatives"])
        assert len(met[n]) == (3 if row["negatives"] else 0)


def test_ranks_share_the_batch_of_one_process(tmp_path):
    path = training_file(tmp_path)
    asked = {"batch": 6, "negative_images": True, "hard_images": 2, "negatives": 2}
    whole = opened(path, **asked)
    ranks = [opened(path, rank=r, ranks=3, **asked) for r in range(3)]
    for step in range(whole.steps_per_epoch):
        joined, parts = whole.batch(2, step), [data.batch(2, step) for data in ranks]
        assert [n for b in parts for n in b.samples] == joined.samples
        assert [n for b in parts for n in b.hard.samples] == joined.hard.samples
        assert torch.equal(torch.cat([b.images for b in parts]), joined.images)
        assert [t for b in parts for t in said(b.negatives)] == said(joined.negatives)
        assert [t for b in parts for t in said(b.hard.captions)] == said(joined.hard.captions)
    with raises("E-BATCH-INDIVISIBLE", 4, 3):
        opened(path, batch=4, ranks=3)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_starts_anywhere_and_equals_the_batches(tmp_path, worker_sockets, workers):
    data = opened(training_file(tmp_path), workers=workers, negatives=2)
    numbers = range(2, 8)  # over the end of two epochs of three steps
    streamed = list(data.stream(numbers.start, numbers.stop))
    assert len(streamed) == len(numbers)
    for number, batch in zip(numbers, streamed, strict=True):
        assert same(batch, data.batch(*divmod(number, data.steps_per_epoch)))
    endless = data.stream(5)
    assert [next(endless).samples for _ in range(3)] == [b.samples for b in data.stream(5, 8)]
    endless.close()


def test_after_ray_no_workers_are_forked(tmp_path, monkeypatch):
    """Children of a process that has used Ray may crash."""
    data = opened(training_file(tmp_path), workers=2, negatives=2)
    prepare, here = data.prepare, []

    def noted(epoch: int, step: int):
        here.append((epoch, step))  # a child would have a list of its own
        return prepare(epoch, step)

    monkeypatch.setattr(data, "prepare", noted)
    monkeypatch.setattr(processes, "_joined", ["local"])
    with pytest.warns(RuntimeWarning, match="train in a new process"):
        streamed = list(data.stream(0, 3))
    assert here == [divmod(number, data.steps_per_epoch) for number in range(3)]
    assert all(same(streamed[n], data.batch(*where)) for n, where in enumerate(here[:3]))


def test_a_worker_that_does_not_end_is_killed(tmp_path, worker_sockets, monkeypatch):
    """Workers ignore SIGTERM, so one that is busy at the end would be waited for without end."""
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.1)
    data = opened(training_file(tmp_path), workers=1)
    prepare = data.prepare

    def slow(epoch: int, step: int):
        if (epoch, step) != (0, 0):
            time.sleep(600)
        return prepare(epoch, step)

    monkeypatch.setattr(data, "prepare", slow)
    before = set(multiprocessing.active_children())
    stream = data.stream()
    next(stream)
    [worker] = set(multiprocessing.active_children()) - before
    stream.close()
    worker.join(20)
    alive = worker.is_alive()
    worker.kill()  # a test that fails must not wait for it either
    assert not alive


def test_augmentation_is_seeded_by_image_and_leaves_other_chance_alone(tmp_path):
    def noisy(image: Image.Image) -> torch.Tensor:
        return preprocess(image) + torch.rand(3, 4, 4) + random.random()  # as transforms do

    config = DataConfig(kind="pairs", path=training_file(tmp_path), workers=0)
    data = open_data(Setting(config, noisy, tokenize, 4, 0))
    torch.manual_seed(5)
    random.seed(5)
    before = torch.get_rng_state(), random.getstate()
    open_data(Setting(config, noisy, tokenize, 4, 0))
    first = data.batch(0, 1)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    torch.manual_seed(6)
    assert same(first, data.batch(0, 1))
    noise = first.images - first.images.floor()
    assert not torch.equal(noise[0], noise[1])
    halves = [
        open_data(Setting(config, noisy, tokenize, 4, 0, rank=r, world_size=2)) for r in (0, 1)
    ]
    joined = torch.cat([half.batch(0, 1).images for half in halves])
    assert torch.equal(joined, first.images)


def test_the_first_negative_is_one_with_an_image(tmp_path):
    data = opened(training_file(tmp_path), batch=SIZE, negatives=2, negative_images=True)
    batch = data.batch(0, 0)
    for place, n in enumerate(batch.samples):
        has = n % 4 >= 2  # negative 1 has the image
        assert batch.has_negative_image[place] == has
        if has:
            assert said(batch.negatives[place, 0]) == f"caption {n} negative 1"
            assert batch.negative_images[place, :, 0, 0].tolist() == [255, 1, n]
            assert said(batch.negatives[place, 1]) != said(batch.negatives[place, 0])
        else:
            assert torch.equal(batch.negative_images[place], batch.images[place])


def test_hard_images_come_with_their_own_texts(tmp_path):
    data = opened(training_file(tmp_path), batch=SIZE, hard_images=3)
    met = Counter()
    for epoch in range(3):
        batch = data.batch(epoch, 0)
        for place, (n, near) in enumerate(zip(batch.samples, batch.hard.samples, strict=True)):
            assert near != n
            assert batch.hard.images[place, :, 0, 0].tolist() == list(colour(near))
            assert said(batch.hard.captions[place]) == f"caption {near}"
            if batch.hard.has_negative[place, 0]:
                assert said(batch.hard.negatives[place, 0]).startswith(f"caption {near} negative")
            if n:
                met[n, (near - n) % SIZE] += 1
    assert set(met) == {(n, i) for n in range(1, SIZE) for i in (1, 2, 3)}  # each neighbour once
    [(problem, count)] = data.problems.told().items()
    assert "without a near image" in problem and count == 3


def test_dense_captions_are_drawn_with_their_negatives(tmp_path):
    rows = rows_of()
    for n, row in enumerate(rows):
        row["dense"] = [f"dense {n} {i}" for i in range(n % 3)]
        row["dense_negatives"] = [f"dense {n} {i} not" if i else None for i in range(n % 3)]
    batch = opened(training_file(tmp_path, rows), batch=SIZE, dense=2).batch(0, 0)
    for place, n in enumerate(batch.samples):
        assert batch.has_dense[place].tolist() == [i < n % 3 for i in range(2)]
        for slot in range(min(2, n % 3)):
            text = said(batch.dense[place, slot])
            false = batch.has_dense_negative[place, slot]
            assert text in rows[n]["dense"]
            assert false == text.endswith("1")
            if false:
                assert said(batch.dense_negatives[place, slot]) == f"{text} not"


# What goes wrong


def test_a_broken_image_is_stood_in_for_and_told(tmp_path):
    path = training_file(tmp_path)
    (tmp_path / "photos/3.png").write_bytes(b"no image")
    (tmp_path / "photos/4.png").unlink()
    data = opened(path, batch=SIZE)
    batch = data.batch(0, 0)
    assert len(batch.samples) == SIZE
    assert set(batch.samples) == {n for n in range(SIZE) if n not in (3, 4)}
    assert all(
        batch.images[place, :, 0, 0].tolist() == list(colour(n))
        and said(batch.captions[place]) == f"caption {n}"
        for place, n in enumerate(batch.samples)
    )
    told = "\n".join(data.problems.told())
    assert "3.png: not an image that can be read" in told and "4.png: no such file" in told
    assert data.problems.counts.total() >= 2
    again = opened(path, batch=SIZE)
    assert same(batch, again.batch(0, 0)) and again.problems == data.problems
    twice = [Counter(again.batch(epoch, 0).samples) for epoch in range(6)]
    stood_in = {n for counts in twice for n, count in counts.items() if count > 1}
    assert len(stood_in) > 3  # of all samples: the next of the file would be 5, always


@pytest.mark.slow
def test_problems_of_workers_are_told_too(tmp_path, worker_sockets):
    path = training_file(tmp_path)
    (tmp_path / "photos/3.png").unlink()
    data = opened(path, workers=2)
    assert sum(len(batch.samples) for batch in data.stream(0, 3)) == SIZE
    assert data.problems.counts.total() == 1


def test_problems_do_not_grow_with_what_is_broken(tmp_path):
    """A checkpoint holds them: one count for each kind, and a few examples."""
    path = training_file(tmp_path, rows_of(60))
    data = opened(path, batch=30)
    for number in range(0, 60, 4):
        (tmp_path / f"photos/{number}.png").unlink()
    for epoch in range(2):
        data.batch(epoch, 0), data.batch(epoch, 1)
    [(line, count)] = data.problems.told().items()
    assert count >= 30 and line.count("no such file") == 3
    assert line.startswith("samples that cannot be read: replaced by another sample, for instance:")
    assert len(str(data.problems.as_json())) < 1000


def test_problems_of_two_ranks_are_those_of_one():
    messages = [f"image {n}: no such file." for n in range(9)]
    alone, first, second = Problems(), Problems(), Problems()
    for number, message in enumerate(messages):
        alone.add("broken", message)
        (first, second)[number % 2].add("broken", message)
    second.update(first)
    assert second == alone == Problems.of(alone.as_json())
    assert alone.counts == {"broken": 9} and alone.examples == {"broken": messages[:3]}


def test_a_wrong_folder_is_an_error_at_once(tmp_path):
    data = opened(training_file(tmp_path), images=tmp_path / "elsewhere")
    with raises("E-DATA-UNREADABLE", "10 samples in a row"):
        data.batch(0, 0)


def test_a_negative_without_its_image_file_is_masked_and_told(tmp_path):
    path = training_file(tmp_path)
    (tmp_path / "made/2-1.png").unlink()
    data = opened(path, batch=SIZE, negative_images=True)
    batch = data.batch(0, 0)
    place = batch.samples.index(2)
    assert not batch.has_negative_image[place] and batch.has_negative[place, 0]
    assert any("2-1.png: no such file" in problem for problem in data.problems.told())


def test_rows_without_an_image_are_left_out_and_counted(tmp_path):
    rows = rows_of()
    rows[5]["image"] = None
    data = opened(training_file(tmp_path, rows), batch=SIZE - 1)
    assert data.problems.told() == {"captions without an image: left out": 1}
    assert "caption 5" not in said(data.batch(0, 0).captions)


def test_files_that_are_not_training_files(tmp_path):
    with raises("E-FILE-MISSING", tmp_path / "none.parquet"):
        opened(tmp_path / "none.parquet")
    (tmp_path / "a.parquet").write_bytes(b"no table")
    with raises("E-FILE-MALFORMED", tmp_path / "a.parquet"):
        opened(tmp_path / "a.parquet")
    pl.DataFrame({"image": ["a.png"]}).write_parquet(tmp_path / "b.parquet")
    with raises("E-COLUMN-MISSING", "caption"):
        opened(tmp_path / "b.parquet")
    (tmp_path / "c.csv").write_text("title,filepath\n")
    with raises("E-FILE-ENDING", tmp_path / "c.csv"):
        opened(tmp_path / "c.csv")
    with raises("E-SAMPLES-FEW", 12, 13):
        opened(training_file(tmp_path), batch=13)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"kind": "world", "path": "a.parquet"}, "'world' has no path"),
        ({"kind": "pairs", "grammar": 0.5}, "'pairs' has no grammar"),
        ({"kind": "webdataset", "hard_images": 3}, "'webdataset' has no hard_images"),
        ({"kind": "world", "only": "add"}, "the world has only=replace and only=swap"),
        ({"kind": "world", "negatives": 2}, "one negative per caption"),
        ({"negatives": 0, "negative_images": True}, "negative_images needs negatives"),
        ({"sice": 3}, "Extra inputs are not permitted"),
        ({"plain": 1.5}, "less than or equal to 1"),
    ],
)
def test_a_configuration_that_would_be_ignored_is_refused(config, message):
    with pytest.raises(ValidationError, match=message):
        DataConfig(**config)


# --- two images side by side, and noun phrases ---------------------------------------------------

PEOPLE = [
    "A black dog on a red bench",
    "Two cats sleep under the table.",
    "a man holding an umbrella",
    "Pizza",
    "a small boat in the blue water",
    "the girl throws a white frisbee",
]


def people(folder):
    rows = rows_of(len(PEOPLE))
    for row, caption in zip(rows, PEOPLE, strict=True):
        row |= {"caption": caption, "positives": [], "negatives": [], "negative_images": []}
    return training_file(folder, rows)


def long_tokens(texts):
    rows = [list(text.encode()) for text in texts]
    return torch.tensor([row + [0] * (90 - len(row)) for row in rows])


def joined(folder, batch=6, rank=0, ranks=1):
    config = DataConfig(
        kind="pairs", path=folder / "train.parquet", workers=0, joined=True, negatives=1
    )
    return open_data(
        Setting(config, preprocess, long_tokens, batch, 0, rank=rank, world_size=ranks)
    )


def test_two_photographs_are_said_in_either_order_and_with_a_word_exchanged(tmp_path):
    people(tmp_path)
    data = joined(tmp_path)
    batch = data.batch(0, 0)
    stopped = [caption if caption.endswith(".") else f"{caption}." for caption in PEOPLE]
    captions, positives, negatives = (
        said(part) for part in (batch.captions, batch.positives, batch.negatives[:, 0])
    )
    for row, n in enumerate(batch.samples):
        (other,) = [t for t in stopped if captions[row] == f"{stopped[n]} {t}"]
        assert other != stopped[n]
        assert positives[row] == f"{other} {stopped[n]}"
        if batch.has_negative[row]:
            assert negatives[row] not in (captions[row], positives[row])
            plain = [
                sorted("a" if w == "an" else w for w in text.lower().replace(".", "").split())
                for text in (negatives[row], captions[row])
            ]
            assert plain[0] == plain[1]
        halves = [batch.images[row, :, y, 1] for y in (0, 3)]  # wide: one above the other
        shown = [torch.tensor(colour(m)).float() for m in (n, stopped.index(other))]
        assert any(
            all(float((a - b).abs().max()) <= 2 for a, b in zip(halves, order, strict=True))
            for order in (shown, shown[::-1])
        )
    assert batch.has_positive.all() and batch.has_negative.any()
    plain = data.batch(1, 0)  # every second step
    assert not plain.has_positive.any() and not plain.has_negative.any()
    assert sorted(said(plain.captions)) == sorted(PEOPLE)


def test_joined_photographs_do_not_depend_on_ranks(tmp_path):
    people(tmp_path)
    whole = joined(tmp_path).batch(0, 0)
    halves = [joined(tmp_path, rank=r, ranks=2).batch(0, 0) for r in (0, 1)]
    assert torch.equal(whole.images, torch.cat([half.images for half in halves]))
    assert said(whole.negatives) == [t for half in halves for t in said(half.negatives)]


def test_noun_phrases_of_a_file_are_its_dense_captions(tmp_path):
    path = people(tmp_path)
    data = opened(path, batch=6, dense=2, phrases=True, negatives=0, positives=False)
    batch = data.batch(0, 0)
    found = {
        PEOPLE[n]: {t for t, has in zip(said(batch.dense[row]), there, strict=True) if has}
        for row, (n, there) in enumerate(zip(batch.samples, batch.has_dense, strict=True))
    }
    assert found["A black dog on a red bench"] == {"A black dog", "a red bench"}
    assert found["a man holding an umbrella"] == {"a man", "an umbrella"}
    assert found["Pizza"] == set()  # the caption itself is no phrase of it
    assert batch.dense_negatives is not None and not batch.has_dense_negative.any()


def test_what_no_row_has_cannot_be_asked_for(tmp_path):
    for field in ("dense", "positives", "negatives", "neighbours"):
        rows = [{**row, field: [], "negative_images": []} for row in rows_of()]
        with raises("E-DATA-EMPTY", {"neighbours": "hard_images"}.get(field, field)):
            opened(training_file(tmp_path, rows), hard_images=3, dense=2 * (field == "dense"))
    rows = [{**row, "neighbours": ["elsewhere/1.png"]} for row in rows_of()]  # of another file
    with raises("E-DATA-EMPTY", "hard_images"):
        opened(training_file(tmp_path, rows), hard_images=3)
    with raises("E-DATA-UNTYPED", "positive_types"):
        opened(training_file(tmp_path), only="swap")
