"""Leaks between splits: patients in two splits, and near-duplicate images found by a perceptual hash."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.fft import dctn

from histolumen.data.manifest import Manifest, describe_shared
from histolumen.data.sources.glas import paper_split
from histolumen.errors import DataError

_SIDE = 64  # of the reduced image that is hashed, in pixels
_WAVES = 16  # lowest frequencies per axis; the hash has one bit for each of their products but the mean
_MAX_DIFFERENT = 0.12  # share of bits in which copies of an image may differ; unrelated images differ in half of them
_QUERIES, _BLOCK = 256, 2048  # images compared at a time: bounds the memory
Place = tuple[str, str]
"""Name and split of an image."""


def refuse_shared_patients(manifest: Manifest, source: Path) -> None:
    """Raise an error if a patient has images in two splits, unless the split is the published one of GlaS."""
    shared = manifest.shared_patients
    if shared and not is_published_split(manifest):
        raise DataError(f"{source}: {describe_shared(shared)}; give all images of a patient the same split")


def is_published_split(manifest: Manifest) -> bool:
    """Whether all images are of GlaS, in the paper's split, which divides patients between training and validation."""
    published = paper_split()
    return all(published.get(Path(row.image).stem) == row.split for row in manifest.rows)


def fingerprint(image: np.ndarray) -> np.ndarray:
    """Perceptual hashes of an RGB image [H, W, 3] in its 8 orientations, [8, bits] of -1 and 1; 0 for plain images.

    The signs of the lowest frequencies of the grey image, relative to their median, hardly change with compression,
    size and brightness.
    """
    grey = Image.fromarray(image).convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX)
    pixels = np.asarray(grey, np.float32)
    return np.stack([_hash(turned) for flipped in (pixels, pixels.T) for turned in _turns(flipped)])


def _turns(pixels: np.ndarray) -> Iterator[np.ndarray]:
    yield from (np.rot90(pixels, turns) for turns in range(4))


def _hash(pixels: np.ndarray) -> np.ndarray:
    waves = np.asarray(dctn(pixels, norm="ortho"))[:_WAVES, :_WAVES].ravel()[1:]  # without the mean brightness
    if np.abs(waves).max() < 1:
        return np.zeros(len(waves), np.float32)
    return np.where(waves > np.median(waves), 1, -1).astype(np.float32)


@dataclass
class Fingerprints:
    """Hashes of the images of a data set."""

    _places: list[Place] = field(default_factory=list)
    _hashes: list[np.ndarray] = field(default_factory=list)

    def add(self, name: str, split: str, hashes: np.ndarray) -> None:
        """Add an image; `hashes` are from `fingerprint`."""
        self._places.append((name, split))
        self._hashes.append(hashes.astype(np.int8))

    def across_splits(self) -> Iterator[tuple[Place, Place]]:
        """Images that look like an image listed before them in another split, and the most similar such image."""
        if not self._hashes:
            return
        upright = np.stack([hashes[0] for hashes in self._hashes]).astype(np.float32)
        splits = np.array([split for _, split in self._places])
        least = (1 - 2 * _MAX_DIFFERENT) * upright.shape[1]  # of the scalar product
        for first in range(0, len(upright), _QUERIES):
            queries = np.stack(self._hashes[first : first + _QUERIES]).astype(np.float32)  # [q, 8, bits]
            numbers = np.arange(first, first + len(queries))
            best, most = np.zeros(len(queries), int), np.full(len(queries), least)
            for start in range(0, first + len(queries), _BLOCK):
                others = np.arange(start, min(start + _BLOCK, first + len(queries)))
                alike = (queries @ upright[others].T).max(1)  # [q, others]
                alike[(splits[others] == splits[numbers][:, None]) | (others >= numbers[:, None])] = -np.inf
                better = alike.max(1) > most
                best[better], most[better] = start + alike.argmax(1)[better], alike.max(1)[better]
            for number, other in zip(numbers[most > least], best[most > least], strict=True):
                yield self._places[number], self._places[other]
