"""Prediction of one slide: memory does not grow with the slide, and interrupted work is resumed."""

import hashlib
import json
import math
import shutil
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field

from histolumen.atomic import new_file
from histolumen.engine.memory import return_freed_memory
from histolumen.engine.model import Model
from histolumen.engine.slides.judging import JudgedFields, judge_slide
from histolumen.engine.slides.maps import Canvas, cell_of_mask, soft_window
from histolumen.engine.slides.prediction import SlidePrediction, heat_files
from histolumen.engine.slides.view import SlideView
from histolumen.errors import ConfigError, SlideError
from histolumen.export.in_background import CERTAIN, BackgroundFiles
from histolumen.lanes import meanwhile
from histolumen.methods.class_maps import likeliest_with_foreground
from histolumen.methods.view import Answer, Mask
from histolumen.progress import SILENT, Progress
from histolumen.settings import Settings
from histolumen.slides.reader import Slide, open_slide
from histolumen.slides.tiles import TileLayout
from histolumen.tissue.mask import Tissue, find_tissue

_FORMAT = 2  # version of the work folder
_UNFINISHED = "unfinished"
_TISSUE_MPP = 8.0  # microns per pixel at which tissue is detected
_LARGEST_LUMEN = 10_000  # square microns; a larger white field is glass, also where tissue encloses it
_MAX_ENLARGEMENT = 16  # beyond, the network would see blurred spots, and their number would have no limit
_BLOCK = 512  # side of the blocks in which the heat map is computed, in cells
_WORTH_A_PROCESS = 2**19  # cells of a heat map; starting a process takes about as long as the files of fewer
_OVERVIEW_SIDE = 1600  # longest side of the reduced slide, in pixels


class SlideSettings(Settings):
    """How slides are read and predicted."""

    tile: int = Field(default=1024, ge=1)
    """Side of a tile in pixels of the network's input."""
    overlap: int = Field(default=192, ge=0)
    """Overlap of neighbouring tiles, in pixels of the network's input; they are blended there."""
    readers: int = Field(default=2, ge=1)
    """Number of threads that read tiles while the network runs."""
    slide_mpp: float | None = Field(default=None, gt=0, le=100)
    """Microns per pixel of the slides; None: as stated in the file."""
    model_mpp: float | None = Field(default=None, gt=0, le=100)
    """Microns per pixel of the network's input; None: as stored in the model."""
    flips: bool | None = None
    """Average the prediction over four flips; None: as the model does for images."""
    min_area: float = Field(default=100.0, ge=0)
    """Regions and holes below this area in square microns are removed from the GeoJSON."""
    shift: int = 0
    """Offset of the tile grid, in pixels of the network's input."""


def save_slide_prediction(
    model: Model, path: Path, folder: Path, settings: SlideSettings, progress: Progress = SILENT
) -> dict[str, Any]:
    """Predict one slide and write its files; an interrupted earlier call is resumed.

    Args:
        model: a trained model.
        path: slide file.
        folder: output folder for `heatmap.tif`, `regions.geojson`, `overlay.png` and `tissue.png`.
        settings: resolutions, tiles, flips.
        progress: receives the number of tiles of each pass.

    Returns:
        The slide's row of `slides.csv`.
    """
    work = folder / _UNFINISHED
    with _Early(work) as early:
        record = _predict(model, path, work, settings, progress, folder / "tissue.png", early).save(folder)
    shutil.rmtree(work, ignore_errors=True)
    return_freed_memory()
    return record


def predict_slide(
    model: Model, path: Path | str, settings: SlideSettings | None = None, progress: Progress = SILENT
) -> SlidePrediction:
    """Predict one slide and return the result in memory; temporary files are removed."""
    with tempfile.TemporaryDirectory(prefix="histolumen-") as temporary:
        prediction = _predict(model, Path(path), Path(temporary) / "work", settings or SlideSettings(), progress)
    return_freed_memory()
    return prediction


