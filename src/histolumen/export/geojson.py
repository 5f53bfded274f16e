"""Regions as GeoJSON that QuPath takes by drag and drop."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from histolumen.atomic import new_file
from histolumen.export.regions import FoundRegion

_COLOURS = ((213, 94, 0), (0, 114, 178), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233))  # Okabe-Ito
_DIGITS = 2


def save_geojson(
    regions: Sequence[FoundRegion],
    path: Path,
    label: str,
    classes: Sequence[str],
    *,
    scale: float = 1.0,
    mpp: float | None = None,
) -> None:
    """Write regions as annotations of one class, with their measurements.

    Args:
        regions: outlines in pixels of their raster.
        path: of the file.
        label: class of the regions.
        classes: all classes; a class keeps its colour from image to image.
        scale: pixels of the image per pixel of the raster.
        mpp: microns per pixel of the image; areas are in square pixels without.
    """
    features = [_feature(region, label, classes, scale, mpp, f"{path.name}/{n}") for n, region in enumerate(regions)]
    with new_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        json.dump({"type": "FeatureCollection", "features": features}, file)


def _feature(
    region: FoundRegion, label: str, classes: Sequence[str], scale: float, mpp: float | None, name: str
) -> dict[str, Any]:
    import shapely  # noqa: PLC0415 - an extra; there are no regions without it
    from shapely.geometry.polygon import orient  # noqa: PLC0415

    outline = shapely.transform(orient(region.outline), lambda points: (points * scale).round(_DIGITS))
    area = region.outline.area * scale**2
    measured = {"Area px^2": area} if mpp is None else {"Area µm^2": area * mpp**2}
    return {
        "type": "Feature",
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
        "geometry": shapely.geometry.mapping(outline),
        "properties": {
            "objectType": "annotation",
            "classification": {"name": label, "color": list(_COLOURS[list(classes).index(label) % len(_COLOURS)])},
            "measurements": {
                "Mean probability": round(region.mean, 4),
                **{key: round(value, _DIGITS) for key, value in measured.items()},
            },
        },
    }
