"""What every method is to the engine, and the registry that finds one by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from histolumen.errors import ConfigError, nearest
from histolumen.nets.backbones import Backbone
from histolumen.nets.geometry import FLIPS, Grid
from histolumen.settings import Settings


@dataclass(frozen=True)
class Batch:
    """Images in [0, 1] [B, 3, H, W] and class indices [B].

    Masks [B, 1, H, W] come only to methods that declare `reads_masks`; proposals [B, 1, H, W] in [0, 1] are what the
    method itself proposed for these images, moved along with them.
    """

    images: Tensor
    labels: Tensor
    masks: Tensor | None = None
    proposals: Tensor | None = None


@dataclass(frozen=True)
class Output:
    """What a method answers.

    `probs` are class probabilities [B, C]; `mask` is the soft foreground [B, 1, H, W] in [0, 1] at the input's size.
    `evidence` [B, C, H, W], where a method has it, is the paper's way to binarise its rivals: were the image of class
    c, its foreground would be where map c is positive.
    """

    probs: Tensor
    mask: Tensor
    evidence: Tensor | None = None


Proposals = list[Tensor]


class Examples(Protocol):
    """All training images, one at a time."""

    labels: Tensor
    seed: int

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Tensor:
        """Image `index` [1, 3, H, W] in [0, 1], on the method's device."""
        ...

    def say(self, line: str) -> None:
        """Tell the user what was found."""
        ...


class Losses(NamedTuple):
    """Named, weighted terms that the engine sums, and the class scores [B, C] of the batch, if the method has any."""

    terms: dict[str, Tensor]
    scores: Tensor | None = None


class MapRunner(Protocol):
    """Applies a fully convolutional `net` to images: at once, or window by window when they are large."""

    def __call__(self, net: Callable[[Tensor], Tensor], images: Tensor) -> Tensor: ...


def at_once(net: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """The plain `MapRunner`."""
    return net(images)


SlideNet = Callable[[Tensor, Tensor], Tensor]
"""From a tile [1, 3, T, T] in [0, 1] and its soft mask [1, 1, T, T] (without one: a single 1) to maps [1, K, h, w]."""


class SlideMaps(Protocol):
    """Maps of the tissue of a whole slide, kept on disk."""

    @property
    def positions(self) -> Tensor:
        """Maps at all positions that look at tissue, as one long image [1, K, 1, N], for pooling."""
        ...

    def range_of(self, value: Callable[[Tensor], Tensor]) -> tuple[float, float]:
        """Least and greatest of `value(maps)`, [1, 1, h, w] from [1, K, h, w], over the tissue of the slide."""
        ...


@dataclass(frozen=True)
class SlideMask:
    """The soft mask of a slide: maps, and what makes of any window of them [1, K, h, w] a mask [1, 1, h, w].

    `speaks_for` is the class whose evidence it shows, where that need not be the slide's.
    """

    maps: SlideMaps
    soft: Callable[[Tensor], Tensor]
    speaks_for: int | None = None


class SlideMapper(Protocol):
    """Runs a network over the tissue of a slide, tile by tile. `grid` says where positions lie within a tile."""

    def maps(self, net: SlideNet, grid: Grid) -> SlideMaps:
        """Keep what `net` makes of the tiles."""
        ...

    def positions(self, net: SlideNet, grid: Grid, seen: SlideMask | None = None) -> Tensor:
        """What `net` makes of all positions [1, K, 1, N], shown the tiles and their mask."""
        ...


@dataclass(frozen=True)
class SlideOutput:
    """What a method answers to a whole slide: class probabilities [1, C] and the mask."""

    probs: Tensor
    mask: SlideMask


class Method(nn.Module):
    """A way to learn from labelled images. The engine sees nothing else."""

    reads_masks: ClassVar[bool] = False
    classifies: ClassVar[bool] = True
    """False: `probs` are uniform and mean nothing."""

    backbone: Backbone

    @property
    def ready(self) -> bool:
        """Whether an epoch may be chosen as the best one: False while a part has not begun to learn."""
        return True

    def begin(self, epochs: int, classes: Sequence[str]) -> None:
        """Told before training, or going on with it, how long it is and what the classes are called."""

    def proposes(self, epoch: int) -> bool:  # noqa: ARG002 - most methods never do
        """Whether it wants to look at all training images before this epoch, counted from 0, and propose masks."""
        return False

    def propose(self, examples: Examples, first: Proposals | None) -> Proposals:
        """Masks for the training images, which `losses` will see as `Batch.proposals`.

        Args:
            examples: whole, unaltered training images, read when asked for, and their labels. No mask.
            first: what this method proposed the first time in this run; None if this is that time.

        Returns:
            For each image a map [h, w] in [0, 1] that covers it, at any resolution.
        """
        raise NotImplementedError

    def losses(self, batch: Batch) -> Losses:
        """What a batch of training images costs."""
        raise NotImplementedError

    def predict(self, images: Tensor, run: MapRunner = at_once) -> Output:
        """Class and mask of each image. Maps are made through `run`, so that large images can go window by window."""
        raise NotImplementedError

    def predict_slide(self, slide: SlideMapper) -> SlideOutput:  # noqa: ARG002 - not every method can
        """Class and mask of a whole slide. What `predict` takes from all of an image is here taken from all tissue of
        the slide, never from a tile."""
        raise ConfigError(f"{type(self).__name__} has no answer for whole slides; train another method, best maxmin")

    def end_epoch(self) -> None:
        """Advance schedules; their state lives in buffers and is saved with the weights."""

    def statistics(self) -> dict[str, float]:
        """Scheduled values worth logging."""
        return {}


def predict_flipped(method: Method, images: Tensor, run: MapRunner = at_once) -> Output:
    """The mean of a method's answers to images and their flips."""
    outputs = [(axes, method.predict(images.flip(axes), run)) for axes in FLIPS]
    evidence = [output.evidence.flip(axes) for axes, output in outputs if output.evidence is not None]
    return Output(
        probs=torch.stack([output.probs for _, output in outputs]).mean(0),
        mask=torch.stack([output.mask.flip(axes) for axes, output in outputs]).mean(0),
        evidence=torch.stack(evidence).mean(0) if evidence else None,
    )


class MethodSettings(Settings):
    """Base of each method's own block; a method's default for `name` is the name it is known by."""

    name: Any


@dataclass(frozen=True)
class _Entry:
    settings: type[MethodSettings]
    build: Callable[..., Method]


_registry: dict[str, _Entry] = {}

M = TypeVar("M", bound=type[Method])


def register(settings: type[MethodSettings]) -> Callable[[M], M]:
    """Class decorator: make a method known, under the name its block of settings declares."""
    name = settings.model_fields["name"].default

    def add(method: M) -> M:
        if name in _registry:
            raise ValueError(f"method '{name}' is registered twice")
        _registry[name] = _Entry(settings, method)
        return method

    return add


def method_names() -> list[str]:
    """All registered methods."""
    return sorted(_registry)


def settings_of(name: str) -> type[MethodSettings]:
    """The block of settings that belongs to method `name`."""
    if name not in _registry:
        raise ConfigError(f"unknown method '{name}'; {nearest(name, _registry)}")
    return _registry[name].settings


def build_method(settings: MethodSettings, backbone: Backbone, classes: int) -> Method:
    """Make the method that `settings` belongs to, on `backbone`, for a number of classes."""
    return _registry[settings.name].build(settings, backbone, classes)
