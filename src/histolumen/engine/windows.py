"""Sliding-window inference for images of any size in bounded memory."""

import math
from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from histolumen.encoders.backbone import Backbone
from histolumen.methods.base import MapRunner, at_once

WHOLE_PIXELS = 1280 * 1280  # images up to this size are predicted at once
WINDOW = 704  # larger ones cost more per pixel, because features leave the processor's cache
_OVERLAP = 64  # pixels, rounded up to the grid: with more, as many pixels change at the seams (docs/performance.md)
_MOST_ATTENDED = 640 * 640  # pixels that a vision transformer sees at once: attention is quadratic


def runner_for(backbone: Backbone, height: int, width: int) -> MapRunner:
    """The runner for images of this size: attention is quadratic in the number of positions, so that transformers use
    windows for smaller images already."""
    return map_runner(
        height, width, whole_pixels=whole_pixels(backbone), grid=math.lcm(backbone.size_multiple, backbone.stride)
    )


def whole_pixels(backbone: Backbone) -> int:
    """Number of pixels up to which an image is predicted at once."""
    return _MOST_ATTENDED if backbone.single_stride else WHOLE_PIXELS


def map_runner(
    height: int, width: int, whole_pixels: int = WHOLE_PIXELS, window: int = WINDOW, grid: int = 32
) -> MapRunner:
    """Return a function that applies a network at once or, to large images, in blended windows.

    Args:
        height: image height.
        width: image width.
        whole_pixels: number of pixels up to which an image is predicted at once.
        window: largest side of a window; windows are as large as divides an image evenly, in multiples of `grid`.
        grid: common multiple of the network's stride and of its permitted input sizes.
    """
    if height * width <= whole_pixels:
        return at_once

    def windowed(net: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        from monai.inferers.utils import sliding_window_inference  # noqa: PLC0415 - slow to import, rarely needed

        # Windows start at multiples of the stride: otherwise maps would shift or lose a column when stitched.
        height, width = images.shape[2:]
        padded = F.pad(images, (0, -width % grid, 0, -height % grid), mode="replicate")
        cuts = [_even_windows(side, window, grid) for side in padded.shape[2:]]
        maps = sliding_window_inference(
            padded,
            [side for side, _ in cuts],
            sw_batch_size=1,
            predictor=net,
            overlap=[max(1 - (step + 0.5) / side, 0.0) for side, step in cuts],  # + 0.5: MONAI rounds the step down
            mode="gaussian",
            padding_mode="reflect",
        )
        if not isinstance(maps, Tensor):
            raise TypeError("a map network must return one tensor")
        stride = padded.shape[2] // maps.shape[2]
        return maps[..., : -(-height // stride), : -(-width // stride)]

    return windowed


def _even_windows(length: int, largest: int, grid: int) -> tuple[int, int]:
    """Side of a window and step to the next: the fewest windows, none of which is larger than needed.

    Args:
        length: of the image, a multiple of `grid`.
        largest: side of a window.
        grid: both results are multiples of it.
    """
    largest = max(largest - largest % grid, grid)
    if length <= largest:
        return length, length
    overlap = min(grid * math.ceil(_OVERLAP / grid), largest - grid)
    count = math.ceil((length - overlap) / (largest - overlap))
    side = grid * math.ceil((length + (count - 1) * overlap) / count / grid)
    return side, side - overlap
