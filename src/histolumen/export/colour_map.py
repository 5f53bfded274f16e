"""A soft mask as a picture in colours, with a colour bar."""

import numpy as np
from PIL import Image, ImageDraw, ImageFont

# Viridis, by N. Smith and S. van der Walt (CC0): its brightness rises evenly, so any colour vision reads it alike, also
# printed in grey. These points are at equal distances; the viewer has the same.
_VIRIDIS = (
    "440154 481467 482576 453781 404688 39558c 33638d 2d718e 287d8e 238a8d "
    "1f968b 20a386 29af7f 3dbc74 56c667 75d054 95d840 bade28 dde318 fde725"
)
_MIN_BAR = 90  # height in pixels that the numbers of the colour bar need
_ROWS = 1024  # coloured at once: indices of a very large mask would not fit into memory
_INK = (30, 30, 30)


def viridis() -> np.ndarray:
    """The colours of 0 to 255, [256, 3] uint8."""
    points = np.array([list(bytes.fromhex(colour)) for colour in _VIRIDIS.split()])
    position = np.linspace(0, len(points) - 1, 256)
    channels = [np.interp(position, np.arange(len(points)), channel) for channel in points.T]
    return np.stack(channels, axis=1).round().astype(np.uint8)


def draw_heat_map(soft_mask: np.ndarray, threshold: float = 0.5) -> Image.Image:
    """The soft mask in colours, pixel by pixel as the image, with a colour bar on its right.

    Args:
        soft_mask: [H, W] in [0, 1].
        threshold: marked on the colour bar.
    """
    colours = viridis()
    height, width = soft_mask.shape
    picture = np.empty((height, width, 3), np.uint8)
    for top in range(0, height, _ROWS):
        values = soft_mask[top : top + _ROWS].clip(0, 1)
        picture[top : top + _ROWS] = colours[(255 * values).round().astype(np.uint8)]
    bar = _draw_bar(colours, max(height, _MIN_BAR), threshold)
    page = Image.new("RGB", (width + bar.width, bar.height), "white")
    page.paste(Image.fromarray(picture), (0, 0))
    page.paste(bar, (width, 0))
    return page


def _draw_bar(colours: np.ndarray, height: int, threshold: float) -> Image.Image:
    """A vertical bar, 1 at the top, with numbers at both ends and at the threshold."""
    size = min(max(11, height // 22), 40)
    font = ImageFont.load_default(size)
    gap, across, top, bottom = size // 2, size, size, height - size - 1
    texts = {value: f"{value:g}" for value in (0.0, threshold, 1.0)}
    widest = max(font.getlength(text) for text in texts.values())
    bar = Image.new("RGB", (round(3 * gap + across + widest) + gap, height), "white")
    column = colours[np.linspace(255, 0, bottom - top + 1).round().astype(np.uint8)]
    bar.paste(Image.fromarray(np.repeat(column[:, None], across, axis=1)), (gap, top))
    draw = ImageDraw.Draw(bar)
    right = gap + across
    for value, text in texts.items():
        y = round(bottom - value * (bottom - top))
        at_end = value != threshold and abs(value - threshold) * (bottom - top) < size
        if not at_end:  # a number at the end would cover that of the threshold
            draw.line([(right, y), (right + gap // 2, y)], fill=_INK)
            draw.text((right + gap, y), text, fill=_INK, font=font, anchor="lm")
    y = round(bottom - threshold * (bottom - top))
    draw.line([(gap, y), (right, y)], fill="white", width=max(1, size // 8))
    return bar
