"""Running a fully convolutional network over images of any size in bounded memory."""

from collections.abc import Callable

from monai.inferers.utils import sliding_window_inference
from torch import Tensor
from torch.nn import functional as F

from histolumen.methods.base import MapRunner, at_once

WHOLE_PIXELS = 2048 * 2048  # images up to this size go through the network at once
WINDOW = 1024
_OVERLAP = 0.25
_GRID = 32  # a multiple of every output stride


def map_runner(height: int, width: int, whole_pixels: int = WHOLE_PIXELS, window: int = WINDOW) -> MapRunner:
    """How maps of an image of this size are made: at once, or window by window with seams blended."""
    if height * width <= whole_pixels:
        return at_once

    def windowed(net: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        # On a grid of whole features windows neither drift nor lose a column where they are put together.
        height, width = images.shape[2:]
        padded = F.pad(images, (0, -width % _GRID, 0, -height % _GRID), mode="replicate")
        sides = [min(window, side) for side in padded.shape[2:]]
        maps = sliding_window_inference(
            padded, sides, sw_batch_size=1, predictor=net, overlap=_OVERLAP, mode="gaussian", padding_mode="reflect"
        )
        if not isinstance(maps, Tensor):
            raise TypeError("a map network gives one tensor")
        stride = padded.shape[2] // maps.shape[2]
        return maps[..., : -(-height // stride), : -(-width // stride)]

    return windowed
