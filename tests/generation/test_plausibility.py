"""The n-gram model that ranks drafts, and the ranking."""

from __future__ import annotations

import pickle
import runpy
import zipfile
from collections import Counter
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from caption_grammar import captions
from errors import raises
from hypothesis import given, settings, strategies as st
from rule_support import read_examples

from counterpoint.generation.drafts import (
    IMPLAUSIBLE,
    MADE,
    TextSettings,
    make_by_rules,
    open_ranker,
    ranked,
)
from counterpoint.generation.inputs.captions import SourceCaption
from counterpoint.generation.language import plausibility
from counterpoint.generation.language.plausibility import load, shipped, words_of
from counterpoint.generation.pairs import Draft

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "fit_plausibility.py"))
fit, write = SCRIPT["fit"], SCRIPT["write"]
MANY = captions(300, seed=5)
WORDS = sorted({word for caption in MANY for word in words_of(caption)} | {"zyzzyva", "griffins"})
TEXTS = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


def difference(caption: str, text: str) -> float:
    """The gain by whole scores, from its definition."""
    model = shipped()
    old, new = words_of(caption), words_of(text)
    more = (len(new) - len(old)) / len(old) if old else 0
    scores = model.score(" ".join(old)), model.score(" ".join(new))
    return scores[1] - scores[0] - 0.5 * more * scores[0]


@given(TEXTS, TEXTS)
@settings(max_examples=300, deadline=None)
def test_gain_by_the_changed_words_is_that_of_whole_texts(caption: str, text: str) -> None:
    words, other = caption.split(), text.split()
    words[3:4] = other[:1]
    for changed in (text, " ".join(words)):
        expected = pytest.approx(difference(caption, changed), abs=1e-6)
        assert shipped().gain(caption, changed) == expected
    assert shipped().gain(text, text) == 0


def test_what_can_be_photographed_is_more_plausible() -> None:
    for caption, better, worse in read_examples("rule")["more_plausible"]:
        assert shipped().gain(caption, better) > shipped().gain(caption, worse) + 1


def test_probabilities_of_all_words_sum_to_at_most_one(tmp_path: Path) -> None:
    """Of words that were seen, after any history: what is left is for those that were not."""
    path = tmp_path / "model.npz"
    write(path, fit(MANY))
    model = load(path)
    known = [word for word in model._numbers.known if word != "<s>"]
    for history in ((), ("a",), ("a", "dog"), ("zyzzyva",), ("the", "zyzzyva")):
        numbers = [0, 0, *(model._numbers[word] for word in history)][-2:]
        total = sum(np.exp(model._surface(*numbers, model._numbers[word])) for word in known)
        assert 0.3 < total <= 1 + 1e-9


