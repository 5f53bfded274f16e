"""Images that a gland model knows nothing about: what was done to good images, and pictures of other things."""

from collections.abc import Callable

import numpy as np
import skimage.data
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from skimage import color

from histolumen.slides.reader import Region, Slide

SIZE = 522, 775  # height and width of the images of GlaS
_PHOTOS = ("astronaut", "coffee", "chelsea", "rocket", "camera", "coins", "moon", "brick", "grass", "gravel")
Change = Callable[[np.ndarray], np.ndarray]


def blurred(image: np.ndarray, radius: float) -> np.ndarray:
    """Blurred by a Gaussian with this standard deviation in pixels."""
    return np.array(Image.fromarray(image).filter(ImageFilter.GaussianBlur(radius)))


def grey(image: np.ndarray) -> np.ndarray:
    """Without colour."""
    return np.array(Image.fromarray(image).convert("L").convert("RGB"))


def stained_brown(image: np.ndarray) -> np.ndarray:
    """Haematoxylin and DAB, as in immunohistochemistry: the eosin becomes brown."""
    stains = color.rgb2hed(image)
    brown = np.stack([0.6 * stains[..., 0], np.zeros_like(stains[..., 0]), 1.2 * stains[..., 1]], axis=-1)
    return (255 * color.hed2rgb(brown).clip(0, 1)).astype(np.uint8)


def stained_blue(image: np.ndarray) -> np.ndarray:
    """Nearly as in a trichrome stain: the eosin becomes blue."""
    haematoxylin, eosin = np.moveaxis(color.rgb2hed(image)[..., :2], 2, 0)
    density = [1.95 * haematoxylin + 5.9 * eosin, 2.1 * haematoxylin + 1.8 * eosin, 0.9 * haematoxylin + 0.6 * eosin]
    return (255 * np.exp(-np.stack(density, axis=-1).clip(0))).clip(0, 255).astype(np.uint8)


def enlarged(image: np.ndarray, factor: int) -> np.ndarray:
    """The middle of the image at a higher magnification."""
    height, width = image.shape[:2]
    top, left = (height - height // factor) // 2, (width - width // factor) // 2
    part = image[top : top + height // factor, left : left + width // factor]
    return np.array(Image.fromarray(part).resize((width, height), Image.Resampling.BICUBIC))


def reduced(image: np.ndarray, factor: int) -> np.ndarray:
    """The image beside its mirror images, at a lower magnification."""
    height, width = image.shape[:2]
    mirrored = np.pad(image, ((0, height * (factor - 1)), (0, width * (factor - 1)), (0, 0)), mode="symmetric")
    return np.array(Image.fromarray(mirrored).resize((width, height), Image.Resampling.BOX))


def with_pen(image: np.ndarray, ink: tuple[int, int, int]) -> np.ndarray:
    """A thick line of a felt pen across the image."""
    picture, (height, width) = Image.fromarray(image), image.shape[:2]
    heights = np.random.default_rng(0).uniform(0.2 * height, 0.8 * height, 6)
    points = [(float(x), float(y)) for x, y in zip(np.linspace(0, width, 6), heights, strict=True)]
    ImageDraw.Draw(picture).line(points, fill=ink, width=height // 12, joint="curve")
    return np.array(picture)


def mostly_glass(image: np.ndarray) -> np.ndarray:
    """A corner of the tissue on white glass."""
    height, width = image.shape[0] // 4, image.shape[1] // 5
    empty = np.full_like(image, 245)
    empty[:height, :width] = image[:height, :width]
    return empty


CHANGES: dict[str, Change] = {
    "blurred (2 pixels)": lambda image: blurred(image, 2),
    "blurred (4 pixels)": lambda image: blurred(image, 4),
    "inverted": lambda image: 255 - image,
    "grey": grey,
    "brown stain": stained_brown,
    "blue stain": stained_blue,
    "magnified 2 times": lambda image: enlarged(image, 2),
    "magnified 4 times": lambda image: enlarged(image, 4),
    "reduced 2 times": lambda image: reduced(image, 2),
    "reduced 4 times": lambda image: reduced(image, 4),
    "blue pen": lambda image: with_pen(image, (20, 40, 160)),
    "green pen": lambda image: with_pen(image, (10, 120, 60)),
    "black pen": lambda image: with_pen(image, (15, 15, 20)),
    "nearly no tissue": mostly_glass,
}
"""What was done to an image, by name."""


def noise() -> list[np.ndarray]:
    """Random pixels."""
    random = np.random.default_rng(0)
    uniform = [random.integers(0, 256, (*SIZE, 3)).astype(np.uint8) for _ in range(3)]
    normal = [random.normal(128, 40, (*SIZE, 3)).clip(0, 255).astype(np.uint8) for _ in range(2)]
    return [*uniform, *normal]


def text() -> list[np.ndarray]:
    """Printed pages."""
    random, pages = np.random.default_rng(0), []
    for _ in range(4):
        page = Image.new("RGB", (SIZE[1], SIZE[0]), "white")
        words = ["".join(map(chr, random.integers(97, 123, random.integers(2, 9)))) for _ in range(200)]
        for line in range(18):
            content = " ".join(words[11 * line : 11 * line + 11])
            ImageDraw.Draw(page).text((8, 8 + 28 * line), content, fill="black", font=ImageFont.load_default(size=22))
        pages.append(np.array(page))
    return [*pages, _rgb(skimage.data.page()), _rgb(skimage.data.text())]


def photos() -> list[np.ndarray]:
    """Photographs that come with scikit-image."""
    return [_rgb(getattr(skimage.data, name)()) for name in _PHOTOS]


def immunohistochemistry() -> list[np.ndarray]:
    """Colon glands, but in another stain: haematoxylin and DAB; four parts of the image of scikit-image."""
    image = _rgb(skimage.data.immunohistochemistry())
    return [image[top : top + 256, left : left + 256] for top in (0, 256) for left in (0, 256)]


def fields_of(slide: Slide, mpp: float) -> list[np.ndarray]:
    """Fields of a slide as large as images of GlaS at `mpp` microns per pixel, where half or more is tissue."""
    scale = mpp / slide.require_mpp()
    height, width = SIZE[0] * scale, SIZE[1] * scale
    fields = []
    for top in np.arange(0, slide.height - height + 1, height / 2):
        for left in np.arange(0, slide.width - width + 1, width / 2):
            field = slide.read(Region(left, top, width, height), (SIZE[1], SIZE[0]), scale)
            if (field.min(2) < 215).mean() > 0.5:
                fields.append(field)
    return fields


def in_colours_of(images: list[np.ndarray], models: list[np.ndarray]) -> list[np.ndarray]:
    """Images with mean and spread of their colours made equal to those of other images (Reinhard et al. 2001)."""
    mean, spread = np.mean([_moments(color.rgb2lab(model[::4, ::4]).reshape(-1, 3)) for model in models], axis=0)
    changed = []
    for image in images:
        lab = color.rgb2lab(image)
        own_mean, own_spread = _moments(lab[image.min(2) < 225])
        matched = color.lab2rgb((lab - own_mean) / own_spread * spread + mean)
        changed.append((255 * matched.clip(0, 1)).astype(np.uint8))
    return changed


def _moments(colours: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return colours.mean(0), colours.std(0)


def _rgb(image: np.ndarray) -> np.ndarray:
    grey_levels = image.ndim == 2
    return np.repeat(image[..., None], 3, axis=2) if grey_levels else image[..., :3]
