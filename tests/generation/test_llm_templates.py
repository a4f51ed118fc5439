"""The templates agree with themselves and with the papers; captions cannot leave their quotes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from errors import raises
from hypothesis import given, strategies as st

import counterpoint.generation.llm as package
from counterpoint.generation import chosen_methods
from counterpoint.generation.llm import answers
from counterpoint.generation.llm.answers import (
    UnusableAnswerError,
    answered,
    chained,
    in_format_of,
    judge,
    located,
    proposed,
    swapped,
)
from counterpoint.generation.llm.chat import why_not
from counterpoint.generation.llm.templates import (
    Shot,
    Step,
    Template,
    filled,
    messages,
    names,
    parse_template,
    quotable,
    read_template,
)

NAMES = names()
STEPS = [(name, step) for name in NAMES for step in read_template(name).steps]
TRICK = 'a dog"\nSentence: "{chosen} {new} {caption} %s \\"'


def test_there_is_a_template_for_every_method_of_the_papers() -> None:
    negatives = [
        "add-att",
        "add-obj",
        "replace-att",
        "replace-obj",
        "replace-rel",
        "swap-att",
        "swap-obj",
    ]
    expected = {f"llm/{prefix}{name}" for prefix in ("", "trohn-") for name in negatives}
    assert {n for n in NAMES if read_template(n).kind == "negative"} == expected
    assert set(NAMES) - expected == {"llm/replace", "llm/swap", "llm/verb", "llm/spatial"}
    for name in NAMES:
        template = read_template(name)
        assert template.group == ("trohn" if "trohn" in name else "llm")
        kind, _, subtype = name.removeprefix("llm/").removeprefix("trohn-").partition("-")
        if template.kind == "negative":
            assert (template.type, template.subtype) == (kind, subtype)


def test_temperatures_and_limits_are_the_papers() -> None:
    for name in NAMES:
        template = read_template(name)
        if name.startswith(("llm/replace-", "llm/add-")):
            assert [step.name for step in template.steps] == ["locate", "propose", "rewrite"]
            assert [step.temperature for step in template.steps] == [0, 1.5, 0]
        elif template.group == "trohn":  # sampled; 350 tokens; two examples
            [step] = template.steps
            assert (step.temperature, step.max_tokens, len(step.shots)) == (1, 350, 2)
        else:
            assert [step.temperature for step in template.steps] == [0]
    tokens = {name: read_template(name).steps[0].max_tokens for name in NAMES}
    assert tokens["llm/swap"] == 20
    assert tokens["llm/replace"] == tokens["llm/verb"] == tokens["llm/spatial"] == 30


def test_the_papers_numbers_of_examples_can_be_chosen() -> None:
    """SugarCrepe: seven or more; hard positives: 5, 0, 1, 1; TROHN: 2."""
    theirs = {"llm/swap": 5, "llm/replace": 0, "llm/verb": 1, "llm/spatial": 1}
    for name in NAMES:
        template = read_template(name)
        count = theirs.get(name, 2 if template.group == "trohn" else 7)
        chosen = template.with_shots(count)
        assert chosen.version == f"{template.version}+{count}-shots"
        for step, before in zip(chosen.steps, template.steps, strict=True):
            assert step.shots == (*before.shots, *before.more_shots)[:count]
            assert len(set(step.shots)) == count
            assert len(messages(step, PLAIN)) == 2 * count + 1
            assert messages(step, PLAIN)[0]["content"].startswith(step.instruction)
    with raises("E-SHOTS-MISSING", 2):
        read_template("llm/trohn-add-obj").with_shots(3)


def test_every_shot_is_an_answer_that_would_be_taken() -> None:
    """What the model is shown must pass what its answers must pass."""
    for name, step in STEPS:
        for shot in (*step.shots, *step.more_shots):
            assert would_be_taken(read_template(name), step, shot), (name, step.name, shot)


def would_be_taken(template: Template, step: Step, shot: Shot) -> bool:
    no = shot.answer.endswith(("No", "none"))
    plain = quotable(shot.caption) == shot.caption and quotable(shot.new) == shot.new
    if not plain or (why_not(template, shot.caption) is not None and not no):
        return False
    try:
        return is_read(template, step, shot)
    except UnusableAnswerError as error:
        return no and str(error) in (answers.NOTHING_LOCATED, answers.ANSWERED_NO)


def is_read(template: Template, step: Step, shot: Shot) -> bool:
    if step.answer == "list":
        return len(located(shot.answer, shot.caption, step.label)) >= 2
    if step.answer == "concept":
        return proposed(shot.answer, shot.caption, shot.chosen, step) in shot.answer
    if step.answer == "chain":
        sentence = chained(shot.answer, shot.caption, step)[2]
    elif step.answer == "swap":
        sentence = swapped(shot.answer, shot.caption, step)
    else:
        sentence = answered(shot.answer, step.label)
    judge(shot.caption, sentence, template.change)
    return step.answer == "chain" or in_format_of(shot.caption, sentence) == sentence


def test_every_place_of_a_prompt_is_filled() -> None:
    values = {"caption": "A CAPTION", "chosen": "CHOSEN", "new": "NEW"}
    expected = {"list": set(), "concept": {"chosen"}, "sentence": {"chosen", "new"}}
    for name, step in STEPS:
        talk = messages(step, values)
        assert [m["role"] for m in talk] == ["user", "assistant"] * len(step.shots) + ["user"]
        assert not re.search(r"\{\w+\}", "".join(m["content"] for m in talk)), name
        assert talk[0]["content"].startswith(step.instruction)
        places = set(re.findall(r"\{(\w+)\}", step.ask))
        three = len(read_template(name).steps) == 3
        assert places == {"caption"} | (expected[step.answer] if three else set()), name
        assert all(values[place] in talk[-1]["content"] for place in places), name
        if step.label:
            assert f'"{step.label}:"' in step.instruction or f"\n{step.label}:" in step.instruction


def test_the_papers_own_examples_are_not_in_the_prompts() -> None:
    text = "".join(m["content"] for _, step in STEPS for m in messages(step, PLAIN)).lower()
    for theirs in ("making pizzas", "side walk", "buckets", "squirrel", "pink shirt", "giraffes"):
        assert theirs not in text


PLAIN = {"caption": "x", "chosen": "y", "new": "z"}


# --- captions ----------------------------------------------------------------------------------


def test_a_caption_cannot_leave_its_quotes() -> None:
    for name, step in STEPS:
        plain, tricked = (
            messages(step, PLAIN | {"caption": text})[-1]["content"] for text in ("x", TRICK)
        )
        assert tricked.count('"') == plain.count('"'), name
        assert tricked.count("\n") == plain.count("\n"), name
        assert "{chosen} {new} {caption} %s" in tricked  # as it stands


@given(st.text())
def test_whatever_is_filled_in_is_one_line_in_quotes(text: str) -> None:
    found = filled('Sentence: "{caption}"', {"caption": text})
    assert found.count('"') == 2 and len(found.splitlines()) == 1
    assert quotable(quotable(text)) == quotable(text)


def refused(name: str, caption: str) -> str | None:
    return why_not(read_template(name), caption)


def test_odd_captions_are_refused_without_asking() -> None:
    expected = dict.fromkeys(("", "   ", "...", "😀😀 🐶", "1 2 3"), "the caption has no words") | {
        "собака и кошка на улице": "the caption is not in Latin letters",
        "一只狗和一只猫": "the caption is not in Latin letters",
        "a dog and " * 250: "the caption has too many words",
        "a café and a jalapeño": None,
    }
    for name in NAMES:
        assert {caption: refused(name, caption) for caption in expected} == expected, name


def test_swapping_wants_and_and_fewer_than_15_words() -> None:
    """Hard positives' generate_hard_positives.py."""
    assert refused("llm/swap", "a dog and a cat") is None
    assert refused("llm/swap", "A dog AND a cat") is None
    assert refused("llm/swap", "sand on a beach") == answers.needs("and")
    fourteen = "a dog and " + " ".join(["x"] * 11)
    assert refused("llm/swap", fourteen) is None
    assert refused("llm/swap", fourteen + " x") == "the caption has too many words"
    assert refused("llm/replace", fourteen + " x") is None
    assert refused("llm/replace", " ".join(["word"] * 31)) == "the caption has too many words"


