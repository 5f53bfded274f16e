"""Synthetic lymph-node patches with exact masks, a small twin of Camelyon16-P512: normal, or with islands of tumour.

The islands alone make the class. Tissue and stain draw from random streams that the class does not touch, so the normal
and the metastatic image of one seed agree in every pixel outside the islands. Features that a classifier could take for
tumour also occur in normal tissue: pale germinal centres with larger nuclei, pink collagen, sinuses with histiocytes.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.random import Generator

from histolumen.data.sources.synthetic_canvas import Canvas, Nucleus, Sample, smooth_noise, stained

Kind = Literal["normal", "metastatic"]
KINDS: tuple[Kind, Kind] = ("normal", "metastatic")

_LEAST_SHARE = 0.2  # of tumour in a metastatic patch, as in Camelyon16-P512


def make_sample(kind: Kind, size: int, seed: int, glass: float = 0) -> Sample:
    """Draw one image; the same arguments give the same bytes. The mask of a normal one is empty.

    Args:
        kind: the class.
        size: side in pixels.
        seed: of all that is random.
        glass: probability that the image shows the edge of the section, with bare glass beyond.
    """
    layout, tissue, stain, islands, edge = np.random.default_rng(seed).spawn(5)
    canvas = Canvas(size)
    _paint_lymph_node(canvas, tissue)
    mask = np.zeros((size, size), bool)
    if kind == "metastatic":
        mask = _place_islands(layout, size)
        _paint_tumour(canvas, mask, islands)
    if edge.uniform() < glass:
        mask &= ~canvas.edge_of_section(edge)
    return Sample(stained(canvas, stain), mask)


def _place_islands(rng: Generator, size: int) -> np.ndarray:
    """Islands that cover 20 to 100 % of the image; as in Camelyon16, small shares are more frequent than large ones."""
    share = min(1.0, _LEAST_SHARE + 0.85 * rng.uniform() ** 2)
    field = smooth_noise(rng, size, 20) + 0.12 * smooth_noise(rng, size, 4)
    order = np.argsort(field, axis=None)[::-1]
    mask = np.zeros(size * size, bool)
    mask[order[: int(np.ceil(share * size * size))]] = True
    return mask.reshape(size, size)


def _paint_lymph_node(canvas: Canvas, rng: Generator) -> None:
    """Densely packed lymphocytes, germinal centres, sinuses, strands of collagen and holes of fat."""
    size = canvas.size
    canvas.eosin += 0.24 + 0.05 * smooth_noise(rng, size, 3)
    canvas.haematoxylin += 0.20 + 0.04 * smooth_noise(rng, size, 4)
    centre = _soft_step(smooth_noise(rng, size, 24) - 1.3, 0.25)
    sinus = _soft_step(smooth_noise(rng, size, 14) - 1.35, 0.2)
    strand = _soft_step(0.09 - np.abs(smooth_noise(rng, size, 32)), 0.03) * (smooth_noise(rng, size, 40) > 0.3)
    fat = _soft_step(smooth_noise(rng, size, 9) - 2.3, 0.1)

    canvas.haematoxylin *= 1 - 0.45 * centre
    canvas.haematoxylin *= 1 - 0.5 * sinus
    canvas.eosin *= 1 - 0.45 * sinus
    fibres = np.sin((canvas.columns + canvas.rows) / 3.1 + 2 * smooth_noise(rng, size, 5))
    canvas.eosin += strand * (0.36 + 0.08 * fibres - canvas.eosin)
    canvas.haematoxylin *= 1 - 0.6 * strand

    for row, column in _packed(rng, size, 6.6):
        place = int(np.clip(row, 0, size - 1)), int(np.clip(column, 0, size - 1))
        chance = rng.uniform()
        if strand[place] > 0.5:
            if chance < 0.12:
                canvas.nucleus(row, column, Nucleus(rng.uniform(4, 6), 1.3, 2.36, rng.uniform(0.6, 0.9)))
        elif sinus[place] > 0.5:
            if chance < 0.25:  # histiocytes: oval and pale
                canvas.nucleus(row, column, _oval(rng, 3.2, 4.4, 0.45, 0.65))
            elif chance < 0.4:
                canvas.nucleus(row, column, _oval(rng, 2.4, 2.9, 0.85, 1.1))
        elif centre[place] > 0.5:
            if chance < 0.6:  # germinal centre: larger and paler than the lymphocytes around it
                canvas.nucleus(row, column, _oval(rng, 3.0, 4.2, 0.45, 0.75))
        elif chance < 0.92:
            canvas.nucleus(row, column, _oval(rng, 2.4, 3.1, 0.8, 1.15))
    canvas.eosin *= 1 - 0.95 * fat
    canvas.haematoxylin *= 1 - 0.95 * fat


def _paint_tumour(canvas: Canvas, mask: np.ndarray, rng: Generator) -> None:
    """Cells with much pink cytoplasm and large nuclei of uneven size, whose nucleoli show; few lymphocytes between."""
    size = canvas.size
    mottle, patches = smooth_noise(rng, size, 2.5), smooth_noise(rng, size, 9)
    canvas.eosin[mask] = (0.37 + 0.05 * mottle + 0.04 * patches)[mask]
    canvas.haematoxylin[mask] = (0.20 + 0.05 * mottle)[mask]
    for row, column in _packed(rng, size, 12.5):
        if rng.uniform() < 0.08:
            canvas.nucleus(row, column, _oval(rng, 2.4, 3.0, 0.85, 1.1), within=mask)
            continue
        cell = _oval(rng, 3.8, 6.4, 0.45, 0.9)
        canvas.nucleus(row, column, cell, within=mask)
        shift = rng.uniform(-0.35, 0.35, 2) * cell.short
        canvas.nucleus(row + shift[0], column + shift[1], Nucleus(1.4, 1.3, 0, cell.depth + 0.45), within=mask)


def _oval(rng: Generator, least: float, most: float, pale: float, dark: float) -> Nucleus:
    """A nucleus of random size, direction and depth of stain."""
    long = rng.uniform(least, most)
    return Nucleus(long, long * rng.uniform(0.68, 1.0), rng.uniform(0, np.pi), rng.uniform(pale, dark))


def _packed(rng: Generator, size: int, spacing: float) -> Iterator[tuple[float, float]]:
    """Points of a shaken hexagonal grid: cells side by side, hardly any on top of another."""
    step = spacing * np.sqrt(3) / 2
    for line, row in enumerate(np.arange(-spacing, size + spacing, step)):
        for column in np.arange(-spacing, size + spacing, spacing):
            shaken = rng.normal(0, 0.17 * spacing, 2)
            yield row + shaken[0], column + (line % 2) * spacing / 2 + shaken[1]


def _soft_step(values: np.ndarray, width: float) -> np.ndarray:
    """0 below zero, 1 above `width`, linear between."""
    return np.clip(values / width, 0, 1)
