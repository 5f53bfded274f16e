"""Layout of overlapping tiles on a slide, and the weights that blend them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from histolumen.errors import ConfigError
from histolumen.slides.reader import Region

FINEST, COARSEST = 4, 8  # limits of the cell of stored maps, in working pixels


@dataclass(frozen=True)
class TileLayout:
    """Square tiles in working pixels, the pixels of the network input.

    The cores of the tiles cover the slide exactly once; each is surrounded by half of the overlap. `shift` moves the
    grid left and up.
    """

    width: int
    height: int
    scale: float
    """Level-0 pixels per working pixel."""
    tile: int = 1024
    overlap: int = 192
    shift: int = 0
    multiple: int = 32
    """Common multiple of the network's stride and valid input sizes. Tiles start at multiples of it, so that feature
    grids of neighbours coincide."""

    def __post_init__(self) -> None:
        if self.tile % self.multiple or self.overlap % (2 * self.multiple) or self.shift % self.multiple:
            raise ConfigError(
                f"--tile must be a multiple of {self.multiple} and --overlap one of {2 * self.multiple} pixels"
            )
        if not 0 < 2 * self.overlap <= self.tile:
            raise ConfigError(f"--overlap {self.overlap} must be above 0 and at most half of --tile {self.tile}")

    @classmethod
    def fitting(
        cls, width: int, height: int, scale: float, tile: int, overlap: int, shift: int, multiple: int
    ) -> "TileLayout":
        """A layout whose tile, overlap and shift are rounded up to valid sizes."""
        tile, overlap, shift = (
            -(-length // unit) * unit for length, unit in ((tile, multiple), (overlap, 2 * multiple), (shift, multiple))
        )
        return cls(width, height, scale, max(tile, 2 * overlap), overlap, shift, multiple)

    def cell(self, stride: float) -> int:
        """Working pixels per cell of stored maps of this stride: a divisor of `multiple`, from 4 to 8 if possible."""
        divisors = [cell for cell in range(1, self.multiple + 1) if self.multiple % cell == 0]
        usual = [cell for cell in divisors if FINEST <= cell <= COARSEST]
        fine = [cell for cell in usual if cell <= max(stride, FINEST)]
        return max(fine) if fine else min(usual or [cell for cell in divisors if cell >= FINEST] or divisors[-1:])

    @property
    def step(self) -> int:
        """Side of a core, and distance between tiles."""
        return self.tile - self.overlap

    @property
    def columns(self) -> int:
        """Number of tile columns."""
        return -(-(self.width + self.shift) // self.step)

    @property
    def rows(self) -> int:
        """Number of tile rows."""
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

    def where(self, wanted: Callable[[Region], bool]) -> list[int]:
        """Indices of the tiles for whose core, in level-0 pixels, `wanted` is true."""
        return [index for index in range(self.rows * self.columns) if wanted(self.core(index))]

    def touching(self, left: int, top: int, width: int, height: int) -> list[int]:
        """Indices of the tiles that overlap a rectangle in working pixels."""
        rows = self._span(top, height, self.rows)
        columns = self._span(left, width, self.columns)
        return [row * self.columns + column for row in rows for column in columns]

    def weights(self, cell: int) -> np.ndarray:
        """Blending weights [n, n] of a tile's cells of `cell` pixels.

        0 near the edge, where the network lacks context, then a linear ramp; the weights of neighbours add up to 1.
        """
        edge_distance = np.arange(self.tile // cell) * cell + cell / 2
        edge_distance = np.minimum(edge_distance, self.tile - edge_distance)
        zero_width = self.overlap / 4
        ramp = ((edge_distance - zero_width) / (self.overlap - 2 * zero_width)).clip(0, 1).astype(np.float32)
        return np.outer(ramp, ramp)

    def _span(self, start: int, length: int, count: int) -> range:
        begin = start + self.overlap // 2 + self.shift  # distance from the first tile's start
        first = max(0, -(-(begin - self.tile + 1) // self.step))
        last = min(count - 1, (begin + length - 1) // self.step)
        return range(first, last + 1)
