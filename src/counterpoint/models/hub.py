"""The door for models of others: opened safely, from the hub or from its cache if it is silent.

Nothing else calls `from_pretrained` or fetches a file of a model.

Python code that comes with a model is looked for in its configs, and is not run unless the model is
trusted. transformers and diffusers import Python files of a model's folder or repository where a
config names them (`auto_map`). They do so if `trust_remote_code` is set, which open_clip takes from
the model's own config, or if the user types `y` when they ask. Here the option of the command
decides, and nothing else.
"""

from __future__ import annotations

import gzip
import json
import math
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from huggingface_hub import constants

from counterpoint._util.errors import ModelError, NotFoundError, is_panic, reason
from counterpoint._util.processes import Switch
from counterpoint._util.untrusted import parse_json, shortened
from counterpoint.models import bounded
from counterpoint.models.registry import LoadOptions

# Both have a function `check_imports`, which they call before they import a file of a model.
_LIBRARIES: Final = {
    "transformers": "transformers.dynamic_module_utils",
    "diffusers": "diffusers.utils.dynamic_modules_utils",
}
_KEYS: Final = ("auto_map", "auto_mapping", "trust_remote_code")
_CONFIGS: Final = ("*config*.json", "model_index.json")
_PATTERNS: Final = (*_CONFIGS, "tokenizer.json", "*/tokenizer.json", "*.gz")
_LARGEST: Final = 32 * 2**20  # bytes of a config
_DEEPEST: Final = 1000  # layers
_LABELS: Final = 100_000  # and entries of anything else
_SMALLEST: Final = 4  # weights in a byte of a file, quantised
_HARMLESS: Final = 10**8  # weights: what a machine has room for, whatever the files hold
_PATIENCE: Final = 5.0  # seconds that the hub has to answer


def find_source(id: str, where: str) -> str:
    """A folder that is there, or what may be a repository's name."""
    folder = Path(where).expanduser()
    if where and folder.is_file():
        raise NotFoundError(
            "E-MODEL-MISSING",
            f"{id}: {where} is a file, and {id.partition(':')[0]}: takes a folder that holds "
            "config.json and the weights; checkpoint:FILE reads a file of weights.",
        )
    if where and folder.is_dir():
        return str(folder)
    if where.startswith(("/", ".", "~")) or where.count("/") != 1 or folder.exists():
        raise NotFoundError(
            "E-MODEL-MISSING",
            f"{id}: no such folder; give one that holds config.json and the weights, or a model of "
            "the hub as ORG/REPO.",
        )
    return where


@dataclass(eq=False, slots=True)
class _Loading:
    id: str
    trusted: bool
    refused: str = ""


_under_way: list[_Loading] = []  # in all threads: one that is not trusted is enough to refuse
_watched: set[str] = set()


@contextmanager
def guarded(id: str, source: Path | str | None, options: LoadOptions) -> Iterator[None]:
    """Load a model inside: unless it is trusted, its own code is not run and no question is asked.

    `source` is its folder or its repository on the hub, whose configs are examined first. What a
    config leads to (another folder or repository) is covered as well: the libraries' own functions
    refuse while this is open.
    """
    folder = None
    if source is not None:
        folder = Path(source) if Path(source).is_dir() else _fetched(str(source))
    if folder is not None:
        refuse_unsafe(id, folder, trusted=options.trust_remote_code)
    _watch_libraries()
    loading = _Loading(id, options.trust_remote_code)
    _under_way.append(loading)
    try:
        yield
    except Exception:
        if loading.refused:
            raise _refusal(id, loading.refused) from None
        raise
    except BaseException as error:
        if is_panic(error):
            raise _broken(id, f"compiled code cannot read it ({shortened(error)})") from None
        raise
    finally:
        _under_way.remove(loading)
    if loading.refused:  # and a library went on without it: half a model
        raise _refusal(id, loading.refused)


def pretrained(kind: Any, source: Path | str, options: LoadOptions, **more: Any) -> Any:
    """What `kind.from_pretrained` makes of a folder or repository, inside `guarded`."""
    if not _under_way:
        raise RuntimeError(f"{kind.__name__} is opened outside of `guarded`")
    if Path(source).is_dir() and "gguf_file" not in more and "subfolder" not in more:
        _refuse_size(kind, Path(source), options)
    return kind.from_pretrained(source, trust_remote_code=options.trust_remote_code, **more)


def fetched_file(repository: str, name: str) -> str:
    """The path of one file of a repository, which is no model by itself."""
    from huggingface_hub import hf_hub_download

    with hub_or_cache(repository, repository):
        return hf_hub_download(repository, name)


def fetched_folder(repository: str, patterns: Sequence[str]) -> Path:
    """A folder with the files of a repository that are named so."""
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(repository, allow_patterns=list(patterns)))


def refuse_unsafe(id: str, folder: Path, *, trusted: bool) -> None:
    """Raise if a model's folder has files, configs or tokenizers that must not be read."""
    refuse_odd_files(id, folder)
    _refuse_configs(id, folder, trusted=trusted)
    if why := why_unreadable(folder):
        raise _broken(id, f"its tokenizer {why}")


