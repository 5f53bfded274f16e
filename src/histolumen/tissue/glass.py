"""Bare glass in an image: white fields that reach the border; a white field enclosed by tissue is a lumen.

Both look alike, so the position decides: glass beside the tissue leaves the image over a long stretch of its border, a
lumen is enclosed or is cut by the border once.
"""

import numpy as np
from PIL import Image
from scipy import ndimage
from skimage import measure

_SIDE = 432  # short side, in pixels, to which pictures are reduced first; the sizes below refer to it
_BRIGHT = 238  # of the brightest channel
_COLOURLESS = 0.07  # largest saturation
_SMOOTHING, _OPENING = 5, 2  # pixels: specks and thin gaps in tissue are not fields
_BORDER_SHARE = 0.12  # of the border of the image; lumens that the border cuts have less
_ALWAYS_GLASS = 0.2  # share of the image; a larger field at the border is never a lumen


def white_fields(picture: np.ndarray) -> np.ndarray:
    """Bright, colourless, smooth pixels: glass, lumens and gaps.

    Args:
        picture: RGB [H, W, 3] uint8.

    Returns:
        [H, W] bool.
    """
    return _to_size(_white(_reduced(picture)), picture.shape[:2])


def find_glass(picture: np.ndarray) -> np.ndarray:
    """Glass beside the tissue [H, W] bool: white fields that leave the image over a long stretch of its border."""
    glass = open_fields(_white(_reduced(picture)))
    widened = np.asarray(ndimage.binary_dilation(glass, iterations=_SMOOTHING // 2 + 1))  # smoothing blurred its rim
    return _to_size(widened, picture.shape[:2])


def open_fields(white: np.ndarray) -> np.ndarray:
    """The connected fields of a mask that leave the image over a long stretch of its border."""
    fields = np.asarray(measure.label(white, connectivity=1))
    count = int(fields.max())
    edge = np.concatenate([fields[0], fields[-1], fields[1:-1, 0], fields[1:-1, -1]])
    border_share = np.bincount(edge, minlength=count + 1) / edge.size
    area = np.bincount(fields.ravel(), minlength=count + 1) / fields.size
    is_glass = (border_share >= _BORDER_SHARE) | ((border_share > 0) & (area >= _ALWAYS_GLASS))
    is_glass[0] = False  # everything that is not white
    return is_glass[fields]


def _white(reduced: np.ndarray) -> np.ndarray:
    channels = np.moveaxis(reduced.astype(np.float32), 2, 0)
    smooth = np.stack([ndimage.uniform_filter(channel, _SMOOTHING) for channel in channels])
    brightest, darkest = smooth.max(0), smooth.min(0)
    white = (brightest > _BRIGHT) & (darkest > (1 - _COLOURLESS) * brightest)
    padded = np.pad(white, _OPENING, mode="edge")  # the outside of the image is like its border
    opened = np.asarray(ndimage.binary_opening(padded, iterations=_OPENING))
    return opened[_OPENING:-_OPENING, _OPENING:-_OPENING]


def _reduced(picture: np.ndarray) -> np.ndarray:
    height, width = picture.shape[:2]
    scale = _SIDE / min(height, width)
    if scale >= 1:
        return picture
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BOX))


def _to_size(mask: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    if mask.shape == size[:2]:
        return mask
    return np.asarray(Image.fromarray(mask).resize((size[1], size[0]), Image.Resampling.NEAREST))
