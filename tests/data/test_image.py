"""All common image formats are decoded to RGB or a mask; other files are refused with path and advice."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from histolumen.data import image as image_module
from histolumen.data.image import ImageWarning, as_rgb, image_size, read_image, read_mask
from histolumen.errors import ImageError

BLACK, RED, WHITE = [0, 0, 0], [200, 10, 20], [255, 255, 255]


def refused(path: Path, text: str = ""):
    """Expect an error that names the file and contains `text`."""
    return pytest.raises(ImageError, match=re.escape(str(path)) + ".*" + text)


# --- image formats


def test_rgb_is_unchanged(save):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    for name in ("x.png", "x.bmp", "x.tif"):
        assert (read_image(save(pixels, name)) == pixels).all()
    assert (read_image(save(pixels, "x.webp", lossless=True)) == pixels).all()


def test_grey_is_repeated(save):
    grey = np.array([[0, 90, 255]], np.uint8)
    assert read_image(save(grey)).tolist() == [[[0] * 3, [90] * 3, [255] * 3]]


def test_one_bit_images(save):
    assert read_image(save(np.array([[True, False]]))).tolist() == [[WHITE, BLACK]]


@pytest.fixture
def palette() -> Image.Image:
    """Two pixels: index 0 is red, index 1 is black."""
    picture = Image.new("P", (2, 1))
    picture.putpalette(RED + BLACK)
    picture.putpixel((1, 0), 1)
    return picture


def test_palette_becomes_its_colours(save, palette):
    assert read_image(save(palette)).tolist() == [[RED, BLACK]]


def test_transparent_palette_entries_become_white(save, palette):
    assert read_image(save(palette, "index.png", transparency=1)).tolist() == [[RED, WHITE]]
    half = read_image(save(palette, "table.png", transparency=bytes([255, 128])))
    assert half[0, 0].tolist() == RED
    assert half[0, 1].tolist() == pytest.approx([127] * 3, abs=1)


def test_transparent_pixels_become_white(save):
    pixels = np.array([[[*RED, 255], [*RED, 0], [0, 0, 0, 128]]], np.uint8)
    read = read_image(save(pixels))
    assert read[0, :2].tolist() == [RED, WHITE]
    assert read[0, 2].tolist() == pytest.approx([127] * 3, abs=1)


def test_transparent_grey_becomes_white(save):
    grey, alpha = Image.fromarray(np.array([[40, 40]], np.uint8)), Image.fromarray(np.array([[255, 0]], np.uint8))
    assert read_image(save(Image.merge("LA", [grey, alpha]))).tolist() == [[[40] * 3, WHITE]]


def test_a_colour_declared_transparent_becomes_white(save):
    pixels = np.array([[RED, BLACK]], np.uint8)
    assert read_image(save(pixels, transparency=(0, 0, 0))).tolist() == [[RED, WHITE]]


def test_cmyk_becomes_rgb(save):
    inks = Image.new("CMYK", (3, 1))
    for x, ink in enumerate([(0, 0, 0, 0), (0, 0, 0, 255), (255, 0, 0, 0)]):
        inks.putpixel((x, 0), ink)
    assert read_image(save(inks, "x.tif")).tolist() == [[WHITE, BLACK, [0, 255, 255]]]


def test_sixteen_bit_grey_is_scaled_by_its_range(save):
    levels = np.array([[0, 257, 128 * 257, 65535]], np.uint16)
    for name in ("x.png", "x.tif"):
        assert read_image(save(levels, name))[0, :, 0].tolist() == [0, 1, 128, 255]


def test_dark_sixteen_bit_grey_is_not_stretched(save):
    """Brightness must stay comparable between images: no scaling by an image's own maximum."""
    assert read_image(save(np.array([[0, 16 * 257]], np.uint16))).max() == 16


@pytest.mark.parametrize("name", ["x.png", "x.tif"])
def test_twelve_bits_in_a_sixteen_bit_file_are_scaled_and_said(save, name):
    levels = np.array([[0, 2048, 4095]], np.uint16)
    with pytest.warns(ImageWarning, match="read as 12-bit"):
        assert read_image(save(levels, name))[0, :, 0].tolist() == [0, 128, 255]


