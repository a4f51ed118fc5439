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

from counterpoint._util.progress import Quiet
from counterpoint.generation.llm import ChatMethod, ChatModel, answers
from counterpoint.generation.registry import Draft, Rejection

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


def test_the_page_has_the_four_templates() -> None:
    assert list(TEMPLATES) == list(dict.fromkeys(name for name, *_ in ANSWERS))


@pytest.mark.parametrize(("name", "caption", "answer", "reason"), ANSWERS)
def test_an_answer_in_the_authors_form_is_read(
    server: Server,
    local_network: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    caption: str,
    answer: str,
    reason: str,
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path))
    endpoint = server.new_endpoint()
    endpoint.says = answer
    file = tmp_path / f"{name}.toml"
    file.write_text(TEMPLATES[name])
    with ChatModel("m") as model:
        [[made]] = ChatMethod(str(file), model).make([caption], [0], Quiet())
    sent = question(endpoint.asked[0].body)
    told = tomllib.loads(TEMPLATES[name])["steps"][0]
    assert sent == f"PASTE\n\n{told['ask'].strip().replace('{caption}', caption)}"
    if reason:
        assert made == Rejection(reason)
    else:
        assert isinstance(made, Draft)
        assert answer.strip().endswith(made.text) and made.text != caption
