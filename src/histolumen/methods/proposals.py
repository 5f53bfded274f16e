"""Masks proposed before training: the natural groups of a backbone's features, over all training images."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen import grouping
from histolumen.methods.base import Examples, Proposals
from histolumen.nets.backbones import Backbone
from histolumen.nets.geometry import FLIPS

_HALF = 0.5
_POSITIONS = 400  # sampled per image
_MAX_IMAGES = 128  # to find the groups in; all images get their proposals
_SMALLEST = 32
_ROOM = 2_000_000_000  # bytes of features to remember between finding the groups and proposing
_CLOSE = 0.02  # nats


@torch.no_grad()
def group_images(backbone: Backbone, examples: Examples) -> Proposals:
    """Foreground proposals of all images, at the stride of the backbone: the mean vote of two views of each image."""
    was_training = backbone.training
    backbone.eval()
    random = np.random.default_rng(examples.seed)
    chosen = _some_of_each(examples.labels, random)
    seen: dict[int, tuple[Tensor, Tensor]] = {}
    sampled: tuple[list[Tensor], list[Tensor]] = [], []
    room = _ROOM
    for index in chosen:
        views = tissue_views(backbone, examples[index])
        positions = views[0][0].numel()
        places = random.choice(positions, min(_POSITIONS, positions), replace=False)
        for samples, features in zip(sampled, views, strict=True):
            samples.append(features.flatten(1).T[places])
        room -= sum(features.nbytes for features in views)
        if room >= 0:  # a second look costs time, keeping very large images costs memory
            seen[index] = views
    count = min(len(samples) for samples in sampled[0])
    found = []
    for view, samples in enumerate(sampled):
        stacked = torch.stack([each[:count] for each in samples])
        found.append(grouping.group(stacked, examples.labels[chosen], examples.seed))
        examples.say(_told(view, found[-1]))
    proposals = []
    for index in range(len(examples)):
        views = seen[index] if index in seen else tissue_views(backbone, examples[index])
        votes = [groups.foreground(features) for groups, features in zip(found, views, strict=True)]
        proposals.append(torch.stack(votes).mean(0))
    backbone.train(was_training)
    return proposals


def _told(view: int, found: grouping.Grouping) -> str:
    foreground, background = found.uncertainty
    line = (
        f"           natural groups, view {view + 1}: cut {found.cut:.3f}; cross-entropy of the labels "
        f"{foreground:.3f} given the foreground, {background:.3f} given the rest"
    )
    doubtful = background - foreground < _CLOSE
    return f"{line}. Hardly a difference: look whether masks lie on the right side" if doubtful else line


def _some_of_each(labels: Tensor, random: np.random.Generator) -> list[int]:
    """Up to `_MAX_IMAGES` indices in random order, from each class in turn."""
    order = random.permutation(len(labels))
    if len(order) <= _MAX_IMAGES:
        return order.tolist()
    rank = np.zeros(len(order), dtype=int)  # of an image among those of its class
    classes = labels.numpy()[order]
    for label in np.unique(classes):
        rank[classes == label] = np.arange((classes == label).sum())
    return order[np.argsort(rank, kind="stable")[:_MAX_IMAGES]].tolist()


def tissue_views(backbone: Backbone, image: Tensor) -> tuple[Tensor, Tensor]:
    """Features [C, h, w] of an image [1, 3, H, W] in [0, 1], seen in two ways.

    The first are those of all grouping layers. The second are those of the last layer beside what it gives for the
    image at half its size, where a position sees more of its surroundings.
    """
    own = [_smoothed(layer) for layer in _flip_means(backbone, image)]
    sides = [max(round(_HALF * side), _SMALLEST) for side in image.shape[2:]]
    half = _flip_means(backbone, F.interpolate(image, size=sides, mode="bilinear", antialias=True))[-1]
    around = F.interpolate(half, size=own[-1].shape[2:], mode="bilinear", align_corners=False)
    return torch.cat(own, dim=1)[0].cpu(), torch.cat([own[-1], around], dim=1)[0].cpu()


def _flip_means(backbone: Backbone, image: Tensor) -> list[Tensor]:
    """Features of each grouping layer, averaged over the flips of the image."""
    looks: list[list[Tensor]] = []
    for axes in FLIPS:
        _, inner = backbone.with_layers(backbone.normalise(image.flip(axes)), backbone.trunk.grouping_layers)
        looks.append([features.flip(axes) for features in inner])
    return [torch.stack(layer).mean(0) for layer in zip(*looks, strict=True)]


def _smoothed(features: Tensor) -> Tensor:
    """Every position averaged with its neighbours."""
    return F.avg_pool2d(features, kernel_size=3, stride=1, padding=1, count_include_pad=False)
