"""The interface of every encoder: a module from images to one feature map."""

from abc import ABC, abstractmethod

from torch import Tensor, nn
from torch.nn import functional as F

from histolumen.data.transforms import SIZE_MULTIPLE


class Trunk(nn.Module, ABC):
    """From images to features [B, channels, h, w]."""

    channels: int
    stride: int
    """Input pixels per feature position."""
    required_multiple: int = 1
    """Multiple that image sides must have; other images are padded with zeros, the mean colour."""
    offset: float | None = None
    """Centre of a feature relative to `stride * index`, if the architecture defines it; None: it is measured."""
    single_stride: bool = False
    """Whether all layers have the same resolution, as in a plain vision transformer."""
    grouping_layers: tuple[str, ...] = ("",)
    """Layers, all of one stride, whose features are used for tissue clusters; "" is the output."""

    @property
    def size_multiple(self) -> int:
        """Multiple to which image sides should be rounded."""
        return SIZE_MULTIPLE if self.required_multiple == 1 else self.required_multiple

    @abstractmethod
    def features(self, images: Tensor) -> Tensor:
        """Features of images whose sides are multiples of `required_multiple`."""

    def forward(self, images: Tensor) -> Tensor:
        down, across = (-side % self.required_multiple for side in images.shape[2:])
        return self.features(F.pad(images, (0, across, 0, down)) if down or across else images)


class NoTrunk(Trunk):
    """No network: the features are the image itself."""

    channels, stride = 3, 1

    def features(self, images: Tensor) -> Tensor:
        return images
