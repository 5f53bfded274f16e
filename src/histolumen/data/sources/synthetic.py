"""Write a synthetic data set: images, masks and manifest rows."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from histolumen.atomic import new_file
from histolumen.data.image import as_rgb, read_image
from histolumen.data.manifest import Manifest, Row
from histolumen.data.sources import synthetic_image, synthetic_metastases
from histolumen.data.sources.synthetic_canvas import Sample
from histolumen.data.splitting import stratified_split
from histolumen.errors import DataError, ImageError
from histolumen.progress import SILENT, Progress

SyntheticKind = Literal["glands", "metastases"]
_VALID, _TEST = 0.2, 0.2


@dataclass(frozen=True)
class _Generator:
    labels: tuple[str, str]
    draw: Callable[[Any, int, int, float], Sample]


_GENERATORS: dict[SyntheticKind, _Generator] = {
    "glands": _Generator(synthetic_image.KINDS, synthetic_image.make_sample),
    "metastases": _Generator(synthetic_metastases.KINDS, synthetic_metastases.make_sample),
}


def write_synthetic_set(
    folder: Path,
    images: int,
    size: int,
    seed: int,
    progress: Progress = SILENT,
    kind: SyntheticKind = "glands",
    *,
    glass: float = 0,
    overwrite: bool = True,
) -> Manifest:
    """Draw images of alternating classes and write `images/*.png` and `masks/*.png` below `folder`.

    Images without any foreground have no mask file, as in Camelyon16.

    Args:
        folder: output folder.
        images: number of images.
        size: side in pixels.
        seed: image k of a seed is always the same.
        progress: counts the images.
        kind: benign and malignant `glands`, or normal lymph nodes and `metastases`.
        glass: share of images that show the edge of the section, with bare glass beyond.
        overwrite: replace pictures that are there; False: only those with the same content.
    """
    generator = _GENERATORS[kind]
    labels = [generator.labels[number % 2] for number in range(images)]
    splits = stratified_split(labels, [""] * images, _VALID, _TEST, seed)
    rows = []
    for number in progress.track(range(images), "drawing"):
        sample = generator.draw(labels[number], size, seed * 1_000_003 + number, glass)
        mask = f"masks/{number:04}.png" if sample.mask.any() else ""
        row = Row(f"images/{number:04}.png", labels[number], splits[number], mask)
        _write(Image.fromarray(sample.image), folder / row.image, overwrite)
        if mask:
            _write(Image.fromarray(sample.mask), folder / mask, overwrite)
        rows.append(row)
    return Manifest(tuple(rows), folder)


def _write(image: Image.Image, path: Path, overwrite: bool) -> None:
    if not overwrite and path.exists() and not _shows(path, image):
        raise DataError(f"{path}: exists and is another picture; add --overwrite, or choose another folder")
    with new_file(path) as temporary:
        image.save(temporary, format="PNG", compress_level=1)


def _shows(path: Path, image: Image.Image) -> bool:
    """Whether a file holds this picture; a file of any other kind does not."""
    try:
        return np.array_equal(as_rgb(image), read_image(path))
    except ImageError:
        return False
