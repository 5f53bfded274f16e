"""What can be set about Max-Min: the paper's terms, and those added to it (docs/method.md)."""

from typing import Literal

from pydantic import Field, model_validator

from histolumen import losses
from histolumen.methods.wildcat import PoolingSettings


class MaxMinSettings(PoolingSettings):
    """Settings of Max-Min; the defaults are the paper's for GlaS."""

    name: Literal["maxmin"] = "maxmin"
    """The method."""
    foreground: bool = True
    """Train the classifier on X+ (Eq. 1-1). Off: the class comes from the localizer."""
    background: losses.Background = "sem"
    """What makes the classifier uncertain on X-: `eem` (Eq. 6), `sem` (Eq. 7) or `none`."""
    size_barrier: bool = True
    """Keep foreground and background large (the log-barrier of Eq. 5)."""
    lambda_: float = Field(default=1e-7, alias="lambda", ge=0)
    """Weight of the background term (Eq. 5)."""
    sigma: float = Field(default=0.15, ge=0, le=1)
    """Threshold of Eq. 8 on the normalised map, at the start."""
    sigma_step: float = Field(default=0.001, ge=0)
    """Added to sigma after each epoch."""
    sigma_max: float = Field(default=0.20, ge=0, le=1)
    """Where sigma stops growing."""
    omega: float = Field(default=5.0, gt=0)
    """Steepness of Eq. 8."""
    t: float = Field(default=5.0, gt=0)
    """Sharpness of the barrier, at the start."""
    t_factor: float = Field(default=1.01, ge=1)
    """Multiplies t after each epoch."""
    t_max: float = Field(default=10.0, gt=0)
    """Where t stops growing."""
    size_unit: losses.SizeUnit = "pixels"
    """Region sizes in the barrier: sums of mask values, or shares of the image."""
    classifier_scale: float = Field(default=0.8, gt=0, le=1)
    """X+ and X- are shrunk to this share of their sides before the classifier sees them."""
    mask_from: Literal["cam", "decoder"] = "cam"
    """Where M+ comes from: the localizer's class maps by Eq. 8 (`cam`, the paper), or a `decoder` with logits of its
    own."""
    decoder_stride: Literal[4, 8, 16] = 4
    """`decoder`: stride of the finest features that it reads, and of its logits."""
    decoder_width: int = Field(default=64, ge=1)
    """`decoder`: channels inside."""
    grouping: float = Field(default=0.0, ge=0)
    """`decoder`: weight of the masks proposed by the natural groups of the backbone's features before training; the
    labels choose which group is the foreground. 0: no proposals."""
    self_training: int = Field(default=0, ge=0)
    """Every so many epochs, images that the classifier names rightly get new proposals: the mean of the first ones and
    of the mask as it is by then. 0: never."""
    edges: float = Field(default=0.0, ge=0)
    """Weight of the term that lets the mask change only where colours do."""
    negative_evidence: float = Field(default=0.0, ge=0)
    """Weight of the term that keeps the foreground of images of `negative_class` empty. A mask by class maps is then
    not stretched to [0, 1] (sigma has no effect): it shows the evidence for the other classes. 0: every image has a
    foreground."""
    negative_class: str = "normal"
    """`negative_evidence`: the class whose images have no foreground."""

    @model_validator(mode="after")
    def _parts_fit(self) -> "MaxMinSettings":
        if self.grouping and self.mask_from != "decoder":
            raise ValueError("grouping teaches a decoder: set method.mask_from=decoder as well")
        if self.self_training and not self.grouping:
            raise ValueError("self_training renews the proposals of grouping: set method.grouping as well")
        terms = (self.grouping, self.edges, self.negative_evidence, self.size_barrier, self.foreground)
        if self.mask_from == "decoder" and self.background == "none" and not any(terms):
            raise ValueError("no term would teach the decoder: set method.grouping, foreground or background")
        return self
