"""Decode images and masks of all common formats; anything else is an `ImageError`."""

import os
import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError
from torch import Tensor

from histolumen.data.bit_depth import guessed_bits, is_sixteen_bit_colour, stated_bits
from histolumen.errors import ImageError

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp"})
FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP")  # JPEG includes MPO, a photograph with its preview
"""By content. Pillow knows forty more, some of which start other programs (PostScript) or are hardly tested."""
_ORIENTATION, _SIDEWAYS = 274, {5, 6, 7, 8}  # header tag, and its values that swap width and height
_PHOTOMETRIC, _SIDES = 262, (256, 257)  # TIFF tags
MAX_PIXELS = 500_000_000  # 1.5 GB as RGB; larger images should be read as slides
_MAX_LEVELS = 32  # pages of a pyramid
_ASPECT_TOLERANCE = 0.05  # of the levels of a pyramid, whose sides are rounded
_DIM = 15  # largest upper byte of 12 bits in 16
READ_AS_TWELVE_BIT = "16-bit files whose values stay below 4096, read as 12-bit (below 256: as 8-bit)"

ImageFile.LOAD_TRUNCATED_IMAGES = False
Image.MAX_IMAGE_PIXELS = None  # `_open` checks MAX_PIXELS itself, with a better message


class ImageWarning(UserWarning):
    """An image was read, but by a guess that the user should know."""


def read_image(path: Path, max_pixels: int | None = None) -> np.ndarray:
    """Decode to upright RGB [H, W, 3] uint8.

    Grey is repeated, transparent pixels become white, 16 bits become 8, and the orientation in the header is applied.
    16-bit grey is scaled by the bits that its header states, or else by 8, 12 or 16, with an `ImageWarning`.

    Args:
        path: image file.
        max_pixels: larger images are an error, before any pixel is decoded; None: `MAX_PIXELS`.
    """
    with _open(path, max_pixels) as image:
        colour = is_sixteen_bit_colour(image)
        bits = None if colour else stated_bits(image, path)
        pixels = _to_rgb(_upright(_decode(image, path)), bits)
    if colour and pixels.max() <= _DIM:
        raise ImageError(
            f"{path}: 16-bit colour whose values stay below 4096 would be read nearly black; convert it to 8 bits"
        )
    return pixels


ImageLike = str | os.PathLike[str] | Image.Image | np.ndarray | Tensor
"""A path, a PIL image, an array [H, W, 3] or [H, W], or a tensor [3, H, W]; uint8, or floats in [0, 1]."""


def as_rgb(image: ImageLike) -> np.ndarray:
    """Convert any kind of image to RGB [H, W, 3] uint8."""
    if isinstance(image, str | os.PathLike):
        return read_image(Path(image))
    if isinstance(image, Image.Image):
        return _to_rgb(_upright(image))
    if isinstance(image, Tensor):
        if image.ndim != 3 or image.shape[0] != 3:
            raise ImageError(f"image: expected a tensor [3, H, W], found {list(image.shape)}")
        image = image.detach().cpu().permute(1, 2, 0).numpy()
    if not isinstance(image, np.ndarray):
        raise ImageError(f"image: expected a path, a PIL image, an array or a tensor, found {type(image).__name__}")
    grey = image.ndim == 2
    if not grey and (image.ndim != 3 or image.shape[2] != 3):
        raise ImageError(f"image: expected RGB [H, W, 3] or grey [H, W], found {list(image.shape)}")
    if 0 in image.shape:
        raise ImageError(f"image: has no pixels ({list(image.shape)})")
    pixels = _to_uint8(image)
    return np.repeat(pixels[..., None], 3, axis=2) if grey else pixels


def _to_uint8(values: np.ndarray) -> np.ndarray:
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "f":
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
            raise ImageError("image: floats must lie in [0, 1]; divide by 255, or give uint8")
        return (255 * values).round().astype(np.uint8)
    raise ImageError(f"image: values must be uint8 or floats in [0, 1], found {values.dtype}")


def read_mask(path: Path, size: tuple[int, int]) -> np.ndarray:
    """Decode to [H, W] bool: every non-zero pixel (any instance label) is foreground.

    Args:
        path: mask file.
        size: height and width of the image that the mask belongs to.
    """
    with _open(path) as image:
        if is_sixteen_bit_colour(image):
            raise ImageError(f"{path}: a mask of 16-bit colour loses its small labels; convert it to grey or 8 bits")
        inverted = _white_is_zero(image)
        values = np.asarray(_upright(_decode(image, path)))
        height, width = values.shape[:2]
        if (height, width) != size:
            raise ImageError(
                f"{path}: the mask is {width} x {height} pixels but its image {size[1]} x {size[0]}; "
                "give the mask that belongs to this image"
            )
        if inverted:
            values = ~values
    if values.ndim == 3:
        colours = values.shape[2] if values.shape[2] in {1, 3} else values.shape[2] - 1  # without alpha
        return (values[..., :colours] != 0).any(2)
    return values != 0


