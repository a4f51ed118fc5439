"""Dual encoders that are loaded when something has to be computed, and not before.

When a model is loaded from files of this machine, the store keeps what the model says of itself,
under a digest of all that its loading depends on: the content of every file, the options, and the
versions of the libraries. A later run with the same digest takes vectors and token counts from the
store; it needs neither the weights nor torch.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from counterpoint._util.errors import ImageError, ModelError
from counterpoint._util.store import Store, digest
from counterpoint.images import file_content
from counterpoint.models.registry import TRAINED_ON, LoadOptions, load_model
from counterpoint.scoring import Described, DualEncoder, Model

_LOCAL: Final = "local-dir:"
_WEIGHTS: Final = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
_LIBRARIES: Final = (
    *("counterpoint", "torch", "torchvision", "open_clip_torch", "timm", "transformers"),
    *("tokenizers", "sentencepiece", "safetensors", "ftfy", "regex", "numpy", "pillow"),
    "onnxruntime",
)
_PACKAGE: Final = Path(__file__).parents[1]
_MOST: Final = 32 * 2**30  # bytes of files
_PIECE: Final = 65_536  # captions that are looked up at a time
_COUNT: Final = 4  # bytes of a count


class RememberedEncoder:
    """Stands for a dual encoder that says `known` of itself; `load` gives the encoder itself."""

    def __init__(
        self,
        id: str,
        known: Mapping[str, Any],
        load: Callable[[], Model],
        store: Store,
        model: DualEncoder | None = None,
    ) -> None:
        self.id, self._load, self._store, self._model = id, load, store, model
        self.fingerprint: str = known["fingerprint"]
        self.context_length: int | None = known["context_length"]
        self._description = known["description"] or {}
        for name, value in known["extras"].items():
            setattr(self, name, value)
        self._loading = threading.Lock()  # images are preprocessed in threads

    @property
    def model(self) -> DualEncoder:
        with self._loading:
            if self._model is None:
                model: Any = self._load()
                if model.fingerprint != self.fingerprint:
                    raise ModelError(
                        "E-MODEL-CHANGED",
                        f"{self.id}: its files were changed during the run; run the same command "
                        "again.",
                    )
                self._model = model
            return self._model

    def preprocess(self, image: Any) -> Any:
        return self.model.preprocess(image)

    @property
    def reader(self) -> Any:
        return getattr(self.model, "reader", None)

    def encode_images(self, images: Sequence[Any]) -> np.ndarray:
        return self.model.encode_images(images)

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        return self.model.encode_captions(captions)

    def count_tokens(self, captions: Sequence[str]) -> np.ndarray:
        """From the store, where the counts of captions are kept once they are known."""
        counts = np.empty(len(captions), dtype=np.int64)
        for start in range(0, len(captions), _PIECE):
            piece = captions[start : start + _PIECE]
            keys = [digest(self.fingerprint, "tokens", caption) for caption in piece]
            values = self._store.get(keys)
            if missing := [i for i, value in enumerate(values) if value is None]:
                new = np.asarray(self.model.count_tokens([piece[i] for i in missing])).tolist()
                for i, count in zip(missing, new, strict=True):
                    values[i] = value = count.to_bytes(_COUNT, "little")
                    self._store.remember(keys[i], value)
            found = [int.from_bytes(value or b"", "little") for value in values]
            counts[start : start + len(piece)] = found
        return counts

    def describe(self) -> Mapping[str, Any]:
        return self._model.describe() if isinstance(self._model, Described) else self._description


def load_remembered(id: str, options: LoadOptions, store: Store) -> Model:
    """The model, or what stands for it if the store knows what it says of itself."""
    load = partial(load_model, id, options)
    key = _key(id, options, store)
    if key is None:
        return load()
    [known] = store.get([key])
    if known is not None:
        return RememberedEncoder(id, json.loads(known), load, store)
    model = load()
    if not isinstance(model, DualEncoder):
        return model
    about = {
        "fingerprint": model.fingerprint,
        "context_length": model.context_length,
        "description": dict(model.describe()) if isinstance(model, Described) else None,
        # What the engine asks for if it is there.
        "extras": {n: getattr(model, n) for n in ("lanes", "device") if hasattr(model, n)},
    }
    try:
        text = json.dumps(about)
    except (TypeError, ValueError):
        return model
    if key == _key(id, options, store):  # else a file was changed while it was read
        store.remember(key, text.encode())
    return RememberedEncoder(id, json.loads(text), load, store, model)


def _key(id: str, options: LoadOptions, store: Store) -> bytes | None:
    """A digest of all that loading depends on; None if some of it is not a file of this machine."""
    files = _files(id)
    if options.trust_remote_code or not files:  # a model's own code may read anything
        return None
    try:
        if sum(path.stat().st_size for path in files) > _MOST:
            return None  # reading them takes longer than loading what is used of them
        contents = [
            (str(path), file_content(path, "model", partial(_digest_of, path), store))
            for path in files
        ]
    except (ImageError, OSError):  # loading will say what is wrong
        return None
    return digest("remembered model", id, repr((options, _versions(), _own_code(), contents)))


def _files(id: str) -> list[Path]:
    """Every file that a model is read from; none if it is not known which these are."""
    family, _, rest = id.partition(":")
    if family == "world":
        return _in_folder(_PACKAGE / "world" / "checkpoints" / rest)
    if family == "onnx":
        return _in_folder(Path(rest.partition("?")[0]).expanduser())
    if family == "hf":
        files = _in_folder(Path(rest).expanduser())
        adapted = any(path.name.startswith("adapter_") for path in files)  # to weights elsewhere
        return [] if adapted else files
    if family == "open_clip" and rest.startswith(_LOCAL):
        return _architecture(rest)
    if family == "open_clip":
        name, _, weights = rest.partition("/")
    elif family == "checkpoint":
        weights, _, name = rest.rpartition("@")
    else:
        return []
    path = Path(weights).expanduser()
    if path.suffix not in _WEIGHTS or not path.is_file():
        return []
    # They may say which activation the weights want, and what they were trained on.
    beside = [path.parent / name for name in ("config.json", TRAINED_ON)]
    around = _architecture(name)
    return [path, *(file for file in beside if file.is_file()), *around] if around else []


def _architecture(name: str) -> list[Path]:
    """An open_clip folder, or the config of an architecture, unless it needs files of the hub."""
    if name.startswith(_LOCAL):
        folder = Path(name.removeprefix(_LOCAL)).expanduser()
        config, files = folder / "open_clip_config.json", _in_folder(folder)
        hub = "hf_model_name"  # its tokenizer is read from the folder itself
    else:
        package = find_spec("open_clip")
        if package is None or package.origin is None or "/" in name:
            return []
        config = Path(package.origin).parent / "model_configs" / f"{name}.json"
        files, hub = [config], "hf_"
    return [] if not config.is_file() or hub.encode() in config.read_bytes() else files


def _in_folder(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []


def _digest_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def _versions() -> list[str]:
    found = []
    for library in _LIBRARIES:
        try:
            found.append(f"{library} {version(library)}")
        except PackageNotFoundError:
            found.append(library)
    return found


def _own_code() -> list[tuple[str, int, int]]:
    """Of an installed package its version says it all; while it is developed, its files do."""
    return sorted(
        (path.name, path.stat().st_size, path.stat().st_mtime_ns)
        for path in (_PACKAGE / "models").rglob("*.py")
    )
