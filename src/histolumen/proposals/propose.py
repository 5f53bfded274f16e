"""Mask proposals before training: tissue clusters of a backbone's features, over all training images."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen.encoders.backbone import Backbone
from histolumen.encoders.geometry import FLIPS
from histolumen.proposals import clusters
from histolumen.proposals.images import Proposals, WholeImages

_HALF = 0.5
_POSITIONS = 400  # sampled per image
_MAX_IMAGES = 128  # used for clustering; every image gets a proposal
_MIN_SIDE = 32  # pixels
_CACHE_BYTES = 2_000_000_000  # of features kept between clustering and proposing
_CLEAR_DIFFERENCE = 0.02  # nats


@torch.no_grad()
def propose_masks(backbone: Backbone, examples: WholeImages) -> Proposals:
    """Foreground proposals of all images at the stride of the backbone: the mean over two feature views."""
    was_training = backbone.training
    backbone.eval()
    random = np.random.default_rng(examples.seed)
    chosen = _balanced_sample(examples.labels, random)
    cached: dict[int, tuple[Tensor, Tensor]] = {}
    sampled: tuple[list[Tensor], list[Tensor]] = [], []
    cache_left = _CACHE_BYTES
    for index in chosen:
        views = tissue_views(backbone, examples[index])
        positions = views[0][0].numel()
        sample = random.choice(positions, min(_POSITIONS, positions), replace=False)
        for samples, features in zip(sampled, views, strict=True):
            samples.append(features.flatten(1).T[sample])
        cache_left -= sum(features.nbytes for features in views)
        if cache_left >= 0:  # features that do not fit are computed again
            cached[index] = views
    count = min(len(samples) for samples in sampled[0])
    per_view = []
    for view, samples in enumerate(sampled):
        stacked = torch.stack([each[:count] for each in samples])
        per_view.append(clusters.tissue_clusters(stacked, examples.labels[chosen], examples.seed))
        examples.say(_describe(view, per_view[-1]))
    proposals = []
    for index in range(len(examples)):
        views = cached[index] if index in cached else tissue_views(backbone, examples[index])
        masks = [each.foreground(features) for each, features in zip(per_view, views, strict=True)]
        proposals.append(torch.stack(masks).mean(0))
    backbone.train(was_training)
    return proposals


def _describe(view: int, pair: clusters.TissueClusters) -> str:
    foreground, background = pair.uncertainty
    line = (
        f"           tissue clusters, view {view + 1}: cut {pair.cut:.3f}; cross-entropy of the labels "
        f"{foreground:.3f} given the foreground, {background:.3f} given the background"
    )
    if background - foreground < _CLEAR_DIFFERENCE:
        return f"{line}. The difference is small: check that the masks mark the right tissue"
    return line


def _balanced_sample(labels: Tensor, random: np.random.Generator) -> list[int]:
    """Up to `_MAX_IMAGES` random indices, balanced over the classes."""
    order = random.permutation(len(labels))
    if len(order) <= _MAX_IMAGES:
        return order.tolist()
    rank = np.zeros(len(order), dtype=int)  # of each image within its class
    classes = labels.numpy()[order]
    for label in np.unique(classes):
        rank[classes == label] = np.arange((classes == label).sum())
    return order[np.argsort(rank, kind="stable")[:_MAX_IMAGES]].tolist()


def tissue_views(backbone: Backbone, image: Tensor) -> tuple[Tensor, Tensor]:
    """Two feature maps [C, h, w] of an image [1, 3, H, W] in [0, 1].

    The first concatenates all grouping layers. The second concatenates the last of them and the same layer of the image
    at half its size, which has a larger receptive field.
    """
    own = [_smoothed(layer) for layer in _flip_means(backbone, image)]
    sides = [max(round(_HALF * side), _MIN_SIDE) for side in image.shape[2:]]
    half = _flip_means(backbone, F.interpolate(image, size=sides, mode="bilinear", antialias=True))[-1]
    around = F.interpolate(half, size=own[-1].shape[2:], mode="bilinear", align_corners=False)
    return torch.cat(own, dim=1)[0].cpu(), torch.cat([own[-1], around], dim=1)[0].cpu()


def _flip_means(backbone: Backbone, image: Tensor) -> list[Tensor]:
    """Features of each grouping layer, averaged over the flips of the image."""
    per_flip: list[list[Tensor]] = []
    for axes in FLIPS:
        _, inner = backbone.with_layers(backbone.normalise(image.flip(axes)), backbone.trunk.grouping_layers)
        per_flip.append([features.flip(axes) for features in inner])
    return [torch.stack(layer).mean(0) for layer in zip(*per_flip, strict=True)]


def _smoothed(features: Tensor) -> Tensor:
    """Features averaged over 3 x 3 positions."""
    return F.avg_pool2d(features, kernel_size=3, stride=1, padding=1, count_include_pad=False)