@pytest.mark.parametrize(("bits", "top"), [(10, 1023), (12, 4095), (14, 16383)])
def test_significant_bits_in_the_header_are_used(tmp_path, png, bits, top):
    """A PNG may state them; then nothing has to be guessed, for a dark image neither."""
    path = tmp_path / "x.png"
    path.write_bytes(png(3, 1, 16, 0, [np.array([0, top // 2 + 1, top], ">u2").tobytes()], sbit=bytes([bits])))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_image(path)[0, :, 0].tolist() == [0, 128, 255]
    path.write_bytes(png(1, 1, 16, 0, [np.array([257], ">u2").tobytes()], sbit=bytes([16])))
    assert read_image(path).max() == 1


def test_the_largest_value_in_a_tiff_header_is_used(save):
    path = save(np.array([[0, 1023]], np.uint16), "x.tif", tiffinfo={281: 1023})
    assert read_image(path)[0, :, 0].tolist() == [0, 255]


def test_twelve_bits_in_sixteen_bit_colour_are_refused(tmp_path, png):
    """Pillow keeps the upper eight bits only: four of the twelve."""
    path = tmp_path / "x.png"
    path.write_bytes(png(2, 1, 16, 2, [np.array([0, 2048, 4095, 257, 500, 300], ">u2").tobytes()]))
    with refused(path, "16-bit colour whose values stay below 4096"):
        read_image(path)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["x.png", "x.jpg", "x.tif", "x.webp"])
def test_the_orientation_in_the_header_is_applied(save, name, orientation):
    pixels = np.zeros((24, 40, 3), np.uint8)
    pixels[:8, :16] = 255
    picture = Image.fromarray(pixels)
    exif = picture.getexif()
    exif[274] = orientation
    options = {"quality": 95} if name.endswith("jpg") else {"lossless": True} if name.endswith("webp") else {}
    path = save(picture, name, exif=exif, **options)
    upright = np.asarray(ImageOps.exif_transpose(_with_orientation(pixels, orientation)))
    assert np.abs(read_image(path).astype(int) - upright).max() < 40
    mask = read_mask(path, upright.shape[:2])
    assert np.array_equal(mask, upright[..., 0] > 0) or name.endswith("jpg")


def _with_orientation(pixels: np.ndarray, orientation: int) -> Image.Image:
    picture = Image.fromarray(pixels)
    picture.getexif()[274] = orientation
    return picture


def test_a_picture_in_memory_is_turned_too():
    assert as_rgb(_with_orientation(np.zeros((2, 3, 3), np.uint8), 6)).shape == (3, 2, 3)


# --- files with several images


def frames(*sizes: tuple[int, int]) -> list[Image.Image]:
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 255, (*size, 3), np.uint8)) for size in sizes]


@pytest.mark.parametrize("name", ["x.tif", "x.png", "x.webp"])
def test_a_file_with_several_images_is_refused(save, name):
    first, *others = frames((32, 48), (32, 48), (32, 48))
    path = save(first, name, save_all=True, append_images=others)
    with refused(path, "3 images in one file; save them as separate files"):
        read_image(path)
    with refused(path, "3 images"):
        read_mask(path, (32, 48))


def test_a_smaller_page_of_another_shape_is_another_image(save):
    first, other = frames((64, 96), (30, 30))
    path = save(first, "x.tif", save_all=True, append_images=[other])
    with refused(path, "2 images"):
        read_image(path)


def test_a_pyramid_is_one_image(save):
    first, *levels = frames((64, 96), (32, 48), (16, 24))
    path = save(first, "x.tif", save_all=True, append_images=levels)
    assert (read_image(path) == np.asarray(first)).all()


def test_an_endless_number_of_pages_is_refused_quickly(save):
    first = Image.new("L", (8, 8))
    path = save(first, "x.tif", save_all=True, append_images=[first] * 300)
    with refused(path, "images in one file"):
        read_image(path)


def test_sixteen_bit_rgb_becomes_eight(tmp_path, png):
    path = tmp_path / "x.png"
    path.write_bytes(png(2, 1, 16, 2, [np.array([0, 128 * 257, 65535, 257, 2 * 257, 3 * 257], ">u2").tobytes()]))
    assert read_image(path).tolist() == [[[0, 128, 255], [1, 2, 3]]]


def test_float_images_of_unit_range_and_of_byte_range(save):
    assert read_image(save(np.array([[0, 0.5, 1]], np.float32), "unit.tif"))[0, :, 2].tolist() == [0, 128, 255]
    assert read_image(save(np.array([[0, 0.5, 255]], np.float32), "byte.tif"))[0, :, 2].tolist() == [0, 0, 255]


def test_float_images_with_nan_infinity_and_negative_values(save):
    odd = np.array([[np.nan, -np.inf, -3, np.inf, 40]], np.float32)
    assert read_image(save(odd, "x.tif"))[0, :, 0].tolist() == [0, 0, 0, 255, 40]


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "I;16", "I", "F", "LAB"])
def test_one_pixel_of_every_mode(save, mode):
    read = read_image(save(Image.new(mode, (1, 1)), "x.tif"))
    assert read.shape == (1, 1, 3)
    assert read.dtype == np.uint8


