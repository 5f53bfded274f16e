"""Grad-CAM (Selvaraju et al. 2017): channels weighted by the mean gradient of the class score."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen.methods.base import register
from histolumen.methods.cam_avg import CamAvg
from histolumen.methods.class_maps import MapSettings


class GradCamSettings(MapSettings):
    """A CAM-Avg network explained by Grad-CAM."""

    name: Literal["grad_cam"] = "grad_cam"
    """The method."""


@register(GradCamSettings)
class GradCam(CamAvg):
    """Trained as CAM-Avg; the maps come from gradients with respect to the last features."""

    needs_gradients = True

    def prediction_maps(self, X: Tensor) -> Tensor:
        """Class maps and Grad-CAM maps [B, 2 C, h, w]. Scores are means over positions, so a large image can be
        processed in windows."""
        features = self.backbone(X)
        with torch.inference_mode(mode=False), torch.enable_grad():
            features = features.detach().clone().requires_grad_()
            class_maps = self.maps(features)
            gradients = class_gradients(self.scores(class_maps), features)
        return torch.cat([class_maps.detach(), by_position(grad_cam(features.detach(), gradients))], dim=1)


def class_gradients(scores: Tensor, activations: Tensor) -> Tensor:
    """Gradients [C, B, K, h, w] of every class score [B, C] with respect to activations [B, K, h, w].

    Images are independent, so one backward pass over the batch gives the gradient of each image.
    """
    images, classes = scores.shape
    one_class_each = torch.eye(classes, device=scores.device)[:, None].expand(-1, images, -1)
    return torch.autograd.grad(scores, activations, one_class_each, is_grads_batched=True)[0]


def grad_cam(activations: Tensor, gradients: Tensor) -> Tensor:
    """Class maps [B, C, h, w]: positive part of the channels weighted by their mean gradient."""
    weights = gradients.mean((3, 4))  # [C, B, K]
    return F.relu(torch.einsum("cbk,bkhw->bchw", weights, activations))


def by_position(maps: Tensor) -> Tensor:
    """Maps times their number of positions: gradients of a mean would underflow in maps stored as 16 bits."""
    return maps * maps[0, 0].numel()
