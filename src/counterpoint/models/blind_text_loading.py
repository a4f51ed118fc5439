"""How the text models of `blind_text` are opened: a folder, a repository, a GGUF file."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import Final

import torch

from counterpoint.errors import MissingExtraError, ModelError, NotFoundError
from counterpoint.models import LoadOptions
from counterpoint.models.blind_text import Grammar, LanguageModel, Plausible, TextModel
from counterpoint.models.hf_library import explained
from counterpoint.models.hub import hub_or_cache
from counterpoint.models.own_code import guarded
from counterpoint.models.torch_models import Place

try:
    import transformers
except ImportError:
    raise MissingExtraError("blind models of text", "vlm") from None

_KINDS: Final[dict[str, tuple[type[TextModel], str, str]]] = {
    "grammar": (
        Grammar,
        "AutoModelForSequenceClassification",
        "textattack/distilbert-base-uncased-CoLA",
    ),
    "plausible": (Plausible, "T5EncoderModel", "liujch1998/vera"),
    "lm": (LanguageModel, "AutoModelForCausalLM", ""),
}


def load(name: str, rest: str, options: LoadOptions) -> TextModel:
    """`grammar`, `plausible` or `lm`, each with a folder or ORG/REPO; lm also with a GGUF file."""
    kind, class_name, default = _KINDS[name]
    id, place = f"blind:{name}:{rest or default}", Place(options)
    where, more = _where(id, rest or default, gguf=name == "lm")
    safe = {"trust_remote_code": options.trust_remote_code, **more}
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")  # or the hub is asked to convert
    # The library's progress bars are worth their lines only while something is downloaded.
    local = Path(where).is_dir()
    no_bars = contextlib.redirect_stderr(io.StringIO()) if local else contextlib.nullcontext()
    hub = hub_or_cache(id, where)
    with hub, guarded(id, where, options), explained(id, "cannot be loaded"), no_bars:
        model, report = getattr(transformers, class_name).from_pretrained(
            where, output_loading_info=True, dtype=torch.float32, weights_only=True, **safe
        )
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"{id} is no model of this kind: {len(missing)} of the weights of "
            f"{type(model).__name__} are not in it, for instance {missing[0]}."
        )
    unread = "has no tokenizer that can be loaded"
    hub = hub_or_cache(id, where)
    with hub, guarded(id, None, options), explained(id, unread), no_bars:
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, **safe)
    words = model.get_input_embeddings().num_embeddings
    if not words / 2 <= tokenizer.vocab_size <= words:  # transformers makes one up where none is
        raise ModelError(
            f"{id}: its tokenizer has {tokenizer.vocab_size} tokens and the model {words}; "
            "put the model's own tokenizer beside its weights."
        )
    with explained(id, "does not run"):
        scorer = kind(id, model, tokenizer, place)
        if more:
            scorer.notes = (f"weights of {more['gguf_file']}, made float32 from what it holds.",)
        scorer.score_captions(["a", "two red birds"])
    return scorer


def _where(id: str, rest: str, *, gguf: bool) -> tuple[str, dict[str, str]]:
    """A folder or repository, and the file in it if it is one of llama.cpp's."""
    if not rest:
        raise NotFoundError(f"{id} needs a model: {id}FOLDER or {id}ORG/REPO.")
    more = {}
    if gguf and rest.endswith(".gguf"):
        joint = ":" if ":" in rest else "/"
        rest, _, file = rest.rpartition(joint)
        more = {"gguf_file": file}
        rest = rest or "."
    folder = Path(rest).expanduser()
    if folder.is_dir():
        if more and not (folder / file).is_file():
            raise NotFoundError(f"{id}: there is no file {file} in {folder}.")
        files = sorted(path.name for path in folder.glob("*.gguf"))
        if files and gguf and not more and not (folder / "config.json").is_file():
            raise NotFoundError(f"{id} needs the name of a file, as in {id}:{files[0]}.")
        return str(folder), more
    if rest.count("/") != 1 or rest.startswith(("/", ".", "~")):
        raise NotFoundError(f"{id}: no such folder, nor a repository's name (ORG/REPO).")
    return rest, more
