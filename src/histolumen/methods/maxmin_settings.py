"""Settings of Max-Min: the paper's terms and those added to it (docs/method.md)."""

from typing import Literal

from pydantic import Field, model_validator

from histolumen import losses
from histolumen.methods.wildcat import PoolingSettings


class MaxMinSettings(PoolingSettings):
    """Settings of Max-Min; the defaults are the paper's for GlaS."""

    name: Literal["maxmin"] = "maxmin"
    """The method."""
    foreground: bool = True
    """Train the classifier on X+ (Eq. 1-1). If false, the localizer predicts the class."""
    class_from: Literal["foreground", "image"] = "foreground"
    """What the class is predicted from: X+ by the classifier (the paper), or X by the localizer, which saves the pass
    over X+."""
    background: losses.Background = "sem"
    """Term that makes the classifier uncertain on X-: `eem` (Eq. 6), `sem` (Eq. 7) or `none`."""
    size_barrier: bool = True
    """Keep foreground and background large (the log-barrier of Eq. 5)."""
    lambda_: float = Field(default=1e-7, alias="lambda", ge=0)
    """Weight of the background term (Eq. 5)."""
    sigma: float = Field(default=0.15, ge=0, le=1)
    """Initial threshold of Eq. 8 on the normalised map."""
    sigma_step: float = Field(default=0.0, ge=0)
    """Added to sigma after each epoch."""
    sigma_max: float = Field(default=0.20, ge=0, le=1)
    """Upper limit of sigma."""
    omega: float = Field(default=5.0, gt=0)
    """Steepness of Eq. 8."""
    t: float = Field(default=5.0, gt=0)
    """Initial sharpness of the barrier."""
    t_factor: float = Field(default=1.01, ge=1)
    """Multiplies t after each epoch."""
    t_max: float = Field(default=10.0, gt=0)
    """Upper limit of t."""
    size_unit: losses.SizeUnit = "pixels"
    """Unit of region sizes in the barrier: sums of mask values (`pixels`) or shares of the image (`fraction`)."""
    classifier_scale: float = Field(default=0.8, gt=0, le=1)
    """Factor by which X+ and X- are resized for the classifier."""
    mask_at: Literal["image", "features"] = "image"
    """What M+ multiplies to form X+ and X-: the `image` (the paper), or the `features` of X at `mask_stride`, so that
    only later layers run three times per step. The losses are the same; `classifier_scale` has no effect."""
    mask_stride: Literal[2, 4, 8, 16] = 8
    """`mask_at: features`: stride of the features that are masked; below the backbone's own stride."""
    mask_from: Literal["cam", "decoder"] = "cam"
    """Source of M+: the localizer's class maps by Eq. 8 (`cam`, the paper), or a `decoder` with its own logits."""
    decoder_stride: Literal[4, 8, 16] = 4
    """`decoder`: stride of its finest input features and of its logits. If the backbone has no such features, the
    downsampled image is used instead; patches of 14 pixels are halved once, to 7."""
    decoder_width: int = Field(default=64, ge=1)
    """`decoder`: number of hidden channels."""
    refine: bool = False
    """In predictions, refine the mask of each image by a linear discriminant of its own features: those of strides 4
    and 8 (with a `decoder`: those up to stride 8 that it adds to the backbone's last ones; for vision transformers,
    the colours of the image). Slides and images that are predicted in windows are not refined."""
    grouping: float = Field(default=0.0, ge=0)
    """Weight of the loss between M+ and mask proposals, which are tissue clusters of the backbone's features computed
    before training; the labels decide which cluster is the foreground. 0: no proposals."""
    grouping_backbone: str | None = None
    """`grouping`: name of another backbone, whose published features are clustered at stride 16; null: the network's
    own."""
    self_training: int = Field(default=0, ge=0)
    """Interval in epochs at which correctly classified images get new proposals: the mean of the first proposal and the
    current mask. 0: never."""
    edges: float = Field(default=0.0, ge=0)
    """Weight of the edge-aware term, which penalises mask boundaries where the colour does not change."""
    negative_evidence: float = Field(default=0.0, ge=0)
    """Weight of the term that keeps the foreground of `images.negative_class` images empty. A mask from class maps is
    then not normalised to [0, 1] (sigma has no effect) and shows the evidence for the other classes. 0: every image has
    a foreground (Eq. 8 as printed)."""

    @model_validator(mode="after")
    def _parts_fit(self) -> "MaxMinSettings":
        if self.grouping_backbone is not None and not self.grouping:
            raise ValueError("grouping_backbone is that of the proposals of grouping: set method.grouping as well")
        if self.class_from == "image" and self.mask_from == "decoder" and max(self.kmax, self.kmin) >= 1:
            raise ValueError("class_from=image with a decoder pools shares of the positions: set kmax and kmin below 1")
        if self.self_training and not self.grouping:
            raise ValueError("self_training updates the proposals of grouping: set method.grouping as well")
        terms = (self.grouping, self.edges, self.negative_evidence, self.size_barrier, self.foreground)
        if self.mask_from == "decoder" and self.background == "none" and not any(terms):
            raise ValueError("no term would train the decoder: set method.grouping, foreground or background")
        return self
