"""Same input, same answer: of trainings with one seed, and of predictions whatever else is going on."""

import json

import numpy as np
import pytest
import torch
from gland_slides import SMALL_TILES

from histolumen.data.sources.synthetic_image import make_sample
from histolumen.engine.model import load
from histolumen.engine.slides.predict import save_slide_prediction
from histolumen.engine.train import train

SIZES = (64, 64, 96, 64, 80)


@pytest.fixture(scope="module")
def images() -> list[np.ndarray]:
    return [make_sample("benign" if n % 2 else "malignant", size, n).image for n, size in enumerate(SIZES)]


@pytest.fixture(scope="module")
def alone(tiny_run, images):
    """Each image predicted by a model of its own."""
    return [load(tiny_run).predict(image) for image in images]


def equal(one, other, tolerance: float = 0) -> bool:
    probabilities = np.array([list(each.probabilities.values()) for each in (one, other)])
    return np.abs(probabilities[0] - probabilities[1]).max() <= tolerance and (
        np.abs(one.soft_mask.astype(float) - other.soft_mask.astype(float)).max() <= tolerance
    )


def test_two_trainings_with_one_seed_are_bit_identical(tiny_manifest, tiny_config, tmp_path):
    for name, noise in (("one", 1), ("two", 2)):
        torch.manual_seed(noise)  # what happened before must not matter
        np.random.seed(noise)  # noqa: NPY002
        train(tiny_config("train.epochs=1"), tiny_manifest, tmp_path / name)
    for file in ("last/model.safetensors", "best/model.safetensors", "best/model.json", "config.yaml"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


def test_another_seed_gives_other_weights(tiny_manifest, tiny_config, tiny_run, tmp_path):
    """Else the tests above would prove nothing."""
    train(tiny_config("seed=1"), tiny_manifest, tmp_path / "run")
    first, second = ((run / "last" / "model.safetensors").read_bytes() for run in (tiny_run, tmp_path / "run"))
    assert first != second


def test_predictions_do_not_depend_on_the_order_or_on_what_was_predicted_before(tiny_run, images, alone):
    model = load(tiny_run)
    order = [*reversed(range(len(images))), *range(len(images))]
    for number in order:
        torch.rand(3)  # nor on the random state
        assert equal(model.predict(images[number]), alone[number]), number


@pytest.mark.parametrize("batch", [2, 4])
def test_predictions_do_not_depend_on_the_batch(tiny_run, images, alone, batch):
    for one, other in zip(load(tiny_run).predict_many(images, batch), alone, strict=True):
        assert equal(one, other, 1e-4)


def test_predictions_do_not_depend_on_threads(tiny_run, images, alone):
    torch.set_num_threads(2)
    try:
        for one, other in zip(load(tiny_run).predict_many(images), alone, strict=True):
            assert equal(one, other, 1e-4)
    finally:
        torch.set_num_threads(1)


def test_different_images_have_different_predictions(alone):
    """Else the tests above would prove nothing."""
    assert not equal(alone[0], alone[1], 1e-4)


def test_a_slide_has_the_same_answer_with_any_number_of_readers(tiny_run, gland_slide, tmp_path):
    answers = []
    for readers in (1, 3):
        folder = tmp_path / str(readers)
        settings = SMALL_TILES.model_copy(update={"readers": readers})
        record = save_slide_prediction(load(tiny_run), gland_slide, folder, settings)
        regions = json.loads((folder / "regions.geojson").read_text())["features"]
        shapes = [region["geometry"] for region in regions]  # their ids name the output folder
        answers.append([record, shapes, *((folder / name).read_bytes() for name in ("heatmap.tif", "overlay.png"))])
    assert answers[0] == answers[1]
