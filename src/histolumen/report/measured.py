"""Measurements of a run, kept beside it and made anew when the model, the images or their masks have changed."""

import hashlib
import json
from pathlib import Path
from typing import Any

from histolumen.data.manifest import Manifest
from histolumen.engine.checkpoint import find_model, weights_digest
from histolumen.engine.evaluate import Binarisation, evaluate
from histolumen.engine.model import load
from histolumen.engine.progress import track
from histolumen.engine.runlog import read_metrics
from histolumen.errors import DataError, RunError
from histolumen.export.files import save_json


def check_measurable(manifest: Manifest, split: str) -> None:
    """Refuse, before anything is trained, a split that nothing can be measured on."""
    part = manifest.split(split)
    if not part.rows:
        present = sorted({row.split for row in manifest.rows})
        raise DataError(f"the manifest has no image in split '{split}'; give --split {' or '.join(present)}")
    if not part.masked_labels:
        raise DataError(f"no image of split '{split}' has a mask; measuring masks needs some")


def finished_measurement(
    run: Path, manifest: Manifest, split: str, binarise: Binarisation, epochs: int
) -> dict[str, Any] | None:
    """What was measured of a run that needs nothing more; None where something is left to do."""
    refuse_longer(run, epochs)
    return _known(run, manifest, split, binarise) if len(read_metrics(run)) == epochs else None


def refuse_longer(run: Path, epochs: int) -> None:
    """A run that has more epochs than asked for cannot stand for a shorter one."""
    done = len(read_metrics(run))
    if done > epochs:
        raise RunError(f"{run}: was trained for {done} epochs, not {epochs}; choose another --out")


def measure(run: Path, manifest: Manifest, split: str, binarise: Binarisation) -> dict[str, Any]:
    """The evaluation of a run's best model as plain values."""
    known = _known(run, manifest, split, binarise)
    if known is not None:
        return known
    result = evaluate(load(run), manifest, split, lambda rows: track(rows, f"measuring {split}"), binarise=binarise)
    if result.failures:
        raise DataError(result.failures[0])
    path = _path(run, split, binarise)
    save_json({**result.as_dict(), "measured": _identity(run, manifest, split)}, path)
    return json.loads(path.read_text(encoding="utf-8"))


def training_seconds(run: Path) -> float:
    """How long the epochs of a run took."""
    return sum(record["seconds"] for record in read_metrics(run))


def _known(run: Path, manifest: Manifest, split: str, binarise: Binarisation) -> dict[str, Any] | None:
    try:
        content = json.loads(_path(run, split, binarise).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if content.get("measured") == _identity(run, manifest, split) else None


def _identity(run: Path, manifest: Manifest, split: str) -> dict[str, str]:
    """Which weights were measured, and on what; files are told apart by size and time of change."""
    part = manifest.split(split)
    parts = []
    for row in part.rows:
        files = [path for path in (part.image_path(row), part.mask_path(row)) if path is not None and path.exists()]
        parts.append([row.image, row.label, row.mask, *((f.stat().st_size, f.stat().st_mtime_ns) for f in files)])
    images = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return {"model_sha256": weights_digest(find_model(run)), "images_sha256": images}


def _path(run: Path, split: str, binarise: Binarisation) -> Path:
    return run / "evaluation" / f"measured-{split}-{binarise}.json"
