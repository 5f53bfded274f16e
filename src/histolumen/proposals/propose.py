"""Mask proposals before training: tissue clusters of a backbone's features, over all training images."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen.encoders.backbone import Backbone
from histolumen.encoders.geometry import FLIPS
from histolumen.encoders.tapping import layer_of_stride
from histolumen.errors import ConfigError, DataError
from histolumen.proposals import clusters
from histolumen.proposals.describe import describe_split, looks
from histolumen.proposals.images import Proposals, WholeImages
from histolumen.tissue.glass import find_glass, white_fields

_ZOOMS = 1.5, 1, 0.5
_POSITIONS, _MIN_POSITIONS = 800, 16  # sampled per image; images with less tissue take no part in clustering
_MAX_WHITE = 0.3  # share of a position's cell; positions with more are not tissue
_MAX_IMAGES = 128  # used for clustering; every image gets a proposal
_MIN_SIDE = 32  # pixels
_COARSEST_STRIDE = 16  # of features that are clustered
_CACHE_BYTES = 2_000_000_000  # of features kept between clustering and proposing


@torch.no_grad()
def propose_masks(backbone: Backbone, examples: WholeImages) -> Proposals:
    """Foreground proposals of all images at the stride of the clustered features: the mean over two feature views.

    White fields (lumens, gaps, glass) have no texture that could be clustered, so clusters are found on tissue alone;
    a lumen then follows the tissue it resembles most, and glass is background.
    """
    was_training = backbone.training
    backbone.eval()
    random = np.random.default_rng(examples.seed)
    chosen = _balanced_sample(examples.labels, random)
    cached: dict[int, ViewedImage] = {}
    sampled: tuple[list[Tensor], list[Tensor]] = [], []
    labels, appearance = [], []
    cache_left = _CACHE_BYTES
    for index in examples.track(chosen, "looking for tissue that differs between the classes"):
        viewed = view_image(backbone, examples[index])
        sample = _sample_tissue(viewed.tissue, random)
        if sample is not None:
            labels.append(examples.labels[index])
            appearance.append(viewed.looks.flatten(1).T[sample])
            for samples, features in zip(sampled, viewed.views, strict=True):
                samples.append(features.flatten(1).T[sample])
        cache_left -= sum(features.nbytes for features in viewed.views)
        if cache_left >= 0:  # features that do not fit are computed again
            cached[index] = viewed
    if not labels:
        raise DataError("no training image shows enough tissue to find clusters in; check the images with data check")
    per_view, memberships = [], []
    for samples in examples.track(sampled, "splitting the tissue in two, by two sets of features"):
        features = torch.stack(samples)
        per_view.append(clusters.tissue_clusters(features, torch.stack(labels), examples.seed))
        memberships.append(per_view[-1].membership(features))
    for line in describe_split(per_view, memberships, torch.stack(appearance), examples.classes):
        examples.say(f"           {line}")
    proposals = []
    for index in examples.track(range(len(examples)), "proposing masks"):
        viewed = cached[index] if index in cached else view_image(backbone, examples[index])
        views = zip(per_view, viewed.views, strict=True)
        mean = torch.stack([each.foreground(features, viewed.tissue) for each, features in views]).mean(0)
        proposals.append(mean * (1 - viewed.glass))
    backbone.train(was_training)
    return proposals


@dataclass(frozen=True)
class ViewedImage:
    """Two feature maps of an image [C, h, w]; at the same positions [h, w] where its tissue and its glass are, and how
    it looks there [2, h, w]."""

    views: tuple[Tensor, Tensor]
    tissue: Tensor
    glass: Tensor
    looks: Tensor


def view_image(backbone: Backbone, image: Tensor) -> ViewedImage:
    """Features and tissue of an image [1, 3, H, W] in [0, 1]."""
    views = tissue_views(backbone, image)
    pixels = (255 * image[0]).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    shares = [
        F.interpolate(torch.from_numpy(mask)[None, None].float(), size=views[0].shape[1:], mode="area")[0, 0]
        for mask in (white_fields(pixels), find_glass(pixels))
    ]
    appearance = F.interpolate(looks(image[0])[None], size=views[0].shape[1:], mode="area")[0].cpu()
    return ViewedImage(views, shares[0] <= _MAX_WHITE, shares[1], appearance)


def _sample_tissue(tissue: Tensor, random: np.random.Generator) -> np.ndarray | None:
    """Positions on tissue, with repetitions where there are few; None: too few to describe the image."""
    positions = tissue.flatten().numpy().nonzero()[0]
    if len(positions) < min(_MIN_POSITIONS, tissue.numel()):
        return None
    return random.choice(positions, _POSITIONS, replace=len(positions) < _POSITIONS)


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

    The image is seen enlarged, as it is and reduced: large features show single cells, small ones how cells are
    arranged. The first map concatenates all three, the second leaves out the image as it is.
    """
    enlarged, own, reduced = (_flip_means(backbone, _zoomed(image, zoom, backbone)) for zoom in _ZOOMS)
    size = own[0].shape[2:]
    large, small = (_at(features, size) for features in (torch.cat(enlarged, dim=1), reduced[-1]))
    return torch.cat([large, *map(_smoothed, own), small], dim=1)[0].cpu(), torch.cat([large, small], dim=1)[0].cpu()


def _zoomed(image: Tensor, zoom: float, backbone: Backbone) -> Tensor:
    if zoom == 1:
        return image
    multiple = backbone.size_multiple
    sides = [max(multiple * round(zoom * side / multiple), _MIN_SIDE) for side in image.shape[2:]]
    return F.interpolate(image, size=sides, mode="bilinear", antialias=True)


def _at(features: Tensor, size: torch.Size) -> Tensor:
    return F.interpolate(features, size=size, mode="bilinear", align_corners=False)


def _flip_means(backbone: Backbone, image: Tensor) -> list[Tensor]:
    """Features of each grouping layer, averaged over the flips of the image."""
    layers = _grouping_layers(backbone)
    per_flip: list[list[Tensor]] = []
    for axes in FLIPS:
        _, inner = backbone.with_layers(backbone.normalise(image.flip(axes)), layers)
        per_flip.append([features.flip(axes) for features in inner])
    return [torch.stack(layer).mean(0) for layer in zip(*per_flip, strict=True)]


def _grouping_layers(backbone: Backbone) -> tuple[str, ...]:
    """The layers that the network declares; where it declares none and ends at a coarser stride than 16, its last
    features of stride 16, as coarser ones do not separate neighbouring tissues."""
    declared = backbone.trunk.grouping_layers
    if any(declared) or backbone.single_stride or backbone.stride <= _COARSEST_STRIDE:
        return declared
    try:
        return (layer_of_stride(backbone.trunk, _COARSEST_STRIDE),)
    except ConfigError:  # features in another layout
        return declared


def _smoothed(features: Tensor) -> Tensor:
    """Features averaged over 3 x 3 positions."""
    return F.avg_pool2d(features, kernel_size=3, stride=1, padding=1, count_include_pad=False)
