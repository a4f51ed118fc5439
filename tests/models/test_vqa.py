"""Generative models, on tiny ones of transformers' own classes with random weights."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from errors import raises
from hf_models import quiet
from models_for_tests import is_sentence
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers.utils.chat_template_utils import render_jinja_template
from vqa_models import ALL, CAPTIONS, TEXT, Parts, blip2, llava, noise, pictures, save, tokenizer

from counterpoint.cases.table import ImageRef
from counterpoint.images import Picture
from counterpoint.models import hub
from counterpoint.models.hf import generative
from counterpoint.models.hf.generative import Generative, load, load_lm
from counterpoint.models.hf.prompts import INSTRUCTION, QUESTION, TemplateSpread, yes_and_no
from counterpoint.models.registry import LoadOptions

pytestmark = pytest.mark.slow

RENDERED = hub._rendered
LOADERS = {"vqa": load, "lm": load_lm}
BOTH_WAYS = ("vqa", "paligemma")  # its image sees the question
EACH = [(family, name) for name in ALL for family in LOADERS]
SHARED = [each for each in EACH if each != BOTH_WAYS]
each_model = pytest.mark.parametrize(("family", "name"), EACH)
each_shared = pytest.mark.parametrize(("family", "name"), SHARED)


@pytest.fixture(scope="module", autouse=True)
def plain_kernels() -> Iterator[None]:
    """Starting threads and preparing kernels takes most of the time of models this small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._C._set_mkldnn_enabled(False)
    yield
    torch._C._set_mkldnn_enabled(True)
    torch.set_num_threads(before)


