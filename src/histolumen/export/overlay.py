"""Overlays of predicted masks on their images."""

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from histolumen.neighbours import dilated, eroded

_OUTLINE = (0, 158, 115)  # Okabe-Ito green, on a white halo: visible on pink and purple, colour-blind safe
_FALSE_NEGATIVE = np.array([0, 114, 178])  # blue
_FALSE_POSITIVE = np.array([230, 159, 0])  # orange
_RED = np.array([220, 20, 20])  # the paper's colour for regions in its figure of samples
_RED_SHARE = 0.4
_GREYED = 0.6  # share of grey in the background: structure stays visible, colour belongs to the foreground
_DIMMED, _LIFTED = 0.45, 0.45  # strength of the black veil over bright images, of the white veil over dark ones
_DARK = 100  # images with a lower median are dark: fluorescence, under-exposed scans
_WHITE = 255
_ROWS = 1024  # drawn at once: intermediate arrays of a very large image would not fit into memory


def draw_overlay(image: np.ndarray, mask: np.ndarray, caption: str = "") -> Image.Image:
    """The image with the foreground outlined, and the background grey and darker; on dark images it is lighter.

    The foreground keeps its pixels. The background is moved away from the brightness of the image, so that the two
    differ on pale, normal and dark images alike.

    Args:
        image: RGB [H, W, 3] uint8.
        mask: [H, W] bool.
        caption: written on a strip below the image; empty: the overlay has the size of the image.
    """
    width = _line_width(mask)
    veil = _veil(image)
    margin = 2 * width + 1  # outline and halo at the edge of a block depend on the rows around it
    picture = Image.new("RGB", (image.shape[1], len(image)))
    for top in range(0, len(image), _ROWS):
        bottom = min(top + _ROWS, len(image))
        first, last = max(top - margin, 0), min(bottom + margin, len(image))
        block = _draw_block(image[first:last], mask[first:last], width, veil)
        picture.paste(block.crop((0, top - first, picture.width, bottom - first)), (0, top))
    return _with_caption(picture, caption)


def _veil(image: np.ndarray) -> np.ndarray:
    """The brightness [256] uint8 of the background for each original brightness: closer to black, or to white."""
    sample = image[:: max(1, image.shape[0] // 128), :: max(1, image.shape[1] // 128)]
    values = np.arange(256.0)
    is_dark = np.median(sample) < _DARK
    veiled = (1 - _LIFTED) * values + _LIFTED * _WHITE if is_dark else (1 - _DIMMED) * values
    return veiled.round().astype(np.uint8)


def _draw_block(image: np.ndarray, mask: np.ndarray, width: int, veil: np.ndarray) -> Image.Image:
    original = Image.fromarray(image)  # Pillow's operators on bytes: a fifth of the time of numpy's
    grey = original.convert("L", (1 / 3, 1 / 3, 1 / 3, 0))
    picture = Image.blend(original, Image.merge("RGB", [grey] * 3), _GREYED).point(3 * veil.tolist())
    edge = _edge(mask, width)
    halo = dilated(edge, width) & ~mask
    picture.paste(original, mask=Image.fromarray(mask))
    picture.paste((_WHITE, _WHITE, _WHITE), mask=Image.fromarray(halo))
    picture.paste(_OUTLINE, mask=Image.fromarray(edge))
    return picture


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
    return mask & ~eroded(mask, width, outside=True)


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
