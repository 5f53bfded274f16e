"""What all synthetic images are painted with: amounts of two stains per pixel, nuclei, and their colour.

Amounts of haematoxylin and eosin are painted first and converted to colour by the Beer-Lambert law, so that stain
varies as in real slides.
"""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy import ndimage

# optical density of unit haematoxylin and eosin in red, green, blue (Ruifrok & Johnston 2001)
_STAINS = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11]])


@dataclass(frozen=True)
class Sample:
    """One image [H, W, 3] uint8 and its foreground mask [H, W] bool."""

    image: np.ndarray
    mask: np.ndarray


@dataclass(frozen=True)
class Nucleus:
    """A soft-edged ellipse of haematoxylin; `angle` in radians, `depth` is the amount of stain."""

    long: float
    short: float
    angle: float
    depth: float


class Canvas:
    """Amounts of the two stains per pixel."""

    def __init__(self, size: int):
        self.size = size
        self.rows, self.columns = np.mgrid[:size, :size].astype(np.float32)
        self.haematoxylin = np.zeros((size, size), np.float32)
        self.eosin = np.zeros((size, size), np.float32)

    def box(self, row: float, column: float, reach: float) -> tuple[slice, slice]:
        """The part of the canvas within `reach` of a point; may be empty."""
        size = self.size
        top, left = (int(np.clip(np.floor(x - reach), 0, size)) for x in (row, column))
        bottom, right = (int(np.clip(np.ceil(x + reach) + 1, 0, size)) for x in (row, column))
        return slice(top, bottom), slice(left, right)

    def nucleus(self, row: float, column: float, shape: Nucleus, within: np.ndarray | None = None) -> None:
        """Paint one soft-edged ellipse of haematoxylin, clipped to the region `within`."""
        box = self.box(row, column, shape.long + 2)
        dy, dx = self.rows[box] - row, self.columns[box] - column
        cos, sin = np.cos(shape.angle), np.sin(shape.angle)
        distance = np.hypot((dx * cos + dy * sin) / shape.long, (dy * cos - dx * sin) / shape.short)
        cover = np.clip((1.15 - distance) * shape.short, 0, 1) * (0.85 + 0.15 * distance)
        if within is not None:
            cover = cover * within[box]
        self.haematoxylin[box] = np.maximum(self.haematoxylin[box], shape.depth * cover)
        self.eosin[box] *= 1 - 0.5 * cover

    def edge_of_section(self, rng: Generator) -> np.ndarray:
        """Wipe off the stain beyond a wavy line through the image; returns the bare glass [H, W] bool."""
        angle, share = rng.uniform(0, 2 * np.pi), rng.uniform(0.15, 0.40)
        beyond = self.columns * np.cos(angle) + self.rows * np.sin(angle)
        beyond = beyond + self.size * (0.05 * smooth_noise(rng, self.size, self.size / 10) - 0.5)
        inside = np.quantile(beyond, 1 - share) - beyond  # pixels from the edge, negative on glass
        tissue = np.clip(inside, 0, 1)
        self.eosin *= tissue
        self.haematoxylin *= tissue
        return inside <= 0


def smooth_noise(rng: Generator, size: int, scale: float) -> np.ndarray:
    """Smooth random field of mean 0 and standard deviation 1."""
    field = ndimage.gaussian_filter(rng.standard_normal((size, size)).astype(np.float32), scale, mode="wrap")
    return (field - field.mean()) / field.std()


def stained(canvas: Canvas, rng: Generator) -> np.ndarray:
    """Convert stain amounts to RGB; stain strength, stain hue and illumination vary between images."""
    strength = rng.uniform(0.75, 1.30, (2, 1))
    vectors = (_STAINS + rng.normal(0, 0.05, _STAINS.shape)).clip(0.02) * strength
    amounts = np.stack([canvas.haematoxylin, canvas.eosin], axis=-1).clip(0) * 1.35
    amounts = ndimage.gaussian_filter(amounts, (0.6, 0.6, 0))
    light = rng.uniform(0.93, 1.0, 3)
    colour = light * np.exp(-(amounts @ vectors)) + rng.normal(0, 0.012, (*amounts.shape[:2], 3))
    return (255 * colour.clip(0, 1)).round().astype(np.uint8)