def test_counts_are_those_of_the_captions(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    texts = ["A dog and an apple.", "a dog with 2 apples", "The dog and 17 apples"]
    write(path, fit(texts))
    model = load(path)
    assert [model.count(*words.split()) for words in ("a dog", "an", "3 apples", "dog and")] == [
        *(2, 3, 2, 2)
    ]
    once = ("the dog", "with", "zebra", "a dog and", "", "a b c d")
    assert not any(model.count(*words.split()) for words in once)


def test_nothing_that_occurs_once_is_stored() -> None:
    arrays = fit([*MANY, "The unforgettable quizzical marmoset juggles seventeen persimmons."])
    for name, counts in arrays.items():
        assert not name.endswith("/n") or counts.min() >= 2
    words = Counter(word for caption in MANY for word in words_of(caption))
    stored = bytes(arrays["words"]).decode().split("\n")
    assert set(stored[1:]) == {word for word, count in words.items() if count > 1}
    assert b"persimmon" not in b"".join(array.tobytes() for array in arrays.values())


def test_the_same_captions_give_the_same_file(tmp_path: Path) -> None:
    one, two = tmp_path / "one.npz", tmp_path / "two.npz"
    write(one, fit(MANY))
    write(two, fit(MANY))
    assert one.read_bytes() == two.read_bytes()
    assert load(one).version == load(two).version != shipped().version
    assert load(one).gain(MANY[0], MANY[1]) == load(two).gain(MANY[0], MANY[1])


def no_arrays(path: Path) -> dict[str, bytes]:
    """Contents of files that are not arrays."""
    members = BytesIO()
    with zipfile.ZipFile(members, "w") as file:
        file.writestr("words.npy", b"x")
    objects = BytesIO()
    np.savez(objects, words=np.array([{}], dtype=object))
    content = path.read_bytes()
    return {
        "text": b"no model",
        "empty": b"",
        "cut": content[: len(content) // 2],
        "pickle": pickle.dumps({"words": 1}),
        "zip": members.getvalue(),
        "objects": objects.getvalue(),
    }


def damaged_arrays(arrays: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray | None]]:
    """What is wrong, and the arrays that make it so."""
    pairs, counts = arrays["surface/words2"], arrays["surface/words2/n"]
    far, once = pairs.copy(), counts.copy()
    far[0, -1], once[0] = 65000, 1
    words1, count1 = arrays["surface/words1"], arrays["surface/words1/n"]
    return {
        "format": {"format": np.frombuffer(b"plausibility 99", np.uint8)},
        "missing": {"skeleton/words3": None},
        "far": {"surface/words2": far},
        "once": {"surface/words2/n": once},
        "negative": {"surface/words2/n": -counts.astype(np.int64)},
        "shape": {"surface/words2": pairs[:1]},
        "classes": {"word_class": arrays["word_class"][:-1]},
        "history": {"surface/words1": words1[:, :0], "surface/words1/n": count1[:0]},
    }


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    arrays = fit(MANY[:100])
    path = tmp_path / "model.npz"
    write(path, arrays)
    load.__wrapped__(path)
    for how, content in no_arrays(path).items():
        path = tmp_path / f"{how}.npz"
        path.write_bytes(content)
        with raises("E-FILE-MALFORMED", path):
            load.__wrapped__(path)
    for how, changes in damaged_arrays(arrays).items():
        path = tmp_path / f"{how}.npz"
        write(path, {k: v for k, v in (arrays | changes).items() if v is not None})
        with raises("E-FILE-MALFORMED", path):
            load.__wrapped__(path)


def test_no_file(tmp_path: Path) -> None:
    with raises("E-FILE-UNREADABLE"):
        load(tmp_path / "none.npz")


def test_ranking_is_by_gain_with_some_chance() -> None:
    drafts = [Draft(f"text {number}", "swap") for number in range(6)]
    gains = [-1.0, -50.0, 0.0, -2.0, -60.0, -1.0]
    first: Counter[str] = Counter()
    for seed in range(400):
        found = ranked(drafts, gains, seed)
        assert [draft.text for draft in found[-2:]] == ["text 1", "text 4"]
        assert [draft.odd for draft in found] == [""] * 4 + [IMPLAUSIBLE] * 2
        assert sorted(draft.text for draft in found) == [draft.text for draft in drafts]
        assert found == ranked(drafts, gains, seed)
        first[found[0].text] += 1
    # The better, the more often first; as good ones about as often.
    assert first["text 2"] > first["text 0"] > first["text 3"] > 0
    assert abs(first["text 0"] - first["text 5"]) < 60


def test_a_replacement_has_a_higher_floor_than_a_negation() -> None:
    """A negation needs words that captions hardly have, and a replacement does not."""
    for type, gain, odd in (
        ("replace", -4.9, ""),
        ("replace", -5.1, IMPLAUSIBLE),
        ("negate", -19.0, ""),
        ("negate", -21.0, IMPLAUSIBLE),
        ("shuffle", -99.0, ""),
    ):
        [found] = ranked([Draft("text", type)], [gain], 0)  # type: ignore[arg-type]
        assert found.odd == odd, (type, gain)


def test_a_draft_does_not_change_the_order_of_others() -> None:
    drafts = [Draft(f"text {number}", "replace") for number in range(8)]
    gains = [-0.5 * number for number in range(8)]
    for seed in range(50):
        whole = ranked(drafts, gains, seed)
        part = ranked(drafts[::2], gains[::2], seed)
        assert part == [draft for draft in whole if draft in part]


def sources_of(texts: list[str]) -> list[SourceCaption]:
    return [SourceCaption(str(n), None, caption) for n, caption in enumerate(texts)]


def made(caption: str, *methods: str, **options: object) -> tuple[list[str], dict[str, int]]:
    asked = TextSettings("negative", methods, **options)  # type: ignore[arg-type]
    found = make_by_rules([SourceCaption("0", None, caption)], asked)
    return [pair.text for pair in found.pairs], {why: n for (_, why), n in found.counts.items()}


def test_implausible_texts_are_rejected_and_counted() -> None:
    texts, counts = made("A man is riding a horse.", "negclip")
    assert texts == []
    assert any(why.startswith(IMPLAUSIBLE) for why in counts)
    asked = TextSettings("negative", ("negclip",), keep_refused=True)
    [pair] = make_by_rules(sources_of(["A man is riding a horse."]), asked).pairs
    assert pair.refused.startswith(IMPLAUSIBLE)
    assert pair.text == "A horse is riding a man."
    texts, counts = made("A man is riding a horse.", "negclip", plausible="none")
    assert texts == ["A horse is riding a man."]
    assert not any(why.startswith(IMPLAUSIBLE) for why in counts)


def test_shuffles_are_not_ranked() -> None:
    for caption in MANY[:40]:
        assert made(caption, "shuffle") == made(caption, "shuffle", plausible="none")


def test_the_version_of_a_pair_names_the_model() -> None:
    def versions(method: str, plausible: str) -> set[bool]:
        asked = TextSettings("negative", (method,), plausible=plausible)
        sources = sources_of(MANY[:20])
        return {shipped().version in pair.version for pair in make_by_rules(sources, asked).pairs}

    assert versions("crepe-replace", "shipped") == {True}
    assert versions("crepe-replace", "none") == versions("shuffle", "shipped") == {False}


def test_a_model_of_your_own_ranks(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    write(path, fit(MANY))
    names = ("crepe-replace", "svlc")
    sources = sources_of(MANY[:60])

    def texts(plausible: str) -> list[str]:
        asked = TextSettings("negative", names, plausible=plausible)
        return [pair.text for pair in make_by_rules(sources, asked).pairs]

    assert texts(str(path)) == texts(str(path)) != texts("shipped")
    assert texts("shipped") != texts("none")


def test_ranked_texts_are_more_plausible() -> None:
    """On the same captions; of each text against its caption."""
    model = plausibility.shipped()
    sources = sources_of(MANY)

    def mean(plausible: str) -> float:
        asked = TextSettings("negative", ("crepe-replace",), plausible=plausible)
        found = make_by_rules(sources, asked)
        assert found.counts["crepe-replace", MADE] > 100
        return float(np.mean([model.gain(pair.caption, pair.text) for pair in found.pairs]))

    assert mean("shipped") > mean("none") + 1


def test_one_caption_alone_gives_the_same_texts() -> None:
    """Blocks of captions are ranked together; a text must not depend on its block."""
    sources = sources_of(MANY[:150])
    asked = TextSettings("negative", ("crepe-replace", "negclip"))
    whole = make_by_rules(sources, asked).pairs
    for source in sources[60:70]:
        alone = make_by_rules([source], asked).pairs
        assert alone == [pair for pair in whole if pair.source == source.id]


def test_any_blind_model_ranks_and_a_text_does_not_depend_on_the_others() -> None:
    """`length` scores a text by its letters, the fewer the better: what it prefers can be seen."""
    ranker = open_ranker("length")
    assert ranker is not None
    pairs = [(MANY[0], MANY[0] + " far away"), (MANY[1], MANY[1]), (MANY[2], MANY[2][:-3])]
    longer, same, shorter = ranker.gains(pairs)
    assert longer < 0 == same < shorter
    assert [ranker.gains([pair])[0] for pair in pairs] == [longer, same, shorter]

    sources = sources_of(MANY[:40])
    asked = TextSettings("negative", ("crepe-replace",), plausible="length")
    together = make_by_rules(sources, asked).pairs
    alone = [pair for source in sources for pair in make_by_rules([source], asked).pairs]
    assert together == alone
    assert all("blind:length" in pair.version for pair in together)
    kept = make_by_rules(sources, TextSettings("negative", ("crepe-replace",), plausible="none"))
    added = [np.mean([len(p.text) - len(p.caption) for p in of]) for of in (together, kept.pairs)]
    assert added[0] < added[1]
