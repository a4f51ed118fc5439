"""The world as training data: what is said is true or false as claimed, and drawn as it is said."""

from __future__ import annotations

import socket
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from open_clip_models import BASE
from PIL import Image

from counterpoint._util.random_numbers import fold, key, uniforms
from counterpoint.benchmarks import Options, find_benchmark
from counterpoint.models.openclip.adapter import MERGES
from counterpoint.training.data import open_data
from counterpoint.training.data.loading import Setting
from counterpoint.training.data.world import WorldData
from counterpoint.training.recipe import DataConfig
from counterpoint.world import (
    STATEMENT_DRAWS,
    GrammarError,
    Phrase,
    Statement,
    WorldTokens,
    draw,
    draw_edits,
    draw_false,
    draw_plain,
    draw_statements,
    holds,
    holds_each as holds_all,
    read,
    replacements,
    swaps,
)
from counterpoint.world.arrays import FEATURES, FIRST, RELATION, SECOND, WORDS, texts
from counterpoint.world.grammar import LEFT_FIRST, leads, write
from counterpoint.world.scenes import CANONICAL, RELATIONS, SYNONYMS

pytestmark = pytest.mark.slow

TOKENIZER = open_clip.SimpleTokenizer(str(BASE / MERGES), context_length=24)
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def transform(side: int = 64):
    config = PreprocessCfg(
        size=(side, side), mean=MEAN, std=STD, interpolation="bicubic", resize_mode="squash"
    )
    return image_transform_v2(config, is_train=False)


def opened(batch: int = 32, seed: int = 0, rank: int = 0, ranks: int = 1, **config) -> WorldData:
    preprocess, tokenize = config.pop("preprocess", transform()), config.pop("tokenize", TOKENIZER)
    given = {"kind": "world", "workers": 0, "size": 1000} | config
    return open_data(
        Setting(DataConfig(**given), preprocess, tokenize, batch, seed, rank, world_size=ranks)
    )


def said(tokens: torch.Tensor) -> str:
    ids = [token for token in tokens.tolist() if token][1:-1]
    return TOKENIZER.decode(ids).strip()


@pytest.mark.parametrize("only", [None, "replace", "swap"])
def test_texts_are_as_true_of_the_drawn_scenes_as_they_claim(only):
    """Read back from the tokens by the grammar's own parser, judged by the world's own truth."""
    data = opened(batch=128, only=only, negative_images=True)
    batch, edits = data.batch(1, 2), data.edits(np.array(data.samples(1, 2)))
    pictures = {"images": [], "negative_images": []}
    for row in range(128):
        scene, other = edits.scenes.scene(row), edits.negative_scenes.scene(row)
        caption, positive, negative = (
            read(said(tokens))
            for tokens in (batch.captions[row], batch.positives[row], batch.negatives[row, 0])
        )
        assert holds(caption, scene) and holds(positive, scene) and not holds(negative, scene)
        assert holds(negative, other) and not holds(caption, other)
        assert said(batch.positives[row]) != said(batch.captions[row])
        pictures["images"].append(scene)
        pictures["negative_images"].append(other)
    assert batch.has_negative.all() and batch.has_positive.all() and batch.has_negative_image.all()
    for name, scenes in pictures.items():
        drawn = torch.stack([transform()(Image.fromarray(picture)) for picture in draw(scenes)])
        assert torch.allclose(getattr(batch, name), drawn, atol=1e-5)


def _words(text: str) -> list[str]:
    return ["a" if word == "an" else word for word in text.split()]


@pytest.mark.parametrize(("only", "slow"), [("replace", replacements), ("swap", swaps)])
def test_edits_are_drawn_as_the_benchmarks_draw_them(only, slow):
    """The same shares of words in each text, of objects and of moves, as from `world.edits`."""
    size = 600
    edits = draw_edits(3, np.arange(4 * size), only, synonym=0.5)
    data = opened(batch=4 * size, only=only, size=4 * size, seed=3)
    words, _ = data.texts(np.arange(4 * size), edits)
    fast = [Counter(w for t in texts(_flat(words[k])) for w in t.split()) for k in words]
    made = list(islice(slow(11), size))
    wanted = [
        Counter(w for e in made for w in getattr(e, k).split())
        for k in ("original", "positive", "negative")
    ]
    for found, expected in zip(fast, wanted, strict=True):
        assert set(expected) <= set(found)
        total = sum(expected.values()), sum(found.values())
        assert abs(total[0] / size - total[1] / (4 * size)) < 0.15
        for word, count in expected.items():
            share = found[word] / 4
            assert abs(count - share) < 5 * np.sqrt(count + share / 4) + 3, word
    counts = Counter(len(e.scene.things) for e in made)
    for number, count in Counter(edits.scenes.counts.tolist()).items():
        assert abs(count / 4 - counts[number]) < 5 * np.sqrt(counts[number])
    moved = np.mean([e.negative_scene.things[0].x != e.scene.things[0].x for e in made])
    assert abs((edits.scenes.places != edits.negative_scenes.places)[:, 0, 0].mean() - moved) < 0.1


