"""Tumour outlines from ASAP's XML, as a geometry in level-0 pixels and as patch masks."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from histolumen.errors import SlideError
from histolumen.extras import require

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

TUMOUR_GROUPS = frozenset({"_0", "_1", "Tumor"})
HOLE_GROUPS = frozenset({"_2", "Exclusion"})
_CELL = 32  # side of the squares that are filled at once if no outline crosses them


class Outlines(NamedTuple):
    """The tumour of a slide, and notes on annotations that were repaired or dropped."""

    tumour: "BaseGeometry"
    """Polygons in level-0 pixels, clipped to the slide, without the holes; valid and not empty."""
    notes: list[str]


def read_outlines(path: Path, size: tuple[int, int]) -> Outlines:
    """Read the tumour of a slide from an ASAP file: tumour groups minus holes.

    Args:
        path: XML file.
        size: width and height of the slide in level-0 pixels.
    """
    require("slides", "shapely", "defusedxml")
    import shapely  # noqa: PLC0415 - an extra

    notes: list[str] = []
    tumours, holes = [], []
    slide_box = shapely.box(0, 0, *size)
    for name, group, points in _annotations(path):
        source = f"{path}, annotation '{name}'"
        polygon = _polygon(points, lambda text, source=source: notes.append(f"{source}: {text}"))
        if polygon is None:
            continue
        inside = _polygonal(shapely.intersection(polygon, slide_box))
        if inside.is_empty:
            raise SlideError(
                f"{source}: lies wholly outside its slide of {size[0]} x {size[1]} pixels; "
                "it belongs to another slide or resolution; give the XML of this slide"
            )
        if not shapely.covers(slide_box, polygon):
            notes.append(f"{source}: extends beyond the slide; clipped")
        (tumours if group in TUMOUR_GROUPS else holes).append(inside)
    tumour = _polygonal(shapely.difference(shapely.union_all(tumours), shapely.union_all(holes)))
    if tumour.is_empty:
        raise SlideError(
            f"{path}: outlines no tumour (groups {', '.join(sorted(TUMOUR_GROUPS))}); a normal slide must have no XML"
        )
    return Outlines(tumour, notes)


def tumour_mask(tumour: "BaseGeometry", left: int, top: int, side: int) -> np.ndarray:
    """Mask [side, side] bool of a square in level-0 pixels: pixels whose centre is inside the tumour.

    Call `shapely.prepare(tumour)` first for speed.
    """
    import shapely  # noqa: PLC0415 - an extra

    if not tumour.intersects(shapely.box(left, top, left + side, top + side)):
        return np.zeros((side, side), bool)
    corners = np.arange(0, side, _CELL)
    y, x = np.meshgrid(top + corners, left + corners, indexing="ij")
    cells = shapely.box(x, y, np.minimum(x + _CELL, left + side), np.minimum(y + _CELL, top + side))
    mask = np.repeat(np.repeat(shapely.contains(tumour, cells), _CELL, 0), _CELL, 1)[:side, :side]
    crossed = shapely.intersects(tumour, cells) & ~shapely.contains(tumour, cells)
    rows, columns = np.nonzero(np.repeat(np.repeat(crossed, _CELL, 0), _CELL, 1)[:side, :side])
    mask[rows, columns] = shapely.contains_xy(tumour, left + columns + 0.5, top + rows + 0.5)
    return mask


def _annotations(path: Path) -> list[tuple[str, str, np.ndarray]]:
    """Name, group and points [N, 2] of every annotation of an ASAP file."""
    annotations = []
    for number, element in enumerate(_root(path).iter("Annotation")):
        name, group = element.get("Name") or str(number), element.get("PartOfGroup") or "None"
        if group not in TUMOUR_GROUPS | HOLE_GROUPS:
            known = ", ".join(sorted(TUMOUR_GROUPS)), ", ".join(sorted(HOLE_GROUPS))
            raise SlideError(
                f"{path}, annotation '{name}': unknown group '{group}'; tumour is {known[0]}, a hole {known[1]}"
            )
        points = [[_number(path, name, node.get(axis)) for axis in ("X", "Y")] for node in element.iter("Coordinate")]
        annotations.append((name, group, np.array(points, float).reshape(-1, 2)))
    if not annotations:
        raise SlideError(
            f"{path}: contains no annotation; save it again from ASAP, or remove it if the slide is normal"
        )
    return annotations


def _root(path: Path) -> Any:
    """Root of the XML. A document type is an error: its entities could exhaust memory or read other files."""
    from defusedxml import DefusedXmlException, ElementTree  # noqa: PLC0415 - an extra

    try:
        return ElementTree.parse(path, forbid_dtd=True).getroot()
    except DefusedXmlException as error:
        raise SlideError(
            f"{path}: declares a document type or entities, which ASAP never writes and which can be an attack; "
            "get the file from its source again"
        ) from error
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # also for unknown or wrong encodings
        raise SlideError(f"{path}: not well-formed XML ({error}); copy it again or save it again from ASAP") from error
    except OSError as error:
        raise SlideError(f"{path}: cannot be read ({error.strerror or error}); check the file") from error


def _number(path: Path, name: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SlideError(
            f"{path}, annotation '{name}': coordinate '{text or ''}' is not a number; save it again from ASAP"
        )
    return value


def _polygon(points: np.ndarray, note: Callable[[str], None]) -> "BaseGeometry | None":
    """A valid polygon through the points; None, with a note, if they enclose no area."""
    import shapely  # noqa: PLC0415 - an extra

    if len(np.unique(points, axis=0)) < 3:
        note("fewer than three distinct points; left out")
        return None
    polygon = shapely.Polygon(points)
    if not polygon.is_valid:
        note(f"the outline crosses or touches itself ({shapely.is_valid_reason(polygon)}); repaired")
        polygon = _polygonal(shapely.make_valid(polygon))
    if polygon.is_empty:
        note("encloses no area; left out")
        return None
    return polygon


def _polygonal(geometry: "BaseGeometry") -> "BaseGeometry":
    """The polygons of a geometry, without lines and points."""
    import shapely  # noqa: PLC0415 - an extra

    parts = shapely.get_parts(geometry)
    nested = np.concatenate([shapely.get_parts(part) for part in parts]) if len(parts) else parts
    return shapely.union_all([part for part in nested if part.geom_type == "Polygon" and part.area > 0])
