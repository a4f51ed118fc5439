"""Model folders made to harm who loads them: code, endless templates, huge configs, odd files.

    python bench/hostile_folders.py --folders 264 --seed 1

Each is loaded in a process of its own, by the family of models that it is made for, and a model
scores a case. Prints a table by harm, and ends with status 1 if code of a folder ran, a question
was asked, or a folder ended in anything but scores or one sentence, after more than 60 seconds or
in more than 8 GiB of memory.
"""

from __future__ import annotations

import argparse
import builtins
import functools
import gzip
import json
import os
import pickle
import random
import shutil
import struct
import sys
import tempfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")

import hf_models
import numpy as np
import open_clip_models
import polars as pl
import text_models
import torch
import transformers as tf
import vqa_models
from diffusion_models import save_models as save_pipelines
from fuzz_support import json_mutations
from hostile import End, in_child
from PIL import Image
from rich.console import Console
from rich.table import Table

from counterpoint import evaluate
from counterpoint.cases.table import Cases, ImageRef, caption_case
from counterpoint.generation.images import diffusion
from counterpoint.models.detector.adapter import (
    DetectorHeads,
    LinearHead,
    SavedDetector,
    save as save_detector,
)
from counterpoint.models.registry import LoadOptions, load_model, world_folder
from counterpoint.training import decoders

SECONDS, MEMORY = 60.0, 8 * 2**30
Random = random.Random


# --- families: how a good folder is made, and how it is loaded ------------------------------------


def a_decoder(folder: Path) -> None:
    model = text_models.randomise(tf.T5ForConditionalGeneration(text_models.t5_config(64)))
    text_models.save(model, folder)
    text_models.save_tokenizer(folder, 64, "$A </s>")


def a_detector(folder: Path) -> None:
    print_of = load_model("world:base", LoadOptions("cpu", unit=False)).fingerprint
    head = LinearHead(np.zeros(128, dtype=np.float32), np.zeros(1, dtype=np.float32))
    save_detector(folder, SavedDetector(DetectorHeads(head, head), "world:base", print_of, {}))


def some_vectors(folder: Path) -> None:
    folder.mkdir(parents=True)
    vectors = np.ones((3, 4), dtype=np.float32)
    np.save(folder / "images.npy", vectors)
    lines = "".join(json.dumps({"name": f"{n}.jpg"}) + "\n" for n in range(3))
    (folder / "images.jsonl").write_text(lines)
    table = {"caption": ["a", "b", "c"], "vector": vectors.tolist()}
    pl.DataFrame(table).write_parquet(folder / "captions.parquet")


def a_pipeline(folder: Path) -> None:
    shutil.move(save_pipelines(folder.with_name("pipelines"), ["sd"])["sd"], folder)


def by_id(form: str) -> Callable[[Path], object]:
    """Evaluates the model of a folder on one case, beside the folder."""

    def use(folder: Path) -> object:
        place = folder.parent
        Image.new("RGB", (32, 32), "red").save(place / "0.jpg")
        case = caption_case("1", ImageRef("0.jpg"), ("a", "b"), ("c",))
        cases = Cases.build([case], root=place, source="one case")
        out, store = place / f"{folder.name}-run", place / "store"
        id = form.format(folder)
        return evaluate(id, cases, out=out, store=store, device="cpu", progress=None)

    return use


