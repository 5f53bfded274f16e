"""Maps of a whole slide: made tile by tile, kept on disk, looked at window by window."""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen.atomic import new_file
from histolumen.data.transforms import to_unit_range
from histolumen.errors import SlideError
from histolumen.methods.base import SlideMask, SlideNet
from histolumen.nets.geometry import FLIPS, Grid, enlarge
from histolumen.slides.reader import Slide
from histolumen.slides.store import RecordFile
from histolumen.slides.tiles import TileGrid
from histolumen.slides.tissue import Tissue

FINEST, COARSEST = 4, 8  # working pixels per cell of stored maps
_SAMPLE = 2**20  # positions that pooling looks at; beyond, every so many
_KEPT = 48  # records in memory
Track = Callable[[Sequence[int], str], Iterable[int]]


@dataclass(frozen=True)
class Canvas:
    """What is the same for all passes over a slide."""

    slide: Slide
    tissue: Tissue
    grid: TileGrid
    tiles: list[int]
    device: torch.device
    flips: bool
    readers: int
    work: Path
    track: Track


class StoredMaps:
    """The maps of one pass: blended cells for the mask, and raw positions for pooling."""

    def __init__(self, canvas: Canvas, cell: int, cells: RecordFile | None, positions: RecordFile):
        self.canvas, self.cell = canvas, cell
        self._cells, self._positions = cells, positions
        self._weights = canvas.grid.weights(cell)
        self._kept: OrderedDict[int, np.ndarray] = OrderedDict()

    @property
    def positions(self) -> Tensor:
        """Maps at the positions that look at tissue, as one long image [1, K, 1, N].

        On very large slides a regular sample of them, with the extreme ones of every map.
        """
        tiles = self.canvas.tiles
        every = max(1, -(-len(tiles) * self._positions.shape[1] // _SAMPLE))
        taken, extremes = [], []
        for tile in tiles:
            record = self._positions.read(tile)
            record = record[:, ~np.isnan(record[0])]
            if record.shape[1]:
                extremes.append(record[:, np.unique([*record.argmax(1), *record.argmin(1)])])
            taken.append(record[:, (tile % every) :: every])
        found = np.concatenate(taken, axis=1)
        if not found.size:
            raise SlideError(f"{self.canvas.slide.path}: too little tissue for the resolution of the model")
        if every > 1:
            most = np.concatenate(extremes, axis=1)
            most = most[:, np.unique([*most.argmax(1), *most.argmin(1)])]
            found = np.concatenate([found, most], axis=1)
        return torch.from_numpy(found)[None, :, None].to(self.canvas.device)

    def range_of(self, value: Callable[[Tensor], Tensor]) -> tuple[float, float]:
        """Least and greatest of `value(maps)` over the tissue of the slide."""
        low, high = np.inf, -np.inf
        for tile in self.canvas.tiles:
            found = value(self._tensor(self._record(tile)))[0, 0].cpu().numpy()
            found = found[(self._weights > 0) & (tissue_at(self.canvas, tile, self.cell) > 0.5)]
            if found.size:
                low, high = min(low, float(found.min())), max(high, float(found.max()))
        return (low, high) if low <= high else (0.0, 0.0)

    def window(self, left: int, top: int, width: int, height: int) -> Tensor:
        """Blended maps [1, K, height, width] of a rectangle of cells; 0 where no tile was."""
        grid, cell = self.canvas.grid, self.cell
        total: np.ndarray | None = None
        weight = np.zeros((height, width), np.float32)
        for tile in grid.touching(left * cell, top * cell, width * cell, height * cell):
            record = self._record(tile)
            if record is None:
                continue
            total = np.zeros((len(record), height, width), np.float32) if total is None else total
            x, y = (side // cell for side in grid.origin(tile))
            there, here = _overlap(x, left, len(self._weights), width), _overlap(left, x, width, len(self._weights))
            down, below = _overlap(y, top, len(self._weights), height), _overlap(top, y, height, len(self._weights))
            part = self._weights[down, there]
            total[:, below, here] += record[:, down, there] * part
            weight[below, here] += part
        if total is None:
            total = np.zeros((self._shape()[0], height, width), np.float32)
        return self._tensor(total / np.maximum(weight, 1e-6))

    def _shape(self) -> tuple[int, ...]:
        if self._cells is None:
            raise ValueError("this pass kept positions only")
        return self._cells.shape

    def _record(self, tile: int) -> np.ndarray | None:
        """Cells of a tile, from memory if it was looked at a moment ago; None: it has no tissue."""
        self._shape()
        if self._cells is None or not self._cells.done[tile]:
            return None
        if tile not in self._kept:
            self._kept[tile] = self._cells.read(tile)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return self._kept[tile]

    def _tensor(self, maps: np.ndarray | None) -> Tensor:
        if maps is None:
            raise ValueError("no such tile")
        return torch.from_numpy(maps)[None].to(self.canvas.device)


class SlideMapper:
    """Runs networks over the tissue tiles of a slide; reading goes on while the network works."""

    def __init__(self, canvas: Canvas):
        self.canvas = canvas
        self._passes: list[_PassFiles] = []

    def __enter__(self) -> "SlideMapper":
        return self

    def __exit__(self, *_: object) -> None:
        for files in self._passes:
            files.close()

    def maps(self, net: SlideNet, grid: Grid) -> StoredMaps:
        """Maps of the whole slide."""
        return self._run(net, grid, None, keep_cells=True)

    def positions(self, net: SlideNet, grid: Grid, seen: SlideMask | None = None) -> Tensor:
        """Maps at all positions [1, K, 1, N], for pooling; `net` sees the tiles masked by `seen`."""
        return self._run(net, grid, seen, keep_cells=False).positions

    @torch.inference_mode()
    def _run(self, net: SlideNet, grid: Grid, seen: SlideMask | None, *, keep_cells: bool) -> StoredMaps:
        canvas, cell = self.canvas, int(min(max(grid.stride, FINEST), COARSEST))
        number = len(self._passes) + 1
        files = _PassFiles(canvas, f"pass-{number}", keep_cells)
        self._passes.append(files)
        todo = [tile for tile in canvas.tiles if not files.has(tile)]
        for tile, pixels in self._read_ahead(canvas.track(todo, f"pass {number}"), todo):
            image = to_unit_range(torch.from_numpy(pixels).permute(2, 0, 1)[None].to(canvas.device))
            mask = image.new_ones(1, 1, 1, 1) if seen is None else mask_of_tile(canvas, seen, tile)
            cells, positions = _look(canvas, net, grid, cell, tile, image, mask)
            files.write(tile, cells, positions)
        return files.maps(cell)

    def _read_ahead(self, order: Iterable[int], todo: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        """Tiles with their pixels; a few of them are being read while one is worked on."""
        ahead: dict[int, Future[np.ndarray]] = {}
        upcoming = iter(todo)
        with ThreadPoolExecutor(self.canvas.readers) as pool:
            for tile in order:
                while len(ahead) < 2 * self.canvas.readers and (following := next(upcoming, None)) is not None:
                    ahead[following] = pool.submit(self._read, following)
                yield tile, ahead.pop(tile).result()

    def _read(self, tile: int) -> np.ndarray:
        grid = self.canvas.grid
        return self.canvas.slide.read(grid.region(tile), (grid.tile, grid.tile), grid.scale)


class _PassFiles:
    """The records of one pass; their shapes are known once the first tile is done, and kept for going on later."""

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
        count = self.canvas.grid.rows * self.canvas.grid.columns
        names = ["cells", "positions"][-len(shapes) :]
        self._files = [
            RecordFile(self._base.with_suffix(f".{name}"), count, tuple(shape))
            for name, shape in zip(names, shapes, strict=True)
        ]


def _look(
    canvas: Canvas, net: SlideNet, grid: Grid, cell: int, tile: int, image: Tensor, mask: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Cells [K, n, n] and positions [K, P] of one tile; positions that do not count are NaN."""
    flips = FLIPS if canvas.flips else FLIPS[:1]
    side = canvas.grid.tile // cell
    cells, positions = [], []
    for axes in flips:
        maps = net(image.flip(axes), mask.flip(axes)).float()
        cells.append(to_cells(maps, grid, cell, side).flip(axes))
        counted = torch.from_numpy(_counted(canvas, tile, grid, maps.shape[2:])).flip([axis - 2 for axis in axes])
        counted = counted.to(maps.device)
        positions.append(torch.where(counted, maps[0], torch.nan).flatten(1))
    return torch.stack(cells).mean(0)[0].cpu().numpy(), torch.cat(positions, dim=1).cpu().numpy()


def to_cells(maps: Tensor, grid: Grid, cell: int, side: int) -> Tensor:
    """Maps at the centres of cells of `cell` pixels [B, K, side, side]."""
    if grid.stride < cell:
        return F.avg_pool2d(maps, round(cell / grid.stride))[..., :side, :side]
    centre = (cell - 1) / 2
    return enlarge(maps, (side, side), Grid(grid.stride / cell, (grid.offset - centre) / cell))


def mask_of_tile(canvas: Canvas, mask: SlideMask, tile: int) -> Tensor:
    """The soft mask [1, 1, T, T] of a tile, as the whole slide has it."""
    maps = mask.maps
    if not isinstance(maps, StoredMaps):
        raise TypeError("masks of slides are made from stored maps")
    x, y = (side // maps.cell for side in canvas.grid.origin(tile))
    side = canvas.grid.tile // maps.cell
    soft = mask.soft(maps.window(x, y, side, side))
    soft = soft * torch.from_numpy(tissue_at(canvas, tile, maps.cell)).to(soft)
    return F.interpolate(soft, scale_factor=maps.cell, mode="bilinear", align_corners=False)


def tissue_at(canvas: Canvas, tile: int, cell: int) -> np.ndarray:
    """How much each cell of a tile lies on tissue [n, n] in [0, 1], without steps."""
    left, top = canvas.grid.origin(tile)
    side = canvas.grid.tile // cell
    return canvas.tissue.soft(*(_centres(start, cell, side) * canvas.grid.scale for start in (left, top)))


def _counted(canvas: Canvas, tile: int, grid: Grid, shape: Sequence[int]) -> np.ndarray:
    """Which positions [h, w] of a tile look at tissue within its core; what lies there may be anything, in any flip."""
    overlap, scale = canvas.grid.overlap // 2, canvas.grid.scale
    centre = (canvas.grid.tile - shape[1] * grid.stride) / 2  # symmetric, so that flips count the same places
    within = np.arange(shape[1]) * grid.stride + grid.stride / 2 + centre
    in_core = (within >= overlap) & (within < overlap + canvas.grid.step)
    left, top = canvas.grid.origin(tile)
    tissue = canvas.tissue.soft((within + left) * scale, (within[: shape[0]] + top) * scale) > 0.5
    return tissue & in_core[:, None] & in_core[None]


def _centres(start: int, cell: int, count: int) -> np.ndarray:
    return start + (np.arange(count) + 0.5) * cell


def _overlap(start: int, other: int, length: int, other_length: int) -> slice:
    """The part of [start, start + length) that lies in the other interval, counted from `start`."""
    return slice(max(0, other - start), max(0, min(length, other + other_length - start)))
