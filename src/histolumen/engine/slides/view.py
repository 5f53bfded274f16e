"""`View` of a slide: runs networks over its tissue tile by tile while threads prepare the next tiles."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen.encoders.geometry import FLIPS, FeatureGeometry, enlarge
from histolumen.engine.slides.ahead import prepared_ahead
from histolumen.engine.slides.maps import Canvas, PassFiles, StoredMaps, clear_glass, mask_of_tile
from histolumen.lanes import lanes_for, stream
from histolumen.methods.base import Method
from histolumen.methods.view import MapNet, Mask, Masking, resized
from histolumen.slides.store import KeptPixels

_KEPT_BYTES = 2**29  # on disk; 170 tiles of 1024 pixels
TILES_AT_ONCE = 2
"""Tiles that the network sees at the same time on a CPU; each holds its activations in memory."""
_POOLED_STRIDE = 8  # pixels between pooled positions; class maps are coarser, and repeated beside finer maps


class SlideView:
    """A `View` of one slide that stores the maps of the networks on disk."""

    count = 1

    def __init__(
        self,
        canvas: Canvas,
        method: Method,
        remove_glass: bool = False,
        on_mask: Callable[[Mask], object] | None = None,
    ):
        """`on_mask` receives the mask of each masked pass before the pass starts."""
        self.canvas, self._remove_glass, self._on_mask = canvas, remove_glass, on_mask
        scaling = method.backbone.mean, method.backbone.std
        self._mean, self._std = (np.tile(value.flatten().cpu().numpy(), canvas.layout.tile) for value in scaling)
        self._passes: list[PassFiles] = []
        self._kept = KeptPixels(canvas.work, _KEPT_BYTES if method.masks_pixels else 0)

    def __enter__(self) -> "SlideView":
        return self

    def __exit__(self, *_: object) -> None:
        for files in self._passes:
            files.close()
        self._kept.close()

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

        def prepare(tile: int) -> tuple[Tensor, Tensor | None]:
            return self._prepare(tile, seen, keep=keep_cells)

        def run(prepared: tuple[int, tuple[Tensor, Tensor | None]]) -> tuple[int, tuple[np.ndarray, np.ndarray]]:
            tile, (X, mask) = prepared
            masked = X if mask is None else masking(X, _enlarged(mask, canvas.layout.tile))
            return tile, _run_tile(canvas, lambda x: net(resized(x, scale)), geometry, cell, tile, masked)

        lanes = lanes_for(TILES_AT_ONCE, canvas.device)
        results = stream(run, prepared_ahead(todo, prepare, canvas.readers), lanes)
        for _, (tile, records) in zip(tracked, results, strict=True):
            files.write(tile, *records)
        return files.maps(cell)

    @torch.inference_mode()
    def _prepare(self, tile: int, seen: Mask | None, *, keep: bool) -> tuple[Tensor, Tensor | None]:
        """X of a tile, and the mask of what was `seen` [1, 1, n, n].

        Large arrays are left to numpy here, and tensors to the thread of the network: see `prepared_ahead`.
        """
        canvas, side = self.canvas, self.canvas.layout.tile
        pixels = self._kept.get(tile, side)
        if pixels is None:
            pixels = canvas.slide.read(canvas.layout.region(tile), (side, side), canvas.layout.scale)
            if keep:
                self._kept.keep(tile, pixels)
        X = self._normalised(pixels)
        if self._remove_glass:  # 0 is the mean colour, as for images
            clear_glass(canvas, tile, X)
        image = torch.from_numpy(X).permute(2, 0, 1)[None].to(canvas.device)
        return image, None if seen is None else mask_of_tile(canvas, seen, tile)

    def _normalised(self, pixels: np.ndarray) -> np.ndarray:
        """As `Backbone.normalise`, to the last bit. Rows as long vectors: numpy is slow on a last axis of three."""
        rows = pixels.reshape(len(pixels), -1) / np.float32(255)
        rows -= self._mean
        rows /= self._std
        return rows.reshape(pixels.shape)


def _enlarged(mask: Tensor, side: int) -> Tensor:
    return F.interpolate(mask, size=(side, side), mode="bilinear", align_corners=False)


def _run_tile(
    canvas: Canvas, net: MapNet, geometry: FeatureGeometry, cell: int, tile: int, X: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Run the network on one tile; return cells [K, n, n] and positions [K, P], NaN where not used for pooling."""
    flips = FLIPS if canvas.flips else FLIPS[:1]
    side = canvas.layout.tile // cell
    every = max(1, int(_POOLED_STRIDE / geometry.stride))
    cells, positions = [], []
    for axes in flips:
        maps = net(X.flip(axes)).float()
        cells.append(to_cells(maps, geometry, cell, side).flip(axes))
        pooled = torch.from_numpy(_pooled_positions(canvas, tile, geometry, maps.shape[2:]))
        pooled = pooled.flip([axis - 2 for axis in axes]).to(maps.device)
        kept = torch.where(pooled, maps[0], torch.nan)[:, every // 2 :: every, every // 2 :: every]
        positions.append(kept.flatten(1))
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
    margin = (layout.tile - shape[1] * stride) / 2  # symmetric, so that all flips cover the same pixels
    within = np.arange(shape[1]) * stride + stride / 2 + margin
    in_core = (within >= overlap) & (within < overlap + layout.step)
    left, top = layout.origin(tile)
    tissue = canvas.tissue.soft((within + left) * layout.scale, (within[: shape[0]] + top) * layout.scale) > 0.5
    return tissue & in_core[:, None] & in_core[None]
