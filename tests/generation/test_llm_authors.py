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
AND = "a bathroom with a sink, toilet and shower"
KITCHEN = "A man is in a kitchen making pizzas."
PIZZA = """Nouns: ["man", "kitchen", "pizzas"]
Selected noun: man
New noun: woman
New sentence: A woman is in a kitchen making pizzas."""
CAT = "A cat resting on a laptop next to a person."
CATS = """Yes
Swappable noun phrases: laptop, person
Output: A cat resting on a person next to a laptop."""
POSSIBLE = (
    "Is it possible to swap noun phrases in the input sentence to generate a new sentence that is "
    "different from the input sentence and makes logical sense?"
)
HORSES = "three people riding horses on a beach"
ELDERLY = """Objects: ['three people', 'horses', 'beach']
Selected object: three people
New attribute: elderly
New sentence: three elderly people riding horses on a beach"""


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
# The other answers that the papers print: template, caption, answer.
PRINTED = """
sugarcrepe-replace-obj
a woman seated on wall and birds besides her
Nouns: ['woman', 'wall', 'birds']
Selected noun: wall
New noun: bench
New sentence: A woman seated on a bench and birds besides her.

sugarcrepe-replace-att
a blue bike parked on a side walk.
Adjectives: ["blue"]
Selected adjective: blue
New adjective: red
New sentence: a red bike parked on a side walk.

sugarcrepe-replace-att
The kitchen is clean and ready for us to see.
Adjectives: ["clean", "ready"]
Selected adjective: clean
New adjective: dirty
New sentence: The kitchen is dirty and ready for us to see.

sugarcrepe-replace-rel
The dining table near the kitchen has a bowl of fruit on it.
Relationships: ["near", "on"]
Selected relationship: near
New relationship: far from
New sentence: The dining table far from the kitchen has a bowl of fruit on it.

sugarcrepe-replace-rel
A couple of buckets in a white room.
Relationships: ['in']
Selected relationship: in
New relationship: outside
New sentence: A couple of buckets outside a white room.

sugarcrepe-swap-obj
A plate of donuts with a person in the background.
Yes
Swappable noun phrases: a plate of donuts, a person
Output: A person with a plate of donuts in the background.

sugarcrepe-swap-att
A girl in a pink shirt holding a blue umbrella.
Yes
Swappable attributes: pink, blue
Output: A girl in a blue shirt holding a pink umbrella.

sugarcrepe-swap-att
A girl with a green shirt brushing her teeth with a blue toothbrush.
Yes
Swappable attributes: green, blue
Output: A girl with a blue shirt brushing her teeth with a green toothbrush.

sugarcrepe-add-obj
An elephant standing under the shade of a tree.
Objects: ["elephant", "shade of a tree"]
Selected object: elephant
New object: squirrel
New sentence: An elephant and a squirrel standing under the shade of a tree.

sugarcrepe-add-obj
A bench at the beach next to the sea
Objects: ['bench', 'beach', 'sea']
Selected object: bench
New object: umbrella
New sentence: An umbrella and a bench at the beach next to the sea

sugarcrepe-add-att
A large white airplane and a person on a lot.
Objects: ["airplane", "person"]
Selected object: airplane
New attribute: blue
New sentence: A large white and blue airplane and a person on a lot.

hp-replace
Two baby goats stand together on worn stones
Two baby kids stand together on worn rocks

hp-replace
a field that ha a bunch of sheep in it
a meadow that has a flock of sheep in it

hp-replace
A side view mirror on the handle bars of a motorcycle
A side view mirror on the handle bars of a motorbike

hp-swap
three giraffes and two antelope
two antelopes and three giraffes

hp-swap
a blue and white stained glass clock shows the time
a white and blue stained glass clock shows the time

hp-swap
a mixture of rice and broccoli are put together
a mixture of broccoli and rice are put together

hp-swap
there is a man wearing glasses and holding a wine bottle
there is a man holding a wine bottle and wearing glasses

hp-swap
An older gentleman in a white shirt and black bow tie
An older gentleman in a black bow tie and white shirt
"""

# Template, caption, answer, and the text that is kept or the reason why there is none.
ANSWERS = [
    ("hp-swap", AND, "a bathroom with a sink, shower and toilet", ""),
    ("hp-swap", AND, "Output: a bathroom with a sink, shower and toilet", ""),
    ("hp-swap", AND, f"Input: {AND}\nOutput: a bathroom with a sink, shower and toilet", ""),
    ("hp-swap", AND, f"Output: {AND}", answers.UNCHANGED),
    ("sugarcrepe-replace-obj", KITCHEN, PIZZA, ""),
    ("sugarcrepe-replace-obj", KITCHEN, f"Original sentence: {KITCHEN}\n{PIZZA}\n", ""),
    ("sugarcrepe-replace-obj", KITCHEN, "Nouns: []", answers.NOTHING_LOCATED),
    ("sugarcrepe-replace-obj", KITCHEN, f"{PIZZA}\nDone.", answers.EXTRA_LINES),
    ("sugarcrepe-swap-obj", CAT, CATS, ""),
    ("sugarcrepe-swap-obj", CAT, f"{POSSIBLE} {CATS}", ""),
    ("sugarcrepe-swap-obj", CAT, f"Input: {CAT}\n{POSSIBLE}\n{CATS}", ""),
    ("sugarcrepe-swap-obj", CAT, "No", answers.ANSWERED_NO),
    ("sugarcrepe-swap-obj", CAT, f"{POSSIBLE} No", answers.ANSWERED_NO),
    ("sugarcrepe-swap-obj", CAT, CATS.replace("Yes", "Maybe"), answers.EXTRA_LINES),
    ("sugarcrepe-add-att", HORSES, ELDERLY, ""),
    *((*block.split("\n", 2), "") for block in PRINTED.strip().split("\n\n")),
]


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
