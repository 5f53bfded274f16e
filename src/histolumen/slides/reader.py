"""Reading slides through OpenSlide at any resolution, in pieces."""

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
_PIECE = 1024  # side of what is read at a time where a whole slide is looked at
_FAR, _PART = 4, 128  # beyond this ratio to the nearest level, parts of this side are read one after the other
_MARGIN = 4  # pixels beyond a region that resampling may look at
_SAME = 0.02  # scales that differ by less are taken as equal: nothing is resampled
_WHITE = (255, 255, 255)
_COARSEST = 100  # microns per pixel; what is beyond is a default that some program wrote, such as 1 pixel per mm


class Region(NamedTuple):
    """A rectangle in level-0 pixels."""

    left: float
    top: float
    width: float
    height: float


class Slide:
    """An open slide. May be read by several threads at a time."""

    def __init__(self, path: Path, handle: "OpenSlide", mpp: float | None):
        self.path = path
        self._handle = handle
        self.width, self.height = handle.dimensions
        self.mpp = mpp
        """Microns per level-0 pixel, as stated by the file or the user; None: nobody says."""
        self.bounds = _bounds(handle.properties)
        """Left and top of the part that the scanner says is not empty, at which QuPath lets the slide begin."""

    def require_mpp(self) -> float:
        """Microns per pixel, or an error that says how to state it."""
        if self.mpp is None:
            raise SlideError(
                f"{self.path}: does not state its resolution; state it with --slide-mpp (often 0.25 at 40x, 0.5 at 20x)"
            )
        return self.mpp

    def natural_scale(self, scale: float) -> float:
        """The scale at which to read when `scale` is wanted: that of a stored level where one nearly has it."""
        near = min(self._handle.level_downsamples, key=lambda level: abs(level - scale))
        return near if abs(near - scale) <= _SAME * scale else scale

    def read(self, region: Region, size: tuple[int, int], scale: float) -> np.ndarray:
        """RGB [height, width, 3] uint8 of a region; beyond the slide its rim goes on.

        The same place gets the same pixels whatever region it is read as part of, as far as resampling allows.

        Args:
            region: in level-0 pixels; may reach beyond the slide.
            size: width and height in pixels of what is wanted.
            scale: level-0 pixels per wanted pixel.
        """
        level = self._level(scale)
        step = self._handle.level_downsamples[level]
        if scale > _FAR * step and min(size) > _PART:  # no level is near: read in parts, or memory would explode
            return self._in_parts(region, size, scale)
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

    def _in_parts(self, region: Region, size: tuple[int, int], scale: float) -> np.ndarray:
        pixels = np.empty((size[1], size[0], 3), np.uint8)
        for top in range(0, size[1], _PART):
            for left in range(0, size[0], _PART):
                part = min(_PART, size[0] - left), min(_PART, size[1] - top)
                place = Region(region.left + left * scale, region.top + top * scale, part[0] * scale, part[1] * scale)
                pixels[top : top + part[1], left : left + part[0]] = self.read(place, part, scale)
        return pixels

    def reduced(self, scale: float) -> np.ndarray:
        """The whole slide at `scale` level-0 pixels per pixel, RGB [h, w, 3], read piece by piece."""
        width, height = (max(1, math.ceil(side / scale)) for side in (self.width, self.height))
        picture = np.empty((height, width, 3), np.uint8)
        for top in range(0, height, _PIECE):
            for left in range(0, width, _PIECE):
                size = min(_PIECE, width - left), min(_PIECE, height - top)
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
        """Pixels of a level, in its own coordinates, on white; beyond its rim, those of the rim."""
        step, (level_width, level_height) = self._handle.level_downsamples[level], self._handle.level_dimensions[level]
        first_x, last_x = _within(left, width, level_width)
        first_y, last_y = _within(top, height, level_height)
        place, size = (round(first_x * step), round(first_y * step)), (last_x - first_x, last_y - first_y)
        try:
            found = self._handle.read_region(place, level, size)
        except Exception as error:  # OpenSlide's own errors, Pillow's, memory
            raise SlideError(f"{self.path}: damaged or truncated ({_said(error)}); copy it again") from error
        canvas = Image.new("RGB", found.size, _WHITE)
        canvas.paste(found, mask=found.getchannel("A"))
        pixels = np.asarray(canvas)
        rows, columns = (np.arange(start, start + count) for start, count in ((top, height), (left, width)))
        rows, columns = rows.clip(first_y, last_y - 1) - first_y, columns.clip(first_x, last_x - 1) - first_x
        return pixels[np.ix_(rows, columns)] if size != (width, height) else pixels.copy()


def open_slide(path: Path, mpp: float | None = None) -> Slide:
    """Open a slide.

    Args:
        path: of the file.
        mpp: microns per pixel, in place of what the file says.
    """
    require("slides", "openslide")
    import openslide  # noqa: PLC0415 - an extra

    if not path.is_file():
        raise SlideError(f"{path}: no such file")
    try:
        handle = openslide.OpenSlide(path)
    except openslide.OpenSlideUnsupportedFormatError as error:
        raise SlideError(
            f"{path}: not a slide that OpenSlide reads, or truncated: copy it again. Plain images go to `histolumen "
            "predict`; a tiled pyramid can be made of them (vips tiffsave IN OUT.tif --tile --pyramid)"
        ) from error
    except openslide.OpenSlideError as error:
        raise SlideError(f"{path}: damaged or truncated ({_said(error)}); copy it again") from error
    return Slide(path, handle, mpp if mpp is not None else _stated_mpp(handle.properties))


def find_slides(inputs: list[Path]) -> Iterator[Path]:
    """Slides among files and folders (not searched below their first level)."""
    for entry in inputs:
        if entry.is_dir():
            yield from sorted(path for path in entry.iterdir() if path.suffix.lower() in SLIDE_SUFFIXES)
        else:
            yield entry


def _stated_mpp(properties: Any) -> float | None:
    """Mean of the two directions; absent or nonsense: None."""
    try:
        both = [float(properties[f"openslide.mpp-{axis}"]) for axis in "xy"]
    except (KeyError, ValueError):
        return None
    mpp = sum(both) / 2
    return mpp if 0 < mpp < _COARSEST else None


def _within(start: int, length: int, limit: int) -> tuple[int, int]:
    """The part of an interval that lies in [0, limit), at least one pixel of that."""
    first = min(max(start, 0), limit - 1)
    return first, max(min(start + length, limit), first + 1)


def _bounds(properties: Any) -> tuple[int, int]:
    try:
        return int(properties["openslide.bounds-x"]), int(properties["openslide.bounds-y"])
    except (KeyError, ValueError):
        return 0, 0


def _said(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
