"""Checkpoints: weights as safetensors, metadata as JSON, written atomically."""

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
import torch
from safetensors import SafetensorError

from histolumen.atomic import finish_swap, new_file, new_folder
from histolumen.calibration import HIGHEST, LOWEST
from histolumen.config import RunConfig, parse_run_config
from histolumen.encoders.backbone import build_backbone
from histolumen.errors import ConfigError, RunError
from histolumen.export.files import read_json
from histolumen.familiarity.reference import Reference
from histolumen.methods.base import Method, build_method

FORMAT = 1
_WEIGHTS, _CARD, _STATE, _REFERENCE = "model.safetensors", "model.json", "state.pt", "reference.safetensors"
_STATE_KEYS = {"optimizer", "random", "epochs", "best_epoch", "best_score"}
_MAX_MPP = 100
_MOST_READS = 100  # of a model that is being replaced
T = TypeVar("T")


@dataclass(frozen=True)
class ModelCard:
    """Content of `model.json`: everything needed to rebuild the model."""

    config: RunConfig
    classes: list[str]
    epoch: int
    validation: dict[str, float]
    mpp: float | None = None
    """Microns per pixel at working size, the resolution of the network's input; None: unknown."""
    identity: str = ""
    """Of a loaded model, see `model_digest`."""
    temperature: float | None = None
    """Calibration of the class probabilities; None: not calibrated (training is not finished, or an earlier model)."""
    reference: Reference | None = None
    """What the training images look like; None: not known."""


def save_model(folder: Path, method: Method, card: ModelCard, state: dict[str, Any] | None = None) -> None:
    """Write weights, card and, if given, the training state to `folder` atomically."""
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
    reference = b""
    if card.temperature is not None:
        content["temperature"] = card.temperature
    if card.reference is not None:
        reference = safetensors.torch.save(card.reference.tensors())
        content["reference"] = {"layer": card.reference.layer, "sha256": hashlib.sha256(reference).hexdigest()}
    content["identity"] = _digest(content)
    with new_folder(folder) as temporary:
        (temporary / _WEIGHTS).write_bytes(weights)
        (temporary / _CARD).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        if reference:
            (temporary / _REFERENCE).write_bytes(reference)
        if state is not None:
            buffer = io.BytesIO()  # writing to a file, torch.save reports a full disk as RuntimeError
            torch.save(state, buffer)
            (temporary / _STATE).write_bytes(buffer.getvalue())


def read_model_card(folder: Path) -> ModelCard:
    """Read `model.json` of a saved model."""
    return _consistent(folder, lambda: _parse_card(_read_card(folder), folder))


def load_model(folder: Path) -> tuple[Method, ModelCard]:
    """Load a saved model in evaluation mode."""
    card, weights = _consistent(folder, lambda: _read_model(folder))
    try:
        method = build_method(
            card.config.method,
            build_backbone(card.config.backbone, load_weights=False),
            len(card.classes),
            card.config.images.negative_index(card.classes),
        )
    except (RuntimeError, MemoryError, ValueError, TypeError, OverflowError) as error:  # sizes that no network has
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise RunError(f"{folder / _CARD}: describes a model that cannot be built ({reason})") from error
    _fill(method, weights, folder)
    return method.eval(), card


def load_weights(method: Method, folder: Path) -> None:
    """Load the weights in `folder` into `method` after checking their SHA-256 against the card."""
    _fill(method, _consistent(folder, lambda: _read_weights(folder)), folder)


def _consistent(folder: Path, read: Callable[[], T]) -> T:
    """What `read` finds in one version of a folder, also while a training run replaces it by the next."""
    for _ in range(_MOST_READS):
        before = _version(folder)
        try:
            found = read()
        except RunError:
            if _version(folder) == before:
                raise
        else:
            if _version(folder) == before:
                return found
        finish_swap(folder)
    raise RunError(f"{folder}: is replaced again and again while it is read; wait until the training has ended")


def _version(folder: Path) -> tuple[int, int] | None:
    """Tells a folder from the one that replaces it."""
    try:
        status = folder.stat()
    except OSError:
        return None  # between two renames
    return status.st_ino, status.st_mtime_ns


def _read_model(folder: Path) -> tuple[ModelCard, bytes]:
    return _parse_card(_read_card(folder), folder), _read_weights(folder)


def _read_weights(folder: Path) -> bytes:
    return _checked_bytes(folder / _WEIGHTS, _read_card(folder)["sha256"])


def _fill(method: Method, weights: bytes, folder: Path) -> None:
    try:
        method.load_state_dict(safetensors.torch.load(weights))
    except (SafetensorError, RuntimeError) as error:
        path = folder / _WEIGHTS
        raise RunError(f"{path}: does not fit the model that {_CARD} describes; was the recipe edited?") from error


