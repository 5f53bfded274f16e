"""What may be taken from one slide: the patch protocol of Camelyon16-P512."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from histolumen.errors import SlideError
from histolumen.export.files import save_json
from histolumen.slides.annotations import Outlines, read_outlines, tumour_mask
from histolumen.slides.pairing import Source
from histolumen.slides.reader import Region, Slide, open_slide
from histolumen.slides.tissue import SCALE, Tissue, find_tissue

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

PATCH = 512  # side in level-0 pixels
MIN_TISSUE = 0.10  # share of a patch, on the small picture of the slide
MIN_TUMOUR = 0.20  # share of the pixels of a metastatic patch
Place = tuple[int, int]
"""Left and top of a patch in level-0 pixels."""


@dataclass(frozen=True)
class Count:
    """What one slide offers."""

    fingerprint: str
    """Of the slide, its annotation and the protocol: a count with another one says nothing about this slide."""
    tissue: float
    """Share of the slide that is tissue."""
    places: list[Place]
    """Every patch that obeys the protocol, row by row."""
    notes: list[str]


def count_patches(source: Source, counts: Path, previews: Path) -> Count:
    """What a slide offers, as counted before or anew; leaves the count and a preview of the tissue on disk.

    Args:
        source: the slide and its annotation.
        counts: folder of the counts.
        previews: folder of the previews.
    """
    kept, preview = counts / f"{source.name}.json", previews / f"{source.name}.png"
    fingerprint = fingerprint_of(source)
    known = _read_count(kept)
    if known is not None and known.fingerprint == fingerprint and preview.is_file():
        return known
    with open_slide(source.slide) as slide:
        outlines = read_tumour(source, slide)
        tissue = find_tissue(slide)
        tissue.save_preview(preview)
        places = find_places(slide, tissue, outlines.tumour if outlines else None)
    count = Count(fingerprint, tissue.share, places, outlines.notes if outlines else [])
    save_json(asdict(count), kept)
    return count


def read_tumour(source: Source, slide: Slide) -> Outlines | None:
    """The outlines of a slide with metastases; None for a normal one."""
    return read_outlines(source.outlines, (slide.width, slide.height)) if source.outlines else None


def find_places(slide: Slide, tissue: Tissue, tumour: "BaseGeometry | None") -> list[Place]:
    """Patches of a grid, wholly inside the slide, with enough tissue and, on a slide with metastases, enough tumour.

    Args:
        slide: the slide.
        tissue: of the slide.
        tumour: None for a normal slide, every patch of which is normal.
    """
    places = [
        (left, top)
        for top in range(0, slide.height - PATCH + 1, PATCH)
        for left in range(0, slide.width - PATCH + 1, PATCH)
        if tissue.share_of(Region(left, top, PATCH, PATCH)) >= MIN_TISSUE
    ]
    if tumour is None:
        return places
    import shapely  # noqa: PLC0415 - an extra

    shapely.prepare(tumour)
    return [place for place in places if tumour_mask(tumour, *place, PATCH).mean() >= MIN_TUMOUR]


def fingerprint_of(source: Source) -> str:
    """Changes when the slide, its annotation or the protocol does. Slides are too large to be read for this."""
    try:
        state = source.slide.stat()
        outlines = source.outlines.read_bytes() if source.outlines else b""
    except OSError as error:
        raise SlideError(f"{error.filename}: cannot be read ({error.strerror}); check the file") from error
    parts = (state.st_size, state.st_mtime_ns, hashlib.sha256(outlines).hexdigest(), PATCH, MIN_TISSUE, MIN_TUMOUR)
    return hashlib.sha256(repr((*parts, SCALE)).encode()).hexdigest()[:32]


def _read_count(path: Path) -> Count | None:
    """A count from disk; None where there is none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        places = [(int(left), int(top)) for left, top in content["places"]]
        return Count(str(content["fingerprint"]), float(content["tissue"]), places, list(content["notes"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
