"""LayerCAM (Jiang et al. 2021): every activation weighted by its own positive gradient, at any depth of the network."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen.errors import ConfigError
from histolumen.methods.base import MapRunner, Output, at_once, register
from histolumen.methods.cam_avg import CamAvg
from histolumen.methods.class_maps import MapSettings
from histolumen.methods.grad_cam import class_gradients
from histolumen.nets.backbones import Backbone
from histolumen.nets.geometry import Grid, measure_offset
from histolumen.nets.tapping import TappedNetwork, layer_of_stride, tapped


class LayerCamSettings(MapSettings):
    """A CAM-Avg network explained by LayerCAM."""

    name: Literal["layer_cam"] = "layer_cam"
    """The method."""
    stride: Literal[4, 8, 16, 32] = 16
    """Which layer is looked at: the last one with so many pixels per position. Smaller is finer and noisier; it cannot
    be larger than backbone.output_stride."""


@register(LayerCamSettings)
class LayerCam(CamAvg):
    """Trained as CAM-Avg; the maps come from gradients with respect to an inner layer."""

    offset: Tensor

    def __init__(self, settings: LayerCamSettings, backbone: Backbone, classes: int):
        super().__init__(settings, backbone, classes)
        if settings.stride > backbone.stride:
            raise ConfigError(f"method.stride {settings.stride} exceeds backbone.output_stride {backbone.stride}")
        self.layer = layer_of_stride(backbone.trunk, settings.stride)
        self.stride = settings.stride
        self.register_buffer("offset", backbone.offset.clone())  # where that layer's positions look
        if settings.stride != backbone.stride:
            self.offset.fill_(measure_offset(TappedNetwork(backbone.trunk, self.layer), settings.stride))

    def own_grid(self) -> Grid:
        return Grid(self.stride, self.offset)

    def predict(self, images: Tensor, run: MapRunner = at_once) -> Output:
        both = run(self._class_and_layer_maps, self.backbone.normalise(images))
        class_maps, layer_maps = both.chunk(2, dim=1)
        return self.answer(layer_maps, self.scores(class_maps).softmax(1), images)

    def slide_maps(self, X: Tensor) -> Tensor:
        class_maps, layer_maps = self._class_and_layer_maps(X).chunk(2, dim=1)
        # gradients of a mean are tiny, too small for the 16 bits in which slides keep their maps
        return torch.cat([class_maps, layer_maps * layer_maps[0, 0].numel()], dim=1)

    def _class_and_layer_maps(self, X: Tensor) -> Tensor:
        """[B, 2 C, h, w] at the layer's resolution; a mean over positions does not change by repeating them."""
        with torch.inference_mode(mode=False), torch.enable_grad(), tapped(self.backbone.trunk, self.layer) as outputs:
            class_maps = self.maps(self.backbone(X.detach().clone()))
            activations = outputs[-1]
            gradients = class_gradients(self.scores(class_maps), activations)
        maps = layer_cam(activations.detach(), gradients)
        return torch.cat([F.interpolate(class_maps.detach(), size=maps.shape[2:], mode="nearest"), maps], dim=1)


def layer_cam(activations: Tensor, gradients: Tensor) -> Tensor:
    """Class maps [B, C, h, w]: positive part of the activations weighted by their positive gradients."""
    return F.relu(torch.einsum("cbkhw,bkhw->bchw", F.relu(gradients), activations))
