"""Crops and batches depend only on seed, epoch and index, not on order, cache or number of processes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader

from histolumen.data.batch import Batch, TrainingCrop
from histolumen.data.dataset import EpochSampler, TrainingImages
from histolumen.data.manifest import Manifest, Row
from histolumen.data.transforms import ImageSettings
from histolumen.errors import ImageError

SETTINGS = ImageSettings(short_side=48, crop=32)
STILL = ImageSettings(short_side=48, crop=48, jitter=(0, 0, 0, 0))
CLASSES = ["benign", "malignant"]


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """Three images of random size; their green channel is their mask; the last has no mask file."""
    rng = np.random.default_rng(0)
    rows = []
    for number, (height, width) in enumerate([(48, 64), (64, 48), (100, 120)]):
        y, x = np.mgrid[:height, :width]
        mask = np.hypot(y - height / 3, x - width / 2) < 0.3 * height
        pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
        pixels[..., 1] = 255 * mask
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        Image.fromarray(mask).save(tmp_path / f"{number}_mask.png")
        rows.append(Row(f"{number}.png", CLASSES[number % 2], "train", f"{number}_mask.png"))
    rows.append(Row("2.png", "malignant", "train"))
    return Manifest(tuple(rows), tmp_path)


def same(a: TrainingCrop, b: TrainingCrop) -> bool:
    return torch.equal(a.image, b.image) and a.label == b.label


# --- examples


def test_an_example_is_a_crop_in_unit_range_with_its_class_index(manifest):
    images = TrainingImages(manifest, CLASSES, SETTINGS, seed=0)
    assert len(images) == 4
    example = images[0, 1]
    assert example.image.shape == (3, 32, 32)
    assert example.image.dtype == torch.float32
    assert 0 <= example.image.min() < example.image.max() <= 1
    assert [images[0, index].label for index in range(4)] == [0, 1, 0, 1]
    assert example.mask is None


def test_a_square_resize_transforms_image_and_mask_alike(manifest):
    """Crops of the whole image, distorted; the green channel is the mask."""
    square = STILL.model_copy(update={"resize": "square"})
    images = TrainingImages(manifest, CLASSES, square, seed=0, with_masks=True)
    for index in range(3):
        assert images.whole(index).shape == (3, 48, 48)
        crop = images[0, index]
        assert ((crop.image[1] > 0.5) == (crop.mask[0] > 0.5)).float().mean() > 0.97
        assert crop.mask.mean() == pytest.approx(images.whole_with_mask(index)[1].mean().item())  # nothing is cut off


def test_images_without_masks_have_none_to_give(manifest):
    with pytest.raises(ValueError, match="without masks"):
        TrainingImages(manifest, CLASSES, STILL, seed=0).whole_with_mask(0)


def test_seed_epoch_and_index_determine_the_crop_in_any_order(manifest):
    keys = [(epoch, index) for epoch in range(2) for index in range(4)]
    forwards = TrainingImages(manifest, CLASSES, SETTINGS, seed=5)
    expected = {key: forwards[key] for key in keys}
    backwards = TrainingImages(manifest, CLASSES, SETTINGS, seed=5)
    for key in reversed(keys):
        torch.rand(3)  # other code draws random numbers in between
        assert same(backwards[key], expected[key])


def test_another_epoch_seed_or_index_gives_another_crop(manifest):
    images = TrainingImages(manifest, CLASSES, SETTINGS, seed=5)
    other = TrainingImages(manifest, CLASSES, SETTINGS, seed=6)
    assert not torch.equal(images[0, 2].image, images[1, 2].image)
    assert not torch.equal(images[0, 2].image, other[0, 2].image)
    assert not torch.equal(images[0, 2].image, images[0, 3].image)  # rows 2 and 3 are the same file


def test_loading_an_example_does_not_change_the_global_random_state(manifest):
    images = TrainingImages(manifest, CLASSES, SETTINGS, seed=0)
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    images[0, 0]
    assert torch.equal(torch.rand(3), expected)


# --- masks


def test_the_mask_follows_its_image(manifest):
    images = TrainingImages(manifest, CLASSES, STILL, seed=0, with_masks=True)
    for epoch in range(10):
        for index, agreement in [(0, 1.0), (1, 1.0), (2, 0.97)]:  # only the last is resized
            example = images[epoch, index]
            assert example.mask.shape == (1, 48, 48)
            assert example.mask.dtype == torch.float32
            foreground = example.image[1] > 0.5
            assert (foreground == example.mask[0].bool()).float().mean() >= agreement


def test_a_proposal_follows_its_image_and_no_mask_is_read(manifest):
    images = TrainingImages(manifest, CLASSES, STILL, seed=0)
    images.proposals = [(255 * (images.whole(k)[1] > 0.5)).to(torch.uint8) for k in range(4)]
    for path in manifest.root.glob("*_mask.png"):
        path.unlink()
    for epoch in range(5):
        example = images[epoch, 0]
        assert example.mask is None
        assert example.proposal.shape == (1, 48, 48)
        assert ((example.image[1] > 0.5) == (example.proposal[0] > 0.5)).float().mean() == 1


def test_a_coarse_proposal_covers_the_whole_image(manifest):
    images = TrainingImages(manifest, CLASSES, STILL, seed=0)
    images.proposals = [torch.tensor([[0, 255]], dtype=torch.uint8)] * 4
    assert 0.4 < images[0, 0].proposal.mean() < 0.6
    assert images[0, 0].proposal.max() == 1


def test_no_mask_file_means_no_foreground(manifest):
    example = TrainingImages(manifest, CLASSES, STILL, seed=0, with_masks=True)[0, 3]
    assert example.mask.shape == (1, 48, 48)
    assert not example.mask.any()


def test_masks_are_read_only_on_request(manifest):
    for path in manifest.root.glob("*_mask.png"):
        path.unlink()
    assert TrainingImages(manifest, CLASSES, SETTINGS, seed=0)[0, 0].mask is None
    with pytest.raises(ImageError, match=r"0_mask\.png: no such file"):
        TrainingImages(manifest, CLASSES, SETTINGS, seed=0, with_masks=True)[0, 0]


# --- small images


@pytest.mark.parametrize("size", [(1, 1), (10, 14), (5, 90), (200, 33)])
@pytest.mark.parametrize("short_side", [None, 64])
def test_images_smaller_than_the_crop_are_enlarged(tmp_path, size, short_side):
    Image.fromarray(np.full((*size, 3), 80, np.uint8)).save(tmp_path / "x.png")
    Image.fromarray(np.ones(size, bool)).save(tmp_path / "x_mask.png")
    manifest = Manifest((Row("x.png", "benign", "train", "x_mask.png"),), tmp_path)
    settings = ImageSettings(short_side=short_side, crop=64, jitter=(0, 0, 0, 0))
    example = TrainingImages(manifest, CLASSES, settings, seed=0, with_masks=True)[0, 0]
    assert example.image.shape == (3, 64, 64)
    assert (example.image == 80 / 255).all()
    assert example.mask.shape == (1, 64, 64)
    assert example.mask.all()


@pytest.mark.parametrize(("multiple", "side"), [(16, 32), (14, 28), (8, 32), (36, 36)])
def test_a_crop_is_rounded_down_to_a_multiple(tmp_path, multiple, side):
    Image.fromarray(np.zeros((50, 70, 3), np.uint8)).save(tmp_path / "x.png")
    manifest = Manifest((Row("x.png", "benign", "train"),), tmp_path)
    images = TrainingImages(manifest, CLASSES, ImageSettings(short_side=36, crop=36), seed=0, multiple=multiple)
    assert images[0, 0].image.shape == (3, side, side)
    assert all(length % multiple == 0 for length in images.whole(0).shape[1:])


def test_a_very_narrow_image_is_refused_before_it_is_enlarged(tmp_path):
    """Its long side would become two million pixels."""
    Image.fromarray(np.zeros((1, 5000, 3), np.uint8)).save(tmp_path / "x.png")
    images = TrainingImages(Manifest((Row("x.png", "benign", "train"),), tmp_path), CLASSES, ImageSettings(), seed=0)
    for load in (lambda: images[0, 0], lambda: images.whole(0)):
        with pytest.raises(ImageError, match=r"x\.png: 5000 x 1 pixels is too narrow .*; crop it first"):
            load()


# --- cache


def test_the_cache_avoids_reading_and_changes_no_crop(manifest):
    cached = TrainingImages(manifest, CLASSES, SETTINGS, seed=0)
    uncached = TrainingImages(manifest, CLASSES, SETTINGS.model_copy(update={"cache_mb": 0}), seed=0)
    first = [cached[0, 0], cached[1, 0]]
    assert same(uncached[0, 0], first[0])
    manifest.image_path(manifest.rows[0]).unlink()
    assert [same(cached[epoch, 0], first[epoch]) for epoch in range(2)] == [True, True]
    with pytest.raises(ImageError, match=r"0\.png: no such file"):
        uncached[1, 0]


# --- sampler


@given(
    length=st.integers(1, 50),
    batch=st.integers(1, 6),
    processes=st.integers(1, 4),
    seed=st.integers(0, 99),
    epoch=st.integers(0, 9),
)
def test_batches_do_not_depend_on_the_number_of_processes(length, batch, processes, seed, epoch):
    alone = EpochSampler(length, batch * processes, seed)
    together = [EpochSampler(length, batch, seed, rank, processes) for rank in range(processes)]
    for sampler in (alone, *together):
        sampler.epoch = epoch
    single, shares = list(alone), [list(sampler) for sampler in together]
    assert [len(share) for share in shares] == [len(sampler) for sampler in together]
    assert len(single) == len(alone)
    if length < batch * processes:  # one batch of all images; every process needs as many
        drawn = sorted(key for share in shares for key in share)
        assert sorted(set(drawn)) == sorted(single)
        assert len(drawn) - length < processes
        return
    for start in range(0, len(shares[0]), batch):
        union = [key for share in shares for key in share[start : start + batch]]
        whole = single[start * processes : (start + batch) * processes]
        assert sorted(union) == sorted(whole)


@given(length=st.integers(1, 50), batch=st.integers(1, 8), epoch=st.integers(0, 9))
def test_an_epoch_has_every_image_once_and_repeats_the_first_to_fill_the_last_batch(length, batch, epoch):
    sampler = EpochSampler(length, batch, seed=0)
    sampler.epoch = epoch
    keys = list(sampler)
    assert sorted(keys[:length]) == [(epoch, index) for index in range(length)]
    assert len(keys) == length if batch > length else len(keys) % batch == 0
    assert len(keys) - length < batch
    assert all(key == keys[n % length] for n, key in enumerate(keys[length:]))


@pytest.mark.parametrize(("processes", "own"), [(1, 3), (2, 2)])
def test_a_batch_larger_than_the_training_set_is_not_filled_up(processes, own):
    """Filled up, a batch of 1,000 would show each of three images 333 times per step."""
    for rank in range(processes):
        sampler = EpochSampler(3, 1000, 0, rank, processes)
        assert len(list(sampler)) == len(sampler) == own


def test_every_epoch_and_seed_has_its_own_order():
    def order(seed: int, epoch: int) -> tuple[int, ...]:
        sampler = EpochSampler(30, 4, seed)
        sampler.epoch = epoch
        return tuple(index for _, index in sampler)

    assert len({order(seed, epoch) for seed in range(3) for epoch in range(3)}) == 9
    assert order(1, 2) == order(1, 2)


# --- batches


def test_a_loader_gives_batches_of_the_samplers_images(manifest):
    images = TrainingImages(manifest, CLASSES, SETTINGS, seed=0, with_masks=True)
    sampler = EpochSampler(4, 3, seed=0)
    batches = list(DataLoader(images, batch_size=3, sampler=sampler, collate_fn=Batch.of))
    assert [tuple(batch.images.shape) for batch in batches] == [(3, 3, 32, 32)] * 2
    assert [tuple(batch.masks.shape) for batch in batches] == [(3, 1, 32, 32)] * 2
    keys = list(sampler)
    assert torch.cat([batch.labels for batch in batches]).tolist() == [images[key].label for key in keys]
    assert torch.equal(batches[1].images[0], images[keys[3]].image)


def test_a_batch_without_masks_has_none():
    image = torch.zeros(3, 2, 2)
    batch = Batch.of([TrainingCrop(image, 1, None), TrainingCrop(image, 0, None)])
    assert batch.images.shape == (2, 3, 2, 2)
    assert batch.labels.tolist() == [1, 0]
    assert batch.masks is None
    assert batch.proposals is None


@pytest.mark.parametrize(("length", "batch", "processes", "steps"), [(67, 32, 1, 3), (67, 16, 2, 3), (2, 1000, 1, 1)])
def test_a_short_last_batch_holds_each_image_once(length, batch, processes, steps):
    samplers = [EpochSampler(length, batch, 0, rank, processes, fill=False) for rank in range(processes)]
    drawn = [index for sampler in samplers for _, index in sampler]
    assert set(drawn) == set(range(length))
    assert len(drawn) - length < processes  # every process has as many images
    assert {-(-len(sampler) // batch) for sampler in samplers} == {steps}


def test_glass_is_cropped_and_turned_with_its_image(tmp_path):
    pixels = np.random.default_rng(0).integers(60, 180, (96, 120, 3), dtype=np.uint8)
    pixels[:, :40] = 250
    Image.fromarray(pixels).save(tmp_path / "a.png")
    manifest = Manifest((Row("a.png", "benign", "train"),), tmp_path)
    settings = ImageSettings(short_side=96, crop=64, jitter=(0, 0, 0, 0), glass="remove")
    images = TrainingImages(manifest, ["benign"], settings, seed=0)
    for epoch in range(8):
        crop = images[epoch, 0]
        white = (crop.image > 0.95).all(0, keepdim=True)
        assert ((crop.glass > 0.5) == white).float().mean() > 0.95
    grey = Batch.of([images[0, 0]]).without_glass(torch.full((1, 3, 1, 1), 0.5))
    assert grey.glass is None
    assert (grey.images > 0.95).all(1).float().mean() < 0.01  # corners of the field may remain