def image_size(path: Path) -> tuple[int, int]:
    """Width and height of the upright image, from the header of a file."""
    with _open(path) as image:
        try:
            sideways = image.getexif().get(_ORIENTATION) in _SIDEWAYS
        except Exception:  # noqa: BLE001 - as in `_upright`
            sideways = False
        # of a TIFF, some versions of Pillow return the upright size already
        width, height = (
            getattr(image, "tag_v2", {}).get(tag, side) for tag, side in zip(_SIDES, image.size, strict=True)
        )
        return (height, width) if sideways else (width, height)


def _open(path: Path, max_pixels: int | None = None) -> Image.Image:
    try:
        empty = path.stat().st_size == 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about metadata; only the pixels matter
            image = None if empty else Image.open(path, formats=FORMATS)
            several = 0 if image is None else _separate_images(image)
    except FileNotFoundError as error:
        raise ImageError(f"{path}: no such file; check the path and, for a manifest, where its images are") from error
    except UnidentifiedImageError as error:
        raise ImageError(f"{path}: not an image that can be read; convert it to PNG or TIFF") from error
    except Exception as error:  # damaged headers raise anything
        raise ImageError(f"{path}: cannot be read ({error}); copy it again or convert it to PNG") from error
    if image is None:
        raise ImageError(f"{path}: the file is empty; copy it again")
    if several:
        image.close()
        raise ImageError(
            f"{path}: {several} images in one file; save them as separate files, one image in each "
            "(a whole slide: use `histolumen slide`)"
        )
    limit = MAX_PIXELS if max_pixels is None else max_pixels
    if image.width * image.height > limit:
        image.close()
        raise ImageError(
            f"{path}: {image.width} x {image.height} pixels are over the limit of {limit:,}; "
            "predict it as a whole slide with `histolumen slide`, or cut it into tiles"
        )
    return image


def _separate_images(image: Image.Image) -> int:
    """Number of images in a file with several (TIFF pages, animations); 0 for one image and the levels of a pyramid."""
    count = getattr(image, "n_frames", 1)
    if count == 1 or image.format == "MPO":  # a photograph with its preview
        return 0
    if image.format != "TIFF" or count > _MAX_LEVELS:
        return count
    sizes = []
    for page in range(count):
        image.seek(page)
        sizes.append(image.size)
    image.seek(0)
    (width, height), *levels = sizes
    pyramid = all(
        max(level) < max(before) and abs(level[0] * height / (level[1] * width) - 1) < _ASPECT_TOLERANCE
        for before, level in zip(sizes, levels, strict=False)
    )
    return 0 if pyramid else count


def _upright(image: Image.Image) -> Image.Image:
    """Apply the orientation in the header, as viewers do; a header that cannot be read has none."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # noqa: BLE001 - damaged metadata raises anything; the pixels are decoded already
        return image


def _white_is_zero(image: Image.Image) -> bool:
    """Whether a bilevel TIFF stores 1 as black. Masks need the stored values, but Pillow returns the displayed ones."""
    tags = getattr(image, "tag_v2", {})
    return image.mode == "1" and tags.get(_PHOTOMETRIC) == 0


def _decode(image: Image.Image, path: Path) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image.load()
    except MemoryError as error:
        raise ImageError(f"{path}: too large for this machine's memory; cut it into tiles first") from error
    except Exception as error:  # damaged files raise anything
        raise ImageError(f"{path}: damaged or truncated ({error}); copy it again from its source") from error
    return image


def _to_rgb(image: Image.Image, bits: int | None = None) -> np.ndarray:
    if image.mode.startswith("I") or image.mode == "F":
        return np.repeat(_scale_to_uint8(np.asarray(image), bits)[..., None], 3, axis=2)
    if image.mode in {"RGBA", "LA", "PA", "La", "RGBa"} or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    return np.array(image.convert("RGB"))


def _scale_to_uint8(values: np.ndarray, bits: int | None) -> np.ndarray:
    """Scale by the range of the stored bits, not of the image: brightness stays comparable between images."""
    if values.dtype.kind == "f":
        top = 1.0 if np.nanmax(values, initial=0) <= 1 else 255.0
        return (np.nan_to_num(values).clip(0, top) * (255 / top)).round().astype(np.uint8)
    if bits is None:
        bits = guessed_bits(values)
        if bits < 16 and values.any():
            warnings.warn(READ_AS_TWELVE_BIT, ImageWarning, stacklevel=2)
    top = 2**bits - 1
    return (values.clip(0, top) * (255 / top)).round().astype(np.uint8)