def refuse_odd_files(id: str, folder: Path) -> None:
    """Raise if a pipe or a device is in the place of a file: reading it may never end."""
    for path in (*folder.glob("*"), *folder.glob("*/*")):
        if path.exists() and not (path.is_file() or path.is_dir()):
            where = shortened(path.relative_to(folder))
            raise _broken(id, f"{where} is neither a file nor a folder")


def _broken(id: str, why: str) -> ModelError:
    what = f"{id} cannot be loaded: {why}; use another model, or mend that file."
    return ModelError("E-MODEL-BROKEN", what)


def _refusal(id: str, what: str) -> ModelError:
    return ModelError(
        "E-CODE-REFUSED",
        f"{id}: {what}, which is not run; take it out to use the library's own classes, or let "
        "`counterpoint eval --trust-remote-code` run it if you trust its authors.",
    )


# --- configs -----------------------------------------------------------------------------------


def _refuse_configs(id: str, folder: Path, *, trusted: bool) -> None:
    for pattern in _CONFIGS:
        for path in sorted((*folder.glob(pattern), *folder.glob(f"*/{pattern}"))):
            where, config = shortened(path.relative_to(folder)), _read(id, path)
            if (key := _key_of(config, _leads_to_code)) and not trusted:
                raise _refusal(id, f"{where} names code of its own ({key})")
            if key := _key_of(config, _is_too_large):
                what = (
                    f"{id}: {where} describes more than any model has ({key}); use another model."
                )
                raise ModelError("E-CONFIG-MISMATCH", what)


def _refuse_size(kind: Any, folder: Path, options: LoadOptions) -> None:
    """A config must not build more than its weights can fill: memory would run out first."""
    import torch
    import transformers

    code = {"trust_remote_code": options.trust_remote_code}
    with torch.device("meta"):
        if hasattr(kind, "from_config") and kind.__module__.startswith("transformers."):
            config = transformers.AutoConfig.from_pretrained(folder, **code)
            model = kind.from_config(config, **code)
        elif isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel):
            config_class: Any = kind.config_class
            model = kind(config_class.from_pretrained(folder))
        else:
            return
    files = (*folder.glob("*.safetensors"), *folder.glob("*.bin"))
    room = sum(path.stat().st_size for path in files)
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > max(_SMALLEST * room, _HARMLESS):
        raise ModelError(
            "E-CONFIG-MISMATCH",
            f"{_under_way[-1].id}: config.json describes {count:.1e} weights, and its weights are "
            f"{room:.1e} bytes; it does not belong to them.",
        )


def _fetched(repo: str) -> Path | None:
    """A repository's configs and tokenizers; None if it cannot be fetched: loading says why."""
    try:
        return fetched_folder(repo, _PATTERNS)
    except Exception:  # the library and its HTTP client raise anything
        return None


def _read(id: str, path: Path) -> object:
    try:
        if path.stat().st_size > _LARGEST:
            raise ModelError("E-CONFIG-INVALID", f"{id}: {path.name} is too large for a config.")
        return parse_json(path.read_bytes(), f"{id}: {shortened(path.name)}", ModelError)
    except OSError as error:
        what = f"{id}: {path}: cannot be read: {reason(error)}."
        raise ModelError("E-FILE-UNREADABLE", what) from None


def _key_of(config: object, bad: Callable[[str, object], bool]) -> str:
    """The key in a config, at any depth, that is bad with its value; empty if there is none."""
    left = [config]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            for key, inner in value.items():
                if bad(key, inner):
                    return shortened(key)
            left += value.values()
    return ""


def _leads_to_code(key: str, value: object) -> bool:
    # An `attn_implementation` that is not one of the library's is compiled code of the hub.
    is_repo = key.endswith("_implementation") and (not isinstance(value, str) or "/" in value)
    return bool(value) and (key in _KEYS or is_repo)


def _is_too_large(key: str, value: object) -> bool:
    if isinstance(value, list | dict):
        return len(value) > _LABELS
    most = _DEEPEST if "layer" in key else _LABELS if key == "num_labels" else math.inf
    return isinstance(value, int) and value > most


# --- tokenizers and chat templates, in a process with bounds --------------------------------------

_LARGEST_FILE: Final = 256 * 2**20  # bytes
_MEMORY: Final = 6 * 2**30  # bytes; the largest tokenizers that are in use take one
_MERGES: Final = 32 * 2**20  # bytes of merges, without their compression: ten times open_clip's
_TOKENIZERS: Final = ("tokenizer.json", "tokenizer/tokenizer.json", "tokenizer_2/tokenizer.json")
_OTHERS: Final = ("vocab*", "*merges*", "*.jinja", "*.txt", "*.model", "tokenizer*.json")


