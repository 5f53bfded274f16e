"""Polygons with holes from a soft mask, traced block by block so that a mask of any size fits in memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw

from histolumen.extras import require

if TYPE_CHECKING:
    from shapely import Geometry, Polygon

_BLOCK = 1024
_TOLERANCE = 0.1  # tolerance of outline simplification, in pixels of the mask
ReadBlock = Callable[[int, int, int, int], np.ndarray]
"""Values [height, width] of a block, from left, top, width and height."""


@dataclass(frozen=True)
class Raster:
    """A soft mask that is read in blocks. Pixels are unit squares; the first one spans 0 to 1."""

    width: int
    height: int
    read: ReadBlock
    level: float
    """Threshold of the foreground; outlines are contours at this value."""
    top: float
    """The value that stands for probability 1."""

    @classmethod
    def of(cls, soft_mask: np.ndarray, threshold: float = 0.5) -> "Raster":
        """A soft mask [H, W] in [0, 1] in memory."""
        height, width = soft_mask.shape

        def read(left: int, top: int, across: int, down: int) -> np.ndarray:
            return soft_mask[top : top + down, left : left + across]

        return cls(width, height, read, threshold, 1.0)


@dataclass(frozen=True)
class FoundRegion:
    """A connected part of the foreground: outline in pixels of the raster, and the mean of the soft mask inside."""

    outline: "Polygon"
    mean: float
    unlike: float | None = None
    """Distance from the model's training images relative to the limit; None: unknown."""


def find_regions(raster: Raster, min_area: float = 0.0) -> list[FoundRegion]:
    """All connected regions of the foreground, largest first.

    Outlines are contours of the bilinearly interpolated mask.

    Args:
        raster: the soft mask.
        min_area: smaller regions, and smaller holes in regions, are left out (in pixels of the raster).
    """
    require("slides", "contourpy", "shapely")
    complete, cut = [], []
    for polygon, border in _trace_blocks(raster, min_area):
        if polygon.intersects(border):  # it may continue in the next block
            cut.append((polygon, border))
        elif polygon.area > min_area:
            complete.append(polygon)
    joined = [*complete, *_joined(cut)]
    del complete, cut
    regions = _tidied(joined, min_area)
    del joined
    regions.sort(key=lambda polygon: (-polygon.area, polygon.bounds))
    return [FoundRegion(polygon, _mean_inside(raster, polygon)) for polygon in regions]


def draw_polygon(polygon: "Polygon", left: int, top: int, width: int, height: int) -> np.ndarray:
    """Mask [height, width] of the pixels in a window whose centre a polygon covers, to within a pixel of its edge."""
    canvas = Image.new("1", (width, height))
    pen = ImageDraw.Draw(canvas)
    for ring, value in [(polygon.exterior, 1), *((hole, 0) for hole in polygon.interiors)]:
        points = np.asarray(ring.coords) - (left + 0.5, top + 0.5)
        pen.polygon([tuple(point) for point in points.tolist()], fill=value)
    return np.asarray(canvas)


def _tidied(polygons: list["Polygon"], min_area: float) -> list["Polygon"]:
    """Regions with fewer points, without small holes. Most regions have no holes, and are simplified all at once."""
    import shapely  # noqa: PLC0415

    every: Any = np.array(polygons, dtype=object)
    solid = shapely.get_num_interior_rings(every) == 0
    outlines: Any = shapely.simplify(shapely.get_exterior_ring(every[solid]), _TOLERANCE)
    one_by_one = (
        _without_small_holes(part, min_area)
        for polygon in every[~solid]
        for part in _polygons(_simplified(_without_small_holes(polygon, min_area)))
    )
    return [region for region in (*_filled(outlines), *one_by_one) if region.area > min_area]


def _joined(cut: list[tuple["Polygon", "Geometry"]]) -> list["Polygon"]:
    """The polygons that blocks have cut, joined; each comes with the border of its block.

    Holes within a block stay as they are: a union of thousands of them takes most of the time.
    """
    import shapely  # noqa: PLC0415

    open_polygons, holes = [], []
    for polygon, border in cut:
        rings = _holes(polygon)
        at_border = shapely.intersects(rings, border).astype(bool)
        open_polygons.append(shapely.Polygon(polygon.exterior, rings[at_border]))
        holes += list(rings[~at_border])
    polygons = _polygons(shapely.union_all(open_polygons))
    places = shapely.STRtree(shapely.point_on_surface(_filled(holes)))
    return [
        shapely.Polygon(polygon.exterior, [*_holes(polygon), *(holes[k] for k in places.query(polygon, "contains"))])
        for polygon in polygons
    ]


def _trace_blocks(raster: Raster, min_area: float) -> Iterator[tuple["Polygon", "Geometry"]]:
    """Yield the polygons of each block, without small holes inside the block, and the border of the block."""
    import shapely  # noqa: PLC0415
    from contourpy import FillType, contour_generator  # noqa: PLC0415

    for top, bottom in _spans(raster.height):
        for left, right in _spans(raster.width):
            values, x, y = _centres(raster, left, top, right, bottom)
            if values.max() < raster.level:
                continue
            generator = contour_generator(x=x, y=y, z=values, fill_type=FillType.OuterOffset)
            filled: Any = generator.filled(raster.level, raster.top + 1)  # its type depends on fill_type
            border = shapely.box(x[0], y[0], x[-1], y[-1]).exterior
            for points, starts in zip(*filled, strict=True):
                kept = _kept_rings(points, starts, (x[0], y[0], x[-1], y[-1]), min_area)
                rings = [points[a:b] for (a, b), keep in zip(pairwise(starts), kept, strict=True) if keep]
                if rings:
                    outline = shapely.Polygon(rings[0], rings[1:])
                    for polygon in _polygons(outline if outline.is_valid else shapely.make_valid(outline)):
                        yield polygon, border


