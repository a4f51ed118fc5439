"""Text models that see no image, on tiny models of the real classes, against plain references."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from errors import raises
from models_for_tests import is_sentence
from text_models import (
    grammar_model,
    randomise,
    save,
    save_grammar,
    save_lm,
    save_roberta,
    save_tokenizer,
    save_vera,
    t5_config,
)

from counterpoint.models.registry import LoadOptions, load_model
from counterpoint.scoring.kinds import BlindScorer, Described

pytestmark = pytest.mark.slow

tf = pytest.importorskip("transformers")

CAPTIONS = [
    "a dog",
    "the black dog is running on the grass and a cat is on the red grass .",
    "cat",
    "running red the the the",
    "grass on a blue cat and a blue dog",
]

# --- plain references --------------------------------------------------------------------------


def ids_of(folder: Path, caption: str, special: bool = True) -> list[int]:
    return tf.AutoTokenizer.from_pretrained(folder)(caption, add_special_tokens=special).input_ids


@torch.inference_mode()
def plain_grammar(folder: Path, model: torch.nn.Module, caption: str) -> float:
    logits = model(input_ids=torch.tensor([ids_of(folder, caption)])).logits[0]
    return float(logits[1].exp() / logits.exp().sum())


@torch.inference_mode()
def plain_vera(folder: Path, model: torch.nn.Module, caption: str) -> float:
    """As SugarCrepe's authors: a linear layer from rows of the embedding, at the last token."""
    rows = model.shared.weight
    linear = torch.nn.Linear(rows.shape[1], 1)
    linear.weight, linear.bias = (
        torch.nn.Parameter(value) for value in (rows[32099][None], rows[32098, :1])
    )
    hidden = model(input_ids=torch.tensor([ids_of(folder, caption)])).last_hidden_state[0, -1]
    return float(torch.sigmoid(linear(hidden)[0] / rows[32097, 0]))


@torch.inference_mode()
def plain_lm(folder: Path, model: torch.nn.Module, caption: str) -> float:
    ids = [2, *ids_of(folder, caption, special=False)]
    steps = []
    for end in range(1, len(ids)):  # each token from those before it and nothing else
        probabilities = model(input_ids=torch.tensor([ids[:end]])).logits[0, -1].softmax(-1)
        steps.append(float(probabilities[ids[end]].log()))
    return sum(steps) / len(steps)


KINDS = {
    "grammar": (save_grammar, plain_grammar),
    "plausible": (save_vera, plain_vera),
    "lm": (save_lm, plain_lm),
}


def load(id: str, **options: str) -> BlindScorer:
    model = load_model(id, LoadOptions("cpu", **options))
    assert isinstance(model, BlindScorer)
    assert isinstance(model, Described)
    return model


