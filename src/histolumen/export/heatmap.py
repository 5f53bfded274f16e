"""A soft mask as a pyramidal TIFF that OpenSlide and QuPath open beside the slide it belongs to."""

from pathlib import Path

from histolumen.atomic import new_file
from histolumen.errors import DiskError
from histolumen.extras import require

_TILE = 256


def save_heatmap(
    raw: Path, cells: tuple[int, int], scale: float, size: tuple[int, int], mpp: float, path: Path
) -> None:
    """Enlarge a grey raster to the pixels of its slide and write it with plain IFDs and its resolution.

    Args:
        raw: rows of uint8 values, 255 is 1.
        cells: width and height of the raster.
        scale: pixels of the slide per cell.
        size: width and height of the slide.
        mpp: microns per pixel of the slide.
        path: of the TIFF.
    """
    require("slides", "pyvips")
    import pyvips  # noqa: PLC0415 - an extra

    pyvips.cache_set_max(0)  # it goes by file names, and would take another slide's raster for this one
    per_mm = 1000 / mpp
    with new_file(path) as temporary:
        try:
            grey = pyvips.Image.rawload(str(raw), *cells, 1, access="sequential")
            large = grey.affine(
                [scale, 0, 0, scale],
                # the centre of cell i lies at slide pixel (i + 0.5) * scale - 0.5
                idx=0.0,
                idy=0.0,
                odx=(scale - 1) / 2,
                ody=(scale - 1) / 2,
                oarea=[0, 0, *size],
                interpolate=pyvips.Interpolate.new("bilinear"),
                extend="copy",
            )
            large.copy(interpretation="b-w", xres=per_mm, yres=per_mm).tiffsave(
                str(temporary),
                tile=True,
                tile_width=_TILE,
                tile_height=_TILE,
                pyramid=True,
                compression="jpeg",  # values move by 2 of 255 at most; deflate takes six times as long
                Q=95,
                bigtiff=True,
                resunit="cm",
            )
        except pyvips.Error as error:
            raise DiskError(f"{path}: could not be written ({str(error).strip().splitlines()[-1]})") from error
