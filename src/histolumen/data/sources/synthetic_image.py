"""Synthetic H&E-like images with exact masks: glands in stroma, benign or malignant **in the glands only**.

Layout, stroma and stain use random streams that do not depend on the class, so the benign and the malignant image of
one seed are equal in every pixel outside their glands.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator

from histolumen.data.sources.synthetic_canvas import Canvas, Nucleus, Sample, smooth_noise, stained

Kind = Literal["benign", "malignant"]
KINDS: tuple[Kind, Kind] = ("benign", "malignant")

_MARGIN = 1.22  # maximum radius of an irregular outline, relative to its mean


@dataclass(frozen=True)
class _Gland:
    row: float
    column: float
    radius: float


def make_sample(kind: Kind, size: int, seed: int, glass: float = 0) -> Sample:
    """Draw one image; the same arguments give the same pixels.

    Args:
        kind: the class.
        size: side in pixels.
        seed: of all that is random.
        glass: probability that the image shows the edge of the section, with bare glass beyond.
    """
    layout, stroma, stain, texture, edge = np.random.default_rng(seed).spawn(5)
    canvas = Canvas(size)
    _paint_stroma(canvas, stroma)
    mask = np.zeros((size, size), bool)
    mottle = smooth_noise(texture, size, 2.5)
    for gland in _place_glands(layout, size):
        _paint_gland(canvas, mask, mottle, gland, kind, texture)
    if edge.uniform() < glass:
        mask &= ~canvas.edge_of_section(edge)
    return Sample(stained(canvas, stain), mask)


def _place_glands(rng: Generator, size: int) -> list[_Gland]:
    """Place glands at random, without overlap, until they cover a random share that does not depend on the class."""
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


def _paint_stroma(canvas: Canvas, rng: Generator) -> None:
    """Wavy eosin fibres, spindle-shaped nuclei along them, lymphocytes, and clefts of empty glass."""
    size = canvas.size
    angle = rng.uniform(0, np.pi) + 0.6 * smooth_noise(rng, size, 24)
    phase = (canvas.columns * np.sin(angle) - canvas.rows * np.cos(angle)) / rng.uniform(7, 11)
    fibres = np.sin(2 * np.pi * phase + 1.5 * smooth_noise(rng, size, 6))
    canvas.eosin += 0.42 + 0.10 * fibres + 0.06 * smooth_noise(rng, size, 3)
    canvas.haematoxylin += 0.10 + 0.03 * smooth_noise(rng, size, 5)

    cleft = np.clip(2.5 * (smooth_noise(rng, size, 13) - 1.9), 0, 1)
    canvas.eosin *= 1 - 0.95 * cleft
    canvas.haematoxylin *= 1 - 0.95 * cleft

    for _ in range(rng.poisson(size**2 / 900)):
        row, column = rng.uniform(0, size, 2)
        direction = angle[int(row), int(column)]
        spindle = Nucleus(rng.uniform(4, 7), rng.uniform(1.2, 2.0), direction, rng.uniform(0.6, 0.9))
        canvas.nucleus(row, column, spindle)
    for _ in range(rng.poisson(size**2 / 16000)):  # small clusters of lymphocytes
        centre = rng.uniform(0, size, 2)
        for row, column in centre + rng.normal(0, 9, (rng.integers(4, 12), 2)):
            canvas.nucleus(row, column, Nucleus(2.6, 2.6, 0, rng.uniform(0.9, 1.1)))


def _outline(kind: Kind, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """Amplitudes and phases of a closed curve around the gland: smooth if benign, irregular if malignant."""
    waves = np.arange(2, 9)
    strength = 0.07 / waves**0.5 if kind == "benign" else 0.16 / waves**0.35
    return strength * rng.uniform(0.3, 1, waves.size), rng.uniform(0, 2 * np.pi, waves.size)


def _paint_gland(
    canvas: Canvas, mask: np.ndarray, mottle: np.ndarray, gland: _Gland, kind: Kind, rng: Generator
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
    """Outline radius by angle, scaled so that the area does not depend on its irregularity."""
    waves = sum(a * np.cos(k * theta + p) for k, (a, p) in enumerate(zip(amplitudes, phases, strict=True), start=2))
    return (mean * (1 + waves) / np.sqrt(1 + (amplitudes**2).sum() / 2)).astype(np.float32)


def _nuclei(
    gland: _Gland, kind: Kind, amplitudes: np.ndarray, phases: np.ndarray, rng: Generator
) -> Iterator[tuple[float, float, Nucleus]]:
    """Positions and shapes: a regular basal row if benign; disordered layers of large, dark nuclei if malignant."""
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
            nucleus = Nucleus(rng.uniform(3.6, 4.4), rng.uniform(2.0, 2.4), angle, rng.uniform(0.75, 0.95))
        else:
            long = rng.uniform(3.2, 5.6)
            nucleus = Nucleus(long, long * rng.uniform(0.6, 0.95), rng.uniform(0, np.pi), rng.uniform(0.85, 1.3))
        yield gland.row + r * np.sin(angle), gland.column + r * np.cos(angle), nucleus
