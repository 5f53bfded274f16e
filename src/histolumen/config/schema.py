"""The schema of a run: one pydantic model, validated before anything starts."""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import Field, model_validator

from histolumen.data.transforms import ImageSettings
from histolumen.encoders.backbone import BackboneSettings
from histolumen.errors import ConfigError
from histolumen.methods.base import MethodSettings, all_settings, reads_masks
from histolumen.settings import Settings
from histolumen.tissue.solid import MaskSettings

if TYPE_CHECKING:
    MethodBlock = MethodSettings
else:  # the settings classes of all registered methods, discriminated by `name`
    MethodBlock = Annotated[reduce(or_, all_settings()), Field(discriminator="name")]


class TrainSettings(Settings):
    """Optimisation and choice of the best epoch; the defaults are the paper's for Max-Min on GlaS."""

    epochs: int = Field(default=80, ge=1)
    """Passes over the training images."""
    batch_size: int = Field(default=4, ge=1)
    """Images per step, summed over all processes."""
    last_batch: Literal["fill", "short"] = "fill"
    """What an epoch ends with where the batch does not divide the images: a batch filled up with the epoch's first
    images, or a short one, as in the paper, where an epoch shows each image once. A batch that could hold all images
    is never filled up."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """SGD with Nesterov momentum (the paper), or AdamW."""
    lr: float = Field(default=1e-3, gt=0)
    """Learning rate of the backbone."""
    head_lr_factor: float = Field(default=1.0, gt=0)
    """Factor on the learning rate of everything except the backbone."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Nesterov momentum; the first beta of AdamW."""
    weight_decay: float = Field(default=1e-4, ge=0)
    """L2 penalty on all weights; decoupled from the gradient in AdamW."""
    schedule: Literal["step", "multistep", "cosine", "constant"] = "step"
    """Learning-rate schedule: reduced every `lr_every` epochs (`step`) or after `lr_milestones` (`multistep`), falling
    along a half cosine (`cosine`), or `constant`."""
    lr_every: int = Field(default=10, ge=1)
    """`step`: epochs between two reductions."""
    lr_milestones: tuple[int, ...] = ()
    """`multistep`: epochs after which the rate is reduced."""
    lr_factor: float = Field(default=0.9, gt=0, le=1)
    """Factor by which the rate is reduced."""
    lr_floor: float = Field(default=1e-7, ge=0)
    """Lower limit of the rate."""
    clip_gradient: float | None = Field(default=None, gt=0)
    """Maximum norm of the gradient; null: no clipping."""
    precision: Literal["32", "bf16"] = "32"
    """Arithmetic of the networks in training: single precision, or bfloat16 (losses and weights stay in single
    precision), which is nearly twice as fast where the processor computes in it, and refused elsewhere."""
    select: Literal["accuracy", "cross_entropy", "pixel_cross_entropy", "last"] = "accuracy"
    """Which epoch is saved as `best/`, by validation labels alone: the highest `accuracy` (the latest of equals; the
    paper), the lowest `cross_entropy`, or the `last`, which is also kept for methods that do not classify. U-Net alone
    may use `pixel_cross_entropy`, the lowest by validation masks (the paper); other methods are refused."""
    layout: Literal["auto", "channels_last", "channels_first"] = "auto"
    """Memory layout of features, which differ in rounding and speed: `auto` is `channels_last` for networks with
    depthwise convolutions (EfficientNet, MobileNet, ConvNeXt) and for bf16, `channels_first` for others (ResNet)."""
    compile: bool = False
    """Compile the backbone by torch.compile: the first steps take minutes, later ones less time. Needs a C++ compiler
    on a CPU, and backbone.statistics=frozen for networks with BatchNorm."""
    workers: int | None = Field(default=None, ge=0)
    """Processes that augment images while the network runs; 0: the training process does. null: none with one computing
    thread; on a CPU one, and one more per 8 threads; beside a GPU one less than threads, at most 8. The result is the
    same. Decoded images (`images.cache_mb`) are shared by all of them."""


class RunConfig(Settings):
    """All settings of one run, as a recipe writes them."""

    method: MethodBlock
    """The method and its settings."""
    backbone: BackboneSettings = BackboneSettings()
    """The feature extractor."""
    images: ImageSettings = ImageSettings()
    """Geometry and augmentation."""
    mask: MaskSettings = MaskSettings()
    """What is done to finished masks of images."""
    train: TrainSettings = TrainSettings()
    """Optimisation and choice of the best epoch."""
    seed: int = Field(default=0, ge=0, strict=True)
    """Seed of the initial weights, the order of the images and all augmentation."""

    @model_validator(mode="after")
    def _only_supervised_methods_are_selected_by_masks(self) -> "RunConfig":
        if self.train.select == "pixel_cross_entropy" and not reads_masks(self.method.name):
            raise ConfigError(
                f"train.select: pixel_cross_entropy reads masks, and {self.method.name} learns without them; "
                "use accuracy, cross_entropy or last"
            )
        return self

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as a recipe writes them; every key is present."""
        return self.model_dump(mode="json", by_alias=True)

    def as_yaml(self) -> str:
        """The text of `config.yaml`."""
        return yaml.safe_dump(self.as_dict(), sort_keys=False)

    def flat(self) -> dict[str, Any]:
        """`block.key` -> value; `seed` has no block."""
        flat: dict[str, Any] = {}
        for name, block in self.as_dict().items():
            flat |= (
                {f"{name}.{key}": value for key, value in block.items()} if isinstance(block, dict) else {name: block}
            )
        return flat
