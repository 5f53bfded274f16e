"""The patch embedding of CTransPath: convolutions instead of one linear projection."""

from typing import Any

from torch import Tensor, nn

_STRIDE = 4


class ConvStem(nn.Module):
    """Two 3x3 convolutions of stride 2 and a 1x1 convolution; one position per 4 x 4 pixels, channels last.

    It is the `embed_layer` of timm's Swin.

    Args:
        img_size: image size of the initial window layout.
        patch_size: must be 4.
        in_chans: channels of the image.
        embed_dim: channels of the positions.
        norm_layer: norm applied to the positions, or None.
        options: other arguments of timm, ignored: any image size is accepted, and the format is channels last.
    """

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        patch_size: int = _STRIDE,
        in_chans: int = 3,
        embed_dim: int = 96,
        norm_layer: type[nn.Module] | None = None,
        **options: Any,
    ):
        super().__init__()
        del options
        if patch_size != _STRIDE:
            raise ValueError(f"this stem has a stride of {_STRIDE}")
        self.patch_size = (patch_size, patch_size)
        self.img_size = (img_size, img_size) if isinstance(img_size, int) else tuple(img_size)
        self.grid_size = tuple(side // patch_size for side in self.img_size)
        layers: list[nn.Module] = []
        channels = in_chans
        for width in (embed_dim // 8, embed_dim // 4):
            convolution = nn.Conv2d(channels, width, kernel_size=3, stride=2, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            channels = width
        self.proj = nn.Sequential(*layers, nn.Conv2d(channels, embed_dim, kernel_size=1))
        self.norm = norm_layer(embed_dim) if norm_layer is not None else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """Positions [B, h, w, embed_dim]."""
        return self.norm(self.proj(images).permute(0, 2, 3, 1))
