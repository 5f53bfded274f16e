"""Sliding-window inference for images of any size in bounded memory."""

import math
from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from histolumen.encoders.backbone import Backbone
from histolumen.methods.base import MapRunner, at_once

WHOLE_PIXELS = 1280 * 1280  # images up to this size are predicted at once
WINDOW = 640  # larger ones cost more per pixel, because features leave the processor's cache
_OVERLAP = 1 / 10  # of a window: seams change 0.9 % of the pixels, more overlap as many (docs/performance.md)


def runner_for(backbone: Backbone, height: int, width: int) -> MapRunner:
    """The runner for images of this size: attention is quadratic in the number of positions, so that transformers use
    windows for smaller images already."""
    return map_runner(
        height, width, whole_pixels=whole_pixels(backbone), grid=math.lcm(backbone.size_multiple, backbone.stride)
    )


def whole_pixels(backbone: Backbone) -> int:
    """Number of pixels up to which an image is predicted at once."""
    return WINDOW**2 if backbone.single_stride else WHOLE_PIXELS


def map_runner(
    height: int, width: int, whole_pixels: int = WHOLE_PIXELS, window: int = WINDOW, grid: int = 32
) -> MapRunner:
    """Return a function that applies a network at once or, to large images, in blended windows.

    Args:
        height: image height.
        width: image width.
        whole_pixels: number of pixels up to which an image is predicted at once.
        window: side of a window, rounded down to a multiple of `grid`.
        grid: common multiple of the network's stride and of its permitted input sizes.
    """
    if height * width <= whole_pixels:
        return at_once

    def windowed(net: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        from monai.inferers.utils import sliding_window_inference  # noqa: PLC0415 - slow to import, rarely needed

        # Windows start at multiples of the stride: otherwise maps would shift or lose a column when stitched.
        height, width = images.shape[2:]
        padded = F.pad(images, (0, -width % grid, 0, -height % grid), mode="replicate")
        side_of_window = max(window - window % grid, grid)
        step = max(int((1 - _OVERLAP) * side_of_window) // grid * grid, grid)
        maps = sliding_window_inference(
            padded,
            [min(side_of_window, side) for side in padded.shape[2:]],
            sw_batch_size=1,
            predictor=net,
            overlap=max(1 - (step + 0.5) / side_of_window, 0.0),  # + 0.5: MONAI rounds the step down
            mode="gaussian",
            padding_mode="reflect",
        )
        if not isinstance(maps, Tensor):
            raise TypeError("a map network must return one tensor")
        stride = padded.shape[2] // maps.shape[2]
        return maps[..., : -(-height // stride), : -(-width // stride)]

    return windowed
