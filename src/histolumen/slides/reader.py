"""Read slides with OpenSlide at any resolution, block by block."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image

from histolumen.errors import SlideError
from histolumen.extras import require

if TYPE_CHECKING:
    from openslide import OpenSlide

SLIDE_SUFFIXES = frozenset(
    {".svs", ".tif", ".tiff", ".ndpi", ".mrxs", ".scn", ".vms", ".vmu", ".bif", ".svslide", ".dcm", ".czi"}
)
_BLOCK = 1024  # side of the blocks in which a whole slide is read
_MAX_DOWNSAMPLING, _PART = 4, 128  # beyond this ratio to the nearest level, regions are read in parts of this side
_MARGIN = 4  # pixels around a region that resampling needs
_SCALE_TOLERANCE = 0.02  # scales that differ by less (relative) count as equal: no resampling
_WHITE = (255, 255, 255)
_MAX_PIXELS = 500_000_000  # of a reduced slide, which is held in memory; a header can state any size
_MAX_MPP = 100  # larger values are defaults of some software, such as 1 pixel per mm


class Region(NamedTuple):
    """A rectangle in level-0 pixels."""

    left: float
    top: float
    width: float
    height: float


class Slide:
    """An open slide; several threads may read it at the same time."""

    def __init__(self, path: Path, handle: "OpenSlide", mpp: float | None):
        self.path = path
        self._handle = handle
        self.width, self.height = handle.dimensions
        self.mpp = mpp
        """Microns per level-0 pixel, from the user or the file; None if unknown."""
        self.bounds = _bounds(handle.properties)
        """Left and top of the scanned area, which QuPath uses as origin."""

    def require_mpp(self) -> float:
        """Microns per level-0 pixel; an error if unknown."""
        if self.mpp is None:
            raise SlideError(
                f"{self.path}: does not state its resolution; give it with --slide-mpp (often 0.25 at 40x, 0.5 at 20x)"
            )
        return self.mpp

    def natural_scale(self, scale: float) -> float:
        """The scale of a stored level if it nearly equals `scale`, otherwise `scale`."""
        near = min(self._handle.level_downsamples, key=lambda level: abs(level - scale))
        return near if abs(near - scale) <= _SCALE_TOLERANCE * scale else scale

    def read(self, region: Region, size: tuple[int, int], scale: float) -> np.ndarray:
        """RGB [height, width, 3] uint8 of a region; pixels outside the slide repeat its edge.

        A place has the same pixels in every region that contains it, up to resampling.

        Args:
            region: in level-0 pixels; may extend beyond the slide.
            size: width and height of the result in pixels.
            scale: level-0 pixels per pixel of the result.
        """
        level = self._level(scale)
        step = self._handle.level_downsamples[level]
        if scale > _MAX_DOWNSAMPLING * step and min(size) > _PART:  # no level is near: bound the memory
            return self._read_in_parts(region, size, scale)
        exact = abs(step - scale) <= 1e-6 * scale
        margin = 0 if exact else _MARGIN * math.ceil(scale / step)
        left, top = region.left / step, region.top / step
        # pixels of the level that the region touches
        first_x, first_y = math.floor(left + 1e-6) - margin, math.floor(top + 1e-6) - margin
        if exact:
            return self._pixels(level, first_x, first_y, *size)
        last_x = math.ceil(left + size[0] * scale / step) + margin
        last_y = math.ceil(top + size[1] * scale / step) + margin
        pixels = Image.fromarray(self._pixels(level, first_x, first_y, last_x - first_x, last_y - first_y))
        box = (left - first_x, top - first_y)
        box = (*box, box[0] + size[0] * scale / step, box[1] + size[1] * scale / step)
        return np.array(pixels.resize(size, Image.Resampling.BILINEAR, box=box))

    def _read_in_parts(self, region: Region, size: tuple[int, int], scale: float) -> np.ndarray:
        pixels = np.empty((size[1], size[0], 3), np.uint8)
        for top in range(0, size[1], _PART):
            for left in range(0, size[0], _PART):
                part = min(_PART, size[0] - left), min(_PART, size[1] - top)
                place = Region(region.left + left * scale, region.top + top * scale, part[0] * scale, part[1] * scale)
                pixels[top : top + part[1], left : left + part[0]] = self.read(place, part, scale)
        return pixels

    def reduced(self, scale: float) -> np.ndarray:
        """The whole slide at `scale` level-0 pixels per pixel, RGB [h, w, 3], read block by block."""
        width, height = (max(1, math.ceil(side / scale)) for side in (self.width, self.height))
        if width * height > _MAX_PIXELS:
            raise SlideError(
                f"{self.path}: {width} x {height} pixels even when reduced are over the limit of {_MAX_PIXELS:,}; "
                "check the size and the resolution of the slide (--slide-mpp)"
            )
        picture = np.empty((height, width, 3), np.uint8)
        for top in range(0, height, _BLOCK):
            for left in range(0, width, _BLOCK):
                size = min(_BLOCK, width - left), min(_BLOCK, height - top)
                region = Region(left * scale, top * scale, size[0] * scale, size[1] * scale)
                picture[top : top + size[1], left : left + size[0]] = self.read(region, size, scale)
        return picture

    def close(self) -> None:
        """Release the file."""
        self._handle.close()

    def __enter__(self) -> "Slide":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _level(self, scale: float) -> int:
        return self._handle.get_best_level_for_downsample(scale * (1 + 1e-6))

    def _pixels(self, level: int, left: int, top: int, width: int, height: int) -> np.ndarray:
        """Pixels of a level, in its own coordinates, on white; pixels outside the level repeat its edge."""
        step, (level_width, level_height) = self._handle.level_downsamples[level], self._handle.level_dimensions[level]
        first_x, last_x = _clip(left, width, level_width)
        first_y, last_y = _clip(top, height, level_height)
        place, size = (round(first_x * step), round(first_y * step)), (last_x - first_x, last_y - first_y)
        try:
            rgba = self._handle.read_region(place, level, size)
        except Exception as error:  # of OpenSlide, Pillow, or memory
            raise SlideError(f"{self.path}: damaged or truncated ({_first_line(error)}); copy it again") from error
        canvas = Image.new("RGB", rgba.size, _WHITE)
        canvas.paste(rgba, mask=rgba.getchannel("A"))
        pixels = np.asarray(canvas)
        if size == (width, height):
            return pixels.copy()
        rows, columns = _missing(top, height, first_y, last_y), _missing(left, width, first_x, last_x)
        return np.pad(pixels, (rows, columns, (0, 0)), mode="edge")


def open_slide(path: Path, mpp: float | None = None) -> Slide:
    """Open a slide.

    Args:
        path: slide file.
        mpp: microns per pixel; overrides the value in the file.
    """
    require("slides", "openslide")
    import openslide  # noqa: PLC0415 - an extra

    if not path.is_file():
        raise SlideError(f"{path}: no such file")
    try:
        handle = openslide.OpenSlide(path)
    except openslide.OpenSlideUnsupportedFormatError as error:
        raise SlideError(
            f"{path}: not a slide that OpenSlide reads, or truncated: copy it again. For plain images use `histolumen "
            "predict`, or convert them to a tiled pyramid (vips tiffsave IN OUT.tif --tile --pyramid)"
        ) from error
    except openslide.OpenSlideError as error:
        raise SlideError(f"{path}: damaged or truncated ({_first_line(error)}); copy it again") from error
    return Slide(path, handle, mpp if mpp is not None else _stated_mpp(handle.properties))


def find_slides(inputs: list[Path]) -> Iterator[Path]:
    """Yield the given files, and the slides in the given folders (without subfolders)."""
    for entry in inputs:
        if entry.is_dir():
            yield from sorted(path for path in entry.iterdir() if path.suffix.lower() in SLIDE_SUFFIXES)
        else:
            yield entry


def _stated_mpp(properties: Any) -> float | None:
    """Mean of both directions; None if missing or implausible."""
    try:
        values = [float(properties[f"openslide.mpp-{axis}"]) for axis in "xy"]
    except (KeyError, ValueError):
        return None
    mpp = sum(values) / 2
    return mpp if 0 < mpp < _MAX_MPP else None


def _clip(start: int, length: int, limit: int) -> tuple[int, int]:
    """Clip an interval to [0, limit), keeping at least one pixel."""
    first = min(max(start, 0), limit - 1)
    return first, max(min(start + length, limit), first + 1)


def _missing(start: int, length: int, first: int, last: int) -> tuple[int, int]:
    """How much of an interval lies before and after its clipped part [first, last)."""
    before = min(max(first - start, 0), length - (last - first))
    return before, length - (last - first) - before


def _bounds(properties: Any) -> tuple[int, int]:
    try:
        return int(properties["openslide.bounds-x"]), int(properties["openslide.bounds-y"])
    except (KeyError, ValueError):
        return 0, 0


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