def statement(said: np.ndarray) -> Statement:
    """One row of statements as an object."""
    first, second = (
        Phrase(*[words[w] if w >= 0 else None for words, w in zip(FEATURES, part, strict=True)])
        for part in (said[FIRST].tolist(), said[SECOND].tolist())
    )
    return Statement(first, second, None if said[RELATION] < 0 else RELATIONS[said[RELATION]])


def _flat(words: np.ndarray) -> np.ndarray:
    return words.reshape(-1, words.shape[-1])


def test_statements_are_judged_and_written_as_the_world_does():
    """Also those that are wrong, or true by chance of objects that were not meant."""
    edits = draw_edits(0, np.arange(400), None, 0.2)
    scenes = edits.scenes
    draws = uniforms(fold(key(1), np.arange(400)), STATEMENT_DRAWS)
    drawn = draw_statements(scenes, draws)
    changed = draw_false(drawn, draws)
    for said_all, least, most in ((drawn, 1, 1), (changed, 0.01, 0.3), (edits.negatives, 0, 0)):
        found = holds_all(said_all, scenes)
        assert least <= found.mean() <= most
        for row in range(400):
            assert found[row] == holds(statement(said_all[row]), scenes.scene(row))
    data = opened()
    words, _ = data.texts(np.arange(400), edits)
    said_by = (edits.originals, words["captions"]), (edits.negatives, words["negatives"][:, 0])
    for column, (rows, written) in zip((0, 2), said_by, strict=True):
        assert texts(written) == [
            write(statement(row), _rare_name(row, place) if rare else None)
            for row, place, rare in zip(rows, edits.word, edits.rare[:, column], strict=True)
        ]


def _rare_name(row: np.ndarray, place: int) -> dict[str, str]:
    word = (*FEATURES, *FEATURES, RELATIONS)[place][row[place]]
    return {word: SYNONYMS[word]}


def test_originals_are_worded_by_habit_and_negatives_by_none():
    edits = draw_edits(4, np.arange(6000), None, synonym=0.1)
    replaced = edits.word >= 0
    rare = edits.rare[replaced]
    assert not edits.rare[~replaced].any()
    assert np.array_equal(rare[:, 0], ~rare[:, 1])
    assert np.allclose(rare.mean(axis=0), [0.1, 0.9, 0.5], atol=0.03)
    assert abs(rare[rare[:, 0], 2].mean() - 0.5) < 0.1  # the rule does not look at the original
    loose = (edits.originals[:, RELATION] < 0) & ~replaced

    def left_first(said: np.ndarray) -> float:
        found = []
        for row in np.flatnonzero(loose)[:1500]:
            a, b = edits.scenes.scene(row).things[:2]
            named = statement(said[row]).first.shape
            found.append(leads(a, b) == (named == a.shape))
        return float(np.mean(found))

    assert abs(left_first(edits.originals) - LEFT_FIRST) < 0.03
    assert abs(left_first(edits.positives) - (1 - LEFT_FIRST)) < 0.03
    assert abs(left_first(edits.negatives) - 0.5) < 0.05


def test_negatives_may_be_true_in_disguise():
    data = opened(batch=1000, disguised=0.3)
    batch = data.batch(0, 0)
    scenes = data.edits(data.samples(0, 0)).scenes
    true = [holds(read(said(t)), scenes.scene(row)) for row, t in enumerate(batch.negatives[:, 0])]
    assert abs(np.mean(true) - 0.3) < 0.05
    assert not any(
        torch.equal(a, b) for a, b in zip(batch.captions, batch.negatives[:, 0], strict=True)
    )