def why_unreadable(folder: Path) -> str:
    """Why the tokenizers in a model's folder cannot be read; empty if they can."""
    for path in sorted({path for name in _OTHERS for path in folder.glob(name)}):
        most = _MERGES if path.suffix == ".gz" else _LARGEST_FILE
        if path.is_file() and _is_larger(path, most):
            return f"{path.name} holds more than {most // 2**20} MiB"
    files = [str(folder / name) for name in _TOKENIZERS if (folder / name).is_file()]
    if not files or find_spec("tokenizers") is None:  # then nothing else reads them
        return ""
    return _run("read", {"files": files})[1]


def _is_larger(path: Path, most: int) -> bool:
    if path.suffix != ".gz":
        return path.stat().st_size > most
    size = 0
    with suppress(OSError, EOFError, zlib.error), gzip.open(path) as file:
        while size <= most and (part := file.read(2**20)):
            size += len(part)
    return size > most  # what is damaged is told by its reader


def why_unusable(graphs: Sequence[Path], shapes: Mapping[str, Sequence[int]]) -> str:
    """Why ONNX graphs cannot be computed, for inputs of ones; empty if they can."""
    # Weights may lie beside a graph, and are copied once or twice while it is prepared.
    room = sum(path.stat().st_size for one in graphs for path in one.parent.iterdir())
    request = {"files": [*map(str, graphs)], "shapes": dict(shapes)}
    return str(_run("compute", request, max(_MEMORY, 4 * room))[1])


def render_template(template: str, chats: Sequence[Any], **more: Any) -> list[str]:
    """Chats in the words of a template, as transformers renders them."""
    request = {"conversations": chats, "chat_template": template, **more}
    rendered, why = _rendered(json.dumps(request, default=str))
    if why:
        raise ValueError(f"its chat template {why}")
    return rendered


@cache
def _rendered(request: str) -> tuple[list[str], str]:
    return _run("render", json.loads(request))


def _run(task: str, request: object, memory: int = _MEMORY) -> tuple[Any, str]:
    """The answer of the process; or what is wrong, in words that follow a name."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", bounded.__file__, task, str(memory)],
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=bounded.SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"does not end within {bounded.SECONDS} seconds"
    if done.returncode:
        return None, "takes too much memory, or cannot be read at all"
    answer = json.loads(done.stdout)
    return answer["found"], answer["why"]


# --- libraries ---------------------------------------------------------------------------------


def _watch_libraries() -> None:
    for package, name in _LIBRARIES.items():
        # open_clip imports transformers when it needs it; nothing but our own code uses diffusers.
        if name in _watched or (package == "diffusers" and package not in sys.modules):
            continue
        try:
            module: Any = import_module(name)
        except ImportError:  # not installed
            continue
        _watch(module)
        _watched.add(name)


def _watch(module: Any) -> None:
    original = module.check_imports

    def check_imports(file: Any) -> Any:
        _refuse(f"{shortened(Path(file).name)} is code of its own")
        return original(file)

    def answer(question: object = "") -> str:
        _refuse("it brings code of its own")
        return "y" if _under_way else input(question)

    module.check_imports, module.input = check_imports, answer


def _refuse(what: str) -> None:
    """Raise if any of the models that are being loaded is not trusted."""
    refused = [loading for loading in _under_way if not loading.trusted]
    for loading in refused:
        loading.refused = what
    if refused:
        raise ModelError("E-CODE-REFUSED", f"{what}, which is not run.")


@contextmanager
def hub_or_cache(id: str, source: Path | str | None) -> Iterator[None]:
    """Load a model inside: from the hub, or from the cache alone if the hub does not answer.

    `source` is a folder or the name of a repository. The hub's own library would ask six times for
    every file of it, and wait up to a minute each time.
    """
    library: Any = constants
    switch: AbstractContextManager[None] = nullcontext()
    local = source is None or Path(source).exists()
    chosen = local or _offline.outside(lambda: library.HF_HUB_OFFLINE)
    if not chosen and (why := _silence(library.ENDPOINT)):
        cached = f"models--{str(source).replace('/', '--')}"  # as the hub's library calls it
        if not (Path(library.HF_HUB_CACHE) / cached).is_dir():
            raise ModelError(
                "E-HUB-UNREACHABLE",
                f"{id} cannot be fetched: {shortened(library.ENDPOINT)} does not answer ({why}), "
                f"and {source} is not in the cache; run this again with a network, or give a "
                "folder that holds the model.",
            )
        switch = _offline()
    with switch:
        yield


@Switch
@contextmanager
def _offline() -> Iterator[None]:
    library: Any = constants
    before, library.HF_HUB_OFFLINE = library.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        library.HF_HUB_OFFLINE = before


def _silence(address: str) -> str:
    """Why there is no answer; empty if there is one, whatever it says."""
    try:
        request = urllib.request.Request(address, method="HEAD")
        with urllib.request.urlopen(request, timeout=_PATIENCE):
            return ""
    except urllib.error.HTTPError:
        return ""
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", error)
        if isinstance(why, ssl.SSLError):  # the hub's library may know other certificates
            return ""
        return reason(why) if isinstance(why, OSError) else shortened(why)
