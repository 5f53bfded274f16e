"""A soft mask as a pyramidal TIFF for OpenSlide and QuPath."""

import math
from pathlib import Path

import numpy as np

from histolumen.atomic import new_file
from histolumen.errors import DiskError
from histolumen.extras import require

_TILE = 256
_FINE = 2  # interpolated pixels per cell of the heat map; they are repeated, which makes small files and saves time


def save_heatmap(heat: np.ndarray, scale: float, size: tuple[int, int], mpp: float, path: Path) -> None:
    """Enlarge a heat map to the size of its slide and write it as a pyramidal TIFF with plain IFDs and resolution.

    Args:
        heat: [h, w] uint8, 255 is 1.
        scale: pixels of the slide per pixel of the heat map.
        size: width and height of the slide.
        mpp: microns per pixel of the slide.
        path: of the TIFF to write.
    """
    require("slides", "pyvips")
    import pyvips  # noqa: PLC0415 - an extra

    per_mm = 1000 / mpp
    step = 2 ** max(0, math.floor(math.log2(scale / _FINE)))
    coarse = scale / step
    with new_file(path) as temporary:
        try:
            grey = pyvips.Image.new_from_array(np.ascontiguousarray(heat))
            smooth = grey.affine(
                [coarse, 0, 0, coarse],
                # the centre of cell i lies at pixel (i + 0.5) * coarse - 0.5
                idx=0.0,
                idy=0.0,
                odx=(coarse - 1) / 2,
                ody=(coarse - 1) / 2,
                oarea=[0, 0, *(-(-side // step) for side in size)],
                interpolate=pyvips.Interpolate.new("bilinear"),
                extend="copy",
            )
            large = smooth.zoom(step, step).crop(0, 0, *size)
            large.copy(interpretation="b-w", xres=per_mm, yres=per_mm).tiffsave(
                str(temporary),
                tile=True,
                tile_width=_TILE,
                tile_height=_TILE,
                pyramid=True,
                compression="jpeg",  # changes values by at most 2 of 255; deflate takes six times as long
                Q=95,
                bigtiff=True,
                resunit="cm",
            )
        except pyvips.Error as error:
            raise DiskError(f"{path}: could not be written ({str(error).strip().splitlines()[-1]})") from error