def test_a_sample_is_the_same_in_any_batch_and_company():
    alone = [draw_edits(5, np.array([n]), None, 0.5) for n in (3, 77, 1_000_003)]
    together = draw_edits(5, np.array([9, 1_000_003, 77, 3]), None, 0.5)
    for place, edit in zip((3, 2, 1), alone, strict=True):
        assert together.scenes.scene(place) == edit.scenes.scene(0)
        assert np.array_equal(together.negatives[place], edit.negatives[0])
        assert together.negative_scenes.scene(place) == edit.negative_scenes.scene(0)
    small, large = opened(batch=8), opened(batch=32)
    joined = torch.cat([small.batch(0, step).images for step in range(4)])
    assert torch.equal(joined, large.batch(0, 0).images)


def test_ranks_share_the_batch_of_one_process_and_epochs_share_nothing():
    whole, ranks = opened(), [opened(rank=r, ranks=2) for r in (0, 1)]
    one, parts = whole.batch(0, 3), [data.batch(0, 3) for data in ranks]
    assert [n for part in parts for n in part.samples] == one.samples
    assert torch.equal(torch.cat([part.images for part in parts]), one.images)
    assert [said(t) for p in parts for t in p.negatives[:, 0]] == [
        said(t) for t in one.negatives[:, 0]
    ]
    codes = [
        {data.edits(data.samples(epoch, 0)).scenes.scene(row).code() for row in range(32)}
        for data, epoch in ((whole, 0), (whole, 1), (opened(seed=1), 0))
    ]
    assert len(set.union(*codes)) == 96


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_equals_the_batches(workers, monkeypatch):
    refuse, connect = socket.socket.connect, socket.SocketType.connect
    monkeypatch.setattr(  # workers hand over memory through sockets that are no network
        socket.socket,
        "connect",
        lambda s, a: (connect if s.family == socket.AF_UNIX else refuse)(s, a),
    )
    data = opened(batch=20, size=50, workers=workers, plain=0.5)  # two steps an epoch
    for number, batch in enumerate(data.stream(1, 4), start=1):
        other = data.batch(*divmod(number, 2))
        assert batch.samples == other.samples
        for name in ("images", "captions", "positives", "negatives", "has_negative"):
            assert torch.equal(getattr(batch, name), getattr(other, name))


def test_no_benchmark_scene_is_trained_on():
    """With the benchmarks' own seed, too: the draws are another generator's."""
    benchmarks = [
        image["path"].removeprefix("world:")
        for benchmark in map(find_benchmark, ("world-replace", "world-swap", "world-bi"))
        for images in benchmark.cases(Options(Path(), {"size": 200, "seed": 1})).frame["images"]
        for image in images
    ]
    trained = set()
    for seed in (0, 1, 1_000_001):
        edits = draw_edits(seed, np.arange(2000), None, 0.01)
        for scenes in (edits.scenes, edits.negative_scenes):
            trained |= {scenes.scene(row).code() for row in range(2000)}
    assert len(trained) > 11_900
    assert len(set(benchmarks)) == 800
    assert not trained & set(benchmarks)


# Plain captions


def test_plain_captions_come_in_their_share_and_without_edits():
    data = opened(batch=1000, plain=0.25, grammar=0.0, negative_images=True)
    batch = data.batch(0, 0)
    assert abs(float((~batch.has_positive).float().mean()) - 0.25) < 0.05
    assert torch.equal(batch.has_positive, batch.has_negative[:, 0])
    assert torch.equal(batch.has_positive, batch.has_negative_image)
    scenes = data.edits(data.samples(0, 0)).scenes
    for row in range(200):
        if batch.has_positive[row]:
            read(said(batch.captions[row]))
            continue
        things = scenes.scene(row).things
        bag = Counter(v for t in things for v in (t.shape, t.size, t.colour, t.texture))
        words = Counter(CANONICAL[word] for word in said(batch.captions[row]).split())
        assert words <= bag
        assert {t.shape for t in things} <= set(words)


@pytest.mark.parametrize(("grammar", "synonym"), [(0.0, 0.0), (1.0, 0.3), (0.4, 1.0)])
def test_the_share_of_grammar_and_of_rare_words_can_be_chosen(grammar, synonym):
    stream = fold(key(9), np.arange(1500))
    scenes = draw_edits(0, np.arange(1500), None, 0.01).scenes
    captions = texts(draw_plain(scenes, stream, grammar, synonym))
    readable, rare, common = 0, 0, 0
    for row, caption in enumerate(captions):
        try:
            stated = read(caption)
        except GrammarError:
            pass
        else:
            readable += 1
            assert holds(stated, scenes.scene(row))
        words = caption.split()
        rare += sum(word in _RARE for word in words)
        common += sum(word in SYNONYMS for word in words)
    assert abs(readable / 1500 - grammar) < 0.04
    assert abs(rare / (rare + common) - synonym) < 0.03