@pytest.fixture(scope="module", autouse=True)
def templates_here() -> Iterator[None]:
    """Chat templates are rendered in this process: the other one takes seconds to import
    transformers. What that one gives is in `test_a_template_in_the_process_that_renders_it`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub, "_rendered", render_here)
        yield


def render_here(request: str) -> tuple[list[str], str]:
    try:
        return list(render_jinja_template(**json.loads(request))[0]), ""
    except Exception as error:
        return [], f"cannot be used: {error}"


def test_a_template_in_the_process_that_renders_it() -> None:
    chats = [chat(None, "what is it?"), [*chat(None, "a dog?"), {"role": "user", "content": []}]]
    for make in ALL.values():
        processor = make().processor
        if processor.chat_template is not None:
            words = processor.tokenizer.special_tokens_map
            values = {"conversations": chats, "chat_template": processor.chat_template, **words}
            request = json.dumps(values)
            assert RENDERED(request) == render_here(request)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {name: save(root / name, make()) for name, make in ALL.items()}


@pytest.fixture(scope="module")
def loaded(folders) -> Callable[[str, str], Generative]:
    """Each model once: a test that changes one puts it back."""
    return cache(lambda family, name: open_folder(family, folders[name]))


def open_folder(family: str, folder: Path | str, precision: str = "fp32") -> Generative:
    return LOADERS[family](str(folder), LoadOptions("cpu", precision))


def scores(model: Generative, folder: Path, captions: list[str] = CAPTIONS) -> np.ndarray:
    """Every caption with every picture, the pairs of a picture together."""
    shown = [(picture, caption) for picture in pictures(folder) for caption in captions]
    found = model.score_pairs(*zip(*shown, strict=True))
    assert found.dtype == np.float32
    return found.reshape(-1, len(captions))


# --- scores, against the library alone ---------------------------------------------------------


def library(folder: Path) -> Parts:
    with quiet():
        model = transformers.AutoModelForImageTextToText.from_pretrained(folder)
        return Parts(model.eval(), transformers.AutoProcessor.from_pretrained(folder))


def chat(image: Image.Image, text: str) -> list[dict[str, Any]]:
    shown = [{"type": "image", "image": image}, {"type": "text", "text": text}]
    return [{"role": "user", "content": shown}]


def logits(model: Any, inputs: Any) -> torch.Tensor:
    with torch.inference_mode():
        return model(**inputs, use_cache=False).logits[0].double()


def straight_vqa(parts: Parts, image: Image.Image, caption: str) -> float:
    model, processor = parts
    question = QUESTION.replace("{caption}", caption)
    if processor.chat_template is None:
        given = processor(images=image, text=f"<image>{question}", return_tensors="pt")
        del given["labels"]
    else:
        given = processor.apply_chat_template(
            chat(image, question),
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
    chances = logits(model, given)[-1].softmax(0)
    known = processor.tokenizer.get_vocab()
    yes, no = (
        sum(
            chances[known[blank + word]]
            for word in words
            for blank in ("", "▁", "Ġ")
            if blank + word in known
        )
        for words in (("Yes", "yes"), ("No", "no"))
    )
    return float(yes / (yes + no))


def straight_lm(parts: Parts, image: Image.Image, caption: str) -> float:
    model, processor = parts
    if processor.chat_template is None:
        given = processor(
            images=image, text=f"<image>{INSTRUCTION}", suffix=caption, return_tensors="pt"
        )
        last = int((given["labels"][0] != -100).sum()), 1  # an end of the answer
    else:
        text = processor.apply_chat_template(
            chat(image, INSTRUCTION), add_generation_prompt=True, tokenize=False
        )
        text += " " if text.endswith("ASSISTANT:") else ""
        spans = processor.tokenizer(text + caption, return_offsets_mapping=True)["offset_mapping"]
        begins = text.startswith("<s>")
        given = processor(
            images=[[image]],
            text=text + caption,
            return_tensors="pt",
            add_special_tokens=not begins,
        )
        last = sum(end > len(text) for _, end in spans), 0
    ids = given["input_ids"][0]
    end = len(ids) - last[1]
    given.pop("labels", None)
    chances = logits(model, given).log_softmax(-1)
    places = range(len(ids) - last[0], end)
    return float(np.mean([float(chances[place - 1, ids[place]]) for place in places]))


@each_model
def test_scores_are_those_of_the_library_pair_by_pair(family, name, loaded, tmp_path):
    straight = {"vqa": straight_vqa, "lm": straight_lm}[family]
    parts = Parts(loaded(family, name).model, loaded(family, name).prompts.processor)
    expected = [
        [straight(parts, picture.open(), caption) for caption in CAPTIONS]
        for picture in pictures(tmp_path)
    ]
    found = scores(loaded(family, name), tmp_path)
    assert found == pytest.approx(np.array(expected), abs=1e-4)
    # Scores that hardly change with the image or the caption would make this worth nothing.
    assert np.ptp(found, axis=0).min() > 2e-4
    assert np.ptp(found, axis=1).min() > 2e-3


@each_shared
def test_a_shared_prefix_gives_what_whole_prompts_give(family, name, loaded, tmp_path, monkeypatch):
    model = loaded(family, name)
    assert model.why_not_shared is None
    shared = scores(model, tmp_path)
    monkeypatch.setattr(model, "why_not_shared", "for the test")
    assert shared == pytest.approx(scores(model, tmp_path), abs=1e-5)


# --- the shared prefix -------------------------------------------------------------------------


def towers(model: Generative) -> torch.nn.Module:
    names = ("vision_tower", "visual", "vision_model")
    [tower] = [m for n, m in model.model.model.named_children() if n in names]
    return tower


@each_shared
def test_the_image_tower_runs_once_an_image(family, name, loaded, tmp_path):
    model = loaded(family, name)
    calls: list[object] = []
    handle = towers(model).register_forward_hook(lambda *_: calls.append(1))
    shown = pictures(tmp_path)
    model.score_pairs([shown[0]] * 3 + [shown[1]] * 2, [*CAPTIONS, *CAPTIONS[:2]])
    assert len(calls) == 2
    model.score_pairs([shown[1]], CAPTIONS[2:])  # the engine cut the pairs of this image apart
    assert len(calls) == 2
    handle.remove()


def test_a_model_that_reads_its_prompt_both_ways_is_computed_whole(loaded):
    model = loaded(*BOTH_WAYS)
    said = model.describe()
    assert said["shared_prefix"] is False
    [note] = said["notes"]
    assert "both ways" in note and is_sentence(note)


def test_another_file_under_the_same_name_is_another_image(loaded, tmp_path):
    model = loaded("vqa", "llava")
    [picture] = pictures(tmp_path)[:1]
    before = model.score_pairs([picture], CAPTIONS[:1])
    noise(40, 40, seed=9).save(picture.path())
    after = model.score_pairs([picture], CAPTIONS[:1])
    assert abs(after - before) > 1e-4


def test_positions_of_another_image_are_not_taken_over(loaded, tmp_path):
    """Qwen-VL keeps the offset of the last image it saw; a prompt computed between two batches of
    one image must not change it."""
    model = loaded("vqa", "qwen2_vl")
    first, second = pictures(tmp_path)[:2]
    alone = model.score_pairs([first] * 2, CAPTIONS[:2])
    with model._running():
        model._whole(second.open(), CAPTIONS[0], model.prompts)
    assert model.score_pairs([first] * 2, CAPTIONS[:2]) == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize("broken", ["wrong", "raises"])
def test_a_model_that_cannot_share_is_computed_whole(
    broken, loaded, folders, tmp_path, monkeypatch
):
    right = scores(loaded("vqa", "llava"), tmp_path)
    run = generative.run_suffixes

    def spoiled(*given: Any) -> list[torch.Tensor]:
        if broken == "raises":
            raise RuntimeError("no cache\nof this kind")
        return [found + torch.linspace(0, 1, found.shape[1]) for found in run(*given)]

    monkeypatch.setattr(generative, "run_suffixes", spoiled)
    model = open_folder("vqa", folders["llava"])
    [note] = model.describe()["notes"]
    assert is_sentence(note) and "slower" in note
    assert ("no cache of this kind" in note) == (broken == "raises")
    assert scores(model, tmp_path) == pytest.approx(right, abs=1e-5)


# --- several templates, several images ---------------------------------------------------------

TEMPLATES = [QUESTION, "Is it {caption}?", 'a picture of "{caption}": yes or no?']


def several(folder: Path, tmp_path: Path, lines: list[str] = TEMPLATES) -> Generative:
    (tmp_path / "templates.txt").write_text("\n".join([*lines, "", lines[0]]))
    return open_folder("vqa", f"{folder}?templates={tmp_path / 'templates.txt'}")


def prefixes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each run of prefixes had."""
    calls: list[int] = []
    run = generative.run_prefix

    def counted(model: Any, inputs: Any) -> Any:
        calls.append(len(inputs["input_ids"]))
        return run(model, inputs)

    monkeypatch.setattr(generative, "run_prefix", counted)
    return calls


