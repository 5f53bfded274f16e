"""The split of the tissue in words: measured share, brightness and colour, and how surely it tells the classes."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from histolumen.proposals.clusters import TissueClusters

_WORDS = (("lighter", "darker"), ("bluer", "redder"))  # a larger and a smaller value of each channel of `looks`
_CLEAR = 2.0  # standard errors of the mean over images: a smaller difference gets no word
_SMALL_GAIN = 0.02  # nats
_SIMILAR = 0.7  # share of positions on which both views agree; random splits have 0.5


def looks(image: Tensor) -> Tensor:
    """Brightness and blue minus red [2, H, W] of an image [3, H, W] in [0, 1]."""
    return torch.stack([image.mean(0), image[2] - image[0]])


def describe_split(
    pairs: Sequence[TissueClusters], memberships: Sequence[Tensor], appearance: Tensor, classes: Sequence[str]
) -> list[str]:
    """Lines for the user about the foreground that was found.

    Args:
        pairs: the clusters of each view.
        memberships: foreground probability of the sampled positions [B, N], of each view.
        appearance: `looks` at these positions [B, N, 2].
        classes: names of the classes.
    """
    foreground = torch.stack(list(memberships)).mean(0) >= 0.5
    words = ", ".join(_difference_in_words(foreground, appearance))
    part = f"the {words} part" if words else "a part of about the same brightness and colour as the rest"
    telling = f"{classes[0]} from {classes[1]}" if len(classes) == 2 else "the classes apart"
    inside, outside = (_typical_probability([pair.uncertainty[side] for pair in pairs]) for side in (0, 1))
    agreement = _agreement(memberships)
    share = 100 * foreground.float().mean()
    lines = [
        f"tissue split in two: {part} ({share:.0f} % of the tissue) tells {telling} more surely, so it is taken as "
        "what decides",
        f"probability of the right label, typical: {inside:.2f} from this part, {outside:.2f} from the rest; "
        f"two looks at the tissue (three and two magnifications) agree on {100 * agreement:.0f} % of it",
    ]
    if max(pair.uncertainty[1] - pair.uncertainty[0] for pair in pairs) < _SMALL_GAIN:
        lines.append("note: the difference is small; check on a few overlays that the masks mark the right tissue")
    if agreement < _SIMILAR:
        lines.append("note: the two looks differ; check on a few overlays that the masks mark the right tissue")
    return lines


def _difference_in_words(foreground: Tensor, appearance: Tensor) -> list[str]:
    """How the foreground looks compared with the rest of the same image, where most images agree on it."""
    differences = [
        image[inside].mean(0) - image[~inside].mean(0)
        for image, inside in zip(appearance, foreground, strict=True)
        if inside.any() and not inside.all()
    ]
    if len(differences) < 2:
        return []
    per_image = torch.stack(differences)
    error = per_image.std(0) / math.sqrt(len(differences))
    found = []
    for (more, less), mean, spread in zip(_WORDS, per_image.mean(0), error, strict=True):
        if mean.abs() > _CLEAR * spread:
            found.append(more if mean > 0 else less)
    return found


def _typical_probability(cross_entropies: Sequence[float]) -> float:
    """Geometric mean over images of the probability of the right label, from its cross-entropy in nats."""
    return math.exp(-sum(cross_entropies) / len(cross_entropies))


def _agreement(memberships: Sequence[Tensor]) -> float:
    """Share of positions that all views put on the same side."""
    sides = torch.stack([membership >= 0.5 for membership in memberships])
    return float((sides == sides[0]).all(0).float().mean())
