"""Geometry: working sizes are multiples, crops are windows, image and mask are transformed together."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from histolumen.data.transforms import (
    ImageSettings,
    QuarterTurn,
    fitting_crop,
    to_unit_range,
    to_working_size,
    training_transform,
    working_mpp,
    working_size,
)
from histolumen.errors import ImageError
from histolumen.vision import tv_tensors

PLAIN = ImageSettings(short_side=32, crop=32, jitter=(0, 0, 0, 0), flips=False, quarter_turns=False)
sides = st.integers(1, 4000)


# --- settings


def test_a_crop_larger_than_the_short_side_is_refused():
    with pytest.raises(ValidationError, match="crop 416 is larger than short_side 400"):
        ImageSettings(short_side=400, crop=416)


def test_at_original_resolution_any_crop_is_allowed():
    assert ImageSettings(short_side=None, crop=1024).crop == 1024


def test_a_square_needs_its_side():
    with pytest.raises(ValidationError, match="resize=square needs the side of the square in short_side"):
        ImageSettings(short_side=None, resize="square")


# --- working size


@given(sides, sides)
def test_a_square_resize_gives_every_image_the_same_size(height, width):
    assume(max(height, width) <= 20 * min(height, width))
    assert working_size(height, width, ImageSettings(short_side=416, crop=416, resize="square")) == (416, 416)


def test_a_square_resize_shows_the_whole_image():
    """Four quarters of one colour each stay quarters."""
    pixels = np.zeros((60, 100, 3), np.uint8)
    pixels[:30, :50], pixels[:30, 50:], pixels[30:, :50] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    image = to_working_size(pixels, ImageSettings(short_side=64, crop=64, resize="square"))
    assert image.shape == (3, 64, 64)
    assert [image[:, y, x].tolist() for y in (10, 50) for x in (10, 50)] == [
        [255, 0, 0], [0, 255, 0], [0, 0, 255], [0, 0, 0],
    ]  # fmt: skip


@given(sides, sides, st.none() | st.integers(32, 1024))
def test_working_sizes_are_multiples_and_keep_the_aspect(height, width, short_side):
    assume(max(height, width) <= 20 * min(height, width))
    settings = ImageSettings(short_side=short_side, crop=32)
    size = working_size(height, width, settings)
    scale = 1 if short_side is None else short_side / min(height, width)
    for side, original in zip(size, (height, width), strict=True):
        assert side % 16 == 0
        assert side >= 32
        assert abs(side - scale * original) <= 8 + 1e-6 or side == 32
    assert working_size(width, height, settings) == size[::-1]


def test_a_glas_image_gets_the_papers_short_side():
    assert working_size(522, 775, ImageSettings()) == (432, 640)


@pytest.mark.parametrize(("height", "width"), [(1, 21), (21, 1), (100, 2001)])
def test_extreme_aspects_are_refused_with_their_path(height, width):
    with pytest.raises(ImageError, match=rf"^a/x\.png: {width} x {height} pixels is too narrow"):
        working_size(height, width, ImageSettings(), Path("a/x.png"))
    with pytest.raises(ImageError, match=r"^image: "):
        working_size(height, width, ImageSettings())


def test_an_aspect_of_twenty_is_still_allowed():
    assert working_size(5, 100, PLAIN) == (32, 640)


def test_an_image_already_at_its_working_size_is_unchanged():
    pixels = np.random.default_rng(0).integers(0, 256, (32, 48, 3), np.uint8)
    assert (to_working_size(pixels, PLAIN).permute(1, 2, 0).numpy() == pixels).all()


def test_arrays_with_negative_strides_are_accepted():
    pixels = np.random.default_rng(0).integers(0, 256, (32, 48, 3), np.uint8)
    assert (to_working_size(pixels[:, ::-1], PLAIN).permute(1, 2, 0).numpy() == pixels[:, ::-1]).all()


def test_one_pixel_becomes_a_small_even_image():
    image = to_working_size(np.array([[[1, 2, 3]]], np.uint8), ImageSettings(short_side=None, crop=32))
    assert image.shape == (3, 32, 32)
    assert image.dtype == torch.uint8
    assert (image == torch.tensor([1, 2, 3])[:, None, None]).all()


def test_unit_range():
    assert to_unit_range(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == pytest.approx([0, 0.2, 1])


# --- resolution


@pytest.fixture
def files(tmp_path):
    """Write images of the given heights and widths."""

    def write(*sizes: tuple[int, int]) -> list[Path]:
        paths = [tmp_path / f"{index}.png" for index in range(len(sizes))]
        for path, (height, width) in zip(paths, sizes, strict=True):
            Image.new("RGB", (width, height)).save(path)
        return paths

    return write


def test_the_working_resolution_of_glas_is_three_quarters_of_a_micron(files):
    settings = ImageSettings(mpp=0.62)  # 522 x 775 becomes 432 x 640
    assert working_mpp(files((522, 775)), settings) == pytest.approx(0.62 / (432 * 640 / 522 / 775) ** 0.5)
    assert working_mpp(files((522, 775)), settings) == pytest.approx(0.75, abs=0.001)


def test_images_of_several_sizes_use_the_median(files):
    settings = PLAIN.model_copy(update={"mpp": 0.5})
    assert working_mpp(files((32, 32), (64, 64), (640, 640)), settings) == pytest.approx(1.0)


def test_at_original_resolution_the_mpp_is_that_of_the_files(files):
    assert working_mpp(files((50, 70)), ImageSettings(short_side=None, mpp=0.25)) == 0.25


def test_images_distorted_to_a_square_have_no_single_resolution(files):
    settings = ImageSettings(short_side=416, crop=416, resize="square", mpp=0.62)
    assert working_mpp(files((522, 775)), settings) is None
    patches = settings.model_copy(update={"mpp": 0.243})  # Camelyon16: square patches are only scaled
    assert working_mpp(files((512, 512)), patches) == pytest.approx(0.243 * 512 / 416)


def test_a_resolution_that_is_not_given_is_unknown(files):
    assert working_mpp(files((50, 70)), ImageSettings()) is None
    with pytest.raises(ValidationError, match="greater than 0"):
        ImageSettings(mpp=0)


def test_unreadable_files_are_ignored(files, tmp_path):
    (tmp_path / "text.png").write_text("no image")
    settings = PLAIN.model_copy(update={"mpp": 0.5})
    broken = [tmp_path / "text.png", tmp_path / "gone.png"]
    assert working_mpp([*broken, *files((64, 64))], settings) == pytest.approx(1.0)
    assert working_mpp(broken, settings) is None


# --- augmentation


@pytest.fixture
def scene() -> tuple[tv_tensors.Image, tv_tensors.Mask]:
    """Row number, column number and a random bit in the three channels; the bit again as the mask."""
    rows, columns = torch.meshgrid(torch.arange(40), torch.arange(56), indexing="ij")
    bit = torch.randint(2, (40, 56), generator=torch.Generator().manual_seed(0))
    return tv_tensors.Image(torch.stack([rows, columns, bit]).to(torch.uint8)), tv_tensors.Mask(bit[None])


def test_image_and_mask_are_transformed_together(scene):
    transform = training_transform(PLAIN.model_copy(update={"flips": True, "quarter_turns": True}))
    torch.manual_seed(0)
    seen = set()
    for _ in range(40):
        image, mask = transform(*scene)
        assert image.shape == (3, 32, 32)
        assert (image[2] == mask[0]).all()
        seen.add((int(image[0, 0, 0]), int(image[1, 0, 0])))
    assert len(seen) > 20  # crops, flips and rotations vary


def test_without_flips_turns_and_jitter_a_crop_is_a_window_of_the_image(scene):
    torch.manual_seed(0)
    image, _ = training_transform(PLAIN)(*scene)
    top, left = int(image[0, 0, 0]), int(image[1, 0, 0])
    assert (image == scene[0][:, top : top + 32, left : left + 32]).all()


def test_flips_alone_mirror_both_ways_and_never_turn(scene):
    transform = training_transform(PLAIN.model_copy(update={"flips": True}))
    torch.manual_seed(0)
    steps = set()
    for _ in range(40):
        image = transform(*scene)[0].int()
        steps.add((int(image[0, 1, 0] - image[0, 0, 0]), int(image[1, 0, 1] - image[1, 0, 0])))
    assert steps == {(1, 1), (1, -1), (-1, 1), (-1, -1)}


def test_quarter_turns_are_the_four_rotations(scene):
    square = scene[0][:, :40, :40]
    rotations = [torch.rot90(square, turns, (1, 2)) for turns in range(4)]
    torch.manual_seed(0)
    found = set()
    for _ in range(40):
        turned = QuarterTurn()(tv_tensors.Image(square))
        assert isinstance(turned, tv_tensors.Image)
        (turns,) = [n for n, rotation in enumerate(rotations) if torch.equal(turned, rotation)]
        found.add(turns)
    assert found == {0, 1, 2, 3}


def test_jitter_changes_colours_but_no_mask(scene):
    grey = tv_tensors.Image(torch.full((3, 32, 32), 100, dtype=torch.uint8))
    mask = tv_tensors.Mask(scene[1][:, :32, :32])
    torch.manual_seed(0)
    image, same = training_transform(PLAIN.model_copy(update={"jitter": (0.5, 0.5, 0.5, 0.05)}))(grey, mask)
    assert (image != grey).any()
    assert (same == mask).all()


# --- other multiples than 16


@given(sides, sides, st.sampled_from([8, 14, 16, 32, 224]))
def test_working_sizes_are_multiples_of_the_given_number(height, width, multiple):
    assume(max(height, width) <= 20 * min(height, width))
    for side in working_size(height, width, ImageSettings(), multiple=multiple):
        assert side % multiple == 0
        assert side >= 32


@pytest.mark.parametrize(("multiple", "side"), [(16, 416), (14, 406), (8, 416), (32, 416), (224, 224), (512, 512)])
def test_the_crop_of_the_paper_for_other_backbones(multiple, side):
    assert fitting_crop(ImageSettings(), multiple) == side


def test_an_image_that_would_become_enormous_is_refused():
    settings = ImageSettings(short_side=8000, crop=32)
    with pytest.raises(ImageError, match=r"^a/x\.png: 2000 x 100 pixels become 160000 x 8000 .*; lower it or cut"):
        working_size(100, 2000, settings, Path("a/x.png"))
