"""`llm/...` against a local server: what is asked, what is kept, what may go wrong."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import llm_server
import pytest
from api_server import KEY, Endpoint, Server, serve
from api_support import without_pauses
from errors import raises
from llm_server import MARK, Asked
from typer.testing import CliRunner

import counterpoint.generation.llm as package
from counterpoint._util.errors import ModelError
from counterpoint.cli.app import app
from counterpoint.generation.llm import ChatMethod, ChatModel, answers
from counterpoint.generation.llm.templates import messages, names, read_template
from counterpoint.generation.pairs import Draft, Rejection

CAPTIONS = [f"cat{n} sits by the red box and a dog{n}" for n in range(12)]
SEEDS = list(range(100, 112))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        llm_server.take_over(patch)
        with serve() as served:
            yield served


@pytest.fixture
def endpoint(
    server: Server, local_network: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Endpoint:
    without_pauses(monkeypatch)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path))
    for name in ("CONCURRENCY", "TIMEOUT", "PRICE"):
        monkeypatch.delenv(f"COUNTERPOINT_API_{name}", raising=False)
    return server.new_endpoint()


def make(
    name: str,
    captions: list[str] = CAPTIONS,
    seeds: list[int] | None = None,
    *,
    model: str = "m",
) -> list[Draft | Rejection]:
    seeds = SEEDS[: len(captions)] if seeds is None else seeds
    with ChatModel(model) as served:
        made = ChatMethod(name, served).make(captions, seeds)
    assert all(len(each) == 1 for each in made)
    return [each for [each] in made]


def why(made: list[Draft | Rejection]) -> Counter[str]:
    return Counter(each.reason if isinstance(each, Rejection) else "" for each in made)


def questions(endpoint: Endpoint) -> list[Asked]:
    return [asked for asked in endpoint.asked if isinstance(asked, Asked)]


# --- what is asked -----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_replacement_takes_three_questions(endpoint: Endpoint) -> None:
    made = make("llm/replace-obj")
    for n, draft in enumerate(made):
        assert isinstance(draft, Draft) and (draft.type, draft.subtype) == ("replace", "obj")
        pattern = rf"{MARK}\d+ sits by the red box and a dog{n}|(cat{n} .* a {MARK}\d+)"
        assert re.fullmatch(pattern, draft.text)
    asked = questions(endpoint)
    assert [a.label for a in asked] == ["Things"] * 12 + ["New thing"] * 12 + ["New sentence"] * 12
    steps = read_template("llm/replace-obj").steps
    for number, step in enumerate(steps):
        for each in asked[12 * number : 12 * number + 12]:
            assert each.body["temperature"] == step.temperature
            assert each.body["max_tokens"] == step.max_tokens
            assert ("seed" in each.body) == (step.temperature > 0)
            assert each.body["model"] == "m"
            assert each.body["messages"][:-1] == messages(step, {"caption": "", **NO})[:-1]
    # Chance chooses: among twelve captions, each of the two words at least twice.
    chosen = Counter(a.question.split('Thing: "')[1][:3] for a in asked[12:24])
    assert set(chosen) == {"cat", "dog"} and min(chosen.values()) >= 2
    assert len({a.body["seed"] for a in asked[12:24]}) == 12


NO = {"chosen": "", "new": ""}


@pytest.mark.slow
def test_the_same_seed_makes_the_same_and_another_another(endpoint: Endpoint) -> None:
    first = make("llm/replace-att")
    before = len(endpoint.asked)
    assert make("llm/replace-att") == first and len(endpoint.asked) == before
    other = make("llm/replace-att", seeds=[seed + 1000 for seed in SEEDS])
    assert other != first
    labels = Counter(a.label for a in questions(endpoint)[before:])
    assert labels["Adjectives"] == 0  # what is without chance does not hang on the seed
    assert labels["New adjective"] == 12
    assert make("llm/replace-att", CAPTIONS[::-1], SEEDS[::-1]) == first[::-1]


@pytest.mark.slow
def test_every_method_makes_its_kind(endpoint: Endpoint) -> None:
    caption = "Cats and some dogs."
    for name in names():
        before, template = len(endpoint.asked), read_template(name)
        [made] = make(name, [caption], [1], model=name)
        assert isinstance(made, Draft), made
        assert (made.type, made.subtype) == (template.type, template.subtype)
        assert made.text.endswith(".") and made.text[0].isupper() and made.text != caption
        if template.type == "swap":
            assert made.text.lower() == "dogs and some cats."
        assert len(endpoint.asked) - before == len(template.steps)


def test_the_version_names_the_template_and_what_answered(endpoint: Endpoint) -> None:
    with ChatModel("m") as model:
        method = ChatMethod("llm/swap-obj", model)
        assert (method.name, method.version) == ("llm/swap-obj", "1 m")
        method.make(CAPTIONS[:1], [1])
        assert method.version == "1 snapshot-1"
        endpoint.model = "snapshot-2"
        again = ChatMethod("llm/swap-obj", model)
        again.make(CAPTIONS[:1], [1])
        assert again.version == "1 snapshot-1"  # kept with the answer
        again.make(CAPTIONS[:2], [1, 1])
        assert again.version == "1 snapshot-1+snapshot-2"


@pytest.mark.slow
def test_ones_own_template_and_another_number_of_examples(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    """A copy of a template, given by its path, asks what the template asks."""
    text = resources.files(package).joinpath("templates", "replace-obj.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('version = "1"', 'version = "my 2"'))
    with ChatModel("m") as model:
        method = ChatMethod(str(path), model, shots=7)
        assert method.name.startswith("llm/mine@") and method.version == "my 2+7-shots m"
        [[made]] = method.make(CAPTIONS[:1], [1])
    assert isinstance(made, Draft) and (made.type, made.subtype) == ("replace", "obj")
    for asked in questions(endpoint):
        assert len(asked.body["messages"]) == 15
        shown = [m["content"] for m in asked.body["messages"][1::2]]
        [step] = [s for s in method.template.steps if s.label == asked.label]
        assert shown == [shot.answer for shot in step.shots] and len(shown) == 7


def test_whether_the_model_wrote_a_sentence_is_kept(endpoint: Endpoint) -> None:
    for number, (caption, says, text, sentence) in enumerate(
        [
            ("a red box", "a blue box.", "a blue box", True),
            ("a red box", "'A blue box.'", "a blue box", True),
            ("a red box", "a blue box", "a blue box", False),
            ("A red box.", "A blue box.", "A blue box.", True),
            ("is it red?", "is it blue?", "is it blue?", False),
        ]
    ):
        endpoint.says = says
        [made] = make("llm/verb", [caption], model=f"m{number}")
        assert isinstance(made, Draft) and (made.text, made.sentence) == (text, sentence)


def test_a_repeated_caption_is_asked_about_once(endpoint: Endpoint) -> None:
    made = make("llm/add-obj", [*CAPTIONS, CAPTIONS[0], ""], [*SEEDS, SEEDS[0], 1])
    assert made[12] == made[0] and len(endpoint.asked) == 36


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_useless_answer_is_counted_and_kept(endpoint: Endpoint) -> None:
    useless = {
        "Possible: No": answers.ANSWERED_NO,
        "Sure, I can!": answers.no_line("New sentence"),
        "": answers.CUT_OFF,
        "Possible: Yes\nSwapped: tin, can\nNew sentence: A tin.": answers.NOT_IN_CAPTION,
    }
    for number, (endpoint.says, reason) in enumerate(useless.items(), 1):
        for _ in range(2):
            assert why(make("llm/swap-obj", model=f"m{number}")) == {reason: 12}
        assert len(endpoint.asked) == 12 * number


def test_a_model_that_does_not_keep_the_form_is_an_error(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    out = tmp_path / "pairs.parquet"
    command = ["generate", "negatives", "world:size=20", "-M", "llm/swap-obj", "--model", "m"]
    endpoint.says = "Sure, I can!"
    for _ in range(2):
        done = CliRunner().invoke(app, [*command, "-o", str(out)])
        assert done.exit_code == 1 and out.is_file() and len(endpoint.asked) <= 20
        said = " ".join(done.stderr.split())
        assert "answers cannot be read, more than 10 %" in said and str(out) in said
    endpoint.says = "Possible: No"  # an answer
    done = CliRunner().invoke(app, [*command[:-1], "n", "-o", str(tmp_path / "o.parquet")])
    assert done.exit_code == 0, done.stderr


@pytest.mark.slow
def test_a_step_that_ends_a_caption_asks_no_more(endpoint: Endpoint) -> None:
    endpoint.says = "Things: none"
    assert why(make("llm/replace-obj")) == {answers.NOTHING_LOCATED: 12}
    assert len(endpoint.asked) == 12


@pytest.mark.slow
def test_a_rewrite_must_use_the_new_words_and_drop_the_old(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def badly(asked: Asked) -> str:
        if asked.label != "New sentence":
            return right(asked)
        if "cat0" in asked.caption:
            return f"New sentence: {asked.caption.replace('red', 'blue')}"
        return f"New sentence: {asked.caption} {llm_server.part(asked, 'New words')}"

    def replacing(asked: Asked) -> str:
        if asked.label != "New sentence":
            return right(asked)
        old, new = (llm_server.part(asked, name) for name in ("Thing", "New thing"))
        return f"New sentence: {asked.caption.replace(old, new)}"

    right = llm_server.reply
    monkeypatch.setattr(llm_server, "reply", badly)
    made = make("llm/replace-obj", CAPTIONS[:3])
    monkeypatch.setattr(llm_server, "reply", replacing)
    lost = make("llm/add-obj", CAPTIONS[:3])
    assert why(lost) == {"what should be added to is not in the new sentence": 3}
    assert why(made) == {
        "the new words are not in the new sentence": 1,
        "the old words are still in the new sentence": 2,
    }


@pytest.mark.slow
def test_refusals_and_filters_are_counted(endpoint: Endpoint) -> None:
    endpoint.refuses = "cat3"
    assert why(make("llm/swap-obj")) == {"": 11, "the server refused to answer": 1}
    endpoint.refuses = None
    endpoint.faults.extend(["filtered"] * 2)
    assert why(make("llm/swap-att")) == {"": 10, "the server refused to answer": 2}


@pytest.mark.slow
def test_one_rejected_request_does_not_end_the_others(endpoint: Endpoint) -> None:
    captions = [*CAPTIONS[:3], "a dog with too much and a cat"]
    assert why(make("llm/swap-obj", captions)) == {"": 3, "the server rejected the request": 1}
    before = len(endpoint.asked)
    with raises("E-REQUEST-REJECTED"):  # nothing has been answered yet
        make("llm/swap-obj", captions[::-1])
    assert len(endpoint.asked) == before


def test_odd_captions_ask_nothing(endpoint: Endpoint) -> None:
    odd = ["", "😀", "a dog and " * 250, "собака и кошка"]
    for name in names():
        assert all(isinstance(each, Rejection) for each in make(name, odd))
    assert make("llm/swap", []) == []
    assert endpoint.asked == []


# --- faults ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_does_not_pass_is_one_sentence(endpoint: Endpoint) -> None:
    for fault, words in [("500", "Error code: 500"), ("400", "rejects a request")]:
        before, endpoint.always_fault = len(endpoint.asked), fault
        with pytest.raises(ModelError) as error:
            make("llm/swap-obj")
        said = str(error.value)
        assert words in said and said.startswith("language model m: ") and KEY not in said
        assert said.endswith(".") and "\n" not in said
        assert len(endpoint.asked) - before <= 3  # a mistyped address is not asked for all captions


@pytest.mark.slow
def test_a_hopeless_fault_keeps_what_was_answered(endpoint: Endpoint) -> None:
    endpoint.faults.extend([*[""] * 6, "401"])
    with raises("E-ENDPOINT-FAILED"):
        make("llm/swap-obj")
    answered = endpoint.answered
    assert why(make("llm/swap-obj")) == {"": 12}
    assert answered >= 6 and endpoint.answered - 12 <= 8  # those in flight at most


def test_without_the_client_it_names_the_extra(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("counterpoint.models.api.Client")  # the door remembers it
    monkeypatch.setitem(sys.modules, "counterpoint.models.api.client", None)
    with raises("E-EXTRA-MISSING", "generate"):
        make("llm/swap-obj")


@pytest.mark.slow
def test_a_model_that_thinks_is_given_room(endpoint: Endpoint) -> None:
    endpoint.thinks = True
    assert why(make("llm/swap-obj", CAPTIONS[:3])) == {"": 3}
    sent = [a.body for a in questions(endpoint)]
    assert len(sent) == 3 and all(body["max_completion_tokens"] > 4096 for body in sent)
    assert not any({"temperature", "max_tokens", "seed"} & body.keys() for body in sent)
    # The question is the same, however it had to be put.
    endpoint.thinks = False
    make("llm/swap-obj", CAPTIONS[:3])
    assert len(endpoint.asked) == 3


def test_half_a_character_can_be_written(endpoint: Endpoint) -> None:
    endpoint.says = "cat0 sits by the \ud83d blue box and a dog0"
    [made] = make("llm/replace", CAPTIONS[:1])
    assert isinstance(made, Draft) and made.text.encode() and made.text.count("?") == 1


# --- before the start --------------------------------------------------------------------------


@pytest.mark.slow
def test_the_estimate_bounds_the_requests(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTERPOINT_API_PRICE", "3,15")
    captions = [*CAPTIONS[:3], "", "😀"]
    for name in names():
        start = len(endpoint.asked)
        with ChatModel(name) as model:
            method = ChatMethod(name, model)
            before = method.estimate(captions)
            assert before == method.estimate([*captions, ""]) and len(endpoint.asked) == start
            made = method.make(captions, list(range(5)))
        assert all(isinstance(each, Draft) for [each] in made[:3])
        assert before.requests == len(endpoint.asked) - start
        sent = [a.body["messages"] for a in questions(endpoint)[start:]]
        characters = sum(len(message["content"]) for talk in sent for message in talk)
        frames = 4 * sum(len(talk) for talk in sent)
        assert before.tokens_in == pytest.approx(characters / 4 + frames, rel=0.05)
        assert 0 < before.tokens_out < 3 * sum(s.max_tokens for s in read_template(name).steps)
        cost = (3 * before.tokens_in + 15 * before.tokens_out) / 1e6
        assert before.cost == pytest.approx(cost, abs=1e-4)


def test_without_a_price_there_is_no_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    method = ChatMethod("llm/swap", ChatModel("m"))
    monkeypatch.delenv("COUNTERPOINT_API_PRICE", raising=False)
    assert method.estimate(CAPTIONS).cost is None
    for wrong in ("5", "a,b", "1,-1", "nan,1", "1,2,3"):
        monkeypatch.setenv("COUNTERPOINT_API_PRICE", wrong)
        with raises("E-VARIABLE-INVALID", "COUNTERPOINT_API_PRICE"):
            method.estimate(CAPTIONS)


@pytest.mark.slow
def test_prompts_are_what_would_be_sent(endpoint: Endpoint) -> None:
    for name in names():
        with ChatModel(name) as model:
            method, start = ChatMethod(name, model), len(endpoint.asked)
            printed = list(method.prompts(CAPTIONS[0]))
            assert len(endpoint.asked) == start and len(printed) == len(method.template.steps)
            method.make(CAPTIONS[:1], [1])
        first = questions(endpoint)[start].body
        talk = "\n".join(f"[{m['role']}]\n{m['content']}" for m in first["messages"])
        assert printed[0].split("\n", 1)[1] == talk
        step = method.template.steps[0]
        assert f"temperature {step.temperature:g}, at most {step.max_tokens} tokens" in printed[0]
        if len(method.template.steps) == 3:
            assert "<one of the answers to locate>" in printed[1]
            assert "<the answer to propose>" in printed[2]


def test_a_dry_run_needs_no_server_and_names_what_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    method = ChatMethod("llm/swap", ChatModel("m"))
    [line] = method.prompts("a dog")
    assert line.endswith(answers.needs("and")) and "a dog" in line
