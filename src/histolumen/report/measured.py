"""Measurements of a run, kept beside it and made anew only when the model has changed."""

import json
from pathlib import Path
from typing import Any

from histolumen.data.manifest import Manifest
from histolumen.engine.checkpoint import find_model, weights_digest
from histolumen.engine.evaluate import Binarisation, evaluate
from histolumen.engine.model import load
from histolumen.engine.progress import track
from histolumen.errors import DataError
from histolumen.export.files import save_json


def known_measurement(run: Path, split: str, binarise: Binarisation) -> dict[str, Any] | None:
    """What was measured of the run's present model, if anything."""
    try:
        content = json.loads(_path(run, split, binarise).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if content.get("model_sha256") == weights_digest(find_model(run)) else None


def measure(run: Path, manifest: Manifest, split: str, binarise: Binarisation) -> dict[str, Any]:
    """The evaluation of a run's best model as plain values."""
    known = known_measurement(run, split, binarise)
    if known is not None:
        return known
    result = evaluate(load(run), manifest, split, lambda rows: track(rows, f"measuring {split}"), binarise=binarise)
    if result.failures:
        raise DataError(result.failures[0])
    content = {**result.as_dict(), "model_sha256": weights_digest(find_model(run))}
    save_json(content, _path(run, split, binarise))
    return json.loads(_path(run, split, binarise).read_text(encoding="utf-8"))


def _path(run: Path, split: str, binarise: Binarisation) -> Path:
    return run / "evaluation" / f"{split}-{binarise}.json"