def _checked_bytes(path: Path, sha256: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror}); copy the whole folder again") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise RunError(f"{path}: does not match the SHA-256 in {_CARD} (damaged or replaced); copy the folder again")
    return data


def is_complete(folder: Path) -> bool:
    """Whether the model in `folder` was completed after its training: see `engine/completion.py`."""
    return "temperature" in _read_card(folder)


def model_digest(folder: Path) -> str:
    """Identity of a model: SHA-256 over its weights, labels and settings; over the weights alone for earlier models."""
    return _identity(_read_card(folder))


def load_state(folder: Path) -> dict[str, Any]:
    """Load the training state saved with a model."""
    path = folder / _STATE
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
    except FileNotFoundError as error:
        raise RunError(f"{path}: missing; this folder cannot be resumed, start a new run") from error
    except Exception as error:
        if _is_pickle(path):
            raise RunError(
                f"{path}: a pickle of another program, which is never executed; put back the file that the training "
                "wrote, or start a new run"
            ) from error
        raise RunError(f"{path}: damaged; start a new run (the model in best/ can still be used)") from error

    if not isinstance(state, dict) or not set(state) >= _STATE_KEYS:
        raise RunError(
            f"{path}: not the state of a training run; start a new run (the model in best/ can still be used)"
        )
    return state


def _is_pickle(path: Path) -> bool:
    """Whether a file starts as pickles do since protocol 2; files of torch are ZIP archives."""
    with path.open("rb") as file:
        start = file.read(2)
    return len(start) == 2 and start[0] == 0x80 and start[1] <= 5


def find_model(path: Path) -> Path:
    """Return the model folder at `path`: `path` itself, or `best/` of a run folder."""
    for folder in (path, path / "best"):
        finish_swap(folder)
        if (folder / _CARD).is_file():
            return folder
    if not path.exists():
        raise RunError(f"{path}: no such folder; give a run folder or its best/")
    raise RunError(f"{path}: no model here ({_CARD} is missing); give a run folder or its best/")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _read_card(folder: Path) -> dict[str, Any]:
    path = folder / _CARD
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read; copy the folder again") from error
    version = content.get("format") if isinstance(content, dict) else None
    if version != FORMAT:
        raise RunError(
            f"{path}: written in format {version}, this version reads format {FORMAT}; "
            "use the histolumen version that wrote it, or train again"
        )
    if not isinstance(content.get("sha256"), str):
        raise RunError(f"{path}: has no sha256 of the weights, so they cannot be checked; copy the folder again")
    if "identity" in content and content["identity"] != _digest(content):  # absent from earlier models
        raise RunError(
            f"{path}: was changed after training: labels or settings do not match its identity; copy the folder again"
        )
    return content


def _digest(content: dict[str, Any]) -> str:
    """SHA-256 of everything on a card, which includes that of the weights; the layout of the file does not matter."""
    rest = {key: value for key, value in content.items() if key != "identity"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _identity(content: dict[str, Any]) -> str:
    return str(content.get("identity") or content["sha256"])


def _parse_card(content: dict[str, Any], folder: Path) -> ModelCard:
    try:
        config = parse_run_config(content["config"])
        mpp = dict(content.get("preprocessing", {})).get("mpp")  # absent from older models
        return ModelCard(
            config,
            _classes(content["classes"]),
            int(content["epoch"]),
            dict(content["validation"]),
            None if mpp is None else _resolution(mpp),
            _identity(content),
            _temperature(content.get("temperature")),
            _reference(content.get("reference"), folder),
        )
    except (ConfigError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder / _CARD}: not a model that this version can read ({error})") from error


def _classes(names: Any) -> list[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ValueError("classes: expected a list of names")
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"classes: expected at least two different names, found {names}")
    return names


def _resolution(value: Any) -> float:
    mpp = float(value)
    if not 0 < mpp <= _MAX_MPP:
        raise ValueError(f"mpp: expected microns per pixel, found {value}")
    return mpp


def _temperature(value: Any) -> float | None:
    if value is None:
        return None
    if not LOWEST <= float(value) <= HIGHEST:
        raise ValueError(f"temperature: expected {LOWEST} to {HIGHEST}, found {value}")
    return float(value)


def _reference(entry: Any, folder: Path) -> Reference | None:
    """What the training images look like; None in models that were not completed, or had too few images."""
    if entry is None:
        return None
    tensors = safetensors.torch.load(_checked_bytes(folder / _REFERENCE, str(entry["sha256"])))
    return Reference.from_tensors(str(entry["layer"]), tensors)