FAMILIES: Final[dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]]] = {
    "hf": (lambda f: hf_models.save(f, hf_models.clip), by_id("hf:{}")),
    "hf-bert": (lambda f: hf_models.save(f, hf_models.vit_bert), by_id("hf:{}")),
    "vqa": (lambda f: vqa_models.save(f, vqa_models.llava()), by_id("vqa:{}")),
    "lm": (lambda f: text_models.save_lm(f), by_id("blind:lm:{}")),
    "grammar": (lambda f: text_models.save_grammar(f), by_id("blind:grammar:{}")),
    "plausible": (lambda f: text_models.save_vera(f), by_id("blind:plausible:{}")),
    "open_clip": (lambda f: open_clip_models.save_model(f), by_id("open_clip:local-dir:{}")),
    "checkpoint": (
        lambda f: open_clip_models.save_model(f),
        by_id("checkpoint:{0}/open_clip_model.safetensors@local-dir:{0}"),
    ),
    "onnx": (lambda f: shutil.copytree(world_folder("base"), f), by_id("onnx:{}")),
    "detector": (a_detector, by_id("detector:{}")),
    "vectors": (some_vectors, by_id("vectors:{}")),
    "decoder": (a_decoder, lambda folder: decoders._open_hf(f"hf:{folder}")),
    "pipeline": (a_pipeline, lambda folder: diffusion.open_pipeline(str(folder), "cpu")),
}


@functools.cache
def good(family: str, place: Path) -> Path:
    folder = place / "good" / family
    folder.parent.mkdir(exist_ok=True)
    # In children, too: the threads of Polars, once started, are missing in every later child.
    for act in FAMILIES[family]:  # what is not harmed can be used
        end = in_child(functools.partial(act, folder), 10 * SECONDS, MEMORY)
        assert end.kind == "result", (family, end)
    return folder


# --- what is in a folder --------------------------------------------------------------------------


def files(folder: Path, *patterns: str) -> list[Path]:
    found = {path for pattern in patterns or ("*",) for path in folder.rglob(pattern)}
    return sorted(path for path in found if path.is_file())


def one(folder: Path, rng: Random, *patterns: str) -> Path:
    """A file of a kind, or a new one with its name."""
    found = files(folder, *patterns)
    return rng.choice(found) if found else folder / patterns[0].replace("*", "")


def change(path: Path, **values: Any) -> None:
    before = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**before, **values}))


def put_code(folder: Path, marker: Path) -> None:
    for name in ("own", "modeling_own", "tokenization_own", "pipeline"):
        (folder / f"{name}.py").write_text(
            f"import transformers\nopen({str(marker)!r}, 'w').close()\n"
            "class Own(transformers.PreTrainedModel): ...\n"
        )


