"""Stored evaluations of a run, repeated when the weights, the images or their masks have changed."""

import hashlib
import json
from pathlib import Path
from typing import Any

from histolumen.data.manifest import Manifest
from histolumen.engine.checkpoint import find_model, model_digest
from histolumen.engine.evaluate import Binarisation, Evaluation, evaluate
from histolumen.engine.model import load
from histolumen.engine.runlog import read_metrics
from histolumen.errors import DataError, RunError
from histolumen.export.files import read_json, save_json
from histolumen.progress import SILENT, Progress

# version of a stored evaluation; 2: shares in [0, 1]; 3: Deep MIL's threshold is 1 / (classes x positions)
_FORMATS: dict[Binarisation, int] = {"threshold": 4, "true-label": 4}


def check_measurable(manifest: Manifest, split: str, *, needs_masks: bool = True) -> None:
    """Refuse a split without images or, if the scores need them, without masks, before anything is trained."""
    part = manifest.split(split)
    if not part.rows:
        present = sorted({row.split for row in manifest.rows})
        raise DataError(f"the manifest has no image in split '{split}'; give --split {' or '.join(present)}")
    if needs_masks and not part.masked_labels:
        raise DataError(f"no image of split '{split}' has a mask; the scores of a table need masks")


def finished_measurement(
    run: Path, manifest: Manifest, split: str, binarise: Binarisation, epochs: int
) -> dict[str, Any] | None:
    """The stored evaluation of a finished run; None if training or evaluation is incomplete."""
    _refuse_longer(run, epochs)
    return stored_evaluation(run, manifest, split, binarise) if is_trained(run, epochs) else None


def is_trained(run: Path, epochs: int) -> bool:
    """Whether all epochs of a run are finished."""
    return len(read_metrics(run)) == epochs


def _refuse_longer(run: Path, epochs: int) -> None:
    """Refuse a run that was trained for more epochs than requested."""
    done = len(read_metrics(run))
    if done > epochs:
        raise RunError(f"{run}: was trained for {done} epochs, not {epochs}; choose another --out")


def measure(
    run: Path, manifest: Manifest, split: str, binarise: Binarisation, progress: Progress = SILENT
) -> dict[str, Any]:
    """Evaluate the best model of a run, unless the stored evaluation is current; return `Evaluation.as_dict()`."""
    stored = stored_evaluation(run, manifest, split, binarise)
    if stored is not None:
        return stored
    result = evaluate(load(run), manifest, split, binarise=binarise, progress=progress)
    if result.failures:
        raise DataError(result.failures[0])
    return store_evaluation(result, run, manifest)


def store_evaluation(result: Evaluation, run: Path, manifest: Manifest) -> dict[str, Any]:
    """Store an evaluation of all images of a split, and return it as `measure` does."""
    path = _path(run, result.split, result.binarise)
    save_json({**result.as_dict(), "measured": _identity(run, manifest, result.split, result.binarise)}, path)
    return read_json(path)


def training_seconds(run: Path) -> float:
    """Total duration of the epochs of a run."""
    seconds = [record.get("seconds") for record in read_metrics(run)]
    return sum(value for value in seconds if isinstance(value, int | float))


def stored_evaluation(run: Path, manifest: Manifest, split: str, binarise: Binarisation) -> dict[str, Any] | None:
    """The stored evaluation of a run; None if there is none of these weights and files."""
    try:
        content = read_json(_path(run, split, binarise))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict):
        return None
    return content if content.get("measured") == _identity(run, manifest, split, binarise) else None


def _identity(run: Path, manifest: Manifest, split: str, binarise: Binarisation) -> dict[str, str | int]:
    """Identify the evaluated weights and files; files by size and modification time."""
    part = manifest.split(split)
    parts = []
    for row in part.rows:
        files = [path for path in (part.image_path(row), part.mask_path(row)) if path is not None and path.exists()]
        parts.append([row.image, row.label, row.mask, *((f.stat().st_size, f.stat().st_mtime_ns) for f in files)])
    images = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return {"format": _FORMATS[binarise], "model_sha256": model_digest(find_model(run)), "images_sha256": images}


def _path(run: Path, split: str, binarise: Binarisation) -> Path:
    return run / "evaluation" / f"measured-{split}-{binarise}.json"
