"""Grad-CAM (Selvaraju et al. 2017): channels weighted by the mean gradient of the class score."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen.methods.base import MapRunner, Output, at_once, register
from histolumen.methods.cam_avg import CamAvg
from histolumen.methods.class_maps import MapSettings


class GradCamSettings(MapSettings):
    """A CAM-Avg network explained by Grad-CAM."""

    name: Literal["grad_cam"] = "grad_cam"
    """The method."""


@register(GradCamSettings)
class GradCam(CamAvg):
    """Trained as CAM-Avg; the maps come from gradients with respect to the last features."""

    def predict(self, images: Tensor, run: MapRunner = at_once) -> Output:
        both = run(self._class_and_gradient_maps, self.backbone.normalise(images))
        class_maps, gradient_maps = both.chunk(2, dim=1)
        return self.answer(gradient_maps, self.scores(class_maps).softmax(1), images)

    def slide_maps(self, X: Tensor) -> Tensor:
        class_maps, gradient_maps = self._class_and_gradient_maps(X).chunk(2, dim=1)
        # gradients of a mean are tiny, too small for the 16 bits in which slides keep their maps
        return torch.cat([class_maps, gradient_maps * gradient_maps[0, 0].numel()], dim=1)

    def _class_and_gradient_maps(self, X: Tensor) -> Tensor:
        """[B, 2 C, h, w]. A score is a mean over positions, so windows of an image give parts of its maps."""
        features = self.backbone(X)
        with torch.inference_mode(mode=False), torch.enable_grad():
            features = features.detach().clone().requires_grad_()
            class_maps = self.maps(features)
            gradients = class_gradients(self.scores(class_maps), features)
        return torch.cat([class_maps.detach(), grad_cam(features.detach(), gradients)], dim=1)


def class_gradients(scores: Tensor, activations: Tensor) -> Tensor:
    """Gradients [C, B, K, h, w] of every class score [B, C] with respect to activations [B, K, h, w], in one go.

    Images do not depend on each other, so the gradient of a sum over the batch is the gradient of each image.
    """
    images, classes = scores.shape
    one_class_each = torch.eye(classes, device=scores.device)[:, None].expand(-1, images, -1)
    return torch.autograd.grad(scores, activations, one_class_each, is_grads_batched=True)[0]


def grad_cam(activations: Tensor, gradients: Tensor) -> Tensor:
    """Class maps [B, C, h, w]: positive part of the channels weighted by their mean gradient."""
    weights = gradients.mean((3, 4))  # [C, B, K]
    return F.relu(torch.einsum("cbk,bkhw->bchw", weights, activations))
