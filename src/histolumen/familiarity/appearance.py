"""What an image looks like, in a few numbers: colour and texture of its tissue, and how much of it there is."""

import functools
from dataclasses import dataclass

import numpy as np
from skimage import color

BANDS = 4  # details of 1, 2, 4 and 8 pixels
_MIN_TISSUE = 0.01  # share of the image; with less, the whole image is described
_TINY = 1e-3  # energy of a detail that an image does not have, in squared grey levels
_BIN = 5  # side of a cell of the colour space, in units of CIELAB
_EVERY, _SAMPLE = 2, 4000  # colours of every second of the halved image's pixels, about 4,000 of which are kept
_LOW, _CELLS = (0, -100, -110), (21, 41, 45)  # first cell and number of cells of L, a and b
CELL_COUNT = 21 * 41 * 45


@dataclass(frozen=True)
class Appearance:
    """Numbers that describe the tissue of an image [H, W, 3] at working size."""

    colour: np.ndarray
    """Mean of CIELAB L, a and b, then their standard deviations, [6]."""
    sample: np.ndarray
    """Some pixels of the tissue, RGB [n, 3] in [0, 1]."""
    texture: np.ndarray
    """Mean squared detail at 1, 2, 4 and 8 pixels, as powers of two, [4]."""
    tissue_share: float
    """Share of the image that is not white."""
    cells: np.ndarray
    """Cells of the colour space that the tissue has."""
    shares: np.ndarray
    """Share of the tissue in each of them."""

    @property
    def sharpness(self) -> float:
        """Detail at 1 pixel relative to that at 2 pixels, in powers of two."""
        return float(self.texture[0] - self.texture[1])

    @property
    def saturation(self) -> float:
        """Distance of the mean colour from grey, in units of CIELAB."""
        return float(np.hypot(self.colour[1], self.colour[2]))

    @property
    def inverted_colour(self) -> np.ndarray:
        """The `colour` of the inverted image."""
        return _moments(color.rgb2lab(1 - self.sample))


def describe_appearance(pixels: np.ndarray, white: np.ndarray) -> Appearance:
    """Describe an image.

    Args:
        pixels: RGB [H, W, 3] uint8 at working size.
        white: its white fields [H, W] bool.
    """
    tissue = ~white if 1 - white.mean() >= _MIN_TISSUE else np.ones_like(white)
    small, on_tissue = _halved(pixels, _EVERY), _all_of_four(tissue)[::_EVERY, ::_EVERY]
    rgb = small[on_tissue if on_tissue.any() else np.ones_like(on_tissue)] / 255
    lab = color.rgb2lab(rgb)
    cells, counts = np.unique(_cells(lab), return_counts=True)
    return Appearance(
        colour=_moments(lab),
        sample=rgb[:: max(1, len(rgb) // _SAMPLE)],
        texture=_texture(_grey(pixels), tissue),
        tissue_share=float(1 - white.mean()),
        cells=cells,
        shares=counts / counts.sum(),
    )


def neighbours(cells: np.ndarray) -> np.ndarray:
    """All cells of the colour space [cells] bool that are among the given ones, or touch one of them."""
    from scipy import ndimage  # noqa: PLC0415 - slow to import, needed in training only

    return np.asarray(ndimage.binary_dilation(cells.reshape(_CELLS), np.ones((3, 3, 3)))).ravel()


def _moments(lab: np.ndarray) -> np.ndarray:
    return np.concatenate([lab.mean(0), lab.std(0)])


def _cells(lab: np.ndarray) -> np.ndarray:
    index = ((lab - _LOW) / _BIN).astype(int).clip(0, np.array(_CELLS) - 1)
    return np.asarray(np.ravel_multi_index(tuple(index.T), _CELLS))


def _grey(pixels: np.ndarray) -> np.ndarray:
    """Mean of the channels; numpy's own mean over a short last axis is slow."""
    return functools.reduce(np.add, np.moveaxis(pixels, 2, 0).astype(np.float32)) / 3


def _texture(grey: np.ndarray, tissue: np.ndarray) -> np.ndarray:
    """Energy of the detail that is lost each time the image is halved, on tissue."""
    energies = []
    for _ in range(BANDS):
        half, inside = _halved(grey), _all_of_four(tissue)
        inside = inside if inside.any() else np.ones_like(inside)
        detail = functools.reduce(np.add, [(each - half) ** 2 for each in _quarters(grey)]) / 4
        energies.append(float(detail[inside].mean()))
        grey, tissue = half, inside
    return np.log2(np.array(energies) + _TINY)


def _halved(values: np.ndarray, every: int = 1) -> np.ndarray:
    """Means of 2 x 2 pixels; only of every few of them."""
    first, *others = (each[::every, ::every].astype(np.float32) for each in _quarters(values))
    return functools.reduce(np.add, others, first) / 4


def _quarters(values: np.ndarray) -> list[np.ndarray]:
    """The first, second, third and fourth pixel of each 2 x 2 pixels."""
    height, width = values.shape[0] // 2 * 2, values.shape[1] // 2 * 2
    return [values[y:height:2, x:width:2] for y in (0, 1) for x in (0, 1)]


def _all_of_four(mask: np.ndarray) -> np.ndarray:
    return functools.reduce(np.logical_and, _quarters(mask))