# --- refused files


def test_a_missing_file_is_refused(tmp_path):
    with refused(tmp_path / "x.png", "no such file"):
        read_image(tmp_path / "x.png")


def test_an_empty_file_is_refused(tmp_path):
    path = tmp_path / "x.png"
    path.touch()
    with refused(path, "empty"):
        read_image(path)


def test_a_text_file_is_refused(tmp_path):
    path = tmp_path / "x.png"
    path.write_text("image,label\n")
    with refused(path, "not an image"):
        read_image(path)


def test_a_folder_is_refused(tmp_path):
    with refused(tmp_path):
        read_image(tmp_path)


@pytest.mark.parametrize("name", ["x.png", "x.jpg", "x.bmp", "x.tif", "x.webp"])
def test_a_file_truncated_anywhere_is_refused(save, name):
    path = save(np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8), name)
    whole = path.read_bytes()
    for length in range(1, len(whole) * 9 // 10, len(whole) // 40):
        path.write_bytes(whole[:length])
        with refused(path):
            read_image(path)


def test_damaged_pixels_are_refused(save):
    path = save(np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8))
    content = bytearray(path.read_bytes())
    start = content.index(b"IDAT") + 20
    content[start : start + 40] = bytes(40)
    path.write_bytes(content)
    with refused(path, "damaged"):
        read_image(path)


@pytest.mark.parametrize("read", [read_image, lambda path: read_mask(path, (100_000, 100_000))])
def test_an_enormous_image_is_refused_by_its_header(tmp_path, png, read):
    path = tmp_path / "x.png"
    path.write_bytes(png(100_000, 100_000, 8, 2, [b""]))
    with refused(path, "100000 x 100000 pixels are over the limit"):
        read(path)


def test_the_limit_itself_is_allowed(save, monkeypatch):
    path = save(np.zeros((3, 4, 3), np.uint8))
    monkeypatch.setattr(image_module, "MAX_PIXELS", 12)
    assert read_image(path).shape == (3, 4, 3)
    monkeypatch.setattr(image_module, "MAX_PIXELS", 11)
    with refused(path, "limit of 11"):
        read_image(path)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_size_in_the_header_is_that_of_the_upright_image(tmp_path, orientation):
    header = Image.Exif()
    header[274] = orientation
    Image.new("RGB", (7, 5)).save(tmp_path / "x.jpg", exif=header)
    height, width = read_image(tmp_path / "x.jpg").shape[:2]
    assert image_size(tmp_path / "x.jpg") == (width, height)


def test_a_caller_may_set_a_lower_limit(save):
    path = save(np.zeros((3, 4, 3), np.uint8))
    assert image_size(path) == (4, 3)
    assert read_image(path, max_pixels=12).shape == (3, 4, 3)
    with refused(path, "limit of 11"):
        read_image(path, max_pixels=11)