class _Runs:
    """Writes the marker when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.marker), "w")


Harm = Callable[[Path, Path, Random], None]


# --- code -----------------------------------------------------------------------------------------


def auto_map(folder: Path, marker: Path, rng: Random) -> None:
    put_code(folder, marker)
    kinds = ("Config", "Model", "Tokenizer", "Processor", "ImageProcessor", "ModelForCausalLM")
    where = rng.choice(("own.Own", f"{folder}--own.Own"))
    code = {f"Auto{kind}": [where, where] if kind == "Tokenizer" else where for kind in kinds}
    path = one(folder, rng, "*config*.json", "model_index.json")
    value = {"auto_map": code}
    places = (value, {"text_config": value}, {"x": [value]}, {**value, "model_type": "own"})
    change(path, **rng.choice(places))
    change(path, **rng.choice(({}, {"tokenizer_class": "Own"}, {"processor_class": "Own"})))


def own_classes(folder: Path, marker: Path, rng: Random) -> None:
    """Code without `auto_map`: by custom classes, kernels, pipelines, custom_generate, adapters."""
    put_code(folder, marker)
    path = one(folder, rng, "model_index.json", "config.json", "*config*.json")
    ways: tuple[dict[str, Any], ...] = (
        {"_class_name": ["own", "Own"]},
        {"unet": ["own", "Own"]},
        {"architectures": ["own.Own"]},
        {"attn_implementation": "anybody/kernel"},
        {"custom_pipelines": "own"},
        {"quantization_config": {"quant_method": "own", "modules_to_not_convert": ["own"]}},
        {"model_type": "own"},
        {"tokenizer_class": "own.Own"},
        {"image_processor_type": "../own.Own"},
    )
    change(path, **rng.choice(ways))
    (folder / "custom_generate").mkdir(exist_ok=True)
    shutil.copy(folder / "own.py", folder / "custom_generate" / "generate.py")
    if rng.random() < 0.4:
        adapter = {"peft_type": "LORA", "base_model_name_or_path": str(folder), "auto_mapping": {}}
        change(folder / "adapter_config.json", **adapter)


def trusting(folder: Path, marker: Path, rng: Random) -> None:
    """A config that asks for its own code to be trusted."""
    put_code(folder, marker)
    asked = {"trust_remote_code": True}
    config = folder / "open_clip_config.json"
    if config.is_file():
        said = json.loads(config.read_text())
        hf_models.clip_tokenizer().save_pretrained(folder)
        own = {"auto_map": {"AutoTokenizer": ["own.Own", "own.Own"]}}
        change(folder / "tokenizer_config.json", **own)
        more = {"hf_tokenizer_name": str(folder), "tokenizer_kwargs": asked}
        said["model_cfg"]["text_cfg"].update(more)
        change(config, **said)
    else:
        path = one(folder, rng, "*config*.json", "model_index.json")
        change(path, **rng.choice((asked, {"tokenizer_kwargs": asked}, {"a": {"b": [asked]}})))


def pickles(folder: Path, marker: Path, rng: Random) -> None:
    """Weights that run code when they are unpickled, in every wrapper and under every name."""
    bad = _Runs(marker)
    state = rng.choice((bad, {"state_dict": {"a": bad}}, {"a": torch.zeros(2), "b": [bad]}))
    weights = files(folder, "*.safetensors", "*.bin", "*.npy", "*.parquet")
    path = rng.choice(weights)
    name = rng.choice((path.name, "pytorch_model.bin", "open_clip_pytorch_model.bin"))
    if name != path.name or rng.random() < 0.5:
        for other in files(path.parent, "*.safetensors"):
            other.unlink()
    path = path.with_name(name)
    kind = rng.randrange(5)
    if kind == 0:
        path.write_bytes(pickle.dumps(state))
    elif kind == 1:
        torch.save(state, path)
    elif kind == 2:
        torch.save(state, path, _use_new_zipfile_serialization=False)
    elif kind == 3:
        with path.open("wb") as out:
            np.save(out, np.array([bad], dtype=object), allow_pickle=True)
    else:
        inner = path.with_name("inner")
        torch.save(state, inner)
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(inner, "archive/data.pkl")
            archive.writestr("archive/version", "3")


def torchscript(folder: Path, marker: Path, rng: Random) -> None:
    class Script(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    for path in files(folder, "*.safetensors"):
        path.unlink()
    name = rng.choice(("open_clip_model.safetensors", "pytorch_model.bin", "model.safetensors"))
    torch.jit.save(torch.jit.script(Script()), folder / name)


def elsewhere(folder: Path, marker: Path, rng: Random) -> None:
    """An index of weights that names files out of the folder; a pickle lies there."""
    torch.save(_Runs(marker), folder.parent / "evil.bin")
    for path in files(folder, "*.safetensors"):
        path.unlink()
    where = rng.choice(("../evil.bin", str(folder.parent / "evil.bin"), "/dev/zero", "x" * 5000))
    for name in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        index = {"metadata": {"total_size": 1}, "weight_map": {"a": where, "b": where}}
        change(folder / name, **index)


# --- what does not end ----------------------------------------------------------------------------


def template(folder: Path, _: Path, rng: Random) -> None:
    text = rng.choice(
        (
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "{{ 9 ** (9 ** 9) }}",
            "{{ ('a' * 9999999999) | length }}",
            "{{ 'a' * 9999999 }}",
            "{% macro m(i) %}{{ m(i) }}{% endmacro %}{{ m(0) }}",
            "{{ ''.__class__.__mro__[1].__subclasses__() }}",
            "{{ messages | map(attribute='x') | list | pprint }}{{ cycler.__init__.__globals__ }}",
            "{% set x = namespace(a=[1]) %}{% for i in range(60)%}{% set x.a = x.a*2%}{% endfor %}",
            "{% include '/etc/passwd' %}",
            "{{ raise_exception('\x1b[31mred\n' * 900) }}",
            "{{",
            "{% if x %}" * 20000,
            "{{" + "(" * 5000 + ")" * 5000 + "}}",
            "{{ '%0999999999d' % 1 }}",
            "{{ 'x'.center(99999999999) }}",
        )
    )
    if rng.random() < 0.5:
        (folder / "chat_template.jinja").write_text(text)
    else:
        change(folder / "tokenizer_config.json", chat_template=text)
        change(folder / "processor_config.json", chat_template=text)
        (folder / "chat_template.jinja").unlink(missing_ok=True)


def tokenizer(folder: Path, _: Path, rng: Random) -> None:
    path = one(folder, rng, "tokenizer.json")
    said = json.loads(path.read_text()) if path.is_file() else {"model": {"vocab": {"a": 0}}}
    vocab = said["model"].get("vocab", {})
    words = vocab if isinstance(vocab, dict) else dict.fromkeys(word for word, _ in vocab)
    patterns = (r"^(\S+\s*)+(\s*\S+)+$\d", "(a|a?)+$", "((a*)*)*b", "(" * 5000, "", "(?:)")
    pattern = {"Regex": rng.choice(patterns)}
    split, right = {"behavior": "Isolated", "invert": False}, {"direction": "Right"}
    grow = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa" * 50}
    ways: tuple[dict[str, Any], ...] = (
        {"model": {**said["model"], "vocab": dict.fromkeys(words, 4294967295)}},
        {"model": {**said["model"], "vocab": {w: n * 10**6 for n, w in enumerate(words)}}},
        {"model": {**said["model"], "vocab": {}}},
        {"model": {**said["model"], "unk_token": "none", "unk_id": 2**62}},
        {"model": {**said["model"], "merges": [["q", "q"]] * 1000}},
        {"pre_tokenizer": {"type": "Split", "pattern": pattern, **split}},
        {"normalizer": {"type": "Replace", "pattern": pattern, "content": "x" * 10**6}},
        {"normalizer": {"type": "Sequence", "normalizers": [grow] * 12}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA////"}},
        {"added_tokens": [{"id": 2**32 - 1, "content": "a"}]},
        {"truncation": {"max_length": 0, "stride": 10, "strategy": "LongestFirst", **right}},
        {"padding": {"strategy": {"Fixed": 10**12}, "pad_id": 0, "pad_token": "a", **right}},
        {"padding": {"strategy": "BatchLongest", "pad_to_multiple_of": 2**40, "pad_id": 0}},
        {"post_processor": {"type": "TemplateProcessing", "single": [], "pair": []}},
        {"decoder": {"type": "Strip", "content": "a", "start": 2**40, "stop": 0}},
    )
    change(path, **rng.choice(ways))


def merges(folder: Path, _: Path, rng: Random) -> None:
    """Compressed merges that grow, and vocabularies in other files."""
    kind = rng.randrange(4)
    if kind == 0:
        with gzip.open(folder / "bpe_merges.txt.gz", "wb", 1) as out:
            out.writelines(rng.choice((b"a b\n", b"\0" * 4)) * 2**18 for _ in range(2_000))
    elif kind == 1:
        (folder / "bpe_merges.txt.gz").write_bytes(gzip.compress(b"a b\n" * 10**6)[:-9])
    elif kind == 2:
        with (folder / "merges.txt").open("wb") as out:
            out.truncate(3 * 2**30)
    else:
        for name in ("vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model"):
            (folder / name).write_bytes(
                rng.choice((b"\n" * 10**7, rng.randbytes(9999), b"[" * 10**6))
            )
        for path in files(folder, "tokenizer.json"):
            path.unlink()


# --- values ---------------------------------------------------------------------------------------


def _numbers(value: Any) -> list[tuple[Any, Any]]:
    found = []
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in parts:
        if isinstance(part, dict | list):
            found += _numbers(part)
        elif type(part) in (int, float):
            found.append((value, key))
    return found


def huge(folder: Path, _: Path, rng: Random) -> None:
    """Configs that ask for a model of more than all memory."""
    path = one(folder, rng, "config.json", "open_clip_config.json", "detector.json")
    said = json.loads(path.read_text()) if path.is_file() else {"n": 1}
    places = _numbers(said)
    for holder, key in rng.sample(places, min(len(places), rng.choice((1, 1, 3)))):
        holder[key] = rng.choice((10**5, 10**7, 10**9, 10**12, 2**63, 0, -1, 0.5))
    change(path, **said)


def long_list(folder: Path, _: Path, rng: Random) -> None:
    """Layers by the hundred thousand, labels by the million."""
    path = one(folder, rng, "config.json", "open_clip_config.json")
    labels = {str(n): f"l{n}" for n in range(10**6)}
    layers = {"num_hidden_layers": 10**5, "num_layers": 10**5, "n_layer": 10**5, "layers": 10**5}
    said = json.loads(path.read_text()) if path.is_file() else {}
    cfg = said.get("model_cfg", {})
    for part in (said, *(said.get(k, {}) for k in ("text_config", "vision_config")), *cfg.values()):
        if isinstance(part, dict):
            part.update(rng.choice((layers, {"id2label": labels}, {"num_labels": 10**8})))
    change(path, **said)


def values(folder: Path, _: Path, rng: Random) -> None:
    """Wrong types, missing keys, NaN, numbers of thousands of digits."""
    path = one(folder, rng, "*.json")
    said = json.loads(path.read_text()) if path.is_file() else {}
    [changed] = json_mutations(said, 1, rng.randrange(10**9))
    path.write_text(json.dumps(changed))


def texts(folder: Path, _: Path, rng: Random) -> None:
    """JSON that is nested, huge, or none."""
    path = one(folder, rng, "*config*.json", "*.json")
    path.write_bytes(
        rng.choice(
            (
                b"[" * 10**6,
                b'{"a":' * 10**5,
                b'{"a": ' + b"9" * 10**6 + b"}",
                b"NaN",
                b'{"model_type": "clip", "x": 1e999}',
                b'{"x": "' + b"a" * 40 * 2**20 + b'"}',
                b" " * 40 * 2**20,
                b"\xff\xfe{\x00}\x00",
                b'{"model_type": "\\ud800"}',
                b'{"model_type": "\x1b[31mred\\n\\u202e"}',
                b"",
                b"null",
            )
        )
    )


# --- files ----------------------------------------------------------------------------------------


def missing(folder: Path, _: Path, rng: Random) -> None:
    for path in rng.sample(files(folder), 1 if len(files(folder)) < 3 else rng.choice((1, 2))):
        path.unlink()


def damaged(folder: Path, _: Path, rng: Random) -> None:
    path = one(folder, rng, "*")
    data = bytearray(path.read_bytes())
    for _number in range(rng.choice((1, 10, 200))):
        data[rng.randrange(min(len(data), 4000) or 1) if data else 0 : 0] = b""
        if data:
            data[rng.randrange(min(len(data), 4000))] = rng.randrange(256)
    path.write_bytes(data[: rng.choice((len(data), len(data) // 2, 7))])


def header(folder: Path, _: Path, rng: Random) -> None:
    """Safetensors whose header says it is huge, or its tensors are."""
    path = one(folder, rng, "*.safetensors")
    huge = {"dtype": "F32", "shape": [10**6, 10**6], "data_offsets": [0, 4 * 10**12]}
    wrong = {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}
    text = json.dumps({"a": rng.choice((huge, wrong, {"dtype": "X"}))}).encode()
    size = rng.choice((len(text), 2**63, 99_999_999, 0))
    path.write_bytes(struct.pack("<Q", size) + text)
    if rng.random() < 0.5:
        with path.open("ab") as out:
            out.truncate(50 * 2**30)  # with holes: it takes no room


def odd_files(folder: Path, _: Path, rng: Random) -> None:
    """A link, a pipe, a device or a folder in the place of a file."""
    path = one(folder, rng, "*")
    path.unlink()
    kind = rng.randrange(6)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    else:
        path.symlink_to(("", "", "/dev/zero", "/dev/tty", path.name, "/nothing")[kind])


def escape_codes(folder: Path, _: Path, rng: Random) -> None:
    """Escape codes wherever a message could repeat a name."""
    code = "\x1b]0;owned\x07\x1b[2J\u202e\nTraceback (most recent call last):"
    path = one(folder, rng, "*config*.json", "model_index.json", "*.json")
    keys = ("model_type", "architectures", "tokenizer_class", "_class_name", "image_processor_type")
    key = rng.choice((*keys, "encoder", code))
    change(path, **{key: [code] if key == "architectures" else code})
    (folder / "\x1b[31mred\n.json").write_text("{")


HARMS: Final[tuple[Harm, ...]] = (
    *(auto_map, own_classes, trusting, pickles, torchscript, elsewhere, template, tokenizer),
    *(merges, huge, huge, long_list, values, values, texts, missing, damaged, header, odd_files),
    *(odd_files, escape_codes, tokenizer),
)


# --- what comes of it ----------------------------------------------------------------------------


def load(family: str, folder: Path, asked: Path, modules: Path) -> None:
    from transformers import dynamic_module_utils as dynamic

    def answer(*_: object) -> str:
        asked.touch()
        return "y"

    builtins.input = answer
    vars(dynamic)["HF_MODULES_CACHE"] = str(modules)
    FAMILIES[family][1](folder)


def attack(family: str, harm: Harm, place: Path, rng: Random) -> tuple[list[str], End]:
    """What is bad about how it ended, and how."""
    with tempfile.TemporaryDirectory(dir=place) as own:
        folder, marker, asked = (Path(own) / name for name in ("model", "it-ran", "asked"))
        if rng.random() < 0.1:
            folder = folder.with_name("\x1b[31mred\u202e")
        shutil.copytree(good(family, place), folder)
        harm(folder, marker, rng)
        modules = Path(own) / "modules"
        end = in_child(lambda: load(family, folder, asked, modules), SECONDS, MEMORY)
        bad = [end.kind] if end.kind not in ("result", "sentence") else []
        bad += ["code ran"] * marker.exists() + ["asked"] * asked.exists()
    told = ", ".join(bad) or end.kind
    print(f"{family}, {harm.__name__}: {told}: {end.said!r}", file=sys.stderr)
    return bad, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folders", type=int, default=264)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="the first folder's number")
    parser.add_argument("--only", default="", help="harms whose name holds this text")
    parser.add_argument("--family", default="", help="families whose name holds this text")
    options = parser.parse_args()
    torch.set_num_threads(1)
    harms = [harm for harm in HARMS if options.only in harm.__name__]
    families = [name for name in FAMILIES if options.family in name]
    pairs = [(family, harm) for harm in harms for family in families]
    Random(options.seed).shuffle(pairs)
    ends: defaultdict[str, Counter[str]] = defaultdict(Counter)
    most: defaultdict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    with tempfile.TemporaryDirectory() as place:
        for number in range(options.start, options.start + options.folders):
            family, harm = pairs[number % len(pairs)]
            rng = Random(f"{options.seed} {number}")
            bad, end = attack(family, harm, Path(place), rng)
            ends[harm.__name__].update({end.kind, *bad, *(["bad"] if bad else [])})
            was = most[harm.__name__]
            most[harm.__name__] = max(was[0], end.seconds), max(was[1], end.memory / 2**30)
    columns = ("scored", "refused", "code ran", "asked", "traceback", "hang", "memory", "died")
    kinds = ("result", "sentence", *columns[2:])
    table = Table("harm", *columns, "seconds", "GiB")
    for harm_name, counts in sorted(ends.items()):
        figures = (str(counts[kind]) for kind in kinds)
        table.add_row(harm_name, *figures, *(f"{figure:.1f}" for figure in most[harm_name]))
    Console(width=120).print(table)
    failed = sum(counts["bad"] for counts in ends.values())
    print(f"{options.folders} folders, {failed} bad")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
