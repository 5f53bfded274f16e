"""Bare glass in an image: white fields beside the tissue; a white field that tissue encloses is a lumen.

Both look alike, so their surroundings decide. Glass leaves the image over a long stretch of its border; a lumen is
enclosed, or is cut by the border once. Of the fields in between, a lumen is lined by epithelium, whose nuclei take up
more haematoxylin than the rest of the tissue; the edge of a section has no such lining.
"""

import functools

import numpy as np
from PIL import Image

from histolumen.components import label_regions
from histolumen.neighbours import dilated, eroded

_SIDE = 432  # short side, in pixels, to which pictures are reduced first; the sizes below refer to it
_BRIGHT = 238  # of the brightest channel
_COLOURLESS = 0.07  # largest saturation
_SMOOTHING, _OPENING = 5, 2  # pixels: specks and thin gaps in tissue are not fields
_BORDER_SHARE = 0.12  # of the border of the image; lumens that the border cuts have less
_ALWAYS_GLASS = 0.2  # share of the image; a larger field at the border is never a lumen
_RIM = 12, 25  # pixels from a field: its lining, beyond the blurred edge
_LINED = 0.1  # haematoxylin of a lining above the mean of the tissue, in standard deviations


def white_fields(picture: np.ndarray) -> np.ndarray:
    """Bright, colourless, smooth pixels: glass, lumens and gaps.

    Args:
        picture: RGB [H, W, 3] uint8.

    Returns:
        [H, W] bool.
    """
    return _to_size(_white(_reduced(picture)), picture.shape[:2])


def find_glass(picture: np.ndarray) -> np.ndarray:
    """Glass beside the tissue [H, W] bool, for a picture as in `white_fields`."""
    reduced = _reduced(picture)
    white = _white(reduced)
    fields = open_fields(white) if white.any() else []
    if not fields:  # most images
        return np.zeros(picture.shape[:2], bool)
    glass = np.zeros_like(white)
    for field in fields:
        if field.mean() >= _ALWAYS_GLASS or not _is_lined(field, white, reduced):
            glass |= field
    widened = dilated(glass, _SMOOTHING // 2 + 1)  # smoothing blurred its rim
    return _to_size(widened, picture.shape[:2])


def open_fields(white: np.ndarray) -> list[np.ndarray]:
    """The connected fields [H, W] of a mask that leave the image over a long stretch of its border."""
    fields, found = label_regions(white)
    count = found + 1
    edge = np.concatenate([fields[0], fields[-1], fields[1:-1, 0], fields[1:-1, -1]])
    border_share = np.bincount(edge, minlength=count) / edge.size
    area = np.bincount(fields.ravel(), minlength=count) / fields.size
    is_open = (border_share >= _BORDER_SHARE) | ((border_share > 0) & (area >= _ALWAYS_GLASS))
    return [fields == number for number in range(1, count) if is_open[number]]


def _is_lined(field: np.ndarray, white: np.ndarray, picture: np.ndarray) -> bool:
    """Whether the tissue around a field has more haematoxylin than most of the tissue: nuclei of an epithelium."""
    from scipy import ndimage  # noqa: PLC0415 - slow to import, rarely needed
    from skimage import color  # noqa: PLC0415

    distance = np.asarray(ndimage.distance_transform_edt(~field))
    tissue = ~dilated(white, _SMOOTHING)
    rim = tissue & (distance > _RIM[0]) & (distance <= _RIM[1])
    if not rim.any():
        return False
    haematoxylin = color.rgb2hed(picture)[..., 0]
    everywhere = haematoxylin[tissue]
    return bool(haematoxylin[rim].mean() > everywhere.mean() + _LINED * everywhere.std())


def _white(reduced: np.ndarray) -> np.ndarray:
    channels = np.moveaxis(_sums(reduced, _SMOOTHING), 2, 0)
    brightest, darkest = functools.reduce(np.maximum, channels), functools.reduce(np.minimum, channels)
    white = (brightest > _BRIGHT * _SMOOTHING**2) & (darkest > (1 - _COLOURLESS) * brightest)
    if not white.any():
        return white
    padded = np.pad(white, _OPENING, mode="edge")  # the outside of the image is like its border
    opened = dilated(eroded(padded, _OPENING), _OPENING)
    return opened[_OPENING:-_OPENING, _OPENING:-_OPENING]


def _sums(pixels: np.ndarray, side: int) -> np.ndarray:
    """Sums over squares around each pixel; the image continues as its mirror. Whole numbers: exact, and fast to add."""
    margin = side // 2
    sums = np.pad(pixels.astype(np.uint16), ((margin, margin), (margin, margin), (0, 0)), mode="symmetric")
    height, width = pixels.shape[:2]
    sums = functools.reduce(np.add, [sums[k : k + height] for k in range(side)])
    return functools.reduce(np.add, [sums[:, k : k + width] for k in range(side)])


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
