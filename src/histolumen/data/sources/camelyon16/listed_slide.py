"""Comparison of a slide and its outlines with the published list, before any patch is cut."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from histolumen.data.sources.camelyon16.candidates import fingerprint_of, read_tumour
from histolumen.data.sources.camelyon16.outline_scan import PATCH
from histolumen.data.sources.camelyon16.pairing import Source
from histolumen.data.sources.camelyon16.published_list import Place, PublishedPatch, published_slides
from histolumen.errors import SlideError
from histolumen.export.files import read_json, save_json
from histolumen.slides.annotations import tumour_mask
from histolumen.slides.reader import Slide, open_slide

TOLERANCE = 0.01  # difference of tumour shares; drawing an outline in another way stays below 0.003
MAX_DIFFERENT = 0.10  # share of a slide's patches that may differ before the whole slide is left out
_MPP = (0.20, 0.30)  # microns per pixel at level 0; the scanners of Camelyon16 have 0.226 to 0.25


@dataclass(frozen=True)
class Comparison:
    """Tumour shares of the published patches of one slide under the outlines at hand."""

    fingerprint: str
    """Of the slide, its outlines and its part of the published list."""
    tumour_shares: list[float]
    """In the order of the list; empty for a normal slide."""
    notes: list[str]

    def different(self, published: Sequence[PublishedPatch]) -> dict[Place, float]:
        """Tumour shares that are not the published ones, by place."""
        if not self.tumour_shares:
            return {}
        found = zip(published, self.tumour_shares, strict=True)
        return {patch.place: share for patch, share in found if abs(share - patch.tumour_share) > TOLERANCE}


def compare_with_list(source: Source, folder: Path) -> Comparison:
    """Compare a slide with the published list; an earlier comparison of the same files is used again.

    Args:
        source: slide and outlines; its name must be in the list.
        folder: of the comparisons.
    """
    published = published_slides()[source.name.casefold()].patches
    kept = folder / f"{source.name}.json"
    parts = fingerprint_of(source), [tuple(patch) for patch in published]
    fingerprint = hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
    known = _read_comparison(kept)
    if known is not None and known.fingerprint == fingerprint:
        return known
    shares: list[float] = []
    with open_slide(source.slide) as slide:
        _check_geometry(slide, published)
        outlines = read_tumour(source, slide)
        if outlines:
            import shapely  # noqa: PLC0415 - an extra

            shapely.prepare(outlines.tumour)
            shares = [float(tumour_mask(outlines.tumour, *patch.place, PATCH).mean()) for patch in published]
    comparison = Comparison(fingerprint, shares, outlines.notes if outlines else [])
    save_json(asdict(comparison), kept)
    return comparison


def _check_geometry(slide: Slide, published: Sequence[PublishedPatch]) -> None:
    """Refuse a slide at another resolution, or one that is too small for its published patches."""
    if slide.mpp is not None and not _MPP[0] <= slide.mpp <= _MPP[1]:
        raise SlideError(
            f"{slide.path}: states {slide.mpp:.3g} microns per pixel, level 0 of Camelyon16 has 0.23 to 0.25; "
            "give the original slide, not a reduced copy"
        )
    for (left, top), _ in published:
        if left + PATCH // 2 >= slide.width or top + PATCH // 2 >= slide.height:
            raise SlideError(
                f"{slide.path}: has {slide.width} x {slide.height} pixels, but a published patch lies at x {left}, "
                f"y {top}; this is another slide or a reduced copy, give the original one"
            )


def _read_comparison(path: Path) -> Comparison | None:
    """A comparison from disk; None where there is none that can be read."""
    try:
        content = read_json(path)
        shares = [float(share) for share in content["tumour_shares"]]
        return Comparison(str(content["fingerprint"]), shares, list(content["notes"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
