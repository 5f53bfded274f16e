"""Write pictures, masks, tables and JSON."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from histolumen.atomic import new_file
from histolumen.export.png import write_png

_QUICK_MODES = {"L", "RGB", "I;16"}
"""Pillow's names of the pictures that `write_png` takes."""


def save_picture(picture: Image.Image, path: Path) -> None:
    """Write a PNG atomically."""
    if picture.mode in _QUICK_MODES:
        _save_png(np.asarray(picture), path)
        return
    with new_file(path) as temporary:
        picture.save(temporary, format="PNG")


def save_soft_mask(soft_mask: np.ndarray, path: Path) -> None:
    """Write values in [0, 1] as a 16-bit PNG (65535 is 1)."""
    values = soft_mask.clip(0, 1) * 65535
    _save_png(np.rint(values, out=values).astype(np.uint16), path)


def save_binary_mask(mask: np.ndarray, path: Path) -> None:
    """Write a mask as an 8-bit PNG of 0 and 255."""
    _save_png(np.where(mask, np.uint8(255), np.uint8(0)), path)


def _save_png(pixels: np.ndarray, path: Path) -> None:
    with new_file(path) as temporary, temporary.open("wb") as file:
        write_png(pixels, file)


def save_table(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Write records as CSV; columns in order of first appearance."""
    columns = list(dict.fromkeys(key for record in records for key in record))
    text = io.StringIO()
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows(records)
    with new_file(path) as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8", errors="backslashreplace")  # non-Unicode names


def save_json(content: Any, path: Path) -> None:
    """Write standard JSON: NaN and infinity become null."""
    with new_file(path) as temporary:
        temporary.write_text(to_json(content) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """The content of a JSON file; ValueError if it is not JSON, also if it is nested too deeply to be read."""
    return parse_json(path.read_bytes())


def parse_json(data: bytes) -> Any:
    """JSON from UTF-8 text; everything that is wrong with it is a ValueError."""
    try:
        return json.loads(data.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def to_json(content: Any) -> str:
    """Indented JSON text; NaN and infinity become null."""
    return json.dumps(_finite(content), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