def _predict(
    model: Model,
    path: Path,
    work: Path,
    settings: SlideSettings,
    progress: Progress,
    preview: Path | None = None,
    early: "_Early | None" = None,
) -> SlidePrediction:
    with open_slide(path, settings.slide_mpp) as slide:
        model_mpp, mpp = _model_mpp(model, settings), slide.require_mpp()
        scale = slide.natural_scale(model_mpp / mpp)
        if scale < 1 / _MAX_ENLARGEMENT:
            raise SlideError(
                f"{path}: {model_mpp:g} microns per pixel for the network and {mpp:g} of the slide "
                f"would enlarge the slide {1 / scale:.0f} times; check --model-mpp and --slide-mpp"
            )
        reduction = max(1.0, _TISSUE_MPP / mpp)
        tissue = find_tissue(slide, reduction, round(_LARGEST_LUMEN / (mpp * reduction) ** 2))
        if not tissue.mask.any():
            if preview is not None:
                tissue.save_preview(preview)
            advice = f"; see {preview} for the image that was searched" if preview else ""
            raise SlideError(f"{path}: no tissue found{advice}")
        canvas = _canvas(model, slide, tissue, scale, work, settings, progress)
        _start_work(work, _fingerprint(model, canvas, mpp))
        min_area, on_mask = settings.min_area, None
        if early is not None:
            on_mask = partial(early.start, canvas, mpp, min_area)
        predictor = model.predictor
        remove_glass = model.config.images.glass == "remove"
        look = partial(_looked_at, model, canvas)
        with meanwhile(look) as look_at_slide, SlideView(canvas, model.method, remove_glass, on_mask) as view:
            answer = predictor.predict(view)
            if not answer.probs.isfinite().all():
                raise SlideError(f"{path}: the predicted probabilities are not finite; check the training of the model")
            cell = cell_of_mask(answer.mask)
            if early is None:
                heat, background = _heat(canvas, answer.mask, cell), None
            else:
                heat, background = early.of(canvas, answer.mask)
            probabilities = model.calibrated(dict(zip(model.classes, answer.probs[0].tolist(), strict=True)))
            fields, picture = look_at_slide.result()
            return SlidePrediction(
                slide=path,
                probabilities=probabilities,
                heat=heat,
                pixels_per_cell=scale * cell,
                size=(slide.width, slide.height),
                mpp=mpp,
                origin=slide.bounds,
                tissue=tissue,
                picture=picture,
                region_class=_region_class(model, answer),
                classifies=model.classifies,
                tiles=len(canvas.tiles),
                min_area=min_area,
                background=background,
                fields=fields,
            )


def _looked_at(model: Model, canvas: Canvas) -> tuple[JudgedFields | None, np.ndarray]:
    """What does not depend on the answer: how unlike the training images the slide is, and its picture."""
    slide = canvas.slide
    picture = slide.reduced(max(1.0, max(slide.width, slide.height) / _OVERVIEW_SIDE))
    return judge_slide(model.reference, model.predictor.backbone, canvas), picture


class _Early:
    """Heat map of a mask, whose files are made in the background while the slide is still worked on.

    With two passes, Max-Min has its mask after the first and its class after the second.
    """

    def __init__(self, work: Path):
        self._work = work
        self._mask: Mask | None = None
        self._heat: np.ndarray | None = None
        self._files: BackgroundFiles | None = None

    def __enter__(self) -> "_Early":
        return self

    def __exit__(self, *_: object) -> None:
        if self._files is not None:
            self._files.close()

    def start(self, canvas: Canvas, mpp: float, min_area: float, mask: Mask) -> np.ndarray:
        """Compute the heat map of `mask` and, if it is large, start the process; an earlier mask is given up."""
        cell = cell_of_mask(mask)
        self.__exit__()
        self._files = None
        self._mask, self._heat = mask, _heat(canvas, mask, cell)
        if self._heat.size >= _WORTH_A_PROCESS:
            size = canvas.slide.width, canvas.slide.height
            files = heat_files(canvas.layout.scale * cell, size, mpp, min_area)
            self._files = BackgroundFiles(self._heat, files, self._work)
        return self._heat

    def of(self, canvas: Canvas, mask: Mask) -> tuple[np.ndarray, BackgroundFiles | None]:
        """Heat map of the final mask, and the process that makes its files if it was that of the last pass.

        Otherwise nothing is left to do beside such a process, and starting it would take longer.
        """
        if mask is not self._mask or self._heat is None:
            return _heat(canvas, mask, cell_of_mask(mask)), None
        return self._heat, self._files


