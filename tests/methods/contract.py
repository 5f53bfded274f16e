"""Tests that every method must pass."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from histolumen.data.batch import Batch
from histolumen.encoders.batchnorm import Case
from histolumen.engine.windows import map_runner
from histolumen.methods.base import Method


class MethodContract:
    """Subclass it with a `make(classes)` fixture that builds the method."""

    @pytest.fixture
    def make(self) -> Callable[[int], Method]:
        raise NotImplementedError

    @staticmethod
    def batch(images: int, classes: int, height: int = 64, width: int = 96) -> Batch:
        torch.manual_seed(5)
        masks = (torch.rand(images, 1, height, width) > 0.5).float()
        proposals = torch.rand(images, 1, height, width)
        return Batch(torch.rand(images, 3, height, width), torch.arange(images) % classes, masks, proposals)

    @staticmethod
    def total(method: Method, batch: Batch) -> torch.Tensor:
        return torch.stack(list(method.losses(batch).terms.values())).sum()

    @pytest.mark.parametrize("size", [(64, 64), (96, 64), (33, 81), (160, 48)])
    def test_any_size_gives_probabilities_and_a_mask_in_the_unit_range(self, make, size):
        output = make(2).eval()(torch.rand(2, 3, *size))
        assert output.soft_mask.shape == (2, 1, *size)
        assert output.soft_mask.min() >= 0
        assert output.soft_mask.max() <= 1
        assert torch.allclose(output.probs.sum(1), torch.ones(2), atol=1e-5)

    @pytest.mark.parametrize("classes", [2, 5])
    @pytest.mark.parametrize("images", [1, 3])
    def test_losses_are_finite_and_so_are_their_gradients(self, make, classes, images):
        method = make(classes).train()
        total = self.total(method, self.batch(images, classes))
        assert torch.isfinite(total)
        if not list(method.parameters()):
            return  # no parameters
        total.backward()
        gradients = {name: p.grad for name, p in method.named_parameters()}
        assert [name for name, g in gradients.items() if g is None] == []  # distributed training needs all of them
        assert all(torch.isfinite(g).all() for g in gradients.values())

    def test_a_few_steps_lower_the_loss(self, make):
        method = make(2).train()
        if not list(method.parameters()):
            pytest.skip("no parameters")
        optimizer = torch.optim.SGD(method.parameters(), lr=0.01, momentum=0.9)
        batch = self.batch(2, 2, 48, 48)
        values = []
        for _ in range(8):
            total = self.total(method, batch)
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            values.append(total.item())
        assert min(values[-3:]) < values[0]

    def test_a_batch_is_predicted_as_its_images_one_by_one(self, make):
        method = make(2).eval().double()  # in float32, normalising a flat map amplifies rounding errors
        images = torch.rand(3, 3, 64, 64, dtype=torch.float64)
        with torch.no_grad():
            together = method(images)
            for index in range(3):
                alone = method(images[index : index + 1])
                assert torch.allclose(alone.probs[0], together.probs[index], atol=1e-9)
                assert torch.allclose(alone.soft_mask[0], together.soft_mask[index], atol=1e-9)

    def test_masked_images_are_classified(self, make):
        method = make(3).eval()
        pixels = method.backbone.normalise(torch.rand(2, 3, 64, 96)) * (torch.rand(2, 1, 64, 96) > 0.5)
        with torch.inference_mode():
            for region in (Case.FOREGROUND, Case.BACKGROUND):
                probs = method.classify_region(pixels, region)
                assert probs.shape == (2, 3)
                assert torch.allclose(probs.sum(1), torch.ones(2), atol=1e-5)

    def test_windows_nearly_equal_the_whole_image(self, make):
        method = make(2).eval()
        images = torch.rand(1, 3, 96, 160) * torch.linspace(0.2, 1, 160)
        with torch.inference_mode():
            whole = method(images)
            windowed = method(images, map_runner(96, 160, whole_pixels=1, window=64))
        assert windowed.soft_mask.shape == whole.soft_mask.shape
        assert windowed.probs.shape == whole.probs.shape
        assert torch.allclose(windowed.probs, whole.probs, atol=0.1)
        assert (windowed.soft_mask - whole.soft_mask).abs().mean() < 0.2

    def test_saved_weights_predict_the_same(self, make):
        method, other = make(2), make(2)
        for parameter in method.parameters():
            parameter.data.mul_(1.1)
        method.losses(self.batch(4, 2))  # updates running statistics
        method.on_epoch_end()
        other.load_state_dict(method.state_dict())
        images = torch.rand(1, 3, 64, 64)
        with torch.no_grad():
            first, second = method.eval()(images), other.eval()(images)
        assert torch.equal(first.soft_mask, second.soft_mask)
        assert torch.equal(first.probs, second.probs)

    def test_masks_are_not_read_unless_declared(self, make):
        method = make(2).eval()  # no dropout: only the masks differ
        if method.reads_masks:
            pytest.skip("a supervised method")
        masked = self.batch(2, 2)
        with torch.no_grad():
            torch.manual_seed(1)
            without_masks = method.losses(replace(masked, masks=None))
            torch.manual_seed(1)
            with_masks = method.losses(masked)
        pairs = zip(without_masks.terms.values(), with_masks.terms.values(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)

    @pytest.mark.parametrize("classes", [2, 5])
    def test_scores_and_evidence_have_one_entry_per_class(self, make, classes):
        method = make(classes).eval()
        scores = method.losses(self.batch(3, classes)).scores
        output = method(torch.rand(3, 3, 64, 96))
        assert (scores is not None) == method.classifies
        assert scores is None or scores.shape == (3, classes)
        assert output.probs.shape == (3, classes)
        assert output.evidence is None or output.evidence.shape == (3, classes, 64, 96)

    def test_predictions_leave_nothing_behind(self, make):
        """No graph, no hook and no gradient remains."""
        method = make(2).eval()
        with torch.inference_mode():
            outputs = [method(torch.rand(1, 3, 64, 64)) for _ in range(3)]
        assert not any(output.soft_mask.requires_grad or output.probs.requires_grad for output in outputs)
        assert all(not module._forward_hooks for module in method.modules())
        assert all(parameter.grad is None for parameter in method.parameters())
