"""Find the images and slides below a folder, and say what could not be searched."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from histolumen.data.image import IMAGE_SUFFIXES
from histolumen.slides.reader import SLIDE_SUFFIXES


@dataclass(frozen=True)
class Search:
    """Images below a folder, whole slides, and one message for each entry that could not be read; all sorted."""

    images: list[Path] = field(default_factory=list)
    slides: list[Path] = field(default_factory=list)
    """Files of slide formats that cannot be decoded as images."""
    left_out: list[tuple[Path, str]] = field(default_factory=list)
    """Path and reason."""


def search_images(folder: Path) -> Search:
    """All image files below a folder. Links are followed; hidden files (`._x.png` from macOS) are skipped.

    A folder that cannot be read, a link to nothing and a link into a folder above it are left out and reported.
    """
    found = Search()
    _search(folder, (os.path.realpath(folder),), found)
    found.images.sort()
    found.slides.sort()
    found.left_out.sort()
    return found


def _search(folder: Path, above: tuple[str, ...], found: Search) -> None:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        found.left_out.append((folder, f"cannot be read ({error.strerror})"))
        return
    for name in names:
        path = folder / name
        if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises on folders without permission
            real = os.path.realpath(path)
            if real in above:
                found.left_out.append((path, "a link into a folder above it"))
            else:
                _search(path, (*above, real), found)
        elif os.path.isfile(path):  # noqa: PTH113
            if path.suffix.lower() in IMAGE_SUFFIXES:
                found.images.append(path)
            elif path.suffix.lower() in SLIDE_SUFFIXES:
                found.slides.append(path)
        elif os.path.islink(path):  # noqa: PTH114
            found.left_out.append((path, "a link to something that does not exist or cannot be read"))
        elif path.suffix.lower() in IMAGE_SUFFIXES:
            found.left_out.append((path, "cannot be read as a file"))
