"""open_clip models: CLIP, SigLIP, CoCa and all others that open_clip builds; scored by cosine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import open_clip
import torch
from open_clip import SimpleTokenizer
from open_clip.tokenizer import canonicalize_text, get_clean_fn
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image

from counterpoint._util.errors import (
    CounterpointError,
    MissingExtraError,
    ModelError,
)
from counterpoint._util.untrusted import described
from counterpoint.models.hub import guarded, hub_or_cache
from counterpoint.models.openclip.ids import (
    OpenClipSource,
    parse,
    parse_scratch,
    refuse_sizes,
    refuse_tokenizer_options,
    refuse_wrong_activation,
    weights_of,
)
from counterpoint.models.registry import LoadOptions
from counterpoint.models.torch_models import (
    Runtime,
    TowerPixels,
    fingerprint,
    memory_errors,
    plain,
    quiet,
    unit,
)

# A folder may bring its own byte-pair merges for open_clip's tokenizer, under this name.
MERGES: Final = "bpe_merges.txt.gz"
_PROBES: Final = (
    "a",
    "a dog and a cat",
    "two red birds sit on the long branch of a tall green tree",
)


class OpenClip:
    """A dual encoder. Vectors are unit float32, whatever precision the towers run in."""

    def __init__(
        self, source: OpenClipSource, model: Any, tokenizer: Any, runtime: Runtime
    ) -> None:
        self.model, self.tokenizer, self.runtime = model.eval(), tokenizer, runtime
        self.transform = image_transform_v2(
            PreprocessCfg(**model.visual.preprocess_cfg), is_train=False
        )
        self.pixels = TowerPixels(self.transform, runtime.device, jpegs=runtime.decodes)
        self.context_length: int | None = tokenizer.context_length
        self.notes, self.training_records = source.notes, source.training_records
        more = ("decoded on the GPU",) if self.pixels.decodes else ()
        identity = (self.transform, self._tokenizer_identity(), runtime.identity, *more)
        self.fingerprint = fingerprint(model, *identity)
        # A tower that is cut is called in a way that makes unit vectors; so does CoCa unless told.
        self.cuts_padding = runtime.unit and self._may_cut_padding()
        self.plain: dict[str, bool] = {} if runtime.unit else {"normalize": False}
        self.tokens = CaptionTokens(tokenizer)
        # Scale (its logarithm) and bias are the same for all pairs: they change no verdict.
        logits = {name: getattr(model, name, None) for name in ("logit_scale", "logit_bias")}
        self.logits = {name: value.item() for name, value in logits.items() if value is not None}
        self.lanes, self.device = runtime.lanes, runtime.hardware
        self.reader = self.pixels.reader
        runtime.cast(model)

    def preprocess(self, image: Image.Image) -> torch.Tensor | np.ndarray:
        return self.pixels.prepare(image)

    @memory_errors
    def encode_images(self, images: Sequence[torch.Tensor | np.ndarray]) -> np.ndarray:
        staged, kind = self.pixels.stage(images), self.runtime.half or torch.float32
        return self.runtime.vectors(
            lambda: self.model.encode_image(self.pixels.finish(staged).to(kind), **self.plain)
        )

    def count_tokens(self, captions: Sequence[str]) -> np.ndarray:
        return self.tokens.count(captions)

    @memory_errors
    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        ids = self.tokens.ids(captions, cut=self.cuts_padding)
        if self.cuts_padding:  # which tokenizers of transformers have left
            used = (ids != getattr(self._text_tower(), "pad_id", 0)).any(axis=0)
            ids = ids[:, : int(used.nonzero()[0].max()) + 1]
        tokens = torch.from_numpy(ids)
        encode = self._encode_cut if self.cuts_padding else self.model.encode_text
        return self.runtime.vectors(lambda: encode(tokens.to(self.runtime.device), **self.plain))

    def describe(self) -> Mapping[str, Any]:
        return {
            **self.runtime.describe(self.model),
            **self.logits,
            "decoder": "GPU" if self.pixels.decodes else "Pillow",
            "context_length": self.context_length,
            "preprocessing": repr(self.transform),
            "padding_cut": self.cuts_padding,
            "versions": {"open_clip": open_clip.__version__, "torch": str(torch.__version__)},
            "notes": list(self.notes),
            **({"training_records": [*self.training_records]} if self.training_records else {}),
        }

    def _encode_cut(self, tokens: torch.Tensor) -> torch.Tensor:
        """Encode captions whose padding after the longest of them is cut off.

        A causal tower's vector at the end-of-text token depends on nothing after it, so this gives
        the same result for much less work. The positional table and the mask are cut to match.
        """
        tower, length = self._text_tower(), tokens.shape[1]
        cut = {"positional_embedding": tower.positional_embedding[:length]}
        if getattr(tower, "attn_mask", None) is not None:
            cut["attn_mask"] = tower.attn_mask[:length, :length]
        if tower is self.model:
            out = torch.func.functional_call(tower, cut, (None, tokens))
            return out["text_features"] if isinstance(out, dict) else out[1]
        found: torch.Tensor = torch.func.functional_call(tower, cut, (tokens,))
        return found

    def _text_tower(self) -> Any:
        """The module that holds the text tower's positional table: the model, or its `text`."""
        return self.model if hasattr(self.model, "positional_embedding") else self.model.text

    @torch.inference_mode()
    def _may_cut_padding(self) -> bool:
        """Try it: cut captions must come out as uncut ones do, alone and in a batch."""
        tokens = self.tokenizer(list(_PROBES)).to(self.runtime.device)
        padding = getattr(self._text_tower(), "pad_id", 0)
        lengths = (tokens != padding).sum(dim=1).tolist()
        try:
            parts = (tokens[:, : max(lengths)], tokens[:1, : lengths[0]])
            cut = np.concatenate([unit(self._encode_cut(part)) for part in parts])
        except (AttributeError, RuntimeError, TypeError, ValueError, AssertionError):
            return False  # a tower of another kind gets the full context
        whole = unit(self.model.encode_text(tokens))
        allowed = 1e-5 if next(self.model.parameters()).dtype == torch.float32 else 2e-2
        return bool(np.abs(cut - np.concatenate([whole, whole[:1]])).max() < allowed)

    def _tokenizer_identity(self) -> tuple[Any, ...]:
        merges = getattr(self.tokenizer, "bpe_ranks", None)
        probe = self.tokenizer(["A Dog &amp; two  CATS, the long-haired ones: don't!"]).tolist()
        return type(self.tokenizer).__name__, plain(self.tokenizer), probe, merges


