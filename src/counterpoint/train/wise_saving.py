"""The model of one alpha as a folder that `open_clip:local-dir:` loads."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch

from counterpoint.errors import DataError, MissingExtraError, ModelError
from counterpoint.models.open_clip import OpenClip, load
from counterpoint.train.wise import Line, unlike
from counterpoint.untrusted import parse_json
from counterpoint.writing import whole_folder

try:
    from counterpoint.train.model_folder import ABOUT, fill_folder
except ModuleNotFoundError:  # the loop's settings are pydantic's
    raise MissingExtraError("counterpoint wise --save", "train") from None

_WISE: Final = "wise"
_FOLDERS: Final = ("open_clip:local-dir:", "world:")


def save_at(line: Line, alpha: float, folder: Path) -> None:
    """Write the model of one alpha: float32 safetensors, config, tokenizer, how it was made.

    The folder is loaded again before it takes its place: it must be the same model, bit for bit.
    """
    refuse_other(folder, line)
    model = line.at(alpha)
    about = {_WISE: {"alpha": alpha, **_ends(line)}, "notes": list(model.notes)}
    # Of two that are alike but for their weights, the one that brings its config and tokenizer.
    id = next((id for id in (line.tuned, line.base) if id.startswith(_FOLDERS)), line.tuned)
    with whole_folder(folder, ModelError) as draft:
        fill_folder(draft, id, model, model.model.state_dict(), about)
        if why := _other(model, load(f"local-dir:{draft}", line.options)):
            raise ModelError(
                f"{line.name(alpha)} cannot be saved as an open_clip folder: loaded again it is "
                f"another model: {why}."
            )


def _other(model: OpenClip, again: OpenClip) -> str:
    """In what a model that was loaded again differs from what was saved."""
    if why := unlike(model, again):
        return why
    found = again.model.state_dict()
    for name, value in model.model.state_dict().items():
        if not torch.equal(value, found[name]):
            return f"{name} has changed"
    return ""


def _ends(line: Line) -> dict[str, dict[str, str]]:
    ids = {"base": line.base, "tuned": line.tuned}
    return {
        name: {"id": id, "fingerprint": found}
        for (name, id), found in zip(ids.items(), line.fingerprints, strict=True)
    }


def refuse_other(folder: Path, line: Line) -> None:
    """Raise if something else than a mix of the line's models stands in the folder's place."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        about = parse_json((folder / ABOUT).read_bytes(), ABOUT)
    except (OSError, DataError):
        about = {}
    made = about.get(_WISE) if isinstance(about, dict) else None
    if not isinstance(made, dict):
        raise ModelError(f"{folder} exists and was not made by wise; choose another --save folder.")
    if any(made.get(name) != end for name, end in _ends(line).items()):
        raise ModelError(f"{folder} holds a mix of other models; choose another --save folder.")
