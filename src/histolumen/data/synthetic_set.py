"""A whole synthetic data set on disk: images, masks, manifest rows."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from PIL import Image

from histolumen.atomic import new_file
from histolumen.data.manifest import Manifest, Row
from histolumen.data.splitting import stratified_split
from histolumen.data.synthetic import KINDS, Kind, make_sample

_VALID, _TEST = 0.2, 0.2


def write_synthetic_set(
    folder: Path,
    images: int,
    size: int,
    seed: int,
    track: Callable[[Sequence[int]], Iterable[int]] = lambda numbers: numbers,
) -> Manifest:
    """Draw `images` images, classes in turn, and write `images/*.png` and `masks/*.png` below `folder`.

    Args:
        folder: where to.
        images: how many.
        size: side in pixels.
        seed: image k of seed s is always the same.
        track: wraps the image numbers to show progress.
    """
    labels: list[Kind] = [KINDS[number % 2] for number in range(images)]
    splits = stratified_split(labels, [""] * images, _VALID, _TEST, seed)
    rows = []
    for number in track(range(images)):
        sample = make_sample(labels[number], size, seed * 1_000_003 + number)
        row = Row(f"images/{number:04}.png", labels[number], splits[number], f"masks/{number:04}.png")
        _write(Image.fromarray(sample.image), folder / row.image)
        _write(Image.fromarray(sample.mask), folder / row.mask)
        rows.append(row)
    return Manifest(tuple(rows), folder)


def _write(image: Image.Image, path: Path) -> None:
    with new_file(path) as temporary:
        image.save(temporary, format="PNG", compress_level=1)