def load(rest: str, options: LoadOptions) -> OpenClip:
    """`NAME/PRETRAINED` (a tag or a weights file), `local-dir:PATH` or `hf-hub:ORG/REPO`."""
    source = parse(rest)
    refuse_wrong_activation(source)
    runtime = Runtime(options)
    weights = weights_of(source.folder) if source.folder else None
    hub = hub_or_cache(f"open_clip:{rest}", source.repository)
    with hub, guarded_loading(f"open_clip:{rest}", source.name, source.origin, weights, options):
        model = open_clip.create_model(
            source.name,
            source.pretrained,
            device=runtime.device,
            weights_only=True,
            require_pretrained=True,
        )
        tower = model if hasattr(model, "token_embedding") else getattr(model, "text", None)
        rows = getattr(getattr(tower, "token_embedding", None), "num_embeddings", None)
        tokenizer = tokenizer_of(f"open_clip:{rest}", source.name, source.folder, rows, "model")
        return OpenClip(source, model, tokenizer, runtime)


def tokenizer_of(id: str, name: str, folder: Path | None, rows: int | None, whose: str) -> Any:
    """The tokenizer, with the merges in a folder if there are any; it has to fit `rows` tokens."""
    merges = folder / MERGES if folder else None
    own = {"bpe_path": str(merges)} if merges and merges.is_file() else {}
    tokenizer = open_clip.get_tokenizer(name, **own)
    if rows and getattr(tokenizer, "vocab_size", 0) > rows:
        raise ModelError(
            "E-TOKENIZER-MISMATCH",
            f"{id}: its tokenizer has {tokenizer.vocab_size} tokens and its text tower {rows}; put "
            f"the matching {MERGES} into the {whose}'s folder.",
        )
    return tokenizer


@contextmanager
def guarded_loading(
    id: str, name: str, origin: Path | str | None, weights: Path | None, options: LoadOptions
) -> Iterator[None]:
    """Use open_clip inside: it is quiet, it runs no code of the model, and its errors are one
    sentence. `name` is what open_clip calls the model, `origin` its folder or its repository."""
    try:
        with quiet(), guarded(id, origin, options):
            refuse_tokenizer_options(id, name, options)
            refuse_sizes(id, name, weights)
            yield
    except CounterpointError:
        raise
    except ImportError:  # towers and tokenizers of transformers
        raise MissingExtraError(id, "vlm") from None
    except Exception as error:  # open_clip and its loaders raise anything
        raise ModelError("E-MODEL-BROKEN", f"{id} cannot be loaded: {described(error)}.") from None


