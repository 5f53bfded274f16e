"""Writing the patches of one slide and their masks; what is there already is kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from histolumen.atomic import new_file
from histolumen.export.files import save_binary_mask
from histolumen.slides.annotations import tumour_mask
from histolumen.slides.pairing import Source
from histolumen.slides.reader import Region, open_slide
from histolumen.slides.sampling import PATCH, Place, read_tumour


@dataclass(frozen=True)
class PatchTask:
    """What to take from one slide."""

    source: Source
    out: Path
    fingerprint: str
    """Of the slide when its patches were counted."""
    places: Sequence[Place]


def image_name(source: Source, place: Place) -> str:
    """Path of a patch below the folder of the set."""
    return f"patches/{source.name}/x{place[0]}_y{place[1]}.png"


def mask_name(source: Source, place: Place) -> str:
    """Path of its mask; empty for normal patches, whose truth the manifest takes as empty."""
    return f"masks/{source.name}/x{place[0]}_y{place[1]}.png" if source.outlines else ""


def write_patches(task: PatchTask) -> None:
    """Write what is missing of a slide's patches and masks."""
    source, out = task.source, task.out
    _forget_older(task)
    missing = [
        place
        for place in task.places
        if not all((out / name).is_file() for name in (image_name(source, place), mask_name(source, place)) if name)
    ]
    if not missing:
        return
    with open_slide(source.slide) as slide:
        outlines = read_tumour(source, slide)
        if outlines:
            import shapely  # noqa: PLC0415 - an extra

            shapely.prepare(outlines.tumour)
        for place in missing:
            if outlines:
                save_binary_mask(tumour_mask(outlines.tumour, *place, PATCH), out / mask_name(source, place))
            _save_patch(slide.read(Region(*place, PATCH, PATCH), (PATCH, PATCH), 1), out / image_name(source, place))


def _forget_older(task: PatchTask) -> None:
    """Remove patches that were taken when the slide or its annotation was another."""
    stamp = task.out / "patches" / task.source.name / "taken-from.txt"
    if stamp.is_file() and stamp.read_text(encoding="utf-8", errors="replace") == task.fingerprint:
        return
    for kind in ("patches", "masks"):
        for path in (task.out / kind / task.source.name).glob("x*_y*.png"):
            path.unlink()
    if task.places:
        with new_file(stamp) as temporary:
            temporary.write_text(task.fingerprint, encoding="utf-8")


def _save_patch(pixels: np.ndarray, path: Path) -> None:
    with new_file(path) as temporary:
        Image.fromarray(pixels).save(temporary, format="PNG", compress_level=1)  # a third of the time, 15 % larger
