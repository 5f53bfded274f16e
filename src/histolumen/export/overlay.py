"""Overlays of predicted masks on their images."""

import math

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

_OUTLINE = (0, 158, 115)  # Okabe-Ito green, on a white halo: visible on pink and purple, colour-blind safe
_FALSE_NEGATIVE = np.array([0, 114, 178])  # blue
_FALSE_POSITIVE = np.array([230, 159, 0])  # orange
_RED = np.array([220, 20, 20])  # the paper's colour for regions in its figure of samples
_RED_SHARE = 0.4
_FADE = 0.55
_MAX_PIXELS = 16_000_000  # larger images are downsampled


def draw_overlay(image: np.ndarray, mask: np.ndarray, caption: str = "") -> Image.Image:
    """The image with the foreground outlined and the background faded; very large images are downsampled.

    Args:
        image: RGB [H, W, 3] uint8.
        mask: [H, W] bool.
        caption: written on a strip below the image.
    """
    step = math.ceil(math.sqrt(mask.size / _MAX_PIXELS))
    image, mask = image[::step, ::step], mask[::step, ::step]
    grey = image.mean(2, keepdims=True) * 0.35 + 255 * 0.65 * 0.86
    faded = (1 - _FADE) * image + _FADE * grey
    picture = np.where(mask[..., None], image, faded)
    width = _line_width(mask)
    edge = _edge(mask, width)
    halo = np.asarray(ndimage.binary_dilation(edge, iterations=width)) & ~mask
    picture[halo] = 255
    picture[edge] = _OUTLINE
    return _with_caption(Image.fromarray(picture.round().astype(np.uint8)), caption)


def draw_comparison(image: np.ndarray, mask: np.ndarray, truth: np.ndarray, caption: str = "") -> Image.Image:
    """Image, overlay and errors of the mask side by side."""
    tiles = [image, np.asarray(draw_overlay(image, mask)), draw_errors(image, mask, truth)]
    gap = np.full((image.shape[0], max(2, image.shape[1] // 64), 3), 255, np.uint8)
    row = np.concatenate([tiles[0], gap, tiles[1], gap, tiles[2]], axis=1)
    return _with_caption(Image.fromarray(row), caption)


def draw_errors(image: np.ndarray, mask: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The grey image [H, W, 3] with false negatives in blue, false positives in orange and the true mask outlined."""
    errors = np.repeat((image.mean(2, keepdims=True) * 0.5 + 255 * 0.5), 3, axis=2)
    for wrong, colour in ((truth & ~mask, _FALSE_NEGATIVE), (mask & ~truth, _FALSE_POSITIVE)):
        errors[wrong] = 0.35 * errors[wrong] + 0.65 * colour
    errors[_edge(truth, _line_width(truth))] = 40
    return errors.round().astype(np.uint8)


def draw_red(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The image [H, W, 3] with the foreground in transparent red."""
    picture = image.astype(float)
    picture[mask] = (1 - _RED_SHARE) * picture[mask] + _RED_SHARE * _RED
    return picture.round().astype(np.uint8)


def draw_sheet(pictures: list[Image.Image], columns: int = 2, gap: int = 8) -> Image.Image:
    """Pictures of equal size on one page."""
    width, height = pictures[0].size
    rows = -(-len(pictures) // columns)
    page = Image.new("RGB", (columns * (width + gap) - gap, rows * (height + gap) - gap), "white")
    for index, picture in enumerate(pictures):
        page.paste(picture, ((index % columns) * (width + gap), (index // columns) * (height + gap)))
    return page


def _line_width(mask: np.ndarray) -> int:
    return max(1, round(min(mask.shape) / 260))


def _edge(mask: np.ndarray, width: int) -> np.ndarray:
    """The outermost pixels of a mask; the image border itself is not an edge."""
    return mask & np.logical_not(ndimage.binary_erosion(mask, iterations=width, border_value=1))


def _with_caption(picture: Image.Image, caption: str) -> Image.Image:
    if not caption:
        return picture
    size = max(11, picture.height // 22)
    strip = Image.new("RGB", (picture.width, picture.height + round(1.7 * size)), "white")
    strip.paste(picture, (0, 0))
    font = ImageFont.load_default(size)
    while size > 7 and font.getlength(caption) > picture.width - 8:
        size -= 1
        font = ImageFont.load_default(size)
    ImageDraw.Draw(strip).text((4, picture.height + 3), caption, fill=(30, 30, 30), font=font)
    return strip