def refusal(id: str, code: str) -> str:
    with raises(code) as caught:
        load_model(id, LoadOptions("cpu"))
    assert is_sentence(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Each kind saved once: folder, model and plain scores."""
    found = {}
    for kind, (save_model, score) in KINDS.items():
        folder = tmp_path_factory.mktemp(kind)
        model = save_model(folder)
        found[kind] = (folder, [score(folder, model, caption) for caption in CAPTIONS])
    return found


# --- scores ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_the_plain_model_in_any_company(kind, saved, capfd):
    folder, expected = saved[kind]
    model = load(f"blind:{kind}:{folder}")
    found = model.score_captions(CAPTIONS)
    assert found.dtype == np.float32 and found.shape == (len(CAPTIONS),)
    assert found == pytest.approx(expected, abs=1e-4)
    assert np.ptp(found) > 1e-2  # scores that are all alike would prove nothing
    alone = np.concatenate([model.score_captions([caption]) for caption in CAPTIONS])
    assert alone == pytest.approx(found, abs=1e-5)
    assert model.score_captions(CAPTIONS[::-1])[::-1] == pytest.approx(found, abs=1e-5)
    assert model.score_captions([]).shape == (0,)
    assert capfd.readouterr() == ("", "")  # no progress bars, no warnings


@pytest.mark.parametrize("kind", KINDS)
def test_it_describes_itself_and_its_fingerprint_is_its_content(kind, saved, tmp_path):
    folder, _ = saved[kind]
    model = load(f"blind:{kind}:{folder}")
    said = json.loads(json.dumps(model.describe()))
    assert (said["device"], said["dtype"], said["precision"]) == ("cpu", "float32", "fp32")
    assert said["score"] and said["versions"]["transformers"] == tf.__version__
    shutil.copytree(folder, tmp_path / "copy")
    assert load(f"blind:{kind}:{tmp_path / 'copy'}").fingerprint == model.fingerprint
    low = load(f"blind:{kind}:{folder}", precision="bf16")
    assert low.fingerprint != model.fingerprint
    assert low.score_captions(CAPTIONS) == pytest.approx(model.score_captions(CAPTIONS), abs=0.3)
    KINDS[kind][0](tmp_path / "other")
    weights = next((tmp_path / "other").glob("*.safetensors"))
    from safetensors.torch import load_file, save_file

    state = load_file(weights)
    state[next(iter(state))].view(-1)[0] += 1
    save_file(state, weights, metadata={"format": "pt"})
    assert load(f"blind:{kind}:{tmp_path / 'other'}").fingerprint != model.fingerprint


def test_long_captions_are_cut_without_a_word(saved, capfd, caplog):
    for kind, (folder, _) in saved.items():
        model = load(f"blind:{kind}:{folder}")
        long = " ".join(["the black dog is running"] * 20)
        assert model.score_captions([long, long + " red"]).tolist() == pytest.approx(
            [model.score_captions([long])[0]] * 2
        )
        # words after the cut count for nothing, and those before it do
        assert model.score_captions(["cat " + long])[0] != model.score_captions([long])[0]
    assert capfd.readouterr() == ("", "") and not caplog.records


# --- grammar -----------------------------------------------------------------------------------


def test_the_acceptable_class_is_found_by_its_name(tmp_path):
    labels = {0: "acceptable", 1: "unacceptable"}
    save_grammar(tmp_path, id2label=labels, label2id={v: k for k, v in labels.items()})
    turned = load(f"blind:grammar:{tmp_path}")
    assert turned.describe()["score"] == "P(acceptable)"
    model = grammar_model()
    expected = [1 - plain_grammar(tmp_path, model, caption) for caption in CAPTIONS]
    assert turned.score_captions(CAPTIONS) == pytest.approx(expected, abs=1e-4)


def test_trohns_grammar_model_is_a_roberta(tmp_path):
    """`textattack/roberta-base-CoLA`: classes without names, positions that start after padding."""
    model = save_roberta(tmp_path)
    loaded = load(f"blind:grammar:{tmp_path}")
    assert loaded.describe()["score"] == "P(LABEL_1)"
    expected = [plain_grammar(tmp_path, model, caption) for caption in CAPTIONS]
    assert loaded.score_captions(CAPTIONS) == pytest.approx(expected, abs=1e-4)


def test_what_is_no_grammar_model_is_refused(tmp_path, saved):
    save_grammar(tmp_path / "three", num_labels=3)
    assert "has 3 classes" in refusal(f"blind:grammar:{tmp_path / 'three'}", "E-MODEL-UNSUITABLE")
    headless = grammar_model()
    save(headless.distilbert, tmp_path / "headless")
    save_tokenizer(tmp_path / "headless", 64, "<s> $A </s>")
    message = refusal(f"blind:grammar:{tmp_path / 'headless'}", "E-WEIGHTS-MISSING")
    assert "classifier" in message  # the first weight that is missing


# --- plausible ---------------------------------------------------------------------------------


def test_a_whole_t5_is_taken_for_its_encoder(tmp_path, saved):
    """Vera's authors save the encoder; a file with a decoder beside it scores the same."""
    whole = tf.T5ForConditionalGeneration(t5_config())
    encoder = tf.T5EncoderModel.from_pretrained(saved["plausible"][0])
    whole.load_state_dict(encoder.state_dict(), strict=False)
    save(whole, tmp_path)
    save_tokenizer(tmp_path, 32100, "$A </s>")
    found = load(f"blind:plausible:{tmp_path}").score_captions(CAPTIONS)
    assert found == pytest.approx(saved["plausible"][1], abs=1e-4)


def test_another_t5_is_not_vera(tmp_path):
    save(randomise(tf.T5EncoderModel(t5_config(64))), tmp_path / "small")
    save_tokenizer(tmp_path / "small", 64, "$A </s>")
    assert "liujch1998/vera" in refusal(
        f"blind:plausible:{tmp_path / 'small'}", "E-MODEL-UNSUITABLE"
    )
    save_vera(tmp_path / "cold", temperature=0)
    assert "temperature 0" in refusal(f"blind:plausible:{tmp_path / 'cold'}", "E-MODEL-UNSUITABLE")


# --- language models ---------------------------------------------------------------------------


def test_positions_are_not_moved_by_padding_and_no_padding_token_is_needed(tmp_path):
    model = save_lm(tmp_path, "gpt2", pad=False)
    expected = [plain_lm(tmp_path, model, caption) for caption in CAPTIONS]
    found = load(f"blind:lm:{tmp_path}").score_captions(CAPTIONS)
    assert found == pytest.approx(expected, abs=1e-4)


def test_large_batches_are_split_where_the_logits_would_be_too_many(saved, monkeypatch):
    folder, expected = saved["lm"]
    model = load(f"blind:lm:{folder}")
    monkeypatch.setattr("counterpoint.models.blind.text._LOGITS", 64 * 40)
    seen = []
    model.model.register_forward_hook(lambda _, __, out: seen.append(out.logits.shape[0]))
    assert model.score_captions(CAPTIONS) == pytest.approx(expected, abs=1e-4)
    assert seen == [2, 2, 1]


def test_a_caption_without_tokens_scores_nothing(saved):
    model = load(f"blind:lm:{saved['lm'][0]}")
    both = model.score_captions(["", CAPTIONS[0]])
    assert both == pytest.approx([0, saved["lm"][1][0]], abs=1e-4)


def save_gguf(path: Path) -> None:
    """A llama of one layer as llama.cpp keeps it, with a token for each byte."""
    gguf = pytest.importorskip("gguf")
    from tokenizers.pre_tokenizers import ByteLevel

    tokens = ["<|endoftext|>", "<s>", "</s>", *sorted(ByteLevel.alphabet()), "do"]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(32)
    writer.add_embedding_length(16)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(8)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_merges(["d o"])
    writer.add_token_types([3, 3, 3, *[1] * (len(tokens) - 3)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    rng = np.random.default_rng(0)
    block = {"attn_q": (16, 16), "attn_k": (16, 16), "attn_v": (16, 16), "attn_output": (16, 16)}
    block |= {"ffn_gate": (32, 16), "ffn_up": (32, 16), "ffn_down": (16, 32)}
    block |= {"attn_norm": (16,), "ffn_norm": (16,)}
    shapes = {f"blk.0.{name}": shape for name, shape in block.items()}
    shapes |= {"token_embd": (len(tokens), 16), "output": (len(tokens), 16), "output_norm": (16,)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(0, 0.4, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("joint", [":", "/"])
def test_a_gguf_file_is_scored_as_transformers_opens_it(joint, tmp_path, capfd):
    save_gguf(tmp_path / "m.gguf")
    capfd.readouterr()
    model = load(f"blind:lm:{tmp_path}{joint}m.gguf")
    assert capfd.readouterr() == ("", "")
    assert model.describe()["notes"] == ["weights of m.gguf, made float32 from what it holds."]
    plain = tf.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf").eval()
    tokenizer = tf.AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")
    captions = ["a dog", "do", "the cat and the dog"]
    expected = []
    for caption in captions:
        ids = torch.tensor([[1, *tokenizer(caption, add_special_tokens=False).input_ids]])
        with torch.inference_mode():
            loss = plain(input_ids=ids, labels=ids).loss  # the mean over tokens after the first
        expected.append(-float(loss))
    assert model.score_captions(captions) == pytest.approx(expected, abs=1e-4)


def test_a_model_that_looks_ahead_has_no_likelihoods(tmp_path):
    small = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    config = tf.BertConfig(**small, num_hidden_layers=1, vocab_size=64, max_position_embeddings=32)
    save(randomise(tf.BertForMaskedLM(config)), tmp_path)
    save_tokenizer(tmp_path, 64, "$A")
    refusal(f"blind:lm:{tmp_path}", "E-MODEL-UNSUITABLE")


# --- refusals ----------------------------------------------------------------------------------


def test_what_is_not_there_is_said_in_a_sentence(tmp_path, saved):
    refusal(f"blind:lm:{tmp_path / 'nowhere'}", "E-MODEL-MISSING")
    assert "needs a model: blind:lm:FOLDER" in refusal("blind:lm", "E-MODEL-ID-INVALID")
    refusal(f"blind:lm:{tmp_path}", "E-MODEL-BROKEN")  # an empty folder
    missing = refusal(f"blind:lm:{tmp_path}:model.gguf", "E-MODEL-MISSING")
    assert "no file model.gguf" in missing
    (tmp_path / "model.gguf").write_bytes(b"not one of llama.cpp's")
    assert ":model.gguf" in refusal(f"blind:lm:{tmp_path}", "E-MODEL-ID-INVALID")
    refusal(f"blind:lm:{tmp_path}:model.gguf", "E-MODEL-BROKEN")
    refusal(f"blind:lm:{tmp_path / 'model.gguf'}", "E-MODEL-BROKEN")
    refusal(f"blind:lm:{saved['plausible'][0]}", "E-MODEL-BROKEN")  # T5 is no such model
    with raises("E-MODEL-UNKNOWN", "gramar"):
        load_model("blind:gramar")


def test_a_model_without_its_tokenizer_is_refused(saved, tmp_path):
    shutil.copytree(saved["lm"][0], tmp_path / "m")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "m" / name).unlink()
    refusal(f"blind:lm:{tmp_path / 'm'}", "E-MODEL-BROKEN")


def test_corrupt_weights_are_refused(saved, tmp_path):
    shutil.copytree(saved["lm"][0], tmp_path / "m")
    path = tmp_path / "m" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:500])
    refusal(f"blind:lm:{tmp_path / 'm'}", "E-MODEL-BROKEN")


def test_the_hub_that_cannot_be_reached_is_one_sentence(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "textattack/distilbert-base-uncased-CoLA" in refusal("blind:grammar", "E-MODEL-BROKEN")
    assert "liujch1998/vera" in refusal("blind:plausible", "E-MODEL-BROKEN")


def test_a_missing_package_names_the_extra(monkeypatch):
    for name in ("hf.loading", "blind.text"):
        monkeypatch.delitem(sys.modules, f"counterpoint.models.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with raises("E-EXTRA-MISSING", "vlm"):
        load_model("blind:grammar")


def test_baselines_need_no_torch():
    code = (
        "import sys; from counterpoint.models import load_model\n"
        "for name in ('length', 'format', 'bow'): load_model(f'blind:{name}')\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- the real thing ----------------------------------------------------------------------------


@pytest.mark.skipif("COUNTERPOINT_TEST_LM" not in os.environ, reason="needs a folder with a GGUF")
def test_a_real_language_model_prefers_words_in_order():
    [path] = Path(os.environ["COUNTERPOINT_TEST_LM"]).glob("*.gguf")
    model = load(f"blind:lm:{path.parent}:{path.name}")
    right, wrong = "A black dog is running on the grass.", "grass the on A running. dog is black"
    scores = model.score_captions([right, wrong, "A dog."])
    assert scores[0] > scores[1] + 1
    assert model.score_captions([right])[0] == pytest.approx(scores[0], abs=1e-4)
    assert path.name in model.describe()["notes"][0]
