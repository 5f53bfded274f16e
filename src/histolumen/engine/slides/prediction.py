"""The prediction for one slide: class, heat map, regions, and their files."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from histolumen.atomic import os_errors_as_disk_error
from histolumen.engine.prediction import THRESHOLD, most_probable, png_bytes
from histolumen.engine.slides.judging import JudgedFields
from histolumen.export.files import save_picture
from histolumen.export.geojson import GeoJsonStyle, feature_collection, save_geojson
from histolumen.export.in_background import CERTAIN, HEATMAP, BackgroundFiles, HeatFiles
from histolumen.export.overlay import draw_overlay
from histolumen.export.regions import FoundRegion
from histolumen.familiarity.judgement import judgement_columns
from histolumen.tissue.mask import Tissue

OUTPUTS = (HEATMAP, "regions.geojson", "overlay.png", "tissue.png")


def heat_files(pixels_per_cell: float, size: tuple[int, int], mpp: float, min_area: float) -> HeatFiles:
    """Outlines and pyramid of a slide's heat map; `min_area` is in square microns."""
    return HeatFiles(pixels_per_cell, size, mpp, min_area / (pixels_per_cell * mpp) ** 2, THRESHOLD)


@dataclass(frozen=True)
class SlidePrediction:
    """Class, heat map and regions of a slide.

    Regions have coordinates in pixels of the heat map; `to_geojson` converts them to pixels of the slide.
    """

    slide: Path
    probabilities: dict[str, float]
    heat: np.ndarray
    """Soft mask [h, w] uint8, 255 is 1; one value per cell."""
    pixels_per_cell: float
    """Side of a cell of the heat map, in pixels of the slide."""
    size: tuple[int, int]
    """Width and height of the slide in pixels."""
    mpp: float
    """Microns per pixel of the slide."""
    origin: tuple[int, int]
    """Origin of QuPath's coordinates, in pixels of the slide."""
    tissue: Tissue
    picture: np.ndarray
    """Reduced image of the slide, RGB [H, W, 3]."""
    region_class: str
    """Class name of the regions."""
    classifies: bool = True
    tiles: int = 0
    min_area: float = 0.0
    """Regions and holes below this area in square microns are removed."""
    background: BackgroundFiles | None = None
    """The process that makes outlines and pyramid, if one was started."""
    fields: JudgedFields | None = None
    """How unlike the training images the tissue is, field by field; None: not known."""

    @property
    def unlike_training(self) -> float | None:
        """Median distance of the tissue from the training images relative to the limit: above 1, most of it is unlike
        them; None: unknown."""
        return None if self.fields is None else self.fields.judgement.unlike

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the answer should not be trusted, in plain sentences; empty if the tissue is like the training images."""
        return () if self.fields is None else self.fields.judgement.warnings

    @property
    def label(self) -> str:
        """The most probable class; empty for methods that predict a mask only."""
        return most_probable(self.probabilities) if self.classifies else ""

    @property
    def soft_mask(self) -> np.ndarray:
        """The heat map in [0, 1], [h, w] float32."""
        return self.heat.astype(np.float32) / CERTAIN

    @property
    def mask(self) -> np.ndarray:
        """Soft mask >= 0.5, [h, w] bool."""
        return self.heat >= THRESHOLD * CERTAIN

    @cached_property
    def regions(self) -> list[FoundRegion]:
        """Connected regions of the mask, largest first."""
        made = self._made_in_background
        found = self.heat_files.regions(self.heat) if made is None else made[0]
        if self.fields is None:
            return found
        return [replace(region, unlike=self.fields.around(region, self.pixels_per_cell)) for region in found]

    @property
    def heat_files(self) -> HeatFiles:
        """What is made from the heat map."""
        return heat_files(self.pixels_per_cell, self.size, self.mpp, self.min_area)

    @cached_property
    def _made_in_background(self) -> tuple[list[FoundRegion], Path] | None:
        return None if self.background is None else self.background.results()

    @property
    def tissue_mm2(self) -> float:
        """Tissue area in square millimetres."""
        return self.tissue.share * self.size[0] * self.size[1] * self.mpp**2 / 1e6

    @property
    def foreground_mm2(self) -> float:
        """Total area of the regions in square millimetres."""
        return sum(region.outline.area for region in self.regions) * self._cell_mm2

    @property
    def foreground_share(self) -> float:
        """Share of the tissue that the regions cover, in [0, 1]."""
        return self.foreground_mm2 / self.tissue_mm2

    @property
    def _cell_mm2(self) -> float:
        return (self.pixels_per_cell * self.mpp) ** 2 / 1e6

    def overlay(self) -> Image.Image:
        """The reduced slide with the regions outlined and in full colour."""
        shape = self.picture.shape[1], self.picture.shape[0]
        small = np.asarray(Image.fromarray(self.heat).resize(shape, Image.Resampling.BOX))
        title = self.label or self.region_class
        probability = max(self.probabilities.values())
        caption = f"{title} {probability:.2f}   deciding area {100 * self.foreground_share:.0f} % of tissue"
        return draw_overlay(self.picture, small >= THRESHOLD * CERTAIN, caption)

    def to_geojson(self) -> dict[str, Any]:
        """The regions as a GeoJSON FeatureCollection in pixels of the slide."""
        return feature_collection(self.regions, self.geojson_style(self.slide.stem))

    def record(self) -> dict[str, Any]:
        """The slide's row of `slides.csv`."""
        return {
            "slide": str(self.slide),
            "prediction": self.label,
            "probability": round(max(self.probabilities.values()), 6),
            **{f"p_{name}": round(value, 6) for name, value in self.probabilities.items()},
            "tissue_mm2": round(self.tissue_mm2, 4),
            "foreground_mm2": round(self.foreground_mm2, 4),
            "foreground_share": round(self.foreground_share, 6),
            "mpp": self.mpp,
            "tiles": self.tiles,
            **judgement_columns(None if self.fields is None else self.fields.judgement),
            "unlike_share": None if self.fields is None else round(float((self.fields.unlike > 1).mean()), 4),
        }

    def save(self, folder: Path | str) -> dict[str, Any]:
        """Write `heatmap.tif`, `regions.geojson`, `overlay.png` and `tissue.png`; return the row of `slides.csv`."""
        folder = Path(folder)
        made = self._made_in_background
        with ThreadPoolExecutor(1) as beside:
            heatmap = beside.submit(self._save_heatmap, folder / HEATMAP, None if made is None else made[1])
            self.tissue.save_preview(folder / "tissue.png")
            count = save_geojson(self.regions, folder / "regions.geojson", self.geojson_style(folder.name))
            save_picture(self.overlay(), folder / "overlay.png")
            heatmap.result()
        return {**self.record(), "regions": count}

    def _save_heatmap(self, path: Path, made: Path | None) -> None:
        if made is None:
            self.heat_files.save_pyramid(self.heat, path)
        else:
            with os_errors_as_disk_error(path):
                made.replace(path)

    def geojson_style(self, name: str) -> GeoJsonStyle:
        """Class, colour and units of the regions in GeoJSON; region identifiers are derived from `name`."""
        classes = tuple(dict.fromkeys([*self.probabilities, self.region_class]))
        return GeoJsonStyle(
            self.region_class, classes, name, scale=self.pixels_per_cell, origin=self.origin, mpp=self.mpp
        )

    def __repr__(self) -> str:
        title = f"{self.label} ({max(self.probabilities.values()):.2f})" if self.label else self.region_class
        return (
            f"SlidePrediction({self.slide.name}: {title}, {len(self.regions)} regions, "
            f"{self.foreground_mm2:.2f} of {self.tissue_mm2:.2f} mm² tissue"
            f"{''.join(f'; {warning}' for warning in self.warnings)})"
        )

    def _repr_png_(self) -> bytes:
        return png_bytes(self.overlay())
