"""One slide: from the scanner's file to a class, a heat map and regions, in the same memory whatever its size."""

import hashlib
import json
import math
import shutil
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from histolumen.atomic import new_file
from histolumen.engine.model import THRESHOLD, Model
from histolumen.errors import ConfigError, SlideError
from histolumen.export.files import save_picture
from histolumen.export.geojson import save_geojson
from histolumen.export.heatmap import save_heatmap
from histolumen.export.overlay import draw_overlay
from histolumen.export.regions import Raster, find_regions
from histolumen.methods.base import SlideMask, SlideOutput
from histolumen.slides.maps import Canvas, SlideMapper, StoredMaps, Track
from histolumen.slides.reader import Slide, open_slide
from histolumen.slides.store import RasterFile
from histolumen.slides.tiles import TileGrid
from histolumen.slides.tissue import Tissue, find_tissue

_FORMAT = 1  # of the work folder
_UNFINISHED = "unfinished"
_TISSUE_MICRONS = 8.0  # per pixel of the picture in which tissue is found
_BLOCK = 512  # cells of the heat map that are made at a time
_CERTAIN = 255
OUTPUTS = ("heatmap.tif", "regions.geojson", "overlay.png", "tissue.png")
_OVERLAY = 1600  # longest side of the overlay


@dataclass(frozen=True)
class SlideSettings:
    """How slides are read and answered.

    Args:
        tile: side of a tile in the pixels that the network sees.
        overlap: of neighbouring tiles, blended.
        readers: threads that read tiles while the network works.
        slide_mpp: microns per pixel of the slides, in place of what they state.
        model_mpp: microns per pixel at which the network works, in place of what the model knows.
        flips: answer with the mean over four flips; None: as the model does with images.
        min_area: smaller regions and holes are left out of the GeoJSON, in square microns.
        shift: moves the grid of tiles, in the network's pixels.
    """

    tile: int = 1024
    overlap: int = 192
    readers: int = 2
    slide_mpp: float | None = None
    model_mpp: float | None = None
    flips: bool | None = None
    min_area: float = 100.0
    shift: int = 0


@dataclass(frozen=True)
class _Geometry:
    """Sizes of one answer: level-0 pixels per working pixel and per cell, and the cells of the heat map."""

    slide: Slide
    mpp: float
    scale: float
    cell: int

    @property
    def cells(self) -> tuple[int, int]:
        width, height = (math.ceil(side / self.cell_pixels) for side in (self.slide.width, self.slide.height))
        return width, height

    @property
    def cell_pixels(self) -> float:
        return self.scale * self.cell

    @property
    def cell_microns(self) -> float:
        return self.cell_pixels * self.mpp


def predict_slide(
    model: Model,
    path: Path,
    folder: Path,
    settings: SlideSettings,
    track: Track = lambda tiles, _: tiles,
) -> dict[str, Any]:
    """Answer for one slide; what was done before a kill is not done again.

    Args:
        model: a trained model.
        path: of the slide.
        folder: `heatmap.tif`, `regions.geojson`, `overlay.png` and `tissue.png` are written here.
        settings: how.
        track: wraps the tiles of each pass to show progress.

    Returns:
        The slide's record for the table.
    """
    with open_slide(path, settings.slide_mpp) as slide:
        wanted, mpp = _model_mpp(model, settings), slide.require_mpp()
        scale = slide.natural_scale(wanted / mpp)
        tissue = find_tissue(slide, max(1.0, _TISSUE_MICRONS / mpp))
        tissue.save_preview(folder / "tissue.png")
        if not tissue.mask.any():
            raise SlideError(f"{path}: no tissue found; see {folder / 'tissue.png'} for what was looked at")
        canvas = _canvas(model, slide, tissue, scale, folder / _UNFINISHED, settings, track)
        _start_work(canvas.work, _fingerprint(model, canvas, mpp))
        with SlideMapper(canvas) as mapper:
            output = model.method.predict_slide(mapper)
            if not output.probs.isfinite().all():
                raise SlideError(f"{path}: the model gives no finite answer; was it trained well?")
            record = _save(model, canvas, output, folder, mpp, settings)
    shutil.rmtree(folder / _UNFINISHED, ignore_errors=True)
    return record


def _model_mpp(model: Model, settings: SlideSettings) -> float:
    for name, stated in (("--model-mpp", settings.model_mpp), ("--slide-mpp", settings.slide_mpp)):
        if stated is not None and stated <= 0:
            raise ConfigError(f"{name} {stated}: must be above 0, in microns per pixel")
    mpp = settings.model_mpp or model.mpp
    if mpp is None:
        raise ConfigError(
            "the model does not know the resolution of its images; state it with --model-mpp, or train with "
            "--set images.mpp=... (microns per pixel of the image files)"
        )
    return mpp


def _canvas(
    model: Model, slide: Slide, tissue: Tissue, scale: float, work: Path, settings: SlideSettings, track: Track
) -> Canvas:
    width, height = (max(1, math.ceil(side / scale)) for side in (slide.width, slide.height))
    grid = TileGrid(width, height, scale, settings.tile, settings.overlap, settings.shift)
    flips = model.config.images.test_flips if settings.flips is None else settings.flips
    tiles = grid.with_tissue(tissue)
    return Canvas(slide, tissue, grid, tiles, model.device, flips, settings.readers, work, track)


