"""The fast copy of a method: the same predictions, and it follows the method."""

import copy

import numpy as np
import pytest
import torch
from build import tiny_method
from torch import nn

import histolumen
from histolumen.encoders import winograd
from histolumen.encoders.batchnorm import CaseBatchNorm
from histolumen.encoders.folding import has_batchnorm
from histolumen.engine import inference
from histolumen.engine.inference import TOLERANCE, FastCopy, for_prediction
from histolumen.methods.base import method_names, predict_flipped

IMAGES = torch.rand(2, 3, 64, 96, generator=torch.Generator().manual_seed(2))


def predict(method, images=IMAGES):
    with torch.inference_mode():
        return method(images)


def trained(name, **options):
    """A tiny method with statistics of its own, in evaluation mode."""
    method = tiny_method(name, **options).eval()
    with torch.no_grad():
        for module in method.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 1.5)
    return method


@pytest.mark.parametrize("name", method_names())
def test_the_copy_of_every_method_predicts_the_same(name):
    method = trained(name)
    fast = for_prediction(method)
    if name not in {"all_ones"}:
        assert not has_batchnorm(fast)
        assert has_batchnorm(method)
    expected, found = predict(method), predict(fast)
    assert torch.allclose(found.probs, expected.probs, atol=TOLERANCE)
    assert torch.allclose(found.soft_mask, expected.soft_mask, atol=TOLERANCE)
    assert torch.equal(found.probs.argmax(1), expected.probs.argmax(1))


def test_the_copy_is_checked_by_the_algorithm_that_large_images_use(monkeypatch):
    """If that were wrong, the method itself would predict."""
    convolve = winograd.convolve
    monkeypatch.setattr(winograd, "_CHANNELS", range(1, 1000))  # the network of the test is narrow
    monkeypatch.setattr(winograd, "convolve", lambda *given: 1 + convolve(*given))
    method = trained("maxmin")
    assert for_prediction(method) is method


def test_a_copy_that_has_predicted_can_be_copied():
    method = trained("maxmin")
    fast = for_prediction(method)
    expected = predict(fast)
    assert torch.equal(predict(copy.deepcopy(fast)).soft_mask, expected.soft_mask)


@pytest.mark.parametrize("statistics", ["separate", "frozen"])
def test_a_mask_decoder_and_split_statistics_are_folded_too(statistics):
    method = trained("maxmin", statistics=statistics, mask_from="decoder", decoder_stride=4)
    fast = for_prediction(method)
    assert not has_batchnorm(fast)
    assert torch.allclose(predict(fast).soft_mask, predict(method).soft_mask, atol=TOLERANCE)
    assert torch.allclose(predict(fast).probs, predict(method).probs, atol=TOLERANCE)


def test_the_method_can_be_trained_further_and_the_copy_follows(tiny_run, tiny_manifest):
    model = histolumen.load(tiny_run)
    path = tiny_manifest.image_path(tiny_manifest.rows[0])
    before, first = model.predict(path), model.predictor
    assert model.predictor is first
    assert any(isinstance(module, CaseBatchNorm) for module in model.method.modules())
    optimizer = torch.optim.SGD(model.method.parameters(), lr=0.5)
    sum(value.square().sum() for value in model.method.parameters()).backward()
    optimizer.step()
    after = model.predict(path)
    assert model.predictor is not first
    assert not np.allclose(before.soft_mask, after.soft_mask, atol=1e-4) or before.probabilities != after.probabilities
    expected = predict(model.method, torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0)))
    found = predict(model.predictor, torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0)))
    assert torch.allclose(found.probs, expected.probs, atol=TOLERANCE)


def test_changed_statistics_are_noticed():
    method, copies = trained("cam_avg"), FastCopy()
    first = copies.of(method)
    next(module for module in method.modules() if isinstance(module, nn.BatchNorm2d)).running_mean.add_(1)
    assert copies.of(method) is not first


def test_a_method_that_its_copy_does_not_equal_predicts_itself(monkeypatch):
    def wrong(network, run):
        network.backbone.trunk.register_forward_hook(lambda _module, _inputs, output: output.flip(3) + 1)

    method = trained("maxmin")
    monkeypatch.setattr(inference, "fold", wrong)
    assert for_prediction(method) is method


def test_a_network_that_cannot_be_traced_predicts_itself(monkeypatch):
    def fails(network, run):
        raise RuntimeError("no")

    method = trained("maxmin")
    monkeypatch.setattr(inference, "fold", fails)
    assert for_prediction(method) is method


@pytest.mark.parametrize("name", ["maxmin", "cam_avg"])
def test_flips_as_one_batch_equal_flips_one_by_one(name):
    method = trained(name)
    with torch.inference_mode():
        expected, found = predict_flipped(method, IMAGES), predict_flipped(method, IMAGES, together=True)
    assert torch.allclose(found.probs, expected.probs, atol=TOLERANCE)
    assert torch.allclose(found.soft_mask, expected.soft_mask, atol=TOLERANCE)
    assert (found.evidence is None) == (expected.evidence is None)
    if expected.evidence is not None:
        assert torch.allclose(found.evidence, expected.evidence, atol=TOLERANCE)