def load_scratch(rest: str, options: LoadOptions) -> OpenClip:
    """`ARCHITECTURE` or `ARCHITECTURE?seed=N`: the same random weights for the same seed."""
    id, runtime = f"scratch:{rest}", Runtime(options)
    name, seed = parse_scratch(rest)
    text = open_clip.get_model_config(name)["text_cfg"]
    hub = hub_or_cache(id, text.get("hf_tokenizer_name") or text.get("hf_model_name"))
    guard = guarded_loading(id, name, None, None, options)
    with hub, guard, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # on the CPU: a GPU draws other numbers
        model = open_clip.create_model(name, load_weights=False, pretrained_text=False)
        tokenizer = open_clip.get_tokenizer(name)
        source = OpenClipSource(id, name, None)
        return OpenClip(source, model.to(runtime.device), tokenizer, runtime)


# --- tokens of captions --------------------------------------------------------------------------
#
# The ids of open_clip's own tokenizers, several times as fast. open_clip repairs every caption
# (ftfy, HTML entities) before it splits it. Plain captions, printable ASCII without `&`, have
# nothing to repair: there only the rest of the cleaning is done. A byte-pair tokenizer splits at
# blanks, so the ids of a word are remembered and a caption is put together.

Clean = Callable[[str], str]

# What is left of each way of cleaning where nothing has to be repaired.
_PLAIN: Final[dict[Clean, Clean]] = {
    get_clean_fn("lower"): lambda text: " ".join(text.split()).lower(),
    get_clean_fn("whitespace"): lambda text: " ".join(text.split()),
    get_clean_fn("canonicalize"): canonicalize_text,
}
_ENDS: Final = 2  # start and end of text: the only special tokens of a plain tokenizer


def is_plain(caption: str) -> bool:
    return caption.isascii() and caption.isprintable() and "&" not in caption


class _Words(dict[str, list[int]]):
    """The ids of words between blanks."""

    def __init__(self, tokenizer: SimpleTokenizer) -> None:
        super().__init__()
        self.tokenizer = tokenizer

    def __missing__(self, word: str) -> list[int]:
        found: list[int] = self.tokenizer.encode(word)
        self[word] = found
        return found


class CaptionTokens:
    """Counts and ids of captions, for one tokenizer of open_clip."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = copy(tokenizer)  # the model's own is part of its fingerprint
        clean = getattr(tokenizer, "clean_fn", str)
        self._rest = _PLAIN.get(clean)
        self._clean = self._tokenizer.clean_fn = self._quick(clean)
        self._simple = isinstance(tokenizer, SimpleTokenizer)
        # Other special tokens may hold blanks.
        by_words = self._simple and self._rest and len(tokenizer.all_special_ids) == _ENDS
        self._words = _Words(self._tokenizer) if by_words else None

    def _quick(self, clean: Clean) -> Clean:
        rest = self._rest
        if rest is None:
            return clean
        return lambda text: rest(text) if is_plain(text) else clean(text)

    def count(self, captions: Sequence[str]) -> np.ndarray:
        """How many tokens each caption has, special ones included, before anything is cut."""
        if self._simple:
            counts = [len(ids) + _ENDS for ids in self._rows(captions)]
        elif captions:  # a tokenizer of transformers
            texts = [self._clean(caption) for caption in captions]
            counts = [len(ids) for ids in self._tokenizer.tokenizer(texts)["input_ids"]]
        else:
            counts = []
        return np.array(counts, dtype=np.int64)

    def ids(self, captions: Sequence[str], *, cut: bool) -> np.ndarray:
        """One line per caption (int64); what is beyond the context is cut.

        Lines are padded to the context, or with `cut` to the longest caption.
        """
        if not self._simple or self._tokenizer.reduction_fn is not None:
            found: np.ndarray = self._tokenizer(list(captions)).numpy()
            return found
        context = self._tokenizer.context_length
        start, end = self._tokenizer.sot_token_id, self._tokenizer.eot_token_id
        rows = [[start, *ids[: context - _ENDS], end] for ids in self._rows(captions)]
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        width = lengths.max(initial=0) if cut else context
        out = np.zeros((len(rows), width), dtype=np.int64)
        places = np.arange(out.shape[1]) < lengths[:, None]
        out[places] = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))
        return out

    def _rows(self, captions: Sequence[str]) -> list[list[int]]:
        """The ids of each caption without start and end."""
        words, rest = self._words, self._rest
        if words is None or rest is None:
            return [self._tokenizer.encode(caption) for caption in captions]
        return [
            list(chain.from_iterable(map(words.__getitem__, rest(caption).split())))
            if is_plain(caption)
            else self._tokenizer.encode(caption)
            for caption in captions
        ]