# --- masks


def test_every_instance_label_is_foreground(save):
    for name in ("x.png", "x.bmp", "x.tif"):
        mask = read_mask(save(np.array([[0, 1, 2, 32, 255]], np.uint8), name), (1, 5))
        assert mask.dtype == bool
        assert mask.tolist() == [[False, True, True, True, True]]


def test_a_palette_mask_is_read_by_index_not_by_colour(save, palette):
    assert read_mask(save(palette), (1, 2)).tolist() == [[False, True]]  # red is index 0, black is index 1


def test_a_colour_mask_is_foreground_where_any_channel_is(save):
    pixels = np.array([[[0, 0, 0], [0, 0, 3], [255, 255, 255]]], np.uint8)
    assert read_mask(save(pixels), (1, 3)).tolist() == [[False, True, True]]


def test_alpha_is_ignored_in_a_mask(save):
    pixels = np.array([[[0, 0, 0, 255], [0, 0, 3, 255], [0, 0, 0, 0]]], np.uint8)
    assert read_mask(save(pixels, "rgba.png"), (1, 3)).tolist() == [[False, True, False]]
    grey, alpha = Image.fromarray(np.array([[0, 9]], np.uint8)), Image.new("L", (2, 1), 255)
    assert read_mask(save(Image.merge("LA", [grey, alpha]), "la.png"), (1, 2)).tolist() == [[False, True]]


def test_sixteen_bit_labels_are_not_cut_to_eight_bits(save):
    for name in ("x.png", "x.tif"):
        labels = np.array([[0, 1, 256, 65280]], np.uint16)
        assert read_mask(save(labels, name), (1, 4)).tolist() == [[False, True, True, True]]


def test_a_mask_of_one_bit(save):
    for name in ("x.png", "x.tif"):
        assert read_mask(save(np.array([[True, False, True]]), name), (1, 3)).tolist() == [[True, False, True]]


@pytest.mark.parametrize("size", [(4, 3), (3, 5), (6, 8)])
def test_a_mask_of_another_size_is_refused(save, size):
    path = save(np.zeros((3, 4), np.uint8))
    with refused(path, f"4 x 3 pixels but its image {size[1]} x {size[0]}"):
        read_mask(path, size)


def test_a_missing_and_a_truncated_mask_are_refused(tmp_path, save):
    with refused(tmp_path / "none.png", "no such file"):
        read_mask(tmp_path / "none.png", (16, 16))
    path = save(np.random.default_rng(0).integers(0, 9, (16, 16), np.uint8))
    path.write_bytes(path.read_bytes()[:90])
    with refused(path, "damaged or truncated"):
        read_mask(path, (16, 16))


def test_a_bilevel_tiff_mask_keeps_its_stored_values(tmp_path):
    """Boolean TIFFs often declare that zero is white, so that viewers show ones as black."""
    truth = np.zeros((4, 8), bool)
    truth[1, 2:6] = True
    image = Image.fromarray(~truth)  # Pillow inverts on writing with this tag, as it does on reading
    image.save(tmp_path / "m.tif", tiffinfo={262: 0})
    assert Image.open(tmp_path / "m.tif").tag_v2[262] == 0
    raw = np.frombuffer((tmp_path / "m.tif").read_bytes(), np.uint8)
    assert np.packbits(truth[1])[0] in raw  # the stored bits are those of the mask
    assert np.array_equal(read_mask(tmp_path / "m.tif", (4, 8)), truth)


@pytest.mark.parametrize("form", ["TIFF", "JPEG", "PNG"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_the_size_in_the_header_is_that_of_the_upright_image_in_every_format(tmp_path, form, orientation):
    """Found by the fuzzer: the sides of a TIFF that lies on its side were swapped twice."""
    exif = Image.Exif()
    exif[274] = orientation
    Image.new("RGB", (40, 32), (200, 100, 150)).save(tmp_path / "x", form, exif=exif)
    height, width, _ = read_image(tmp_path / "x").shape
    assert image_size(tmp_path / "x") == (width, height) == ((32, 40) if orientation > 4 else (40, 32))
