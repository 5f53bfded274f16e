"""Pictures of a gallery: small, compressed, and embedded as data URIs."""

import base64
import io
from collections.abc import Mapping

import numpy as np
from PIL import Image

from histolumen.export.colour_map import viridis
from histolumen.export.overlay import draw_errors, draw_overlay
from histolumen.report.html.content import Picture

IMAGE, HEAT_MAP, OUTLINE, ERRORS = "image", "heat map", "outline", "errors"
LEGEND = {
    HEAT_MAP: (("heat", "heat map: soft mask from 0 to 1"),),
    OUTLINE: (("outline", "outline of the mask"),),
    ERRORS: (("missed", "missed"), ("false-alarm", "false alarm"), ("truth", "true outline")),
}
SIDE = 600  # longest side of an embedded picture, in pixels
_QUALITY = 78
_HEAT_SHARE = 0.65  # of the colour in a heat map; the rest is the grey image


def layers_of(
    image: np.ndarray, soft_mask: np.ndarray | None, mask: np.ndarray | None, truth: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """The layers of an image, reduced to the size of an embedded picture: those whose masks are known.

    Args:
        image: RGB [H, W, 3] uint8.
        soft_mask: [H, W] in [0, 1].
        mask: [H, W] bool.
        truth: the true mask [H, W] bool.
    """
    image = reduced(image)
    size = (image.shape[1], image.shape[0])
    layers = {IMAGE: image}
    if soft_mask is not None:
        layers[HEAT_MAP] = draw_heat(image, resized(soft_mask, size))
    if mask is not None:
        small = resized(mask.astype(np.float32), size) >= 0.5
        layers[OUTLINE] = np.asarray(draw_overlay(image, small))
        if truth is not None:
            layers[ERRORS] = draw_errors(image, small, resized(truth.astype(np.float32), size) >= 0.5)
    return layers


def embed(layers: Mapping[str, np.ndarray]) -> list[Picture]:
    """Layers as data URIs."""
    return [Picture(name, data_uri(picture)) for name, picture in layers.items()]


def data_uri(picture: np.ndarray) -> str:
    """An RGB array [H, W, 3] as a data URI.

    JPEG, not WebP, which is smaller: browsers print JPEG as it is, and anything else uncompressed.
    """
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, format="JPEG", quality=_QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def reduced(picture: np.ndarray, side: int = SIDE) -> np.ndarray:
    """The picture with its longest side at most `side`."""
    small = Image.fromarray(picture)
    small.thumbnail((side, side))
    return np.asarray(small)


def draw_heat(image: np.ndarray, soft_mask: np.ndarray) -> np.ndarray:
    """The grey image in the colours of its soft mask (viridis: perceptually uniform, colour-blind safe)."""
    grey = image.mean(2, keepdims=True)
    colours = viridis()[(255 * soft_mask.clip(0, 1)).round().astype(np.uint8)]
    return ((1 - _HEAT_SHARE) * grey + _HEAT_SHARE * colours).round().astype(np.uint8)


def resized(values: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """A map [H, W] of values at another width and height."""
    grey = Image.fromarray(values.astype(np.float32))
    return np.asarray(grey.resize(size, Image.Resampling.BOX if size[0] <= grey.width else Image.Resampling.BILINEAR))
