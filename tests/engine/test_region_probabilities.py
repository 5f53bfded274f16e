import dataclasses

import numpy as np
import pytest

from histolumen.engine.model import load
from histolumen.engine.region_probabilities import region_probabilities
from histolumen.engine.train import train
from tiny import SMALL


@pytest.fixture(scope="module")
def model(tiny_run):
    return load(tiny_run)


@pytest.fixture
def prediction(model, tiny_manifest):
    return model.predict(tiny_manifest.image_paths()[0])


def test_the_class_of_max_min_is_that_on_its_foreground(model, prediction):
    found = region_probabilities(model, prediction)
    assert found.plus == pytest.approx(prediction.probabilities, abs=1e-5)
    assert sum(found.minus.values()) == pytest.approx(1, abs=1e-5)
    assert found.minus != found.plus


def test_an_inverted_mask_swaps_what_is_masked_out(model, prediction):
    inverted = dataclasses.replace(prediction, soft_mask=1 - prediction.soft_mask)
    blank = dataclasses.replace(prediction, soft_mask=np.zeros_like(prediction.soft_mask))
    found, swapped, none = (region_probabilities(model, each) for each in (prediction, inverted, blank))
    assert swapped.plus == pytest.approx(found.minus, abs=1e-5)  # shared statistics: one network for both
    assert none.plus != pytest.approx(found.plus, abs=1e-6)


def test_other_methods_classify_the_masked_images_as_any_image(tiny_manifest, tmp_path):
    from histolumen.config import load_config

    train(load_config("glas-cam-avg", [*SMALL, "train.epochs=1"]), tiny_manifest, tmp_path / "run")
    model = load(tmp_path / "run")
    prediction = model.predict(tiny_manifest.image_paths()[0])
    whole = dataclasses.replace(prediction, soft_mask=np.ones_like(prediction.soft_mask))
    assert region_probabilities(model, whole).plus == pytest.approx(prediction.probabilities, abs=1e-5)


def test_glass_is_masked_out_as_in_the_prediction(model, prediction):
    glass = np.zeros(prediction.soft_mask.shape, bool)
    without = dataclasses.replace(prediction, glass=glass)
    assert region_probabilities(model, without) == region_probabilities(model, prediction)
    half = dataclasses.replace(prediction, glass=glass | (np.arange(glass.shape[1]) < glass.shape[1] // 2))
    assert region_probabilities(model, half).minus != pytest.approx(region_probabilities(model, prediction).minus)