def _fingerprint(model: Model, canvas: Canvas, mpp: float) -> str:
    """What earlier work must have been made with, to be gone on with."""
    weights = hashlib.sha256()
    for value in model.method.state_dict().values():
        weights.update(
            value.cpu().contiguous().view(torch.uint8).numpy().tobytes() if value.ndim else str(value).encode()
        )
    status, method = canvas.slide.path.stat(), model.config.method.model_dump(mode="json")
    made_of = [status.st_size, status.st_mtime_ns, mpp, asdict(canvas.grid), canvas.flips]
    parts = [_FORMAT, weights.hexdigest(), method, *made_of]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _start_work(work: Path, fingerprint: str) -> None:
    """Go on with earlier work on the same slide by the same model; forget any other."""
    note = work / "made-with"
    if work.exists() and (not note.is_file() or note.read_text() != fingerprint):
        shutil.rmtree(work)
    with new_file(note) as temporary:
        temporary.write_text(fingerprint)


def _save(
    model: Model, canvas: Canvas, output: SlideOutput, folder: Path, mpp: float, settings: SlideSettings
) -> dict[str, Any]:
    maps = output.mask.maps
    if not isinstance(maps, StoredMaps):
        raise TypeError("masks of slides are made from stored maps")
    slide, tissue = canvas.slide, canvas.tissue
    geometry = _Geometry(slide, mpp, canvas.grid.scale, maps.cell)
    probabilities = dict(zip(model.classes, output.probs[0].tolist(), strict=True))
    label = max(probabilities, key=probabilities.__getitem__)
    raw = canvas.work / f"heat-{uuid.uuid4().hex}.raw"  # a worker that is only thought to be lost may write its own
    with RasterFile(raw, *geometry.cells) as heat:
        _fill(heat, canvas, output.mask, maps)
        raster = Raster(*geometry.cells, heat.read, THRESHOLD * _CERTAIN, _CERTAIN)
        regions = find_regions(raster, settings.min_area / geometry.cell_microns**2)
        picture = slide.reduced(max(1.0, max(slide.width, slide.height) / _OVERLAY))
        small = _reduced(heat, picture.shape[:2])
    foreground = sum(region.outline.area for region in regions) * geometry.cell_microns**2
    named = _name_of_regions(model, output, label)
    count = save_geojson(
        regions,
        folder / "regions.geojson",
        named,
        [*model.classes, named],
        scale=geometry.cell_pixels,
        origin=slide.bounds,
        mpp=mpp,
    )
    save_heatmap(
        raw,
        geometry.cells,
        geometry.cell_pixels,
        (slide.width, slide.height),
        mpp,
        folder / "heatmap.tif",
    )
    area = tissue.share * slide.width * slide.height * mpp**2
    answer = label if model.classifies else named
    caption = f"{answer} {probabilities[label]:.2f}   deciding area {100 * foreground / area:.0f} % of tissue"
    save_picture(draw_overlay(picture, small >= THRESHOLD * _CERTAIN, caption), folder / "overlay.png")
    return {
        "slide": str(slide.path),
        "prediction": label if model.classifies else "",
        "probability": round(probabilities[label], 6),
        **{f"p_{name}": round(value, 6) for name, value in probabilities.items()},
        "tissue_mm2": round(area / 1e6, 4),
        "foreground_mm2": round(foreground / 1e6, 4),
        "regions": count,
        "mpp": mpp,
        "tiles": len(canvas.tiles),
    }


def _name_of_regions(model: Model, output: SlideOutput, label: str) -> str:
    """The class that the mask speaks for: the slide's, or where one class has no foreground, the likeliest other."""
    if not model.classifies:
        return "foreground"
    return label if output.mask.speaks_for is None else model.classes[output.mask.speaks_for]


@torch.inference_mode()
def _fill(heat: RasterFile, canvas: Canvas, mask: SlideMask, maps: StoredMaps) -> None:
    """Make the soft mask of the slide, block by block; where there is no tissue it stays 0."""
    scale = canvas.grid.scale * maps.cell
    for top in range(0, heat.height, _BLOCK):
        for left in range(0, heat.width, _BLOCK):
            width, height = min(_BLOCK, heat.width - left), min(_BLOCK, heat.height - top)
            columns, rows = (np.arange(width) + left + 0.5) * scale, (np.arange(height) + top + 0.5) * scale
            tissue = canvas.tissue.soft(columns, rows)
            if tissue.any():
                soft = mask.soft(maps.window(left, top, width, height))[0, 0].cpu().numpy() * tissue
                heat.write(left, top, (soft.clip(0, 1) * _CERTAIN).round().astype(np.uint8))


def _reduced(heat: RasterFile, shape: tuple[int, ...]) -> np.ndarray:
    """The heat map at the size of the tissue picture."""
    height, width = shape
    picture = np.empty((height, width), np.uint8)
    for row in range(height):
        top = row * heat.height // height
        rows = heat.read(0, top, heat.width, max(1, (row + 1) * heat.height // height - top))
        picture[row] = np.asarray(Image.fromarray(rows).resize((width, 1), Image.Resampling.BOX))[0]
    return picture
