"""Fig. 2: what the classifier of Max-Min sees. The image X, its mask M+, and X+ and X- with their class probabilities.

X+ and X- are drawn as the network receives them: the mask multiplies the normalised image, so that masked pixels have
the mean colour of the backbone's scaling, not black.
"""

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from histolumen.data.image import read_image
from histolumen.data.manifest import Manifest
from histolumen.data.transforms import to_unit_range, to_working_size
from histolumen.encoders.batchnorm import Case
from histolumen.engine.model import Model
from histolumen.engine.windows import runner_for
from histolumen.methods.maxmin import MaxMin
from histolumen.methods.view import ImageView
from histolumen.report.figures.pictures import choose, evenly_of_all, small, without_axes
from histolumen.report.figures.style import panels

_MOST = 4  # classes whose probability fits below a panel


@dataclass(frozen=True)
class Regions:
    """X, X+ and X- as RGB [H, W, 3] uint8, M+ [H, W], and the classifier's probabilities [C] on X+ and X-."""

    image: np.ndarray
    mask: np.ndarray
    foreground: np.ndarray
    background: np.ndarray
    on_foreground: list[float]
    on_background: list[float]


def has_regions(model: Model) -> bool:
    """Whether the model classifies X+ or X-: Max-Min, unless both terms are off."""
    return isinstance(model.method, MaxMin) and model.method.classifier is not None


@torch.inference_mode()
def find_regions(model: Model, image: np.ndarray) -> Regions:
    """Compute the regions of an image [H, W, 3] uint8 at working size."""
    method = model.method
    if not isinstance(method, MaxMin):
        raise TypeError("only Max-Min has X+ and X-")
    backbone = method.backbone
    pixels = to_working_size(image, model.config.images, multiple=backbone.size_multiple)
    X = backbone.normalise(to_unit_range(pixels)[None].to(model.device))
    run = runner_for(backbone, *X.shape[2:])
    view = ImageView(X, run)
    mask = view.render(method.predict(view).mask)

    def picture(normalised: Tensor) -> np.ndarray:
        colours = (normalised * backbone.std + backbone.mean).clamp(0, 1)[0]
        return (255 * colours).round().byte().permute(1, 2, 0).cpu().numpy()

    def calibrated(probabilities: Tensor) -> list[float]:
        values = dict(zip(model.classes, probabilities[0].tolist(), strict=True))
        return list(model.calibrated(values).values())

    return Regions(
        image=picture(X),
        mask=mask[0, 0].cpu().numpy(),
        foreground=picture(X * mask),
        background=picture(X * (1 - mask)),
        on_foreground=calibrated(method.classify_region(X * mask, Case.FOREGROUND, run)),
        on_background=calibrated(method.classify_region(X * (1 - mask), Case.BACKGROUND, run)),
    )


def draw_regions(model: Model, manifest: Manifest, split: str, images: int) -> Figure:
    """Draw images of every class, one per row.

    Args:
        model: a Max-Min model, for which `has_regions` is True.
        manifest: the images; masks are not read.
        split: split to draw from.
        images: number of rows.
    """
    part = manifest.split(split)
    rows = evenly_of_all(choose(part, images, with_truth=False), images)
    titles = ["image $X$", "mask $M^+$", "foreground $X^+ = X \\odot M^+$", "background $X^- = X \\odot M^-$"]
    figure, grid = panels(len(rows), len(titles), (1.9, 1.7))
    without_axes(grid)
    for number, row in enumerate(rows):
        found = find_regions(model, read_image(part.image_path(row)))
        original, mask, foreground, background = grid[4 * number : 4 * number + 4]
        original.imshow(small(found.image))
        original.set_ylabel(row.label, fontsize=8)
        mask.imshow(small((255 * found.mask).round().astype(np.uint8)), cmap="gray", vmin=0, vmax=255)
        mask.set_xlabel(f"{100 * (found.mask >= 0.5).mean():.0f} % above 0.5", fontsize=7)
        for axes, picture, probs in (
            (foreground, found.foreground, found.on_foreground),
            (background, found.background, found.on_background),
        ):
            axes.imshow(small(picture))
            axes.set_xlabel(_probabilities(model.classes, probs), fontsize=7)
    for axes, title in zip(grid, titles, strict=False):
        axes.set_title(title, fontsize=8)
    return figure


def _probabilities(classes: list[str], probs: list[float]) -> str:
    """The most probable classes, in the order of the model."""
    shown = sorted(sorted(range(len(classes)), key=probs.__getitem__)[-_MOST:])
    return "   ".join(f"{classes[k]} {probs[k]:.2f}" for k in shown)