_RARE = {synonym for word, synonym in SYNONYMS.items() if " " not in word + synonym}


def test_dense_captions_are_true_and_their_negatives_false():
    data = opened(batch=64, dense=3)
    batch, scenes = data.batch(0, 0), data.edits(data.samples(0, 0)).scenes
    assert batch.has_dense.all() and batch.dense.shape[:2] == (64, 3)
    assert 0.8 < batch.has_dense_negative.float().mean() <= 1
    for row in range(64):
        for slot in range(3):
            scene = scenes.scene(row)
            assert holds(read(said(batch.dense[row, slot])), scene)
            false = not holds(read(said(batch.dense_negatives[row, slot])), scene)
            assert batch.has_dense_negative[row, slot] == false


# Tokens and pixels


def test_tokens_are_the_tokenizers_own():
    tokens = WorldTokens(TOKENIZER, 0)
    assert tokens.by_words
    rng = np.random.default_rng(0)
    words = rng.integers(-1, len(WORDS), (200, 16))  # beyond the context, too: they are cut
    assert torch.equal(tokens(words), TOKENIZER(texts(words)))


def test_a_tokenizer_that_does_not_split_at_words_gets_whole_texts():
    def tokenize(given) -> torch.Tensor:
        rows = [[1, *text.encode(), 2] for text in given]  # spaces are tokens
        return torch.tensor([(row + [0] * 90)[:90] for row in rows])

    data = opened(tokenize=tokenize)
    assert not data.tokens.by_words
    batch = data.batch(0, 0)
    found = [bytes(t for t in row.tolist() if t > 2).decode() for row in batch.captions]
    assert found == [said(row) for row in opened().batch(0, 0).captions]


@pytest.mark.parametrize("side", [32, 64, 96])
def test_pictures_are_scaled_as_the_model_scales_them(side):
    preprocess = transform(side)
    data = opened(preprocess=preprocess, batch=16)
    assert data.pictures.on_device
    scenes = data.edits(data.samples(0, 0)).scenes
    wanted = torch.stack(
        [preprocess(Image.fromarray(p)) for p in draw([scenes.scene(row) for row in range(16)])]
    )
    tables = map(torch.from_numpy, scenes.table())
    for found in (data.batch(0, 0).images, data.pictures.tensors(*tables)):
        off = (found - wanted).abs() * torch.tensor(STD)[:, None, None] * 255
        assert off.max() < 2.5 and off.mean() < 0.05  # levels of 255


def test_a_preprocessing_that_augments_is_seeded_by_the_sample():
    def noisy(image: Image.Image) -> torch.Tensor:
        return transform()(image) + torch.rand(3, 1, 1)

    data, halves = (
        opened(preprocess=noisy, batch=8),
        [opened(preprocess=noisy, batch=8, rank=r, ranks=2) for r in (0, 1)],
    )
    assert not data.pictures.on_device
    images = data.batch(0, 0).images
    torch.manual_seed(1)
    assert torch.equal(images, data.batch(0, 0).images)
    assert torch.equal(images, torch.cat([half.batch(0, 0).images for half in halves]))
    noise = images - opened(batch=8).batch(0, 0).images
    assert len(noise.mean(dim=(2, 3)).unique()) == 24


def test_pictures_may_be_painted_by_the_process_that_trains():
    early, late = (opened(batch=16, negative_images=True) for _ in range(2))
    late.paints_late = True  # as on a GPU
    assert isinstance(late.prepare(0, 1).content["images"], tuple)
    one, other = early.batch(0, 1), late.batch(0, 1)
    for name in ("images", "negative_images"):
        off = (getattr(one, name) - getattr(other, name)).abs() * torch.tensor(STD)[:, None, None]
        assert off.max() < 1.5 / 255 and off.mean() < 1e-4  # NumPy and torch round alike, almost
    assert torch.equal(one.negatives, other.negatives)


# --- two scenes side by side, and noun phrases ---------------------------------------------------


def joined_parts(data: WorldData, step: int):
    samples = data.samples(0, step)
    edits = data.edits(samples)
    words, masks, scenes = data._joined(samples, edits)
    said_of = {name: texts(part.reshape(len(samples), -1)) for name, part in words.items()}
    return edits, said_of, (masks, scenes)


