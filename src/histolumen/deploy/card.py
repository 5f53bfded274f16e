"""What an exported model says about itself: stored inside its file, and beside it as JSON."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any, Literal

from histolumen.config import RunConfig, parse_run_config
from histolumen.engine.model import Model
from histolumen.engine.windows import whole_pixels
from histolumen.errors import ConfigError, RunError

Format = Literal["onnx", "openvino", "torchscript"]
Precision = Literal["fp32", "int8"]
KEY = "histolumen"
"""Name of the entry in the file's metadata that holds the card as JSON."""
_FORMAT = 1
_INPUTS = {"image": "uint8 [height, width, 3]: an RGB image of any size, as it was saved, not resized or normalised"}
_TISSUE = {
    "tissue": "uint8 [height, width]: 0 on bare glass beside the tissue, 1 elsewhere; [[1]], a single pixel, if there "
    "is no glass. Glass is replaced by the mean colour, and is 0 in the mask"
}
_OUTPUTS = {
    "probabilities": "float32 [classes]: one per class, in the order of `classes`",
    "soft_mask": "float32 [height, width]: soft mask in [0, 1] at the size of the image; foreground where >= 0.5",
}


@dataclass(frozen=True)
class Card:
    """Classes, pre-processing and limits of an exported model, in plain values."""

    model: str
    """Identity of the trained model (`model.json`)."""
    method: str
    backbone: str
    classes: list[str]
    classifies: bool
    negative_class: str | None
    file_format: Format
    precision: Precision
    inputs: dict[str, str]
    outputs: dict[str, str]
    inside: list[str]
    """Steps that the graph computes."""
    outside: list[str]
    """Steps of `histolumen predict` that the graph does not compute."""
    preprocessing: dict[str, Any]
    max_working_pixels: int
    """Pixels at working size up to which `predict` takes an image; above, the trained model uses windows."""
    config: dict[str, Any]
    """All settings of the run."""
    int8: dict[str, Any] = field(default_factory=dict)
    """What quantisation changed on validation images; empty in single precision."""
    made_with: str = ""
    """Version of histolumen."""

    @property
    def identity(self) -> str:
        """SHA-256 over the trained model and the form it was exported in."""
        return hashlib.sha256(f"{self.model} {self.file_format} {self.precision}".encode()).hexdigest()

    @property
    def removes_glass(self) -> bool:
        """Whether the graph has the input `tissue`."""
        return "tissue" in self.inputs

    def run_config(self) -> RunConfig:
        """The settings of the run."""
        return parse_run_config(self.config)

    def as_json(self) -> str:
        """The text in the file's metadata and of the file beside it."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=2) + "\n"


def card_of(model: Model, file_format: Format) -> Card:
    """The card of a trained model exported in single precision."""
    images, mask, backbone = model.config.images, model.config.mask, model.method.backbone
    glass = images.glass == "remove"
    outside = []
    if glass:
        outside.append("finding bare glass (images.glass: remove): give it as `tissue`, or [[1]] to keep it")
    if mask.fill_holes or mask.min_area:
        outside.append(
            f"solid regions: holes up to {mask.fill_holes:g} and specks up to {mask.min_area:g} square microns (pixels "
            "if images.mpp is not set) change sides in the finished mask"
        )
    outside.append("the comparison with the training images (`unlike_training`, `warnings`)")
    outside.append("windows: the graph looks at the whole image at once, so its memory grows with the image")
    return Card(
        model=model.identity,
        method=model.config.method.name,
        backbone=model.config.backbone.name,
        classes=model.classes,
        classifies=model.classifies,
        negative_class=images.negative_class,
        file_format=file_format,
        precision="fp32",
        inputs=_INPUTS | (_TISSUE if glass else {}),
        outputs=_OUTPUTS,
        inside=[
            "resizing to the working size, as torch resizes bytes",
            "normalisation by mean and standard deviation",
            *(["the mean over the image and its three flips"] if images.test_flips else []),
            "all passes of the method, its mask, and resizing the mask to the image",
            *(["calibration of the class probabilities"] if model.temperature != 1 else []),
        ],
        outside=outside,
        preprocessing={
            "short_side": images.short_side,
            "resize": images.resize,
            "size_multiple": backbone.size_multiple,
            "mean": backbone.mean.flatten().tolist(),
            "std": backbone.std.flatten().tolist(),
            "test_flips": images.test_flips,
            "mpp": model.mpp,
        },
        max_working_pixels=whole_pixels(backbone),
        config=model.config.as_dict(),
        made_with=version("histolumen"),
    )


def parse_card(text: str | None, source: str) -> Card:
    """Read the card in the metadata of `source`."""
    if not text:
        raise RunError(f"{source}: has no card of histolumen; give a file that `histolumen export` wrote")
    try:
        content = json.loads(text)
        found = content.pop("format", None)
        if found != _FORMAT:
            raise RunError(f"{source}: exported in format {found}, this version reads {_FORMAT}; export it again")
        card = Card(**content)
        card.run_config()
    except (ValueError, TypeError, AttributeError, ConfigError) as error:
        raise RunError(f"{source}: its card cannot be read ({error}); export it again") from error
    return card
