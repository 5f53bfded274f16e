"""Regions as GeoJSON that QuPath takes by drag and drop."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from histolumen.atomic import new_file
from histolumen.export.regions import FoundRegion

if TYPE_CHECKING:
    from shapely import Polygon

_COLOURS = ((213, 94, 0), (0, 114, 178), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233))  # Okabe-Ito
_DIGITS = 2


def save_geojson(
    regions: Sequence[FoundRegion],
    path: Path,
    label: str,
    classes: Sequence[str],
    *,
    scale: float = 1.0,
    origin: tuple[int, int] = (0, 0),
    mpp: float | None = None,
) -> int:
    """Write regions as annotations of one class, with their measurements; gives their number.

    Args:
        regions: outlines in pixels of their raster.
        path: of the file.
        label: class of the regions.
        classes: all classes; a class keeps its colour from image to image.
        scale: pixels of the image per pixel of the raster.
        origin: pixel of the image at which coordinates begin.
        mpp: microns per pixel of the image; areas are in square pixels without.
    """
    import shapely  # noqa: PLC0415 - an extra; there are no regions without it

    classification = {"name": label, "color": list(_COLOURS[list(classes).index(label) % len(_COLOURS)])}
    count = 0
    with new_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write('{"type": "FeatureCollection", "features": [')  # one by one: a slide may have very many
        for region in regions:
            scaled = shapely.transform(region.outline, lambda points: points * scale - origin)
            # rounding alone may let an outline cross itself
            for part in shapely.get_parts(shapely.set_precision(scaled, 10.0**-_DIGITS)):
                if part.area > 0:
                    name = f"{path.parent.name}/{path.name}/{count}"
                    file.write(",\n" if count else "\n")
                    json.dump(_feature(part, region.mean, classification, mpp, name), file)
                    count += 1
        file.write("\n]}\n")
    return count


def _feature(
    outline: "Polygon", mean: float, classification: dict[str, Any], mpp: float | None, name: str
) -> dict[str, Any]:
    import shapely  # noqa: PLC0415
    from shapely.geometry.polygon import orient  # noqa: PLC0415

    measured = {"Area px^2": outline.area} if mpp is None else {"Area µm^2": outline.area * mpp**2}
    return {
        "type": "Feature",
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
        "geometry": shapely.geometry.mapping(orient(outline)),
        "properties": {
            "objectType": "annotation",
            "classification": classification,
            "measurements": {
                "Mean probability": round(mean, 4),
                **{key: round(value, _DIGITS) for key, value in measured.items()},
            },
        },
    }
