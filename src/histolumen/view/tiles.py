"""Deep zoom: tiles of images and slides at any power of two."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from PIL import Image

from histolumen.data.image import image_size, read_image
from histolumen.errors import ImageError
from histolumen.slides.reader import Region, Slide, open_slide
from histolumen.view.cache import BoundedCache
from histolumen.view.items import Item, named

TILE = 512
_SLIDE_HANDLE_BYTES = 32_000_000  # what an open slide is counted as: OpenSlide's own cache


@dataclass(frozen=True)
class Geometry:
    """Size of an item in pixels and its deep zoom levels; each level is half as large as the next."""

    width: int
    height: int
    mpp: float | None = None
    origin: tuple[int, int] = (0, 0)
    """The pixel that gets the coordinates (0, 0) in QuPath."""

    @property
    def max_level(self) -> int:
        """The level at full resolution."""
        return math.ceil(math.log2(max(self.width, self.height, 1)))

    @property
    def min_level(self) -> int:
        """The largest level that is one tile."""
        return min(self.max_level, max(0, self.max_level - math.ceil(math.log2(max(self.width, self.height) / TILE))))

    def level_size(self, level: int) -> tuple[int, int]:
        """Width and height of a level."""
        scale = 2 ** (self.max_level - level)
        return math.ceil(self.width / scale), math.ceil(self.height / scale)

    def box(self, level: int, column: int, row: int) -> tuple[int, int, int, int] | None:
        """Left, top, width and height of a tile in pixels of its level; None if there is no such tile."""
        if not self.min_level <= level <= self.max_level or column < 0 or row < 0:
            return None
        width, height = self.level_size(level)
        left, top = column * TILE, row * TILE
        if left >= width or top >= height:
            return None
        return left, top, min(TILE, width - left), min(TILE, height - top)


class Pyramid(Protocol):
    """Pixels of an item at every level."""

    geometry: Geometry

    @property
    def bytes(self) -> int: ...

    def read(self, level: int, box: tuple[int, int, int, int]) -> np.ndarray: ...


class ImagePyramid:
    """A decoded image; smaller levels are computed when they are first needed."""

    def __init__(self, pixels: np.ndarray):
        self.pixels = pixels
        self.geometry = Geometry(pixels.shape[1], pixels.shape[0])
        self._levels: dict[int, np.ndarray] = {}

    @property
    def bytes(self) -> int:
        return self.pixels.nbytes * 4 // 3  # with all smaller levels

    def read(self, level: int, box: tuple[int, int, int, int]) -> np.ndarray:
        left, top, width, height = box
        return self._level(level)[top : top + height, left : left + width]

    def _level(self, level: int) -> np.ndarray:
        if level == self.geometry.max_level:
            return self.pixels
        if level not in self._levels:
            size = self.geometry.level_size(level)
            reduced = Image.fromarray(self._level(level + 1)).resize(size, Image.Resampling.BOX)
            self._levels[level] = np.asarray(reduced)
        return self._levels[level]


class SlidePyramid:
    """An open slide; its file is closed with the last reference, since several threads may be reading."""

    def __init__(self, slide: Slide):
        self._slide = slide
        self.geometry = Geometry(slide.width, slide.height, slide.mpp, slide.bounds)

    bytes = _SLIDE_HANDLE_BYTES

    def read(self, level: int, box: tuple[int, int, int, int]) -> np.ndarray:
        scale = 2 ** (self.geometry.max_level - level)
        left, top, width, height = box
        region = Region(left * scale, top * scale, width * scale, height * scale)
        return self._slide.read(region, (width, height), scale)


class Tiles:
    """Tiles, thumbnails and pixels of items; decoded images are cached.

    Args:
        cache_bytes: memory for decoded images.
        slide_mpp: microns per pixel of the slides; None: as stated in the file.
    """

    def __init__(self, cache_bytes: int, slide_mpp: float | None = None):
        self._slide_mpp = slide_mpp
        self._pyramids: BoundedCache[Pyramid] = BoundedCache(cache_bytes, lambda pyramid: pyramid.bytes)
        self._sizes: dict[str, Geometry] = {}

    def geometry(self, item: Item) -> Geometry:
        """Size of an item; images are not decoded for it."""
        if item.id not in self._sizes:
            with named(item):
                slide = item.kind == "slide"
                self._sizes[item.id] = self._pyramid(item).geometry if slide else Geometry(*image_size(item.path))
        return self._sizes[item.id]

    def tile(self, item: Item, level: int, column: int, row: int) -> np.ndarray | None:
        """RGB pixels of a tile; None if there is no such tile."""
        box = self.geometry(item).box(level, column, row)
        return None if box is None else self._pyramid(item).read(level, box)

    def reduced(self, item: Item, longest: int) -> Image.Image:
        """The whole item with its longest side at most `longest`, from the nearest larger level."""
        geometry = self.geometry(item)
        level = geometry.max_level
        while level > geometry.min_level and max(geometry.level_size(level - 1)) >= longest:
            level -= 1
        picture = Image.fromarray(self._pyramid(item).read(level, (0, 0, *geometry.level_size(level))))
        picture.thumbnail((longest, longest))
        return picture

    def pixels(self, item: Item) -> np.ndarray:
        """All pixels of an image, RGB [H, W, 3]."""
        pyramid = self._pyramid(item)
        if not isinstance(pyramid, ImagePyramid):
            raise ImageError(f"{item.name}: a slide does not fit in memory; it is read in tiles")
        return pyramid.pixels

    def remember(self, item: Item, pixels: np.ndarray) -> None:
        """Keep the pixels of an image that has just been decoded."""
        self._pyramids.put(item.id, ImagePyramid(pixels))

    def forget(self, item: Item) -> None:
        """Release an upload."""
        self._pyramids.remove(item.id)
        self._sizes.pop(item.id, None)

    def _pyramid(self, item: Item) -> Pyramid:
        def open_item() -> Pyramid:
            if item.kind == "slide":
                return SlidePyramid(open_slide(item.path, self._slide_mpp))
            return ImagePyramid(read_image(item.path))

        with named(item):
            return self._pyramids.get_or_make(item.id, open_item)
