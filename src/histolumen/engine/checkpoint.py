"""Models and training states on disk: safetensors and JSON, written whole or not at all."""

import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError

from histolumen.atomic import new_file, new_folder, settle
from histolumen.config import RunConfig, parse_config
from histolumen.errors import ConfigError, RunError
from histolumen.methods.base import Method, build_method
from histolumen.nets.backbones import build_backbone

FORMAT = 1
_WEIGHTS, _CARD, _STATE = "model.safetensors", "model.json", "state.pt"


@dataclass(frozen=True)
class ModelCard:
    """What `model.json` says: enough to rebuild the model anywhere."""

    config: RunConfig
    classes: list[str]
    epoch: int
    validation: dict[str, float]
    mpp: float | None = None
    """Microns per pixel as the network sees the images, at working size; None: not known."""


def save_model(folder: Path, method: Method, card: ModelCard, state: dict[str, Any] | None = None) -> None:
    """Write weights and card (and the training state) to `folder` as one."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in method.state_dict().items()}
    weights = safetensors.torch.save(tensors)
    content = {
        "format": FORMAT,
        "method": card.config.method.name,
        "backbone": card.config.backbone.name,
        "classes": card.classes,
        "epoch": card.epoch,
        "validation": card.validation,
        "preprocessing": {
            "short_side": card.config.images.short_side,
            "mpp": card.mpp,
            "mean": method.backbone.mean.flatten().tolist(),
            "std": method.backbone.std.flatten().tolist(),
        },
        "sha256": hashlib.sha256(weights).hexdigest(),
        "config": card.config.as_dict(),
    }
    with new_folder(folder) as temporary:
        (temporary / _WEIGHTS).write_bytes(weights)
        (temporary / _CARD).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        if state is not None:
            buffer = io.BytesIO()  # torch.save hides a full disk behind a RuntimeError
            torch.save(state, buffer)
            (temporary / _STATE).write_bytes(buffer.getvalue())


def load_model(folder: Path) -> tuple[Method, ModelCard]:
    """Rebuild a saved model, in evaluation mode."""
    content = _content(folder)
    card = _card(content, folder)
    method = build_method(
        card.config.method, build_backbone(card.config.backbone, load_weights=False), len(card.classes)
    )
    load_weights(method, folder, content["sha256"])
    return method.eval(), card


def load_weights(method: Method, folder: Path, sha256: str | None = None) -> None:
    """Fill `method` with the weights in `folder`, after checking that they are the ones the card names."""
    expected = sha256 or _content(folder)["sha256"]
    path = folder / _WEIGHTS
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror}); copy the whole folder again") from error
    if hashlib.sha256(data).hexdigest() != expected:
        raise RunError(f"{path}: damaged, or not the weights that {_CARD} describes; copy the folder again")
    try:
        method.load_state_dict(safetensors.torch.load(data))
    except (SafetensorError, RuntimeError) as error:
        raise RunError(f"{path}: does not fit the model that {_CARD} describes; was the recipe edited?") from error


def weights_digest(folder: Path) -> str:
    """Which weights a model folder holds, by its card."""
    return str(_content(folder)["sha256"])


def load_state(folder: Path) -> dict[str, Any]:
    """The training state saved beside a model."""
    path = folder / _STATE
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except FileNotFoundError as error:
        raise RunError(f"{path}: missing; this folder cannot be resumed, start a new run") from error
    except Exception as error:
        raise RunError(f"{path}: damaged; start a new run (the model in best/ can still be used)") from error


def find_model(path: Path) -> Path:
    """The model folder meant by `path`: itself, or `best/` of a run."""
    for folder in (path, path / "best"):
        settle(folder)
        if (folder / _CARD).is_file():
            return folder
    if not path.exists():
        raise RunError(f"{path}: no such folder; give a run folder or its best/")
    raise RunError(f"{path}: no model here ({_CARD} is missing); give a run folder or its best/")


def write_text(path: Path, text: str) -> None:
    """Write a small text file whole."""
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _content(folder: Path) -> dict[str, Any]:
    path = folder / _CARD
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read; copy the folder again") from error
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise RunError(
            f"{path}: written in format {found}, this version reads format {FORMAT}; "
            "use the histolumen version that wrote it, or train again"
        )
    return content


def _card(content: dict[str, Any], folder: Path) -> ModelCard:
    try:
        config = parse_config(content["config"])
        mpp = dict(content.get("preprocessing", {})).get("mpp")  # models of before it was kept have none
        return ModelCard(
            config,
            list(content["classes"]),
            int(content["epoch"]),
            dict(content["validation"]),
            None if mpp is None else float(mpp),
        )
    except (ConfigError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder / _CARD}: not a model this version understands ({error})") from error
