"""The images and slides that the viewer shows, each under an opaque identifier.

Requests name items by identifier only; a path is never built from a request.
"""

import hashlib
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from histolumen.data.manifest import Manifest, read_manifest
from histolumen.data.search import search_images
from histolumen.data.sources.folder import CORRECTED, MASK_ENDINGS, is_mask
from histolumen.errors import DataError, DiskError, ImageError, SlideError
from histolumen.slides.reader import find_slides

Kind = Literal["image", "slide", "upload"]
MANIFEST = "manifest.csv"
"""Lists the images of a folder, or those that a run was trained on."""


@dataclass(frozen=True)
class Item:
    """An image or slide file; `label`, `split` and `mask` are empty where they are unknown."""

    id: str
    kind: Kind
    path: Path
    name: str
    label: str = ""
    split: str = ""
    mask: Path | None = None

    def correction(self, suffix: str) -> Path:
        """The file that the viewer writes beside the image: a mask (.png) or its regions (.geojson)."""
        return self.path.with_name(f"{self.path.stem}{CORRECTED}{suffix}")


@contextmanager
def named(item: Item) -> Iterator[None]:
    """Errors name the item as it is listed, not by its path on the server."""
    try:
        yield
    except (DiskError, ImageError, SlideError) as error:
        text = re.sub("^image:", f"{item.name}:", str(error).replace(str(item.path), item.name))
        text = text.replace(f"{item.path.parent}{os.sep}", "")
        raise type(error)(text if item.mask is None else text.replace(str(item.mask), "true mask")) from error


class Library:
    """All items in order: images and slides are fixed at start, uploads come and go."""

    def __init__(self, items: Iterable[Item] = ()):
        self._items = {item.id: item for item in items}
        self._corrected: dict[str, bool] = {}
        self._lock = threading.Lock()

    def all(self) -> list[Item]:
        """Uploads first, the newest at the top, then images and slides."""
        with self._lock:
            items = list(self._items.values())
        uploads = [item for item in items if item.kind == "upload"]
        return [*reversed(uploads), *(item for item in items if item.kind != "upload")]

    def get(self, item_id: str) -> Item | None:
        """The item with this identifier."""
        with self._lock:
            return self._items.get(item_id)

    def add(self, item: Item) -> None:
        """Add an upload."""
        with self._lock:
            self._items[item.id] = item

    def remove(self, item_id: str) -> None:
        """Remove an upload."""
        with self._lock:
            self._items.pop(item_id, None)
            self._corrected.pop(item_id, None)

    def is_corrected(self, item: Item) -> bool:
        """Whether a correction is saved; looked up once, since the list of a large folder is asked for often."""
        if item.id not in self._corrected:
            self._corrected[item.id] = item.correction(".geojson").is_file()
        return self._corrected[item.id]

    def mark_corrected(self, item: Item) -> None:
        """A correction has been saved."""
        self._corrected[item.id] = True


def find_items(images: Sequence[Path], slides: Sequence[Path]) -> Iterator[Item]:
    """Yield the images and slides in the given folders.

    Args:
        images: folders of images, searched recursively, or manifests. A folder that has a `manifest.csv` is read
            through it, which gives labels, splits and true masks.
        slides: slides, or folders of them.
    """
    for source in images:
        yield from _images(source)
    for source in slides:
        if not source.exists():
            raise DataError(f"{source}: no such file or folder; give a folder of slides with --slides")
        found = [_item("slide", path, path.name) for path in find_slides([source])]
        if not found:
            raise DataError(f"{source}: contains no slides")
        yield from found


def _images(source: Path) -> list[Item]:
    if not source.exists():
        raise DataError(f"{source}: no such folder; give a folder of images or a manifest with --images")
    manifest = source / MANIFEST if source.is_dir() else source
    if manifest.is_file():
        return _items_of(read_manifest(manifest))
    found = [path for path in search_images(source).images if not is_mask(path)]
    if not found:
        raise DataError(f"{source}: contains no images")
    return [_item("image", path, path.relative_to(source).as_posix(), mask=_mask_beside(path)) for path in found]


def _items_of(manifest: Manifest) -> list[Item]:
    return [
        _item("image", manifest.image_path(row), row.image, row.label, row.split, manifest.mask_path(row))
        for row in manifest.rows
    ]


def _mask_beside(path: Path) -> Path | None:
    """The true mask of an image by its name; corrections are not truth while they are being made."""
    endings = [ending for ending in MASK_ENDINGS if ending != CORRECTED]
    candidates = (
        path.with_name(f"{path.stem}{ending}{suffix}") for ending in endings for suffix in (path.suffix, ".png")
    )
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _item(kind: Kind, path: Path, name: str, label: str = "", split: str = "", mask: Path | None = None) -> Item:
    identifier = hashlib.sha256(str(path.absolute()).encode("utf-8", "surrogateescape")).hexdigest()[:20]
    return Item(identifier, kind, path, name, label, split, mask)
