"""`View` of a slide: runs networks over its tissue tile by tile while threads prepare the next tiles."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen.data.transforms import to_unit_range
from histolumen.encoders.geometry import FLIPS, FeatureGeometry, enlarge
from histolumen.engine.slides.maps import Canvas, PassFiles, StoredMaps, mask_of_tile, tissue_of_tile
from histolumen.methods.view import MapNet, Mask, Masking, resized


class SlideView:
    """A `View` of one slide that stores the maps of the networks on disk."""

    count = 1

    def __init__(
        self,
        canvas: Canvas,
        normalise: Callable[[Tensor], Tensor],
        remove_glass: bool = False,
        on_mask: Callable[[Mask], None] | None = None,
    ):
        """`on_mask` receives the mask of each masked pass before the pass starts."""
        self.canvas, self._normalise, self._remove_glass = canvas, normalise, remove_glass
        self._on_mask = on_mask
        self._passes: list[PassFiles] = []

    def __enter__(self) -> "SlideView":
        return self

    def __exit__(self, *_: object) -> None:
        for files in self._passes:
            files.close()

    @property
    def at_once(self) -> bool:
        return False

    def maps(
        self,
        net: MapNet,
        geometry: FeatureGeometry,
        seen: Mask | None = None,
        scale: float = 1.0,
        masking: Masking = torch.mul,
    ) -> StoredMaps:
        return self._run(net, geometry, seen, scale, masking, keep_cells=True)

    def positions(
        self,
        net: MapNet,
        geometry: FeatureGeometry,
        seen: Mask | None = None,
        scale: float = 1.0,
        masking: Masking = torch.mul,
    ) -> Tensor:
        return self._run(net, geometry, seen, scale, masking, keep_cells=False).positions

    @torch.inference_mode()
    def _run(
        self,
        net: MapNet,
        geometry: FeatureGeometry,
        seen: Mask | None,
        scale: float,
        masking: Masking,
        *,
        keep_cells: bool,
    ) -> StoredMaps:
        canvas, geometry = self.canvas, geometry.scaled(1 / scale)
        number = len(self._passes) + 1
        files = PassFiles(canvas, f"pass-{number}", keep_cells)
        self._passes.append(files)
        cell = canvas.layout.cell(geometry.stride)
        todo = [tile for tile in canvas.tiles if not files.has(tile)]
        if seen is not None and self._on_mask is not None and todo:
            self._on_mask(seen)
        tracked = canvas.progress.track(todo, f"{canvas.slide.path.stem}, pass {number}")

        def prepare(tile: int) -> Tensor:
            return self._prepare(tile, seen, masking)

        for tile, X in self._ahead(tracked, todo, prepare):
            files.write(tile, *_run_tile(canvas, lambda x: net(resized(x, scale)), geometry, cell, tile, X))
        return files.maps(cell)

    def _ahead(
        self, order: Iterable[int], todo: Sequence[int], prepare: Callable[[int], Tensor]
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield tiles with the input of the network; threads prepare the next few tiles in advance."""
        ahead: dict[int, Future[Tensor]] = {}
        upcoming = iter(todo)
        with ThreadPoolExecutor(self.canvas.readers) as pool:
            for tile in order:
                while len(ahead) < 2 * self.canvas.readers and (next_tile := next(upcoming, None)) is not None:
                    ahead[next_tile] = pool.submit(prepare, next_tile)
                yield tile, ahead.pop(tile).result()

    @torch.inference_mode()
    def _prepare(self, tile: int, seen: Mask | None, masking: Masking) -> Tensor:
        """Read a tile: X, or X masked by what was `seen`."""
        canvas, layout = self.canvas, self.canvas.layout
        pixels = canvas.slide.read(layout.region(tile), (layout.tile, layout.tile), layout.scale)
        image = to_unit_range(torch.from_numpy(pixels).permute(2, 0, 1)[None].to(canvas.device))
        X = self._normalise(image)
        if self._remove_glass:  # 0 is the mean colour, as for images
            X = X * tissue_of_tile(canvas, tile).to(X)
        return X if seen is None else masking(X, mask_of_tile(canvas, seen, tile))


def _run_tile(
    canvas: Canvas, net: MapNet, geometry: FeatureGeometry, cell: int, tile: int, X: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Run the network on one tile; return cells [K, n, n] and positions [K, P], NaN where not used for pooling."""
    flips = FLIPS if canvas.flips else FLIPS[:1]
    side = canvas.layout.tile // cell
    cells, positions = [], []
    for axes in flips:
        maps = net(X.flip(axes)).float()
        cells.append(to_cells(maps, geometry, cell, side).flip(axes))
        pooled = torch.from_numpy(_pooled_positions(canvas, tile, geometry, maps.shape[2:]))
        pooled = pooled.flip([axis - 2 for axis in axes]).to(maps.device)
        positions.append(torch.where(pooled, maps[0], torch.nan).flatten(1))
    return torch.stack(cells).mean(0)[0].cpu().numpy(), torch.cat(positions, dim=1).cpu().numpy()


def to_cells(maps: Tensor, geometry: FeatureGeometry, cell: int, side: int) -> Tensor:
    """Resample maps to the centres of cells of `cell` pixels, [B, K, side, side]."""
    if geometry.stride < cell:
        return F.avg_pool2d(maps, round(cell / geometry.stride))[..., :side, :side]
    centre = (cell - 1) / 2
    return enlarge(maps, (side, side), FeatureGeometry(geometry.stride / cell, (geometry.offset - centre) / cell))


def _pooled_positions(canvas: Canvas, tile: int, geometry: FeatureGeometry, shape: Sequence[int]) -> np.ndarray:
    """Which positions [h, w] of a tile are pooled: those on tissue in its core; the border is left to neighbours."""
    layout, stride = canvas.layout, geometry.stride
    overlap = layout.overlap // 2
    margin = (layout.tile - shape[1] * stride) / 2  # symmetric, so that all flips pool the same pixels
    within = np.arange(shape[1]) * stride + stride / 2 + margin
    in_core = (within >= overlap) & (within < overlap + layout.step)
    left, top = layout.origin(tile)
    tissue = canvas.tissue.soft((within + left) * layout.scale, (within[: shape[0]] + top) * layout.scale) > 0.5
    return tissue & in_core[:, None] & in_core[None]
