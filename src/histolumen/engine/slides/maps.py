"""Maps of a whole slide: computed tile by tile, stored on disk, read window by window."""

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from histolumen.atomic import new_file
from histolumen.errors import SlideError
from histolumen.methods.view import Mask, Pointwise
from histolumen.progress import Progress
from histolumen.slides.reader import Slide
from histolumen.slides.store import RecordFile
from histolumen.slides.tiles import COARSEST, TileLayout
from histolumen.tissue.mask import Tissue

_SAMPLE = 2**20  # most positions used for pooling; larger slides are subsampled
_CACHED_RECORDS = 48
_PIXELS = 2  # side of the squares, in working pixels, that are on tissue or not; sides of tiles are even


@dataclass(frozen=True)
class Canvas:
    """Inputs shared by all passes over a slide."""

    slide: Slide
    tissue: Tissue
    layout: TileLayout
    tiles: list[int]
    device: torch.device
    flips: bool
    readers: int
    work: Path
    progress: Progress


class StoredMaps:
    """The stored maps of one pass: cells, blended across tiles, for the mask; raw positions for pooling."""

    def __init__(self, canvas: Canvas, cell: int, cells: RecordFile | None, positions: RecordFile):
        self.canvas, self.cell = canvas, cell
        self._cells, self._positions = cells, positions
        self._weights = canvas.layout.weights(cell)
        self._cache: OrderedDict[int, np.ndarray] = OrderedDict()
        self._cache_lock = threading.Lock()  # several tiles are prepared at once

    @property
    def positions(self) -> Tensor:
        """Maps at the positions on tissue, [1, K, 1, N].

        On very large slides: a regular sample, plus the positions where a map has its minimum or maximum.
        """
        tiles = self.canvas.tiles
        every = max(1, -(-len(tiles) * self._positions.shape[1] // _SAMPLE))
        samples, extremes = [], []
        for tile in tiles:
            record = self._positions.read(tile)
            record = record[:, ~np.isnan(record[0])]
            if record.shape[1]:
                extremes.append(record[:, np.unique([*record.argmax(1), *record.argmin(1)])])
            samples.append(record[:, (tile % every) :: every])
        positions = np.concatenate(samples, axis=1)
        if not positions.size:
            raise SlideError(
                f"{self.canvas.slide.path}: too little tissue at the model's resolution; check --model-mpp"
            )
        if every > 1:
            extreme = np.concatenate(extremes, axis=1)
            extreme = extreme[:, np.unique([*extreme.argmax(1), *extreme.argmin(1)])]
            positions = np.concatenate([positions, extreme], axis=1)
        return torch.from_numpy(positions)[None, :, None].to(self.canvas.device)

    def range_of(self, value: Pointwise) -> tuple[Tensor, Tensor]:
        low, high = np.inf, -np.inf
        for tile in self.canvas.tiles:
            values = value(self._tensor(self._record(tile)))[0, 0].cpu().numpy()
            values = values[(self._weights > 0) & (tissue_at(self.canvas, tile, self.cell) > 0.5)]
            if values.size:
                low, high = min(low, float(values.min())), max(high, float(values.max()))
        limits = torch.tensor((low, high) if low <= high else (0.0, 0.0), device=self.canvas.device)
        return limits[0].view(1, 1, 1, 1), limits[1].view(1, 1, 1, 1)

    def window(self, left: int, top: int, width: int, height: int) -> Tensor:
        """Blended maps [1, K, height, width] of a rectangle of cells; 0 where there is no tile."""
        layout, cell = self.canvas.layout, self.cell
        total: np.ndarray | None = None
        weight = np.zeros((height, width), np.float32)
        for tile in layout.touching(left * cell, top * cell, width * cell, height * cell):
            record = self._record(tile)
            if record is None:
                continue
            total = np.zeros((len(record), height, width), np.float32) if total is None else total
            x, y = (start // cell for start in layout.origin(tile))
            side = len(self._weights)
            tile_columns, columns = _overlap(x, left, side, width), _overlap(left, x, width, side)
            tile_rows, rows = _overlap(y, top, side, height), _overlap(top, y, height, side)
            part = self._weights[tile_rows, tile_columns]
            total[:, rows, columns] += record[:, tile_rows, tile_columns] * part
            weight[rows, columns] += part
        if total is None:
            total = np.zeros((self._shape()[0], height, width), np.float32)
        return self._tensor(total / np.maximum(weight, 1e-6))

    def _shape(self) -> tuple[int, ...]:
        if self._cells is None:
            raise ValueError("this pass stored positions only")
        return self._cells.shape

    def _record(self, tile: int) -> np.ndarray | None:
        """Cells of a tile, cached if used recently; None: the tile has no tissue."""
        self._shape()
        if self._cells is None or not self._cells.done[tile]:
            return None
        with self._cache_lock:
            if tile not in self._cache:
                self._cache[tile] = self._cells.read(tile)
                if len(self._cache) > _CACHED_RECORDS:
                    self._cache.popitem(last=False)
            return self._cache[tile]

    def _tensor(self, maps: np.ndarray | None) -> Tensor:
        if maps is None:
            raise ValueError("no such tile")
        return torch.from_numpy(maps)[None].to(self.canvas.device)


class PassFiles:
    """The record files of one pass, created with the first tile; their shapes are stored for a resume."""

    def __init__(self, canvas: Canvas, name: str, keep_cells: bool):
        self.canvas, self.keep_cells = canvas, keep_cells
        self._base = canvas.work / name
        self._files: list[RecordFile] = []
        shapes = self._base.with_suffix(".json")
        if shapes.is_file():
            self._open(json.loads(shapes.read_text()))

    def close(self) -> None:
        for file in self._files:
            file.close()

    def has(self, tile: int) -> bool:
        return bool(self._files) and all(file.done[tile] for file in self._files)

    def write(self, tile: int, cells: np.ndarray, positions: np.ndarray) -> None:
        records = [cells, positions] if self.keep_cells else [positions]
        if not self._files:
            shapes = [record.shape for record in records]
            self._open(shapes)
            with new_file(self._base.with_suffix(".json")) as temporary:
                temporary.write_text(json.dumps(shapes))
        for file, record in zip(self._files, records, strict=True):
            file.write(tile, record)

    def maps(self, cell: int) -> StoredMaps:
        *cells, positions = self._files
        return StoredMaps(self.canvas, cell, cells[0] if cells else None, positions)

    def _open(self, shapes: list[tuple[int, ...]]) -> None:
        count = self.canvas.layout.rows * self.canvas.layout.columns
        names = ["cells", "positions"][-len(shapes) :]
        self._files = [
            RecordFile(self._base.with_suffix(f".{name}"), count, tuple(shape))
            for name, shape in zip(names, shapes, strict=True)
        ]


def cell_of_mask(mask: Mask) -> int:
    """Side of a cell of the mask's maps, in working pixels."""
    cells = {layer.maps.cell for layer in mask.layers if isinstance(layer.maps, StoredMaps)} or {COARSEST}
    if len(cells) > 1:
        raise ValueError("all layers of a mask must have the same resolution")
    return cells.pop()


def soft_window(mask: Mask, left: int, top: int, width: int, height: int) -> Tensor:
    """The soft mask [1, 1, height, width] of a rectangle of cells, not yet restricted to tissue."""
    layers = []
    for layer in mask.layers:
        if not isinstance(layer.maps, StoredMaps):
            raise TypeError("the mask of a slide needs stored maps")
        layers.append(layer.finish(layer.value(layer.maps.window(left, top, width, height))))
    return mask.combine(layers) if layers else torch.ones(1, 1, height, width)


def mask_of_tile(canvas: Canvas, mask: Mask, tile: int) -> Tensor:
    """The soft mask of the slide in one tile, one value per cell, [1, 1, n, n]."""
    cell = cell_of_mask(mask)
    x, y = (side // cell for side in canvas.layout.origin(tile))
    side = canvas.layout.tile // cell
    soft = soft_window(mask, x, y, side, side)
    return soft * torch.from_numpy(tissue_at(canvas, tile, cell)).to(soft)


def clear_glass(canvas: Canvas, tile: int, pixels: np.ndarray) -> None:
    """Set the pixels [T, T, C] of a tile that are not on tissue to 0."""
    tissue = tissue_at(canvas, tile, _PIXELS) > 0.5
    if not tissue.all():
        rows, columns, channels = pixels.shape
        wide = tissue.repeat(_PIXELS * channels, axis=1).astype(pixels.dtype)
        lines = pixels.reshape(rows // _PIXELS, _PIXELS, columns * channels)
        lines *= wide[:, None]


def tissue_at(canvas: Canvas, tile: int, cell: int) -> np.ndarray:
    """Smooth tissue mask of a tile, one value per cell, [n, n] in [0, 1]."""
    left, top = canvas.layout.origin(tile)
    side = canvas.layout.tile // cell
    return canvas.tissue.soft(*(_centres(start, cell, side) * canvas.layout.scale for start in (left, top)))


def _centres(start: int, cell: int, count: int) -> np.ndarray:
    return start + (np.arange(count) + 0.5) * cell


def _overlap(start: int, other: int, length: int, other_length: int) -> slice:
    """Overlap of [start, start + length) with [other, other + other_length), as indices from `start`."""
    return slice(max(0, other - start), max(0, min(length, other + other_length - start)))