@pytest.mark.parametrize("name", ALL)
def test_the_score_of_templates_is_their_mean(name, folders, tmp_path, monkeypatch):
    model = several(folders[name], tmp_path)
    alone = [
        scores(open_folder("vqa", f"{folders[name]}?template={text}"), tmp_path)
        for text in TEMPLATES
    ]
    calls = prefixes(monkeypatch)
    assert scores(model, tmp_path) == pytest.approx(np.mean(alone, axis=0), abs=1e-6)
    assert calls == ([] if ("vqa", name) == BOTH_WAYS else [1, 1])  # one of each image
    assert max(np.ptp(found) for found in np.transpose(alone, (1, 2, 0)).reshape(-1, 3)) > 1e-3
    said = json.loads(json.dumps(model.describe()))
    assert len(said["prompts"]) == len(TEMPLATES)
    assert said["spread"]["pairs"] == 2 * len(CAPTIONS)
    deviation = np.std(alone, axis=0, ddof=1).sum()
    assert said["spread"]["deviation"] == pytest.approx(deviation, abs=1e-5)
    assert is_sentence(said["notes"][-1])


def test_templates_that_differ_before_the_caption_are_computed_whole(folders, tmp_path):
    """A special token in a template: its text is tokenised from there, not from the image on."""
    lines = ["Is it {caption}?", "Is </s> it {caption}?"]
    model = several(folders["llava"], tmp_path, lines)
    assert "differ" in str(model.why_not_shared)
    alone = [
        scores(open_folder("vqa", f"{folders['llava']}?template={t}"), tmp_path) for t in lines
    ]
    assert scores(model, tmp_path) == pytest.approx(np.mean(alone, axis=0), abs=1e-6)


