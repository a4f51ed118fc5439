"""Dual encoders as ONNX graphs, without torch: exports of the Hub, and the models of the world.

    onnx:FOLDER                    onnx:ORG/REPO                    onnx:ORG/REPO?variant=quantized

A folder holds `vision_model.onnx` and `text_model.onnx`, or one `model.onnx` with both towers, at
its top or in `onnx/`, beside `tokenizer.json` and `preprocessor_config.json`. A variant is the same
model in other numbers, by the end of its files' names: `text_model_quantized.onnx`. Images are
resized by Pillow, as OpenAI's CLIP and open_clip do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
from PIL import Image
from tokenizers import Tokenizer

from counterpoint._util.errors import CounterpointError, ModelError, NotFoundError, is_panic
from counterpoint._util.registry import Option, did_you_mean, read_options
from counterpoint._util.untrusted import described, parse_json
from counterpoint.images import Reader
from counterpoint.models.hub import (
    fetched_folder,
    find_source,
    hub_or_cache,
    refuse_unsafe,
    why_unusable,
)
from counterpoint.models.registry import LoadOptions, records_in, world_folder
from counterpoint.scoring import Model

_OPTIONS: Final = {"variant": Option("")}
_TOWERS: Final = ("vision_model", "text_model")
_WHOLE: Final = "model"
_PLACES: Final = ("onnx", ".")
_READING: Final = ("preprocessor_config.json", "tokenizer.json")
_ABOUT: Final = (*_READING, "config.json", "tokenizer_config.json")
_VECTORS: Final = {"image": ("image_embeds", "pooler_output"), "text": ("text_embeds",)}
_MOST: Final = 8 * 2**30  # bytes of weights
_LARGEST: Final = 4096  # pixels of a side that a tower sees
_ENDLESS: Final = 10**6  # what transformers says of a tokenizer without a limit is larger
_PROBES: Final = ("a", "two red birds sit on the long branch of a tall green tree")
_KINDS: Final = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}


class Pixels:
    """What `preprocessor_config.json` says: Pillow resizes and crops, NumPy scales."""

    def __init__(self, id: str, config: Mapping[str, Any]) -> None:
        try:
            self._read(config)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ModelError(
                "E-CONFIG-INVALID",
                f"{id}: preprocessor_config.json should say how images are resized, cropped to no "
                "more than that, and normalised; use another export.",
            ) from None

    def _read(self, config: Mapping[str, Any]) -> None:
        size = config["size"]
        if isinstance(size, Mapping):
            size = size.get("shortest_edge") or (int(size["height"]), int(size["width"]))
        size = size if isinstance(size, tuple) else int(size)
        crop = config.get("crop_size") if config.get("do_center_crop") else None
        if crop is not None:
            both = crop if isinstance(crop, Mapping) else {"height": crop, "width": crop}
            crop = int(both["height"]), int(both["width"])
        scale = config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0
        plain = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
        normal = config.get("do_normalize", True)
        mean, std = (config["image_mean"], config["image_std"]) if normal else plain
        self._scale = np.float32(scale)
        self._mean, self._std = (np.asarray(value, dtype=np.float32) for value in (mean, std))
        way = Image.Resampling(config.get("resample", Image.Resampling.BICUBIC))
        sides = size if isinstance(size, tuple) else (size,)
        known = config.get("do_resize", True) and not config.get("rescale_offset")
        if not (
            known
            and all(1 <= side <= _LARGEST for side in sides)
            and (crop is None or 1 <= min(crop) <= max(crop) <= min(sides))
            and self._mean.shape == self._std.shape == (3,)
            and np.isfinite([self._scale, *self._mean, *(1 / self._std)]).all()
        ):
            raise ValueError
        self.reader = Reader(size, crop, int(way))

    def finish(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """Prepared images as a tower takes them (n, 3, height, width)."""
        pixels = np.stack(images).astype(np.float32)
        return ((pixels * self._scale - self._mean) / self._std).transpose(0, 3, 1, 2)


class Words:
    """The tokenizer of `tokenizer.json`, and how many tokens the text tower takes."""

    def __init__(self, folder: Path, about: Mapping[str, Mapping[str, Any]]) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        cut, padding = self._tokenizer.truncation, self._tokenizer.padding
        tower, said = about["config.json"].get("text_config") or {}, about["tokenizer_config.json"]
        limits = (cut and cut["max_length"], tower.get("max_position_embeddings"))
        known = (*limits, said.get("model_max_length"))
        # The least of them: positions of RoBERTa's kind count two that no token has.
        self.context_length = min((int(n) for n in known if n and n < _ENDLESS), default=None)
        token = said.get("pad_token")
        named = self._tokenizer.token_to_id(token) if isinstance(token, str) else None
        self.filler = padding["pad_id"] if padding else named or 0
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        ends = self._tokenizer.encode("a").special_tokens_mask
        self._ends = next((n for n, special in enumerate(reversed(ends)) if not special), 0)

    def count(self, captions: Sequence[str]) -> np.ndarray:
        found = self._tokenizer.encode_batch([*captions])
        return np.array([len(one.ids) for one in found], dtype=np.int64)

    def ids(self, captions: Sequence[str], *, whole: bool) -> tuple[np.ndarray, np.ndarray]:
        """Lines of tokens, cut to the context, and which are not padding. They are padded to the
        longest, or with `whole` to the context."""
        rows = [self._cut(one.ids) for one in self._tokenizer.encode_batch([*captions])]
        width = self.context_length if whole and self.context_length else max(map(len, rows))
        there = np.arange(width) < np.array([[len(row)] for row in rows])
        filled = np.full(there.shape, self.filler, dtype=np.int64)
        filled[there] = [token for row in rows for token in row]
        return filled, there

    def _cut(self, ids: list[int]) -> list[int]:
        """What ends a text stays at its end."""
        if self.context_length is None or len(ids) <= self.context_length:
            return ids
        return ids[: self.context_length - self._ends] + ids[len(ids) - self._ends :]


class OnnxEncoder:
    """A dual encoder of two graphs, or of one with both towers."""

    def __init__(
        self, id: str, folder: Path, variant: str, options: LoadOptions, *, own: bool = False
    ) -> None:
        """`own`: the graphs are ours, and are not tried before they are opened."""
        self.id, self._unit = id, options.unit
        about = {name: _read(id, folder / name) for name in _ABOUT}
        files = _graphs(id, folder, variant)
        self._pixels = Pixels(id, about["preprocessor_config.json"])
        self._words = Words(folder, about)
        self.reader = self._pixels.reader
        providers = _providers(id, options)
        if not own:
            self._refuse_unusable(files)
        self._sessions = [
            onnxruntime.InferenceSession(str(path), _session_options(), providers=providers)
            for path in files
        ]
        self.context_length = self._words.context_length
        self._variant, self._records = variant, records_in(folder)
        self._whole = False
        self._whole = not self._may_cut_padding()
        words = self.context_length, self._words.filler, self._whole
        self.fingerprint = _digest(id, folder, files, (*words, options.unit))

    def _refuse_unusable(self, files: Sequence[Path]) -> None:
        blank = self._pixels.finish([self.preprocess(Image.new("RGB", (8, 8)))])
        ids, _ = self._words.ids(_PROBES[:1], whole=False)
        texts = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), ids.shape)
        if why := why_unusable(files, {"pixel_values": blank.shape, **texts}):
            raise ModelError(
                "E-MODEL-BROKEN", f"{self.id}: a graph of its folder {why}; use another export."
            )

    def preprocess(self, image: Image.Image) -> np.ndarray:
        return self.reader.prepare(image)

    def encode_images(self, images: Sequence[np.ndarray]) -> np.ndarray:
        return self._vectors("image", {"pixel_values": self._pixels.finish(images)})

    def count_tokens(self, captions: Sequence[str]) -> np.ndarray:
        return self._words.count(captions)

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        return self._texts(captions, whole=self._whole)

    def describe(self) -> Mapping[str, Any]:
        provider = self._sessions[0].get_providers()[0].removesuffix("ExecutionProvider").lower()
        return {
            "device": provider,
            "precision": self._variant or "fp32",
            "context_length": self.context_length,
            "preprocessing": f"{self.reader}",
            "padding_cut": not self._whole,
            "versions": {"onnxruntime": onnxruntime.__version__},
            "notes": [],
            **({"training_records": [*self._records]} if self._records else {}),
        }

    def _texts(self, captions: Sequence[str], *, whole: bool) -> np.ndarray:
        ids, there = self._words.ids(captions, whole=whole)
        return self._vectors("text", {"input_ids": ids, "attention_mask": there})

    def _vectors(self, side: str, given: Mapping[str, np.ndarray]) -> np.ndarray:
        """What a tower gives, of length one unless told not to. A graph with both towers gets one
        blank input of the other side."""
        session = self._sessions[0 if side == "image" else -1]
        outputs = {one.name for one in session.get_outputs()}
        names = (*_VECTORS[side], *(("pooler_output",) if len(self._sessions) > 1 else ()))
        name = next((name for name in names if name in outputs), None)
        if name is None:
            raise ModelError(
                "E-MODEL-UNSUITABLE",
                f"{self.id}: its graph has no output {' or '.join(dict.fromkeys(names))}; export "
                "the model with its projection.",
            )
        inputs = {one.name: self._input(one, given) for one in session.get_inputs()}
        with explained(self.id):
            [found] = session.run([name], inputs)
        vectors = np.asarray(found, dtype=np.float32)
        if not self._unit:
            return vectors
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.maximum(lengths, 1e-12)

    def _input(self, wanted: Any, given: Mapping[str, np.ndarray]) -> np.ndarray:
        kind = _KINDS.get(wanted.type, np.float32)
        if wanted.name in given:
            return given[wanted.name].astype(kind, copy=False)
        if wanted.name == "token_type_ids" and "input_ids" in given:
            return np.zeros_like(given["input_ids"], dtype=kind)
        if wanted.name not in ("pixel_values", "input_ids", "attention_mask", "token_type_ids"):
            raise ModelError(
                "E-MODEL-UNSUITABLE",
                f"{self.id}: its graph asks for {wanted.name!r}, which a dual encoder has no use "
                "for; use an export of a dual encoder.",
            )
        if wanted.name == "pixel_values":
            return self._pixels.finish([self.preprocess(Image.new("RGB", (8, 8)))]).astype(kind)
        return np.ones((1, self.context_length or 1), dtype=kind)

    def _may_cut_padding(self) -> bool:
        """Try it: a caption must come out the same beside a longer one and with all its padding."""
        if self.context_length is None:
            return True
        whole = self._texts(_PROBES, whole=True)
        cut = self._texts(_PROBES, whole=False)
        alone = self._texts(_PROBES[:1], whole=False)
        return bool(np.abs(np.concatenate([cut, alone]) - whole[[0, 1, 0]]).max() < 1e-4)


def load(rest: str, options: LoadOptions) -> OnnxEncoder:
    """`FOLDER` or `ORG/REPO`, and `?variant=NAME`."""
    where, _, text = rest.partition("?")
    variant = str(read_options(f"onnx:{where}", text, _OPTIONS, "&")["variant"])
    id = f"onnx:{rest}"
    source = find_source(id, where)
    folder = Path(source) if Path(source).is_dir() else _fetched(id, source, variant)
    refuse_unsafe(id, folder, trusted=False)
    with explained(id):
        return OnnxEncoder(id, folder, variant, options)


def load_world(rest: str, options: LoadOptions) -> Model:
    """`world:base`: a checkpoint in the package; with torch where it is to be trained, computed on
    a GPU or in another precision."""
    folder = world_folder(rest)
    exact = (options.precision, options.decode, options.torch) == ("fp32", "exact", False)
    if not exact or options.device not in ("auto", "cpu"):
        from counterpoint.models.openclip.adapter import load as load_open_clip

        return load_open_clip(f"local-dir:{folder}", options)
    with explained(f"world:{rest}"):
        return OnnxEncoder(f"world:{rest}", folder, "", options, own=True)


@contextmanager
def explained(id: str) -> Iterator[None]:
    """Whatever the runtime and the tokenizer raise becomes one sentence."""
    try:
        yield
    except CounterpointError:
        raise
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:  # of compiled code, a panic is no Exception
        if not (isinstance(error, Exception) or is_panic(error)):
            raise
        raise ModelError("E-MODEL-BROKEN", f"{id} cannot be used: {described(error)}.") from None


def _graphs(id: str, folder: Path, variant: str) -> list[Path]:
    """The files of the towers, or the one file of both."""
    ending = f"_{variant}.onnx" if variant else ".onnx"
    for place in _PLACES:
        for names in (_TOWERS, (_WHOLE,)):
            paths = [folder / place / f"{name}{ending}" for name in names]
            if all(path.is_file() for path in paths):
                return paths
    there = sorted(
        {
            path.stem.partition(name)[2].removeprefix("_")
            for place in _PLACES
            for name in (*_TOWERS, _WHOLE)
            for path in (folder / place).glob(f"{name}*.onnx")
        }
        - {""}
    )
    if variant and there:
        raise NotFoundError("E-OPTION-INVALID", f"{id}: {did_you_mean('variant', variant, there)}")
    more = f" in fp32, but {', '.join(f'?variant={name}' for name in there)}" if there else ""
    raise NotFoundError(
        "E-MODEL-MISSING",
        f"{id}: no graph is there{more}; a folder has {_TOWERS[0]}.onnx and {_TOWERS[1]}.onnx, or "
        "model.onnx, at its top or in onnx/.",
    )


def _fetched(id: str, repository: str, variant: str) -> Path:
    ending = f"_{variant}.onnx" if variant else ".onnx"
    graphs = [f"{name}{ending}*" for name in (*_TOWERS, _WHOLE)]
    patterns = [*_ABOUT, *graphs, *(f"onnx/{name}" for name in graphs)]
    with hub_or_cache(id, repository), explained(id):
        return fetched_folder(repository, patterns)


def _read(id: str, path: Path) -> Mapping[str, Any]:
    """A config, which may be left out unless images or captions cannot be read without it."""
    if not path.is_file():
        if path.name in _READING:
            raise NotFoundError("E-CONFIG-MISSING", f"{id}: {path.name} is missing in its folder.")
        return {}
    found = parse_json(path.read_bytes(), f"{id}: {path.name}", ModelError)
    return found if isinstance(found, dict) else {}


def _providers(id: str, options: LoadOptions) -> list[str]:
    """Where the graphs run. The precision is that of the file."""
    if options.precision != "fp32" or options.decode == "gpu" or options.torch:
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"{id}: an ONNX graph computes in the numbers of its file, decodes no JPEGs and is not "
            "trained; choose a file by ?variant=NAME.",
        )
    gpu, there = "CUDAExecutionProvider", onnxruntime.get_available_providers()
    if options.device not in ("auto", "cpu") and gpu not in there:
        raise ModelError(
            "E-DEVICE-MISSING",
            f"{id}: this onnxruntime runs on the CPU alone; install onnxruntime-gpu, or use cpu.",
        )
    chosen = [gpu] if options.device != "cpu" and gpu in there else []
    return [*chosen, "CPUExecutionProvider"]


def _session_options() -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors, which are raised, too
    # Threads that wait without sleeping take the cores from those that read images.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _named_by(graph: Path) -> Iterator[Path]:
    """The files below a graph's folder whose names stand in it. Other variants have files, too."""
    with graph.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        for path in graph.parent.rglob("*"):
            name = path.relative_to(graph.parent).as_posix().encode(errors="surrogateescape")
            if path != graph and content.find(name) >= 0 and path.is_file():
                yield path


def _digest(id: str, folder: Path, graphs: Sequence[Path], identity: object) -> str:
    """Of the graphs, of the files that they name (which hold their weights), and of what reads."""
    weights = sorted({path for graph in graphs for path in _named_by(graph)})
    if (size := sum(path.stat().st_size for path in weights)) > _MOST:
        raise ModelError(
            "E-MODEL-BROKEN",
            f"{id}: its graphs name {size >> 30:,} GiB of weights, more than the "
            f"{_MOST >> 30} GiB that are read; use another export.",
        )
    state = hashlib.blake2b(repr(identity).encode(), digest_size=16)
    for path in (*graphs, *weights, *(folder / name for name in _READING)):
        with path.open("rb") as file:
            state.update(path.name.encode() + hashlib.file_digest(file, "blake2b").digest())
    return state.hexdigest()