# --- files -------------------------------------------------------------------------------------


def test_an_unknown_name_is_one_sentence() -> None:
    with raises("E-METHOD-UNKNOWN", "llm/replace-obi") as caught:
        read_template("llm/replace-obi")
    assert "Did you mean 'llm/replace-obj'" in str(caught.value)
    with raises("E-METHOD-UNKNOWN"):
        read_template("llm/../replace")


def test_a_malformed_template_is_not_read() -> None:
    path = Path(package.__file__).parent / "templates" / "swap.toml"
    good = tomllib.loads(path.read_text())
    assert isinstance(parse_template("llm/swap", good), Template)
    for wrong in ({"kind": "neutral"}, {"steps": []}, {"colour": "red"}, {"change": {"least": 1}}):
        with pytest.raises(ValueError, match=rf"(?i){next(iter(wrong))}"):
            parse_template("llm/swap", good | wrong)
    with pytest.raises(ValueError, match="poem"):
        parse_template("llm/swap", good | {"steps": [good["steps"][0] | {"answer": "poem"}]})


def test_a_chain_is_read_strictly() -> None:
    step = read_template("llm/trohn-replace-obj").steps[0]
    last = "New thing: cat\nNew sentence: x"
    wrong = {
        "": answers.EMPTY,
        "No": answers.ANSWERED_NO,
        "New sentence: a cat": answers.no_line("Things"),
        f"Things: a\nPicked thing: dog\n{last}\nDone.": answers.EXTRA_LINES,
        f"Things: none\nPicked thing: none\n{last}": answers.NOTHING_LOCATED,
        f"Things: fox\nPicked thing: fox\n{last}": answers.NOT_IN_CAPTION,
        f"Things: dog\nPicked thing: dog\n{last}".replace("cat", "dogs"): (
            "the new words are the old ones"
        ),
        f"Picked thing: dog\nThings: dog\n{last}": answers.EXTRA_LINES,
    }
    for answer, reason in wrong.items():
        with pytest.raises(UnusableAnswerError, match=re.escape(reason)):
            chained(answer, "a dog on a bed", step)
    good = "Things: dog, bed\nPicked thing: dog\nNew thing: cat\nNew sentence: a cat on a bed"
    assert chained(good, "a dog on a bed", step) == ("dog", "cat", "a cat on a bed")