def test_the_spread_counts_what_depends_on_the_template():
    spread = TemplateSpread()
    spread.add(np.array([[0.6, 0.4, 0.2], [0.6, 0.7, 0.2]]))
    assert (spread.pairs, spread.answers) == (3, 1)
    assert (spread.comparisons, spread.orders) == (3, 1)
    assert spread.deviation == pytest.approx(0.3 / np.sqrt(2))


@each_shared
def test_images_of_one_form_run_together(family, name, loaded, tmp_path, monkeypatch):
    """All but the first and the last image of a call, which may be cut apart."""
    model = loaded(family, name)
    shown = [picture_of(tmp_path / f"{n}.png") for n in range(7)]
    for number, picture in enumerate(shown):
        noise(90 if number == 3 else 40, 40, seed=number).save(picture.path())
    pairs = [
        (picture, text) for picture in shown for text in CAPTIONS[: 1 + shown.index(picture) % 3]
    ]
    model._last = None
    calls = prefixes(monkeypatch)
    together = model.score_pairs(*zip(*pairs, strict=True))
    assert sum(calls) == len(shown)
    alike = name in ("llava", "paligemma", "gemma3")  # their images all have one form
    assert calls == ([1, 4, 1, 1] if alike else [1, 2, 1, 2, 1])
    monkeypatch.setattr(model, "images_at_once", 1)
    assert together == pytest.approx(model.score_pairs(*zip(*pairs, strict=True)), abs=1e-5)


def test_a_run_that_is_cut_elsewhere_gives_the_same_bytes(loaded, tmp_path):
    """What is kept of the call before must not matter: a run that was killed starts without it."""
    model = loaded("vqa", "llava")
    shown = pictures(tmp_path) * 4
    first = model.score_pairs(shown[:5], CAPTIONS[:1] * 5)
    kept = model.score_pairs(shown[4:], CAPTIONS[1:2] * 4)
    model._last = None
    assert model.score_pairs(shown[4:], CAPTIONS[1:2] * 4).tobytes() == kept.tobytes()
    assert len(first) == 5


def test_suffixes_are_bounded_by_memory(loaded, tmp_path, monkeypatch):
    model = loaded("vqa", "qwen2_vl")
    right, rows, run = scores(model, tmp_path), [], generative.run_suffixes

    def counted(model: Any, prefix: Any, suffixes: Any, images: Any) -> Any:
        rows.append(len(suffixes))
        return run(model, prefix, suffixes, images)

    monkeypatch.setattr(generative, "run_suffixes", counted)
    prefix = model._last[1].memory()
    assert prefix > 0
    monkeypatch.setattr(model, "_room", lambda: 2 * prefix)
    assert scores(model, tmp_path) == pytest.approx(right, abs=1e-5)
    assert len(rows) > 2


# --- prompts -----------------------------------------------------------------------------------


def test_the_template_can_be_a_text_or_a_file(folders, loaded, tmp_path):
    text = "Is it {caption}, {caption}?"
    (tmp_path / "t.txt").write_text(f"{text}\n")
    one = open_folder("vqa", f"{folders['llava']}?template={text}")
    two = open_folder("vqa", f"{folders['llava']}?template={tmp_path / 't.txt'}")
    assert one.prompts.whole(noise(9, 9), "a {caption} dog").inputs["input_ids"].shape[1] > 16
    assert "Is it " in one.describe()["prompt"]
    assert one.fingerprint == two.fingerprint != loaded("vqa", "llava").fingerprint
    found = scores(one, tmp_path)
    assert found == pytest.approx(scores(two, tmp_path), abs=1e-6)
    assert np.abs(found - scores(loaded("vqa", "llava"), tmp_path)).max() > 1e-3


def test_the_instruction_of_lm_can_be_changed(folders, loaded, tmp_path):
    model = open_folder("lm", f"{folders['qwen2_vl']}?prompt=What do you see?")
    assert model.fingerprint != loaded("lm", "qwen2_vl").fingerprint
    assert np.abs(scores(model, tmp_path) - scores(loaded("lm", "qwen2_vl"), tmp_path)).max() > 1e-3


