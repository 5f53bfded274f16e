"""What every method must keep, whatever it does inside."""

from collections.abc import Callable

import pytest
import torch

from histolumen.methods.base import Batch, Method


class MethodContract:
    """Subclass it with a `make(classes)` fixture; each method of the package must pass."""

    @pytest.fixture
    def make(self) -> Callable[[int], Method]:
        raise NotImplementedError

    @staticmethod
    def batch(images: int, classes: int, height: int = 64, width: int = 96) -> Batch:
        torch.manual_seed(5)
        return Batch(torch.rand(images, 3, height, width), torch.arange(images) % classes)

    @pytest.mark.parametrize("size", [(64, 64), (96, 64), (33, 81), (160, 48)])
    def test_any_size_gives_probabilities_and_a_mask_in_the_unit_range(self, make, size):
        output = make(2).eval().predict(torch.rand(2, 3, *size))
        assert output.mask.shape == (2, 1, *size)
        assert output.mask.min() >= 0
        assert output.mask.max() <= 1
        assert torch.allclose(output.probs.sum(1), torch.ones(2), atol=1e-5)

    @pytest.mark.parametrize("classes", [2, 5])
    @pytest.mark.parametrize("images", [1, 3])
    def test_losses_are_finite_and_so_are_their_gradients(self, make, classes, images):
        method = make(classes).train()
        total = sum(method.losses(self.batch(images, classes)).values())
        total.backward()
        assert torch.isfinite(total)
        gradients = [p.grad for p in method.parameters() if p.grad is not None]
        assert gradients
        assert all(torch.isfinite(g).all() for g in gradients)

    def test_a_few_steps_lower_the_loss(self, make):
        method = make(2).train()
        optimizer = torch.optim.SGD(method.parameters(), lr=0.01, momentum=0.9)
        batch = self.batch(4, 2)
        values = []
        for _ in range(12):
            total = sum(method.losses(batch).values())
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            values.append(total.item())
        assert min(values[-3:]) < values[0]

    def test_a_batch_is_predicted_as_its_images_one_by_one(self, make):
        method = make(2).eval()
        images = torch.rand(3, 3, 64, 64)
        with torch.no_grad():
            together = method.predict(images)
            for index in range(3):
                alone = method.predict(images[index : index + 1])
                assert torch.allclose(alone.probs[0], together.probs[index], atol=1e-5)
                assert torch.allclose(alone.mask[0], together.mask[index], atol=1e-5)

    def test_saved_weights_predict_the_same(self, make):
        method, other = make(2), make(2)
        method.losses(self.batch(4, 2))  # moves running statistics
        method.end_epoch()
        other.load_state_dict(method.state_dict())
        images = torch.rand(1, 3, 64, 64)
        with torch.no_grad():
            first, second = method.eval().predict(images), other.eval().predict(images)
        assert torch.equal(first.mask, second.mask)
        assert torch.equal(first.probs, second.probs)

    def test_masks_are_not_looked_at_unless_declared(self, make):
        method = make(2).eval()  # no dropout: only the masks differ
        if method.reads_masks:
            pytest.skip("a supervised method")
        batch = self.batch(2, 2)
        masked = Batch(batch.images, batch.labels, torch.ones(2, 1, 64, 96))
        with torch.no_grad():
            assert all(
                torch.equal(a, b)
                for a, b in zip(method.losses(batch).values(), method.losses(masked).values(), strict=True)
            )
