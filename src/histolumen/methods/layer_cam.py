"""LayerCAM (Jiang et al. 2021): every activation weighted by its own positive gradient, at any depth of the network."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen.encoders.backbone import Backbone
from histolumen.encoders.geometry import FeatureGeometry, measure_offset
from histolumen.encoders.tapping import TappedNetwork, layer_of_stride, tapped
from histolumen.errors import ConfigError
from histolumen.methods.base import register
from histolumen.methods.cam_avg import CamAvg
from histolumen.methods.class_maps import MapSettings
from histolumen.methods.grad_cam import by_position, class_gradients
from histolumen.methods.view import beside


class LayerCamSettings(MapSettings):
    """A CAM-Avg network explained by LayerCAM."""

    name: Literal["layer_cam"] = "layer_cam"
    """The method."""
    stride: Literal[4, 8, 16, 32] = 16
    """Stride of the explained layer, the last one with this many pixels per position. A smaller stride is finer and
    noisier; it cannot exceed backbone.output_stride. A vision transformer has one stride: its chosen block is used."""


@register(LayerCamSettings)
class LayerCam(CamAvg):
    """Trained as CAM-Avg; the maps come from gradients with respect to an inner layer."""

    needs_gradients = True

    offset: Tensor

    def __init__(self, settings: LayerCamSettings, backbone: Backbone, classes: int):
        super().__init__(settings, backbone, classes)
        self.layer, self.stride = _layer(settings, backbone)
        self.register_buffer("offset", backbone.offset.clone())  # receptive-field centres of that layer
        if self.stride != backbone.stride:
            self.offset.fill_(measure_offset(TappedNetwork(backbone.trunk, self.layer), self.stride))

    @property
    def geometry(self) -> FeatureGeometry:
        return self.settings.align(FeatureGeometry(self.stride, self.offset))

    def prediction_maps(self, X: Tensor) -> Tensor:
        """Class maps and LayerCAM maps [B, 2 C, h, w], both at the layer's resolution."""
        with torch.inference_mode(mode=False), torch.enable_grad(), tapped(self.backbone.trunk, self.layer) as outputs:
            class_maps = self.maps(self.backbone(X.detach().clone()))
            activations = outputs[-1]
            gradients = class_gradients(self.scores(class_maps), activations)
        maps = by_position(layer_cam(activations.detach(), gradients))
        return beside(class_maps.detach(), maps)


def _layer(settings: LayerCamSettings, backbone: Backbone) -> tuple[str, int]:
    """Name and stride of the explained layer; "" is the backbone's output."""
    if backbone.single_stride:
        if settings.stride < backbone.stride:
            raise ConfigError(
                f"method.stride {settings.stride}: this backbone has one stride, that of its patches of "
                f"{backbone.stride} pixels; set method.stride=16, or choose a convolutional backbone such as resnet18"
            )
        return "", backbone.stride
    if settings.stride > backbone.stride:
        raise ConfigError(f"method.stride {settings.stride} exceeds backbone.output_stride {backbone.stride}")
    return layer_of_stride(backbone.trunk, settings.stride), settings.stride


def layer_cam(activations: Tensor, gradients: Tensor) -> Tensor:
    """Class maps [B, C, h, w]: positive part of the activations weighted by their positive gradients."""
    return F.relu(torch.einsum("cbkhw,bkhw->bchw", F.relu(gradients), activations))
