"""Write the patches and masks of one slide; existing files are kept."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from histolumen.atomic import new_file
from histolumen.data.sources.camelyon16.candidates import read_tumour
from histolumen.data.sources.camelyon16.outline_scan import PATCH
from histolumen.data.sources.camelyon16.pairing import Source
from histolumen.data.sources.camelyon16.published_list import Place
from histolumen.export.files import save_binary_mask
from histolumen.slides.annotations import tumour_mask
from histolumen.slides.reader import Region, open_slide


@dataclass(frozen=True)
class PatchTask:
    """The patches to write for one slide."""

    source: Source
    out: Path
    fingerprint: str
    """From `Count`."""
    places: Sequence[Place]


def patch_stems(places: Sequence[Place]) -> list[str]:
    """File names without ending; a place that is listed twice gets a number, since a manifest lists a file once."""
    seen: Counter[Place] = Counter()
    stems = []
    for left, top in places:
        seen[left, top] += 1
        number = seen[left, top]
        stems.append(f"x{left}_y{top}" if number == 1 else f"x{left}_y{top}_{number}")
    return stems


def image_name(source: Source, stem: str) -> str:
    """Path of a patch relative to the output folder."""
    return f"patches/{source.name}/{stem}.png"


def mask_name(source: Source, stem: str) -> str:
    """Path of the mask of a patch; empty for normal patches, which have no mask file."""
    return f"masks/{source.name}/{stem}.png" if source.outlines else ""


def write_patches(task: PatchTask) -> None:
    """Write the missing patches and masks of a slide."""
    source, out = task.source, task.out
    _remove_outdated(task)
    missing = [
        (place, stem)
        for place, stem in zip(task.places, patch_stems(task.places), strict=True)
        if not all((out / name).is_file() for name in (image_name(source, stem), mask_name(source, stem)) if name)
    ]
    if not missing:
        return
    with open_slide(source.slide) as slide:
        outlines = read_tumour(source, slide)
        if outlines:
            import shapely  # noqa: PLC0415 - an extra

            shapely.prepare(outlines.tumour)
        for place, stem in missing:
            if outlines:
                save_binary_mask(tumour_mask(outlines.tumour, *place, PATCH), out / mask_name(source, stem))
            _save_patch(slide.read(Region(*place, PATCH, PATCH), (PATCH, PATCH), 1), out / image_name(source, stem))


def _remove_outdated(task: PatchTask) -> None:
    """Remove patches of an earlier version of the slide or its annotation."""
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
        Image.fromarray(pixels).save(temporary, format="PNG", compress_level=1)  # three times as fast, 15 % larger