def test_two_scenes_are_said_in_either_order_and_with_a_word_exchanged():
    data = opened(batch=128, joined=True, tokenize=wide_tokenizer())
    edits, said_of, (masks, _) = joined_parts(data, 0)
    others = data.edits(data.samples(0, 0) + 2**40)
    false = 0
    for row in range(128):
        first, second = (texts(one.words()[0])[row] for one in (edits, others))
        assert holds(read(first), edits.scenes.scene(row))
        assert holds(read(second), others.scenes.scene(row))
        assert said_of["captions"][row] == f"{first} and {second}"
        assert said_of["positives"][row] == f"{second} and {first}"
        negative = said_of["negatives"][row]
        if masks["has_negative"][row]:
            assert negative not in (said_of["captions"][row], said_of["positives"][row])
            assert sorted(_words(negative)) == sorted(_words(f"{first} and {second}"))
            words = negative.split()  # the joint may be any "and"
            cuts = [i for i, word in enumerate(words) if word == "and"]
            halves = [(" ".join(words[:i]), " ".join(words[i + 1 :])) for i in cuts]
            readable = [half for half in halves if all(map(_is_caption, half))]
            assert readable  # two captions again, with the right articles
            one, two = readable[0]
            pair = (edits.scenes.scene(row), others.scenes.scene(row))
            true = any(holds(read(one), a) and holds(read(two), b) for a, b in (pair, pair[::-1]))
            false += not true
    assert masks["has_negative"].float().mean() > 0.95
    assert false > 0.9 * int(masks["has_negative"].sum())  # a rule makes them: seldom one is true


def _is_caption(text: str) -> bool:
    try:
        read(text)
    except GrammarError:
        return False
    return True


def wide_tokenizer():
    return open_clip.SimpleTokenizer(str(BASE / MERGES), context_length=40)


def test_a_picture_shows_both_scenes_at_half_their_width():
    data = opened(batch=6, joined=True, tokenize=wide_tokenizer())
    _, _, (_, (left, right)) = joined_parts(data, 0)
    batch = data.batch(0, 0)
    for row in range(6):
        pictures = draw([left.scene(row), right.scene(row)])
        halves = [(p[:, ::2].astype(int) + p[:, 1::2]) // 2 for p in pictures]
        expected = np.concatenate(halves, axis=1).astype(np.uint8)
        drawn = transform()(Image.fromarray(expected))
        assert torch.allclose(batch.images[row], drawn, atol=1e-5)
    tables = [torch.from_numpy(table) for some in (left, right) for table in some.table()]
    assert torch.allclose(data.pictures.tensors(*tables), batch.images, atol=2 / 255)  # as on a GPU


def test_every_second_batch_has_single_images_and_captions_alone():
    data = opened(batch=4, joined=True, size=12, tokenize=wide_tokenizer())  # 3 steps an epoch
    kinds = [bool(data.batch(*divmod(step, 3)).has_positive.any()) for step in range(6)]
    assert kinds == [True, False, True, False, True, False]
    plain, single = data.batch(0, 1), opened(batch=4, size=12, tokenize=wide_tokenizer())
    assert torch.equal(plain.images, single.batch(0, 1).images)
    assert [said(t) for t in plain.captions] == [said(t) for t in single.batch(0, 1).captions]
    assert not plain.has_negative.any()


def test_phrases_are_those_of_the_caption():
    batch = opened(batch=64, dense=3, phrases=True, negatives=0).batch(0, 0)
    assert batch.has_dense.tolist() == [[True, True, False]] * 64
    for row in range(64):
        caption = said(batch.captions[row])
        first, second = (said(batch.dense[row, k]) for k in (0, 1))
        assert caption.startswith(f"{first} ") and caption.endswith(f" {second}")
    assert batch.dense_negatives is None


def test_joined_batches_do_not_depend_on_ranks():
    settings = {"joined": True, "tokenize": wide_tokenizer(), "batch": 8}
    whole = opened(**settings).batch(0, 2)
    halves = [opened(**settings, rank=r, ranks=2).batch(0, 2) for r in (0, 1)]
    assert torch.equal(whole.images, torch.cat([half.images for half in halves]))
    said_whole = [said(t) for t in whole.negatives[:, 0]]
    assert said_whole == [said(t) for half in halves for t in half.negatives[:, 0]]
