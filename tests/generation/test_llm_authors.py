"""Prompts in the authors' own forms: the templates of the documentation, against a local server.

The answers are those that the papers print (SugarCrepe, figures 7 to 9; Hard Positives, C.1), and
the ways in which a model repeats the question around them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import api_server
import llm_server
import pytest
from api_server import KEY, Server, serve
from llm_server import Asked

from counterpoint.generation.llm import ChatMethod, ChatModel, answers
from counterpoint.generation.llm.templates import read_template
from counterpoint.generation.pairs import Draft, Rejection

PAGE = Path(__file__).parents[2] / "docs" / "generate" / "language-models.md"
TEMPLATES = {
    block.split(".toml")[0].removeprefix("# "): block
    for block in re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
}
KITCHEN = "A man is in a kitchen making pizzas."
PIZZA = """Nouns: ["man", "kitchen", "pizzas"]
Selected noun: man
New noun: woman
New sentence: A woman is in a kitchen making pizzas."""


def other(name: str, *changes: tuple[str, str]) -> str:
    """A documented template for another subtype, as the page says."""
    text = TEMPLATES[name]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


WRITE, ADD, SWAP = "sugarcrepe-replace-obj", "sugarcrepe-add-att", "sugarcrepe-swap-obj"
OTHERS = {
    "hp-replace": other(
        "hp-swap",
        ('type = "swap"', 'type = "replace"'),
        ('needs = "and"', ""),
        ('"bag"', '"words"'),
        ("share = 0.1", "share = 0.3"),
        ("Input: {caption}\nOutput:", "{caption}"),
        ("= 20", "= 30"),
    ),
    "sugarcrepe-replace-att": other(
        WRITE, ('"obj"', '"att"'), ("Nouns", "Adjectives"), ("noun", "adjective")
    ),
    "sugarcrepe-replace-rel": other(
        WRITE, ('"obj"', '"rel"'), ("Nouns", "Relationships"), ("noun", "relationship")
    ),
    "sugarcrepe-add-obj": other(ADD, ('"att"', '"obj"'), ("New attribute", "New object")),
    "sugarcrepe-swap-att": other(
        SWAP, ('"obj"', '"att"'), ("noun phrases", "attributes"), ("SWAP-OBJ", "SWAP-ATT")
    ),
}
# Template, caption, answer, and the reason why there is no text, if there is none.
ANSWERS = tomllib.loads(Path(__file__).with_name("llm_answers.toml").read_text())["authors"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        llm_server.take_over(patch)
        patch.setattr(api_server, "read", lambda body: Asked("", "unused", question(body), body))
        with serve() as served:
            yield served


def question(body: dict[str, object]) -> str:
    return body["messages"][-1]["content"]  # type: ignore[index]


def test_every_template_is_asked() -> None:
    assert {*TEMPLATES, *OTHERS} == {name for name, *_ in ANSWERS}


def test_trohns_example_is_a_turn_of_its_own(
    server: Server, local_network: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One example is in the authors' text, another is a question with its answer before ours."""
    example = f'[{{ caption = "{KITCHEN}", answer = """{PIZZA}""" }}]'
    (tmp_path / "trohn.toml").write_text(
        TEMPLATES[WRITE].replace("shots = []", f"shots = {example}")
    )
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path))
    endpoint = server.new_endpoint()
    endpoint.says = PIZZA.replace("kitchen", "garage")
    with ChatModel("m") as model:
        [[made]] = ChatMethod(str(tmp_path / "trohn.toml"), model).make(
            [KITCHEN.replace("kitchen", "garage")], [0]
        )
    turns = endpoint.asked[0].body["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns[1]["content"] == PIZZA and turns[2]["content"].endswith(
        "A man is in a garage making pizzas."
    )
    assert isinstance(made, Draft) and made.text == "A woman is in a garage making pizzas."


def test_an_answer_in_the_authors_form_is_read(
    server: Server, local_network: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for number, (name, caption, answer, reason) in enumerate(ANSWERS):
        endpoint = server.new_endpoint()
        endpoint.says = answer
        file = tmp_path / f"{name}.toml"
        template = (TEMPLATES | OTHERS)[name]
        file.write_text(template)
        with ChatModel("m", tmp_path / str(number)) as model:
            [[made]] = ChatMethod(str(file), model).make([caption], [0])
        sent = question(endpoint.asked[0].body)
        step = tomllib.loads(template)["steps"][0]
        assert sent == f"PASTE\n\n{step['ask'].strip().replace('{caption}', caption)}"
        if reason:
            assert made == Rejection(reason), (name, answer)
            continue
        assert isinstance(made, Draft), (name, answer, made)
        said = answer.strip().lower().rstrip(".")  # the caption's capital and full stop are kept
        assert said.endswith(made.text.lower().rstrip(".")) and made.text != caption


def test_the_papers_examples_are_small_changes_for_our_own_templates() -> None:
    for name, caption, answer, reason in ANSWERS:
        if not reason:
            own = name.replace("sugarcrepe-", "llm/").replace("hp-", "llm/")
            sentence = answer.strip().splitlines()[-1].rpartition(": ")[2]
            text = answers.in_format_of(caption, sentence)
            answers.judge(caption, text, read_template(own).change)
            assert text[0].isupper() == caption[0].isupper()
