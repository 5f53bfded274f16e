"""The input of a prediction inside a traced graph."""

import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen.deploy.resizing import padded_to, sides
from histolumen.encoders.geometry import FeatureGeometry, interpolation
from histolumen.methods.view import ImageMaps, ImageView, MapNet, Mask, Masking, Pointwise


class GraphMaps(ImageMaps):
    """Maps that are enlarged to a size which the graph computes."""

    def enlarged(self, value: Pointwise) -> Tensor:
        if value not in self._enlarged:
            self._enlarged[value] = _enlarge(value(self.positions), self._size, self._geometry)
        return self._enlarged[value]


class GraphView(ImageView):
    """A batch of normalised images [B, 3, H, W] of any height and width."""

    def maps(
        self,
        net: MapNet,
        geometry: FeatureGeometry,
        seen: Mask | None = None,
        scale: float = 1.0,
        masking: Masking = torch.mul,
    ) -> GraphMaps:
        pixels = self.pixels if seen is None else masking(self.pixels, self.render(seen))
        return GraphMaps(net(_resized(pixels, scale)), geometry.scaled(1 / scale), self._size)


def _enlarge(maps: Tensor, size: tuple[int, int], geometry: FeatureGeometry) -> Tensor:
    """`encoders.geometry.enlarge` without decisions that depend on the size of the traced image."""
    if geometry.corner_to_corner:
        return F.interpolate(maps, size=size, mode="bilinear", align_corners=True)
    if geometry == FeatureGeometry.of_cells(1):  # pixel by pixel
        return padded_to(maps, (torch.as_tensor(size[0]), torch.as_tensor(size[1])))
    down, across = (
        interpolation(full, small, geometry, maps) for full, small in zip(size, maps.shape[2:], strict=True)
    )
    return down @ maps @ across.T


def _resized(images: Tensor, scale: float) -> Tensor:
    """`methods.view.resized` for a size that the graph computes."""
    if scale == 1:
        return images
    height, width = ((side * scale).round().clamp(min=1).long() for side in sides(images))
    return F.interpolate(images, size=(height, width), mode="bilinear", align_corners=False)  # pyright: ignore[reportArgumentType] - traced sizes
