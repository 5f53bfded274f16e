"""A trained model as its users see it: an image in, a class and a mask out."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen.config import RunConfig
from histolumen.data.image import read_image
from histolumen.data.transforms import ImageSettings, to_unit_range, to_working_size
from histolumen.engine.checkpoint import find_model, load_model
from histolumen.engine.windows import map_runner
from histolumen.errors import ImageError
from histolumen.methods.base import Method, predict_flipped

THRESHOLD = 0.5


@dataclass(frozen=True)
class Prediction:
    """Class probabilities and the soft mask [H, W] in [0, 1] at the image's own size.

    `evidence` [C, h, w], at working size, is what `mask_by_label` needs.
    """

    probabilities: dict[str, float]
    soft_mask: np.ndarray
    evidence: Tensor | None = None

    @property
    def label(self) -> str:
        """The most probable class."""
        return max(self.probabilities, key=self.probabilities.__getitem__)

    @property
    def mask(self) -> np.ndarray:
        """The pixels that decided: soft mask >= 0.5, [H, W] bool."""
        return self.soft_mask >= THRESHOLD

    def mask_by_label(self, label: str) -> np.ndarray:
        """The paper's way to binarise its rivals, which looks at the *true* label; for comparison only."""
        if self.evidence is None:
            return self.mask
        own = self.evidence[list(self.probabilities).index(label)][None, None]
        return _original_size(own, self.soft_mask.shape) > 0

    @property
    def foreground_share(self) -> float:
        """Share of the image that the mask covers."""
        return float(self.mask.mean())


class Model:
    """A method with its classes and pre-processing. Made by `histolumen.load`.

    `mpp` are the microns per pixel at which its network sees images; None: not known.
    """

    def __init__(
        self,
        method: Method,
        classes: list[str],
        config: RunConfig,
        device: torch.device | None = None,
        mpp: float | None = None,
    ):
        self.device = device or torch.device("cpu")
        self.method = method.to(self.device).eval()
        self.classes = classes
        self.config = config
        self.mpp = mpp

    @property
    def classifies(self) -> bool:
        """Whether its probabilities mean anything; a mask is all that some methods give."""
        return self.method.classifies

    def predict(self, image: np.ndarray | Path | str) -> Prediction:
        """Class and mask of one image.

        Args:
            image: a file, or RGB [H, W, 3] uint8.
        """
        path = None if isinstance(image, np.ndarray) else Path(image)
        pixels = image if isinstance(image, np.ndarray) else read_image(Path(image))
        return predict_image(self.method, self.classes, pixels, self.config.images, self.device, path)


def load(folder: Path | str, device: str | None = None) -> Model:
    """Load a trained model from a run folder or its `best/`.

    Args:
        folder: the run or model folder.
        device: for example "cuda"; unset: a GPU where there is one.
    """
    method, card = load_model(find_model(Path(folder)))
    return Model(method, card.classes, card.config, torch.device(device) if device else default_device(), card.mpp)


def default_device() -> torch.device:
    """A GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@torch.inference_mode()
def predict_image(
    method: Method,
    classes: list[str],
    pixels: np.ndarray,
    settings: ImageSettings,
    device: torch.device,
    path: Path | None = None,
) -> Prediction:
    """Class and mask of decoded pixels; large images go window by window."""
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        raise ImageError(f"{path or 'image'}: expected RGB [H, W, 3] uint8, found {pixels.dtype} {list(pixels.shape)}")
    working = to_unit_range(to_working_size(pixels, settings, path))[None].to(device)
    run = map_runner(*working.shape[2:])
    output = predict_flipped(method, working, run) if settings.test_flips else method.predict(working, run)
    probabilities = dict(zip(classes, output.probs[0].tolist(), strict=True))
    evidence = None if output.evidence is None else output.evidence[0]
    return Prediction(probabilities, _original_size(output.mask, pixels.shape[:2]), evidence)


def _original_size(mask: Tensor, size: tuple[int, ...]) -> np.ndarray:
    resized = F.interpolate(mask.float(), size=size[:2], mode="bilinear", align_corners=False)
    return resized[0, 0].cpu().numpy()
