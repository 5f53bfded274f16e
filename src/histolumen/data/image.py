"""Reading images and masks of every usual kind, and refusing the rest with a sentence."""

import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from histolumen.errors import ImageError

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp"})
_PHOTOMETRIC = 262  # TIFF tag
MAX_PIXELS = 500_000_000  # 1.5 GB as RGB; beyond that it is a slide

ImageFile.LOAD_TRUNCATED_IMAGES = False
Image.MAX_IMAGE_PIXELS = None  # `_open` checks the header against MAX_PIXELS itself, with a better message


def read_image(path: Path) -> np.ndarray:
    """Decode to RGB [H, W, 3] uint8: grey is repeated, transparency lies on white (empty glass), 16 bits become 8."""
    with _open(path) as image:
        return _to_rgb(_decoded(image, path))


def read_mask(path: Path, size: tuple[int, int]) -> np.ndarray:
    """Decode to [H, W] bool: any non-zero pixel (instance labels too) is foreground.

    Args:
        path: of the mask.
        size: height and width of the image it belongs to.
    """
    with _open(path) as image:
        if (image.height, image.width) != size:
            raise ImageError(
                f"{path}: the mask is {image.width} x {image.height} pixels but its image {size[1]} x {size[0]}; "
                "give the mask of this very image"
            )
        values = np.asarray(_decoded(image, path))
        if _white_is_zero(image):
            values = ~values
    if values.ndim == 3:
        colours = values.shape[2] if values.shape[2] in {1, 3} else values.shape[2] - 1  # without alpha
        return (values[..., :colours] != 0).any(2)
    return values != 0


def _open(path: Path) -> Image.Image:
    try:
        if path.stat().st_size == 0:
            raise ImageError(f"{path}: the file is empty; copy it again")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # metadata oddities; pixels are what counts
            image = Image.open(path)
    except FileNotFoundError as error:
        raise ImageError(f"{path}: no such file; check the path and, for a manifest, where its images are") from error
    except UnidentifiedImageError as error:
        raise ImageError(f"{path}: not an image that can be read; convert it to PNG or TIFF") from error
    except (OSError, ValueError, SyntaxError) as error:
        raise ImageError(f"{path}: cannot be read ({error}); copy it again or convert it to PNG") from error
    if image.width * image.height > MAX_PIXELS:
        image.close()
        raise ImageError(
            f"{path}: {image.width} x {image.height} pixels are over the limit of {MAX_PIXELS:,}; "
            "cut it into tiles or shrink it first"
        )
    return image


def _white_is_zero(image: Image.Image) -> bool:
    """Whether a bilevel TIFF stores 1 as black: a mask means its stored values, Pillow gives their look."""
    tags = getattr(image, "tag_v2", {})
    return image.mode == "1" and tags.get(_PHOTOMETRIC) == 0


def _decoded(image: Image.Image, path: Path) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image.load()
    except (OSError, ValueError, SyntaxError, EOFError, IndexError) as error:
        raise ImageError(f"{path}: damaged or truncated ({error}); copy it again from its source") from error
    except MemoryError as error:
        raise ImageError(f"{path}: too large for this machine's memory; cut it into tiles first") from error
    return image


def _to_rgb(image: Image.Image) -> np.ndarray:
    if image.mode.startswith("I") or image.mode == "F":
        return np.repeat(_eight_bits(np.asarray(image))[..., None], 3, axis=2)
    if image.mode in {"RGBA", "LA", "PA", "La", "RGBa"} or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    return np.array(image.convert("RGB"))


def _eight_bits(values: np.ndarray) -> np.ndarray:
    """Scale by the range of the number format, so that brightness stays comparable between images."""
    if values.dtype.kind == "f":
        top = 1.0 if np.nanmax(values, initial=0) <= 1 else 255.0
        return (np.nan_to_num(values).clip(0, top) * (255 / top)).round().astype(np.uint8)
    return (values.clip(0, 65535) / 257).round().astype(np.uint8)
