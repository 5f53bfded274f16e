"""Synthetic H&E-like images with exact masks: glands in stroma, benign or malignant **in the glands only**.

Layout, stroma and stain draw from random streams of their own that the class does not touch, so the benign and the
malignant image of one seed agree in every pixel outside their glands. Amounts of haematoxylin and eosin are painted
first and turned into colour by the Beer-Lambert law, which is how stain varies in real slides.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator
from scipy import ndimage

Kind = Literal["benign", "malignant"]
KINDS: tuple[Kind, Kind] = ("benign", "malignant")

# optical density of unit haematoxylin and eosin in red, green, blue (Ruifrok & Johnston 2001)
_STAINS = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11]])
_MARGIN = 1.22  # how far an irregular outline may reach beyond its mean radius


@dataclass(frozen=True)
class Sample:
    """One image [H, W, 3] uint8 and its gland mask [H, W] bool."""

    image: np.ndarray
    mask: np.ndarray


@dataclass(frozen=True)
class _Gland:
    row: float
    column: float
    radius: float


class _Canvas:
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

    def nucleus(self, row: float, column: float, shape: "_Nucleus", within: np.ndarray | None = None) -> None:
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


@dataclass(frozen=True)
class _Nucleus:
    long: float
    short: float
    angle: float
    depth: float


def make_sample(kind: Kind, size: int, seed: int) -> Sample:
    """Draw one image; the same arguments give the same bytes."""
    layout, stroma, stain, texture = np.random.default_rng(seed).spawn(4)
    canvas = _Canvas(size)
    _paint_stroma(canvas, stroma)
    mask = np.zeros((size, size), bool)
    mottle = _smooth_noise(texture, size, 2.5)
    for gland in _place_glands(layout, size):
        _paint_gland(canvas, mask, mottle, gland, kind, texture)
    return Sample(_stain(canvas, stain), mask)


def _place_glands(rng: Generator, size: int) -> list[_Gland]:
    """Throw darts until glands cover a random share of the image, the same for both classes."""
    target, glands, covered = rng.uniform(0.28, 0.52) * size**2, [], 0.0
    for _ in range(400):
        radius = rng.uniform(26, 50)
        row, column = rng.uniform(-0.3 * radius, size + 0.3 * radius, 2)
        if all(np.hypot(row - g.row, column - g.column) > _MARGIN * (radius + g.radius) for g in glands):
            glands.append(_Gland(row, column, radius))
            height = min(row + radius, size) - max(row - radius, 0)
            width = min(column + radius, size) - max(column - radius, 0)
            covered += np.pi / 4 * height * width
        if covered >= target:
            break
    return glands


def _smooth_noise(rng: Generator, size: int, scale: float) -> np.ndarray:
    """Smooth random field of mean 0 and standard deviation 1."""
    field = ndimage.gaussian_filter(rng.standard_normal((size, size)).astype(np.float32), scale, mode="wrap")
    return (field - field.mean()) / field.std()


def _paint_stroma(canvas: _Canvas, rng: Generator) -> None:
    """Wavy eosin fibres, spindle-shaped nuclei along them, lymphocytes, and clefts of empty glass."""
    size = canvas.size
    angle = rng.uniform(0, np.pi) + 0.6 * _smooth_noise(rng, size, 24)
    phase = (canvas.columns * np.sin(angle) - canvas.rows * np.cos(angle)) / rng.uniform(7, 11)
    fibres = np.sin(2 * np.pi * phase + 1.5 * _smooth_noise(rng, size, 6))
    canvas.eosin += 0.42 + 0.10 * fibres + 0.06 * _smooth_noise(rng, size, 3)
    canvas.haematoxylin += 0.10 + 0.03 * _smooth_noise(rng, size, 5)

    cleft = np.clip(2.5 * (_smooth_noise(rng, size, 13) - 1.9), 0, 1)
    canvas.eosin *= 1 - 0.95 * cleft
    canvas.haematoxylin *= 1 - 0.95 * cleft

    for _ in range(rng.poisson(size**2 / 900)):
        row, column = rng.uniform(0, size, 2)
        direction = angle[int(row), int(column)]
        spindle = _Nucleus(rng.uniform(4, 7), rng.uniform(1.2, 2.0), direction, rng.uniform(0.6, 0.9))
        canvas.nucleus(row, column, spindle)
    for _ in range(rng.poisson(size**2 / 16000)):  # small clusters of lymphocytes
        centre = rng.uniform(0, size, 2)
        for row, column in centre + rng.normal(0, 9, (rng.integers(4, 12), 2)):
            canvas.nucleus(row, column, _Nucleus(2.6, 2.6, 0, rng.uniform(0.9, 1.1)))


def _outline(kind: Kind, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """Amplitudes and phases of a closed curve around the gland: gentle when benign, ragged when malignant."""
    waves = np.arange(2, 9)
    strength = 0.07 / waves**0.5 if kind == "benign" else 0.16 / waves**0.35
    return strength * rng.uniform(0.3, 1, waves.size), rng.uniform(0, 2 * np.pi, waves.size)


def _paint_gland(
    canvas: _Canvas, mask: np.ndarray, mottle: np.ndarray, gland: _Gland, kind: Kind, rng: Generator
) -> None:
    box = canvas.box(gland.row, gland.column, 1.8 * gland.radius)  # beyond any outline
    dy, dx = canvas.rows[box] - gland.row, canvas.columns[box] - gland.column
    amplitudes, phases = _outline(kind, rng)
    depth = np.hypot(dy, dx) / _radius(gland.radius, np.arctan2(dy, dx), amplitudes, phases)  # 1 at the outline
    inside = (depth <= 1) & ~mask[box]
    mask[box] |= inside

    eosin, haematoxylin, mottle = canvas.eosin[box], canvas.haematoxylin[box], mottle[box]
    if kind == "benign":  # pale, mucin-filled cells around an open lumen
        eosin[inside] = 0.20 + 0.04 * mottle[inside]
        haematoxylin[inside] = 0.16 + 0.05 * mottle[inside]
        lumen = inside & (depth < rng.uniform(0.22, 0.40))
    else:  # crowded, dark cells; the lumen is a slit or gone
        eosin[inside] = 0.36 + 0.06 * mottle[inside]
        haematoxylin[inside] = 0.30 + 0.08 * mottle[inside]
        turn, width = rng.uniform(0, np.pi), rng.uniform(0.08, 0.22)
        across = np.abs(dx * np.sin(turn) - dy * np.cos(turn)) / gland.radius
        lumen = inside & (across + 0.05 * mottle < width) & (depth < 0.55)
    eosin[lumen] = 0.03
    haematoxylin[lumen] = 0.02

    for row, column, nucleus in _nuclei(gland, kind, amplitudes, phases, rng):
        canvas.nucleus(row, column, nucleus, within=mask)


def _radius(mean: float, theta: np.ndarray, amplitudes: np.ndarray, phases: np.ndarray) -> np.ndarray:
    """Outline radius by angle, scaled so that the area does not depend on how ragged it is."""
    waves = sum(a * np.cos(k * theta + p) for k, (a, p) in enumerate(zip(amplitudes, phases, strict=True), start=2))
    return (mean * (1 + waves) / np.sqrt(1 + (amplitudes**2).sum() / 2)).astype(np.float32)


def _nuclei(
    gland: _Gland, kind: Kind, amplitudes: np.ndarray, phases: np.ndarray, rng: Generator
) -> Iterator[tuple[float, float, _Nucleus]]:
    """One regular basal row when benign; several disordered layers of large, dark ones when malignant."""
    if kind == "benign":
        count = int(2 * np.pi * gland.radius / 6.5)
        angles = np.linspace(0, 2 * np.pi, count, endpoint=False) + rng.normal(0, 0.02, count)
        depths = rng.normal(0.84, 0.015, count)
    else:
        count = int(np.pi * gland.radius**2 / 75)
        angles = rng.uniform(0, 2 * np.pi, count)
        depths = np.sqrt(rng.uniform(0.12, 0.82, count))
    reach = _radius(gland.radius, angles, amplitudes, phases) * depths
    for angle, r in zip(angles, reach, strict=True):
        if kind == "benign":
            nucleus = _Nucleus(rng.uniform(3.6, 4.4), rng.uniform(2.0, 2.4), angle, rng.uniform(0.75, 0.95))
        else:
            long = rng.uniform(3.2, 5.6)
            nucleus = _Nucleus(long, long * rng.uniform(0.6, 0.95), rng.uniform(0, np.pi), rng.uniform(0.85, 1.3))
        yield gland.row + r * np.sin(angle), gland.column + r * np.cos(angle), nucleus


def _stain(canvas: _Canvas, rng: Generator) -> np.ndarray:
    """Amounts to colour, with the strength and hue of both stains and the light varying from image to image."""
    strength = rng.uniform(0.75, 1.30, (2, 1))
    vectors = (_STAINS + rng.normal(0, 0.05, _STAINS.shape)).clip(0.02) * strength
    amounts = np.stack([canvas.haematoxylin, canvas.eosin], axis=-1).clip(0) * 1.35
    amounts = ndimage.gaussian_filter(amounts, (0.6, 0.6, 0))
    light = rng.uniform(0.93, 1.0, 3)
    colour = light * np.exp(-(amounts @ vectors)) + rng.normal(0, 0.012, (*amounts.shape[:2], 3))
    return (255 * colour.clip(0, 1)).round().astype(np.uint8)
