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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

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
_EXTRAS: Final = ("lanes", "device")


class Remembered(NamedTuple):
    """What a model says of itself. `extras`: attributes that the engine asks for if they exist."""

    fingerprint: str
    context_length: int | None
    description: dict[str, Any] | None
    extras: dict[str, Any]


class RememberedEncoder:
    """Stands for a dual encoder of the same fingerprint; `load` gives the encoder itself."""

    def __init__(
        self,
        id: str,
        known: Remembered,
        load: Callable[[], Model],
        store: Store,
        model: DualEncoder | None = None,
    ) -> None:
        self.id, self._known, self._load, self._store = id, known, load, store
        self.fingerprint, self.context_length = known.fingerprint, known.context_length
        for name, value in known.extras.items():
            setattr(self, name, value)
        self._model = model
        self._loading = threading.Lock()  # images are preprocessed in threads

    @property
    def model(self) -> DualEncoder:
        with self._loading:
            if self._model is None:
                found: Any = self._load()
                if found.fingerprint != self.fingerprint:
                    raise ModelError(
                        "E-MODEL-CHANGED",
                        f"{self.id}: its files were changed during the run; run the same command "
                        "again.",
                    )
                self._model = found
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
            piece = slice(start, start + _PIECE)
            counts[piece] = self._counts(captions[piece])
        return counts

    def _counts(self, captions: Sequence[str]) -> list[int]:
        keys = [digest(self.fingerprint, "tokens", caption) for caption in captions]
        found = self._store.get(keys)
        missing = [i for i, value in enumerate(found) if value is None]
        if missing:
            new = np.asarray(self.model.count_tokens([captions[i] for i in missing])).tolist()
            for i, count in zip(missing, new, strict=True):
                found[i] = value = count.to_bytes(_COUNT, "little")
                self._store.remember(keys[i], value)
        return [int.from_bytes(value or b"", "little") for value in found]

    def describe(self) -> Mapping[str, Any]:
        if isinstance(self._model, Described):
            return self._model.describe()
        return self._known.description or {}


def load_remembered(id: str, options: LoadOptions, store: Store) -> Model:
    """The model, or what stands for it if the store knows what it says of itself."""

    def load() -> Model:
        return load_model(id, options)

    key = _key(id, options, store)
    if key is None:
        return load()
    [known] = store.get([key])
    if known is not None:
        return RememberedEncoder(id, Remembered(**json.loads(known)), load, store)
    model = load()
    if not isinstance(model, DualEncoder):
        return model
    said = _said(model)
    if said is None:
        return model
    if key == _key(id, options, store):  # else a file was changed while it was read
        store.remember(key, json.dumps(said._asdict()).encode())
    return RememberedEncoder(id, said, load, store, model)


def _said(model: DualEncoder) -> Remembered | None:
    """None if it does not survive being written down."""
    described = dict(model.describe()) if isinstance(model, Described) else None
    extras = {name: getattr(model, name) for name in _EXTRAS if hasattr(model, name)}
    said = Remembered(model.fingerprint, model.context_length, described, extras)
    try:
        return Remembered(**json.loads(json.dumps(said._asdict())))
    except (TypeError, ValueError):
        return None


def _key(id: str, options: LoadOptions, store: Store) -> bytes | None:
    """A digest of all that loading depends on; None if some of it is not a file of this machine."""
    if options.trust_remote_code:
        return None  # its code may read anything
    files = _files(id)
    if not files:
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
        return _folder(_PACKAGE / "world" / "checkpoints" / rest)
    if family == "onnx":
        return _folder(Path(rest.partition("?")[0]).expanduser())
    if family == "hf":
        files = _folder(Path(rest).expanduser())
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
        config, files = folder / "open_clip_config.json", _folder(folder)
        hub = "hf_model_name"  # its tokenizer is read from the folder itself
    else:
        package = find_spec("open_clip")
        if package is None or package.origin is None or "/" in name:
            return []
        config = Path(package.origin).parent / "model_configs" / f"{name}.json"
        files, hub = [config], "hf_"
    if not config.is_file() or hub.encode() in config.read_bytes():
        return []
    return files


def _folder(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _digest_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def _versions() -> list[str]:
    def installed() -> Iterator[str]:
        for library in _LIBRARIES:
            try:
                yield f"{library} {version(library)}"
            except PackageNotFoundError:
                yield library

    return list(installed())


def _own_code() -> list[tuple[str, int, int]]:
    """Of an installed package its version says it all; while it is developed, its files do."""
    return sorted(
        (path.name, path.stat().st_size, path.stat().st_mtime_ns)
        for path in (_PACKAGE / "models").rglob("*.py")
    )