def _model_mpp(model: Model, settings: SlideSettings) -> float:
    mpp = settings.model_mpp or model.mpp
    if mpp is None and model.config.images.resize == "square":
        raise ConfigError(
            "the model was trained on images distorted to a square (images.resize=square), which have no single "
            "resolution; train with images.resize=short_side, or choose one with --model-mpp"
        )
    if mpp is None:
        raise ConfigError(
            "the model does not store the resolution of its images; give --model-mpp, or train with "
            "--set images.mpp=... (microns per pixel of the image files)"
        )
    return mpp


def _canvas(
    model: Model, slide: Slide, tissue: Tissue, scale: float, work: Path, settings: SlideSettings, progress: Progress
) -> Canvas:
    width, height = (max(1, math.ceil(side / scale)) for side in (slide.width, slide.height))
    multiple = math.lcm(model.method.backbone.size_multiple, model.method.backbone.stride)
    layout = TileLayout.fitting(width, height, scale, settings.tile, settings.overlap, settings.shift, multiple)
    flips = model.config.images.test_flips if settings.flips is None else settings.flips
    tiles = layout.where(tissue.touches)
    return Canvas(slide, tissue, layout, tiles, model.device, flips, settings.readers, work, progress)


def _fingerprint(model: Model, canvas: Canvas, mpp: float) -> str:
    """Hash of everything that stored tiles depend on: earlier work is resumed only if it is equal."""
    weights = hashlib.sha256()
    for value in model.method.state_dict().values():
        weights.update(
            value.cpu().contiguous().view(torch.uint8).numpy().tobytes() if value.ndim else str(value).encode()
        )
    # without defaults, so that work goes on after an update that adds a setting
    status, method = canvas.slide.path.stat(), model.config.method.model_dump(mode="json", exclude_defaults=True)
    inputs = [status.st_size, status.st_mtime_ns, mpp, asdict(canvas.layout), canvas.flips]
    parts = [_FORMAT, weights.hexdigest(), method, model.config.images.glass, model.method.negative_class, *inputs]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _start_work(work: Path, fingerprint: str) -> None:
    """Keep earlier work with the same fingerprint and delete any other."""
    note = work / "made-with"
    if work.exists() and (not note.is_file() or note.read_text() != fingerprint):
        shutil.rmtree(work)
    with new_file(note) as temporary:
        temporary.write_text(fingerprint)


def _region_class(model: Model, answer: Answer) -> str:
    """The class whose evidence the mask shows: the predicted class or, if that one has no foreground, the most probable
    other class."""
    if not model.classifies:
        return "foreground"
    return model.classes[int(likeliest_with_foreground(answer.probs, model.method.negative_class))]


@torch.inference_mode()
def _heat(canvas: Canvas, mask: Mask, cell: int) -> np.ndarray:
    """The soft mask of the slide [h, w] uint8, computed block by block; 0 outside tissue."""
    scale = canvas.layout.scale * cell
    width, height = (math.ceil(side / scale) for side in (canvas.slide.width, canvas.slide.height))
    heat = np.zeros((height, width), np.uint8)
    for top in range(0, height, _BLOCK):
        for left in range(0, width, _BLOCK):
            across, down = min(_BLOCK, width - left), min(_BLOCK, height - top)
            columns, rows = (np.arange(across) + left + 0.5) * scale, (np.arange(down) + top + 0.5) * scale
            tissue = canvas.tissue.soft(columns, rows)
            if tissue.any():
                soft = soft_window(mask, left, top, across, down)[0, 0].cpu().numpy() * tissue
                heat[top : top + down, left : left + across] = (soft.clip(0, 1) * CERTAIN).round()
    return heat