def _kept_rings(points: np.ndarray, starts: np.ndarray, border: tuple[float, ...], min_area: float) -> np.ndarray:
    """Which rings [n] of a polygon have an area; of the holes only those that are large, or that may continue in the
    next block. Most holes of a noisy mask are small, and to make geometries of them would take most of the time."""
    first, last = starts[:-1].astype(int), starts[1:].astype(int) - 1
    x, y = points.T
    cross = np.append(x[:-1] * y[1:] - x[1:] * y[:-1], 0.0)
    cross[last] = 0  # between the last point of a ring and the first of the next one
    large = np.abs(np.add.reduceat(cross, first)) / 2 > min_area
    outside = (x <= border[0]) | (y <= border[1]) | (x >= border[2]) | (y >= border[3])
    at_border = np.logical_or.reduceat(outside, first)
    is_outline = np.arange(len(first)) == 0
    return (large | at_border | is_outline) & (last - first >= 3)


def _centres(raster: Raster, left: int, top: int, right: int, bottom: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values and coordinates of a block's pixel centres, extended to the next blocks or to the edge of the raster."""
    last_x, last_y = min(right + 1, raster.width), min(bottom + 1, raster.height)
    values = raster.read(left, top, last_x - left, last_y - top).astype(np.float64)
    x, y = np.arange(left, last_x) + 0.5, np.arange(top, last_y) + 0.5
    pad_x = int(left == 0), int(right >= raster.width)
    pad_y = int(top == 0), int(bottom >= raster.height)
    values = np.pad(values, (pad_y, pad_x), mode="edge")
    x = np.concatenate([[0.0] * pad_x[0], x, [float(raster.width)] * pad_x[1]])
    y = np.concatenate([[0.0] * pad_y[0], y, [float(raster.height)] * pad_y[1]])
    return values, x, y


def _spans(length: int) -> list[tuple[int, int]]:
    return [(start, min(start + _BLOCK, length)) for start in range(0, length, _BLOCK)]


def _polygons(geometry: "Geometry") -> list["Polygon"]:
    """The polygons in a geometry, without lines and points."""
    import shapely  # noqa: PLC0415

    return [part for part in shapely.get_parts(geometry, return_index=False) for part in _flat(part)]


def _flat(part: "Geometry") -> list["Polygon"]:
    import shapely  # noqa: PLC0415

    if isinstance(part, shapely.Polygon):
        return [part] if part.area > 0 else []
    return _polygons(part) if isinstance(part, shapely.MultiPolygon) else []


def _simplified(polygon: "Polygon") -> Any:
    """Outlines with fewer points.

    With thousands of holes, keeping rings apart takes seconds, and at this tolerance they hardly ever touch. So they
    are simplified one by one, and kept apart only if that went wrong.
    """
    import shapely  # noqa: PLC0415

    exterior, *holes = shapely.simplify([polygon.exterior, *_holes(polygon)], _TOLERANCE)
    quick = shapely.Polygon(exterior, holes)
    return quick if quick.is_valid else polygon.simplify(_TOLERANCE)


def _without_small_holes(polygon: "Polygon", min_area: float) -> "Polygon":
    import shapely  # noqa: PLC0415

    holes = _holes(polygon)
    return shapely.Polygon(polygon.exterior, holes[shapely.area(_filled(holes)) > min_area])


def _holes(polygon: "Polygon") -> np.ndarray:
    """The rings inside a polygon, as an array; `polygon.interiors` makes them one by one."""
    import shapely  # noqa: PLC0415

    numbers: Any = np.arange(shapely.get_num_interior_rings(polygon))
    return np.asarray(shapely.get_interior_ring(polygon, numbers), dtype=object)


def _filled(rings: Sequence[Any] | np.ndarray) -> Any:
    """One polygon per ring; shapely does not take an empty list of rings."""
    import shapely  # noqa: PLC0415

    return shapely.polygons(rings) if len(rings) else np.array([], dtype=object)


def _mean_inside(raster: Raster, polygon: "Polygon") -> float:
    """Mean of the soft mask over the pixels of a polygon, in [0, 1]."""
    x0, y0, x1, y1 = polygon.bounds
    right, bottom = min(int(np.ceil(x1)), raster.width), min(int(np.ceil(y1)), raster.height)
    fits = right - int(x0) <= _BLOCK and bottom - int(y0) <= _BLOCK
    total = count = 0.0
    for top in range(int(y0), bottom, _BLOCK):
        for left in range(int(x0), right, _BLOCK):
            width, height = min(_BLOCK, right - left), min(_BLOCK, bottom - top)
            inside = np.zeros((height, width), bool)
            parts = [polygon] if fits else _clipped(polygon, left, top, width, height)
            for part in parts:
                inside |= draw_polygon(part, left, top, width, height)
            total += float(raster.read(left, top, width, height)[inside].sum(dtype=np.float64))
            count += int(inside.sum())
    return total / count / raster.top if count else raster.level / raster.top


def _clipped(polygon: "Polygon", left: int, top: int, width: int, height: int) -> list["Polygon"]:
    import shapely  # noqa: PLC0415

    return _polygons(shapely.clip_by_rect(polygon, left, top, left + width, top + height))
