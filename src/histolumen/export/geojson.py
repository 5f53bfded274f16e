"""Regions as GeoJSON, which QuPath imports by drag and drop."""

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from histolumen.atomic import new_file
from histolumen.export.regions import FoundRegion

if TYPE_CHECKING:
    from shapely import Polygon

_COLOURS = ((213, 94, 0), (0, 114, 178), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233))  # Okabe-Ito
_DIGITS = 2  # decimals of coordinates and areas
_AT_ONCE = 500  # outlines that are converted together: faster than one by one, and few copies


@dataclass(frozen=True)
class GeoJsonStyle:
    """How regions are written.

    Args:
        label: class of the regions.
        classes: all classes; a class keeps its colour from image to image.
        name: image name, from which stable region identifiers are derived.
        scale: image pixels per pixel of the raster in which the regions were found.
        origin: image pixel that gets the coordinates (0, 0).
        mpp: microns per pixel of the image; None: areas are in square pixels.
    """

    label: str
    classes: Sequence[str]
    name: str
    scale: float = 1.0
    origin: tuple[int, int] = (0, 0)
    mpp: float | None = None


def feature_collection(regions: Iterable[FoundRegion], style: GeoJsonStyle) -> dict[str, Any]:
    """Regions as one GeoJSON object in memory."""
    return {"type": "FeatureCollection", "features": list(features(regions, style))}


def save_geojson(regions: Iterable[FoundRegion], path: Path, style: GeoJsonStyle) -> int:
    """Write regions as annotations with their measurements, a few hundred at a time; returns their number."""
    count = 0
    with new_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write('{"type": "FeatureCollection", "features": [')
        for feature in features(regions, style):
            file.write(",\n" if count else "\n")
            file.write(json.dumps(feature))  # json.dump would encode it piece by piece in Python
            count += 1
        file.write("\n]}\n")
    return count


def features(regions: Iterable[FoundRegion], style: GeoJsonStyle) -> Iterator[dict[str, Any]]:
    """Each region as a GeoJSON feature."""
    import shapely  # noqa: PLC0415 - an extra; there are no regions without it

    colour = _COLOURS[list(style.classes).index(style.label) % len(_COLOURS)]
    classification = {"name": style.label, "color": list(colour)}
    count = 0
    every = iter(regions)
    while some := list(islice(every, _AT_ONCE)):
        for region, outline in zip(some, _in_image_pixels([region.outline for region in some], style), strict=True):
            for part in shapely.get_parts(outline):
                if part.area > 0:
                    yield _feature(part, region, classification, style.mpp, f"{style.name}/{count}")
                    count += 1


def _in_image_pixels(outlines: Sequence["Polygon"], style: GeoJsonStyle) -> Any:
    """Outlines in pixels of the image, with few decimals."""
    import shapely  # noqa: PLC0415

    exact: Any = shapely.transform(np.array(outlines, dtype=object), lambda points: points * style.scale - style.origin)
    rounded: Any = shapely.transform(exact, lambda points: points.round(_DIGITS))
    crossing = ~shapely.is_valid(rounded)  # plain rounding can make an outline cross itself
    rounded[crossing] = shapely.set_precision(exact[crossing], 10.0**-_DIGITS)
    return shapely.remove_repeated_points(rounded)


def _feature(
    outline: "Polygon", region: FoundRegion, classification: dict[str, Any], mpp: float | None, name: str
) -> dict[str, Any]:
    import shapely  # noqa: PLC0415
    from shapely.geometry.polygon import orient  # noqa: PLC0415

    area = {"Area px^2": outline.area} if mpp is None else {"Area µm^2": outline.area * mpp**2}
    return {
        "type": "Feature",
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, name.encode("utf-8", "backslashreplace").decode())),
        "geometry": shapely.geometry.mapping(orient(outline)),
        "properties": {
            "objectType": "annotation",
            "classification": classification,
            "measurements": {
                "Mean probability": round(region.mean, 4),
                **({} if region.unlike is None else {"Unlike training": round(region.unlike, 3)}),
                **{key: round(value, _DIGITS) for key, value in area.items()},
            },
        },
    }