def test_without_a_chat_template_the_prompt_is_image_and_text(tmp_path):
    folder = save(tmp_path / "m", llava(chat=None))
    model, processor = library(folder)
    image, caption = noise(40, 40), "a red dog"
    text = f"<image>{QUESTION.replace('{caption}', caption)}"
    chances = logits(model, processor(images=image, text=text, return_tensors="pt"))[-1].softmax(0)
    yes, no = (float(chances[ids].sum()) for ids in yes_and_no(processor.tokenizer).values())
    image.save(tmp_path / "0.png")
    asked = open_folder("vqa", folder)
    found = asked.score_pairs([picture_of(tmp_path / "0.png")], [caption])
    assert found == pytest.approx([yes / (yes + no)], abs=1e-5)
    assert asked.why_not_shared is None
    assert open_folder("lm", folder).describe()["prompt"].endswith(f"{INSTRUCTION}\n{{caption}}")


@pytest.mark.parametrize(("name", "word"), [("llava", "<image>"), ("gemma3", "<start_of_image>")])
def test_a_caption_that_holds_the_models_image_token_is_refused(name, word, loaded, tmp_path):
    with raises("E-CAPTION-REJECTED") as caught:
        scores(loaded("vqa", name), tmp_path, ["a dog", f"a {word} dog"])
    assert is_sentence(caught.value) and word in str(caught.value)


def test_blip2_is_computed_whole(tmp_path):
    model = open_folder("vqa", save(tmp_path / "m", blip2()))
    [note] = model.describe()["notes"]
    assert "cache" in note
    processor = model.prompts.processor
    text = QUESTION.replace("{caption}", CAPTIONS[1])
    [picture] = pictures(tmp_path)[:1]
    given = processor(images=picture.open(), text=text, return_tensors="pt")
    chances = logits(model.model, given)[-1].softmax(0)
    yes, no = (float(chances[ids].sum()) for ids in yes_and_no(processor.tokenizer).values())
    found = model.score_pairs([picture] * 2, CAPTIONS[:2])
    assert found[1] == pytest.approx(yes / (yes + no), abs=1e-5)
    assert abs(found[0] - found[1]) > 1e-3


def picture_of(path: Path) -> Picture:
    return Picture(ImageRef(str(path)))


def test_the_side_of_the_padding_does_not_matter(loaded, tmp_path, monkeypatch):
    model = loaded("vqa", "idefics3")
    found = []
    for side in ("left", "right"):
        monkeypatch.setattr(model.prompts.processor.tokenizer, "padding_side", side)
        found.append(scores(model, tmp_path))
        model._last = None
    assert found[0] == pytest.approx(found[1], abs=1e-6)


@pytest.mark.parametrize("blanks", ["▁", "Ġ"])
def test_yes_and_no_are_whole_words(blanks):
    words = tokenizer(blanks, [])
    found = {
        answer: set(words.convert_ids_to_tokens(ids)) for answer, ids in yes_and_no(words).items()
    }
    assert found == {
        "yes": {"Yes", "yes", f"{blanks}Yes", f"{blanks}yes"},
        "no": {"No", "no", f"{blanks}No", f"{blanks}no"},
    }


