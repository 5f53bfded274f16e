"""Candidate patches of one slide, by the protocol of Camelyon16-P512.

Normal slides: the patches of the 512 grid with enough tissue. Slides with tumour: patches that follow the outlines,
with enough tissue and enough tumour (`outline_scan`).
"""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path

from histolumen.data.sources.camelyon16.outline_scan import MIN_TUMOUR, PATCH, scan_outlines
from histolumen.data.sources.camelyon16.pairing import Source
from histolumen.data.sources.camelyon16.published_list import Place
from histolumen.errors import SlideError
from histolumen.export.files import read_json, save_json
from histolumen.slides.annotations import Outlines, read_outlines
from histolumen.slides.reader import Region, Slide, open_slide
from histolumen.tissue.mask import SCALE, Tissue, find_tissue

MIN_TISSUE = 0.10  # share of a patch, measured on the thumbnail of the slide
_PROTOCOL = "outlines"  # part of the fingerprint; counts of the former protocol, a fixed grid, are not used again


@dataclass(frozen=True)
class Count:
    """The candidate patches of one slide."""

    fingerprint: str
    """Of the slide, its annotation and the protocol; a stored count with another fingerprint is outdated."""
    tissue: float
    """Share of the slide that is tissue."""
    places: list[Place]
    """Every patch that meets the protocol, row by row."""
    tumour_shares: list[float]
    """Share of tumour pixels of each place; empty for a normal slide."""
    notes: list[str]


def count_patches(source: Source, counts: Path, previews: Path) -> Count:
    """Find the candidate patches of a slide, or read them if stored; saves the count and a preview of the tissue.

    Args:
        source: the slide and its annotation.
        counts: folder of the counts.
        previews: folder of the previews.
    """
    stored_in, preview = counts / f"{source.name}.json", previews / f"{source.name}.png"
    fingerprint = fingerprint_of(source)
    stored = _read_count(stored_in)
    if stored is not None and stored.fingerprint == fingerprint and preview.is_file():
        return stored
    with open_slide(source.slide) as slide:
        outlines = read_tumour(source, slide)
        tissue = find_tissue(slide)
        tissue.save_preview(preview)
        if outlines:
            scanned = scan_outlines(
                outlines.tumour, (slide.width, slide.height), lambda place: _has_tissue(tissue, place)
            )
            places, shares, notes = list(scanned), list(scanned.values()), outlines.notes
        else:
            places, shares, notes = _grid(slide, tissue), [], []
    count = Count(fingerprint, tissue.share, places, shares, notes)
    save_json(asdict(count), stored_in)
    return count


def read_tumour(source: Source, slide: Slide) -> Outlines | None:
    """The tumour outlines of a slide with metastases; None for a normal slide."""
    return read_outlines(source.outlines, (slide.width, slide.height)) if source.outlines else None


def _grid(slide: Slide, tissue: Tissue) -> list[Place]:
    """Patches of the 512 grid that lie wholly inside the slide and have enough tissue."""
    return [
        (left, top)
        for top in range(0, slide.height - PATCH + 1, PATCH)
        for left in range(0, slide.width - PATCH + 1, PATCH)
        if _has_tissue(tissue, (left, top))
    ]


def _has_tissue(tissue: Tissue, place: Place) -> bool:
    """Whether a patch has enough tissue; measured at the nearest whole pixels of the tissue mask."""
    left, top = (SCALE * round(side / SCALE) for side in place)
    return tissue.share_of(Region(left, top, PATCH, PATCH)) >= MIN_TISSUE


def fingerprint_of(source: Source) -> str:
    """Hash of the protocol, the annotation, and the size and time of the slide file, which is too large to read."""
    try:
        state = source.slide.stat()
        outlines = source.outlines.read_bytes() if source.outlines else b""
    except OSError as error:
        raise SlideError(f"{error.filename}: cannot be read ({error.strerror}); check the file") from error
    parts = (state.st_size, state.st_mtime_ns, hashlib.sha256(outlines).hexdigest(), PATCH, MIN_TISSUE, MIN_TUMOUR)
    return hashlib.sha256(repr((*parts, SCALE, _PROTOCOL)).encode()).hexdigest()[:32]


def _read_count(path: Path) -> Count | None:
    """A stored count; None if it is missing or damaged."""
    try:
        content = read_json(path)
        places = [(int(left), int(top)) for left, top in content["places"]]
        shares = [float(share) for share in content["tumour_shares"]]
        return Count(str(content["fingerprint"]), float(content["tissue"]), places, shares, list(content["notes"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
