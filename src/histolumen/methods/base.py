"""The interface of every method, and the registry of methods by name."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from histolumen.data.batch import Batch
from histolumen.encoders.backbone import Backbone
from histolumen.encoders.batchnorm import Case
from histolumen.encoders.geometry import FLIPS
from histolumen.errors import ConfigError, nearest
from histolumen.lanes import side_by_side
from histolumen.methods.view import Answer, ImageView, MapRunner, Output, View, at_once
from histolumen.proposals.images import Proposals, WholeImages
from histolumen.settings import Settings


class Losses(NamedTuple):
    """Named, weighted loss terms, which the engine sums, and the class scores [B, C] if the method classifies."""

    terms: dict[str, Tensor]
    scores: Tensor | None = None


class Method(nn.Module, ABC):
    """A method: its training loss, and its prediction for images and slides.

    A training loop only calls `method.losses(batch)`, a prediction only `method(images)`.
    """

    reads_masks: ClassVar[bool] = False
    """Whether training needs pixel masks (full supervision)."""
    classifies: ClassVar[bool] = True
    """Whether the method predicts classes; if not, `probs` are uniform."""
    needs_gradients: ClassVar[bool] = False
    """Whether a prediction computes gradients, which an exported graph cannot."""
    negative_class: int | None = None
    """Index of the class whose images have no foreground (`images.negative_class`); None: every class has some."""

    backbone: Backbone

    @property
    def masks_pixels(self) -> bool:
        """Whether a prediction has another pass, over masked pixels; a slide then needs its pixels twice."""
        return False

    @abstractmethod
    def losses(self, batch: Batch) -> Losses:
        """The loss terms of a batch of training images."""

    @abstractmethod
    def predict(self, view: View) -> Answer:
        """Predict class and mask of the images or the slide in `view`."""

    def forward(self, images: Tensor, run: MapRunner = at_once) -> Output:
        """Predict class and mask of images [B, 3, H, W] in [0, 1].

        Args:
            images: of one size.
            run: applies a network to the images; large images are processed in windows.
        """
        view = ImageView(self.backbone.normalise(images), run)
        return view.output(self.predict(view))

    def classify_region(self, pixels: Tensor, region: Case, run: MapRunner = at_once) -> Tensor:  # noqa: ARG002 - for subclasses
        """Class probabilities [B, C] of normalised images whose other pixels are zero (the mean colour).

        Args:
            pixels: X+ or X-, [B, 3, H, W].
            region: which of the two.
            run: applies a network to the images.
        """
        return self.predict(ImageView(pixels, run)).probs

    def on_train_start(self, epochs: int) -> None:
        """Called once before training starts or resumes, with the total number of epochs."""

    def on_epoch_end(self) -> None:
        """Advance schedules; their state lives in buffers and is saved with the weights."""

    def scheduled_values(self) -> dict[str, float]:
        """Current values of the schedules, for the log."""
        return {}

    @property
    def selectable(self) -> bool:
        """Whether the current epoch may be chosen as best. Warm-up epochs are never chosen."""
        return True

    def wants_proposals(self, epoch: int) -> bool:  # noqa: ARG002 - for subclasses
        """Whether `propose` is called before this epoch, counted from 0."""
        return False

    def propose(self, images: WholeImages, first: Proposals | None) -> Proposals:  # noqa: ARG002 - for subclasses
        """Propose masks for the training images; `losses` receives them as `Batch.proposals`.

        Args:
            images: whole training images without augmentation, and their labels; no masks.
            first: the first proposals of this run; None on the first call.

        Returns:
            One map [h, w] in [0, 1] per image, at any resolution, covering the whole image.
        """
        raise TypeError(f"{type(self).__name__} proposes no masks")


def predict_flipped(method: Method, images: Tensor, run: MapRunner = at_once, *, together: bool = False) -> Output:
    """Mean of a method's outputs over the flips of the images; `together`: all flips are one batch."""
    if together:
        parts = method(torch.cat([images.flip(axes) for axes in FLIPS]), run).chunk(len(FLIPS))
        outputs = list(zip(FLIPS, parts, strict=True))
    else:
        each = side_by_side(lambda axes: method(images.flip(axes), run), FLIPS, images.device)
        outputs = list(zip(FLIPS, each, strict=True))
    evidence = [output.evidence.flip(axes) for axes, output in outputs if output.evidence is not None]
    return Output(
        probs=torch.stack([output.probs for _, output in outputs]).mean(0),
        soft_mask=torch.stack([output.soft_mask.flip(axes) for axes, output in outputs]).mean(0),
        evidence=torch.stack(evidence).mean(0) if evidence else None,
    )


class MethodSettings(Settings):
    """Base of each method's settings; the default of `name` is the name of the method in the registry."""

    name: Any


@dataclass(frozen=True)
class _Entry:
    settings: type[MethodSettings]
    method: type[Method]


_registry: dict[str, _Entry] = {}

M = TypeVar("M", bound=type[Method])


def register(settings: type[MethodSettings]) -> Callable[[M], M]:
    """Class decorator: register a method under the name that its settings declare."""
    name = settings.model_fields["name"].default

    def add(method: M) -> M:
        if name in _registry:
            raise ValueError(f"method '{name}' is registered twice")
        _registry[name] = _Entry(settings, method)
        return method

    return add


def method_names() -> list[str]:
    """Names of all registered methods."""
    return sorted(_registry)


def all_settings() -> list[type[MethodSettings]]:
    """The settings class of every registered method."""
    return [_registry[name].settings for name in method_names()]


def settings_of(name: str) -> type[MethodSettings]:
    """The settings class of method `name`."""
    if name not in _registry:
        raise ConfigError(f"unknown method '{name}'; {nearest(name, _registry)}")
    return _registry[name].settings


def reads_masks(name: str) -> bool:
    """Whether method `name` is trained with masks (full supervision)."""
    return _registry[name].method.reads_masks


def build_method(
    settings: MethodSettings, backbone: Backbone, classes: int, negative_class: int | None = None
) -> Method:
    """Build the method that `settings` names, on `backbone`.

    Args:
        settings: of the method.
        backbone: the feature extractor.
        classes: number of classes.
        negative_class: index of the class whose images have no foreground, if there is one.
    """
    method = _registry[settings.name].method(settings, backbone, classes)
    method.negative_class = negative_class
    return method