def characters(text: str) -> Any:
    """A tokenizer of single letters."""
    vocabulary = {letter: number for number, letter in enumerate(["<unk>", *text])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>")


def test_yes_and_no_are_first_pieces_where_there_is_no_word():
    found = yes_and_no(characters(" YesNon"))
    known = characters(" YesNon").get_vocab()
    assert found == {"yes": [known["Y"]], "no": sorted([known["N"], known["n"]])}


def test_a_tokenizer_that_cannot_tell_yes_from_no_is_refused():
    with raises("E-TOKENIZER-UNSUITABLE"):
        yes_and_no(characters("Nn"))


# --- precision, fingerprint, description, engine -----------------------------------------------


@pytest.mark.parametrize("name", ["llava", "qwen2_vl", "gemma3"])
def test_bf16_is_close_and_makes_no_ties(name, folders, loaded, tmp_path):
    model = open_folder("vqa", folders[name], "bf16")
    assert model.describe()["dtype"] == "bfloat16"
    assert model.why_not_shared is None
    found = scores(model, tmp_path)
    assert found == pytest.approx(scores(loaded("vqa", name), tmp_path), abs=0.05)
    assert len(set(found.ravel())) == found.size
    with model._running():
        fine = model._whole(noise(40, 40), CAPTIONS[0], model.prompts)
    assert (fine != fine.bfloat16().float()).any()  # the output layer worked in float32
    assert model.fingerprint != loaded("vqa", name).fingerprint


def test_the_fingerprint_is_of_what_is_computed(folders, loaded, tmp_path):
    before = loaded("vqa", "llava").fingerprint
    assert loaded("lm", "llava").fingerprint != before
    copied = tmp_path / "copy"
    shutil.copytree(folders["llava"], copied)
    assert open_folder("vqa", copied).fingerprint == before
    settings = json.loads((copied / "processor_config.json").read_text())
    settings["image_processor"]["image_mean"] = [0.1, 0.2, 0.3]
    (copied / "processor_config.json").write_text(json.dumps(settings))
    assert open_folder("vqa", copied).fingerprint != before
    weights = load_file(folders["llava"] / "model.safetensors")
    shutil.rmtree(copied)
    shutil.copytree(folders["llava"], copied)
    weights[sorted(weights)[0]].view(-1)[0] += 1
    save_file(weights, copied / "model.safetensors", {"format": "pt"})
    assert open_folder("vqa", copied).fingerprint != before


# --- refusals ----------------------------------------------------------------------------------


def refusal(family: str, rest: object, code: str) -> str:
    with raises(code) as caught:
        open_folder(family, str(rest))
    assert is_sentence(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("family", LOADERS)
@pytest.mark.parametrize("where", ["/no/such", "./no", "a/b/c", ""])
def test_a_folder_that_is_not_there(family, where):
    assert f"{family}:{where}: no such folder" in refusal(family, where, "E-MODEL-MISSING")


def test_templates_that_cannot_be_used(folders):
    folder = folders["llava"]
    assert "{caption}" in refusal("vqa", f"{folder}?template=Is it?", "E-OPTION-INVALID")
    refusal("vqa", f"{folder}?question=Is it {{caption}}?", "E-OPTION-UNKNOWN")
    refusal("vqa", f"{folder}?template=", "E-OPTION-INVALID")
    refusal("vqa", f"{folder}?templates=/no/such/file", "E-OPTION-INVALID")
    refusal("lm", f"{folder}?templates=/no/such/file", "E-OPTION-UNKNOWN")
    refusal("lm", f"{folder}?template=a {{caption}}", "E-OPTION-UNKNOWN")
    assert "{caption}" in refusal("lm", f"{folder}?prompt=a {{caption}}", "E-OPTION-INVALID")


def test_models_that_give_no_answers_to_images(tmp_path):
    config = transformers.LlamaConfig(**TEXT, vocab_size=64)
    with quiet():
        transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    tokenizer("▁", []).save_pretrained(tmp_path)
    refusal("vqa", tmp_path, "E-MODEL-UNSUITABLE")


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("how", ["gone", "broken"])
def test_folders_that_are_not_whole(file, how, folders, tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(folders["llava"], folder)
    if how == "gone":
        (folder / file).unlink()
    else:
        (folder / file).write_bytes((folder / file).read_bytes()[:200])
    code = "E-JSON-INVALID" if (file, how) == ("config.json", "broken") else "E-MODEL-BROKEN"
    assert str(folder) in refusal("vqa", folder, code)


def test_weights_that_are_missing_are_not_made_up(folders, tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(folders["llava"], folder)
    weights = load_file(folder / "model.safetensors")
    del weights[next(name for name in sorted(weights) if "q_proj" in name)]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert "lack 1 tensors" in refusal("vqa", folder, "E-WEIGHTS-MISSING")


def test_a_chat_template_that_fails(tmp_path):
    folder = save(tmp_path / "m", llava(chat="{{ raise_exception('only one system') }}"))
    refusal("vqa", folder, "E-MODEL-BROKEN")
    folder = save(tmp_path / "n", llava(chat="<image>hello"))
    refusal("vqa", folder, "E-TEMPLATE-UNSUITABLE")


def test_without_transformers_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    for name in ("hf.loading", "hf.generative"):
        monkeypatch.delitem(sys.modules, f"counterpoint.models.{name}")
    with raises("E-EXTRA-MISSING", "vlm"):
        import_module("counterpoint.models.hf.generative")