OWN = Path(__file__).with_name("own_template.toml").read_text()


def test_a_users_own_file(tmp_path: Path) -> None:
    path = tmp_path / "my words.toml"
    path.write_text(OWN)
    template = read_template(str(path))
    assert re.fullmatch(r"llm/my words@[0-9a-f]{8}", template.name)
    assert (template.kind, template.version, template.steps[0].temperature) == (
        "positive",
        "3",
        0.7,
    )
    path.write_text(OWN.replace("other words", "your own words"))
    assert read_template(str(path)).name != template.name  # what was asked is in the name
    assert chosen_methods([str(path)], "positive").llm == (str(path),)
    with raises("E-METHOD-KIND"):
        chosen_methods([str(path)], "negative")


MISTAKES = [
    ('summary = "mine"', "", "has no 'summary'"),
    ('version = "3"', "version = 3", "'version' of the file is 3"),
    ("least = 3", "least = true", "another type"),
    ("{caption}", "{captoin}", "nothing else in braces"),
    ("{caption}", "{caption} {chosen}", "nothing else in braces"),
    ('"sentence"\nlabel = ""', '"list"\nlabel = "Things"', "by a sentence"),
    ("[[steps]]", "[steps]", "no [[steps]]"),
    ("temperature = 0.7", "temperature = 9", "from 0 to 2"),
    ('answer = "a hound"', 'reply = "a hound"', "has no 'answer'"),
    ("[change]", "[change", "not a template"),
    ('type = "paraphrase"', 'type = "poem"', "'poem'"),
]


def test_a_users_mistake_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    for old, new, said in MISTAKES:
        assert old in OWN
        path.write_text(OWN.replace(old, new))
        with raises("E-TEMPLATE-INVALID", path, said):
            read_template(str(path))
    with raises("E-FILE-MISSING"):
        read_template(str(tmp_path / "gone.toml"))
    with raises("E-FILE-UNREADABLE"):
        (tmp_path / "folder.toml").mkdir()
        read_template(str(tmp_path / "folder.toml"))
