"""The graph of a trained model: from an image of any size to class probabilities and the soft mask."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from histolumen.config import RunConfig
from histolumen.deploy.resizing import antialiased_levels, graph_working_size, nearest, sides
from histolumen.deploy.traceable import traceable
from histolumen.deploy.view import GraphView
from histolumen.encoders.geometry import FLIPS
from histolumen.methods.base import Method


class ImageGraph(nn.Module):
    """Resizing, normalisation, flips, all passes of the method, and the mask at the size of the image.

    Glass is painted over inside; finding it, and filling holes in the finished mask, need connected components and stay
    outside.
    """

    def __init__(self, method: Method, config: RunConfig, temperature: float = 1.0):
        super().__init__()
        self.temperature = temperature if method.classifies else 1.0
        self.method = traceable(method)
        self.images = config.images
        self.flips = FLIPS if config.images.test_flips else FLIPS[:1]
        backbone = self.method.backbone
        offset = float(backbone.offset)  # a number: its value decides how maps are enlarged
        del backbone.offset
        backbone.offset = offset  # pyright: ignore[reportAttributeAccessIssue]

    def forward(self, image: Tensor, tissue: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Class probabilities [C] and soft mask [H, W].

        Args:
            image: RGB [H, W, 3] uint8.
            tissue: [H, W] uint8, 0 on bare glass, for models that remove it; or [[1]], if there is none.
        """
        pixels = image.permute(2, 0, 1)[None].float()
        height, width = sides(pixels)
        backbone = self.method.backbone
        size = graph_working_size(height, width, self.images, backbone.size_multiple)
        unit = antialiased_levels(pixels, size) / 255
        if tissue is not None:
            is_tissue = nearest(tissue[None, None].float(), size)
            unit = unit * is_tissue + backbone.mean * (1 - is_tissue)
        batch = torch.cat([_flipped(unit, axes) for axes in self.flips])
        view = GraphView(backbone.normalise(batch))
        answer = self.method.predict(view)
        masks = view.render(answer.mask)
        upright = [_flipped(masks[k : k + 1], axes) for k, axes in enumerate(self.flips)]
        mask = torch.cat(upright).mean(0, keepdim=True)
        full = F.interpolate(mask, size=(height, width), mode="bilinear", align_corners=False)[0, 0]  # pyright: ignore[reportArgumentType] - traced sizes
        probs = answer.probs.mean(0)
        if self.temperature != 1:  # as `calibration.with_temperature`
            probs = torch.softmax(torch.log(probs.clamp_min(1e-30)) / self.temperature, dim=0)
        return probs, full if tissue is None else full * tissue.float()


def _flipped(images: Tensor, axes: tuple[int, ...]) -> Tensor:
    return images.flip(axes) if axes else images  # no operation at all: a flip of no axis is not valid ONNX
