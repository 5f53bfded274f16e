"""Overlapping tiles over a slide, which of them hold tissue, and how neighbours are blended."""

from dataclasses import dataclass

import numpy as np

from histolumen.errors import ConfigError
from histolumen.slides.reader import Region
from histolumen.slides.tissue import Tissue

GRID = 32  # tiles start on multiples of the coarsest feature stride, so that features of neighbours fall together


@dataclass(frozen=True)
class TileGrid:
    """Square tiles in working pixels, the pixels that the network sees.

    Each tile has a core, and the cores cover the slide once; around the core lies half of the overlap. `shift` moves
    the whole grid to the left and up.
    """

    width: int
    height: int
    scale: float
    """Level-0 pixels per working pixel."""
    tile: int = 1024
    overlap: int = 192
    shift: int = 0

    def __post_init__(self) -> None:
        if self.tile % GRID or self.overlap % (2 * GRID) or self.shift % GRID:
            raise ConfigError(f"--tile must be a multiple of {GRID} and --overlap one of {2 * GRID} pixels")
        if not 0 < 2 * self.overlap <= self.tile:
            raise ConfigError(f"--overlap {self.overlap} must be above 0 and at most half of --tile {self.tile}")

    @property
    def step(self) -> int:
        """Side of a core, and distance from tile to tile."""
        return self.tile - self.overlap

    @property
    def columns(self) -> int:
        """Tiles side by side."""
        return -(-(self.width + self.shift) // self.step)

    @property
    def rows(self) -> int:
        """Tiles one below the other."""
        return -(-(self.height + self.shift) // self.step)

    def origin(self, index: int) -> tuple[int, int]:
        """Left and top of a tile in working pixels; may be negative."""
        row, column = divmod(index, self.columns)
        start = -self.overlap // 2 - self.shift
        return start + column * self.step, start + row * self.step

    def region(self, index: int) -> Region:
        """The tile in level-0 pixels."""
        left, top = self.origin(index)
        return Region(left * self.scale, top * self.scale, self.tile * self.scale, self.tile * self.scale)

    def core(self, index: int) -> Region:
        """The tile's core in level-0 pixels."""
        left, top = (side + self.overlap // 2 for side in self.origin(index))
        return Region(left * self.scale, top * self.scale, self.step * self.scale, self.step * self.scale)

    def with_tissue(self, tissue: Tissue) -> list[int]:
        """Indices of the tiles whose core has any tissue."""
        return [index for index in range(self.rows * self.columns) if tissue.touches(self.core(index))]

    def touching(self, left: int, top: int, width: int, height: int) -> list[int]:
        """Indices of the tiles that touch a rectangle of working pixels."""
        rows = self._span(top, height, self.rows)
        columns = self._span(left, width, self.columns)
        return [row * self.columns + column for row in rows for column in columns]

    def weights(self, cell: int) -> np.ndarray:
        """Weight [n, n] of a tile's cells of `cell` pixels in the mean of overlapping tiles.

        0 near the rim, where the network saw too little around; then a ramp; weights of two neighbours add up to 1.
        """
        from_rim = np.arange(self.tile // cell) * cell + cell / 2
        from_rim = np.minimum(from_rim, self.tile - from_rim)
        rim = self.overlap / 4
        ramp = ((from_rim - rim) / (self.overlap - 2 * rim)).clip(0, 1).astype(np.float32)
        return np.outer(ramp, ramp)

    def _span(self, start: int, length: int, count: int) -> range:
        begin = start + self.overlap // 2 + self.shift  # distance from the first tile's start
        first = max(0, -(-(begin - self.tile + 1) // self.step))
        last = min(count - 1, (begin + length - 1) // self.step)
        return range(first, last + 1)
