"""The prediction for one image: class probabilities, mask, pictures, and their files."""

import html
import io
from base64 import b64encode
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from histolumen.data.image import ImageLike
from histolumen.errors import ConfigError
from histolumen.export.colour_map import draw_heat_map
from histolumen.export.files import save_binary_mask, save_picture, save_soft_mask
from histolumen.export.geojson import GeoJsonStyle, feature_collection
from histolumen.export.overlay import draw_overlay
from histolumen.export.regions import FoundRegion, Raster, find_regions
from histolumen.familiarity.judgement import Judgement, judgement_columns

THRESHOLD = 0.5
NO_TISSUE = "no tissue"
"""The answer for an image that shows nothing but glass."""
_MIN_TISSUE = 0.02  # share of the image
_NOTEBOOK_SIDE = 512  # longest side of the picture in a notebook, in pixels


@dataclass(frozen=True, repr=False)
class Prediction:
    """Class probabilities and a soft mask at the size of the image, returned by `Model.predict`."""

    probabilities: dict[str, float]
    """Probability of each class, by name."""
    soft_mask: np.ndarray
    """Soft foreground mask, [H, W] in [0, 1]."""
    image: np.ndarray
    """The image, RGB [H, W, 3] uint8."""
    evidence: Tensor | None = None
    """Evidence for each class, [C, h, w] at working size; used by `mask_by_label`."""
    name: str = "image"
    """File name of the image without folder and suffix."""
    classifies: bool = True
    """False for methods that predict a mask only; their probabilities are uniform."""
    mpp: float | None = None
    """Microns per pixel of the image; None: unknown."""
    negative_class: str | None = None
    """The class that has no foreground, if there is one."""
    glass: np.ndarray | None = None
    """Bare glass beside the tissue, [H, W] bool, if the model removes it (`images.glass`)."""
    threshold: float = THRESHOLD
    """Pixels of the soft mask from this value on are foreground; `at` changes it."""
    judgement: Judgement | None = None
    """How unlike the training images it is, and what is wrong with it; None: not known."""

    @property
    def unlike_training(self) -> float | None:
        """Distance from the training images relative to the limit: above 1, the image is unlike them; None: unknown."""
        return None if self.judgement is None else self.judgement.unlike

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the answer should not be trusted, in plain sentences; empty if the image is like the training images."""
        return () if self.judgement is None else self.judgement.warnings

    def at(self, threshold: float) -> "Prediction":
        """The same prediction with its mask, regions and pictures at another threshold, in (0, 1)."""
        return replace(self, threshold=checked_threshold(threshold))

    @property
    def tissue_share(self) -> float:
        """Share of the image that is not bare glass, in [0, 1]; 1 if the model does not tell glass from tissue."""
        return 1.0 if self.glass is None else 1 - float(self.glass.mean())

    @property
    def label(self) -> str:
        """The most probable class, or "no tissue" for an image of bare glass."""
        return most_probable(self.probabilities) if self.tissue_share >= _MIN_TISSUE else NO_TISSUE

    @property
    def region_label(self) -> str:
        """The class whose evidence the mask shows: the most probable one that has foreground."""
        if not self.classifies:
            return "foreground"
        return most_probable({name: p for name, p in self.probabilities.items() if name != self.negative_class})

    @property
    def probability(self) -> float:
        """Probability of `label`; 0 if there is no tissue."""
        return self.probabilities.get(self.label, 0.0)

    @property
    def mask(self) -> np.ndarray:
        """Binary mask of the deciding pixels: soft mask >= threshold, [H, W] bool."""
        return self.soft_mask >= self.threshold

    @property
    def foreground_share(self) -> float:
        """Share of the image that the mask covers, in [0, 1]."""
        return float(self.mask.mean())

    def mask_by_label(self, label: str) -> np.ndarray:
        """The mask by the paper's rule for its baselines, for comparison only: pixels where the map of the *true* class
        is the largest or, if one class has no foreground, the map of any other class, whatever the label."""
        if self.evidence is None:
            return self.mask
        class_map = self.evidence[list(self.probabilities).index(label)][None, None]
        mask = to_size(class_map, self.soft_mask.shape) > 0
        return mask if self.glass is None else mask & ~self.glass

    def overlay(self, caption: bool = False) -> Image.Image:
        """The image with the mask outlined and in full colour, the rest grey and dimmed.

        Args:
            caption: write class, probability and size of the mask on a strip below, which makes the picture taller;
                without it, the overlay has the size of the image.
        """
        return draw_overlay(self.image, self.mask, self.caption if caption else "")

    def heatmap(self) -> Image.Image:
        """The soft mask in colours (viridis), with a colour bar on its right that marks the threshold."""
        return draw_heat_map(self.soft_mask, self.threshold)

    @property
    def caption(self) -> str:
        """Class, probability and size of the mask in one line."""
        if self.label == NO_TISSUE:
            return NO_TISSUE
        prediction = f"{self.label} {self.probability:.2f}   " if self.classifies else ""
        return f"{prediction}deciding area {100 * self.foreground_share:.0f} %"

    def regions(self) -> list[FoundRegion]:
        """Connected regions of the mask as polygons, largest first. Needs the extra [slides]."""
        found = find_regions(Raster.of(self.soft_mask, self.threshold))
        return [replace(region, unlike=self.unlike_training) for region in found]

    def geojson_style(self) -> GeoJsonStyle:
        """Class, colour and units of the regions in GeoJSON."""
        label = self.region_label
        return GeoJsonStyle(label, tuple(dict.fromkeys([*self.probabilities, label])), self.name, mpp=self.mpp)

    def to_geojson(self) -> dict[str, Any]:
        """The regions as a GeoJSON FeatureCollection in pixels of the image, for QuPath. Needs the extra [slides]."""
        return feature_collection(self.regions(), self.geojson_style())

    def record(self) -> dict[str, Any]:
        """The row of `predictions.csv` without the file names."""
        return {
            "prediction": self.label,
            "probability": round(self.probability, 6),
            **{f"p_{name}": round(value, 6) for name, value in self.probabilities.items()},
            "foreground_share": round(self.foreground_share, 6),
            "tissue_share": round(self.tissue_share, 6),
            **judgement_columns(self.judgement),
        }

    def save(
        self,
        folder: Path | str,
        name: str | None = None,
        *,
        overlay: bool = True,
        caption: bool = False,
        heatmap: bool = False,
    ) -> dict[str, Any]:
        """Write soft mask, mask and pictures to `folder` and return the row of `predictions.csv`.

        Args:
            folder: output folder for `soft_masks/`, `masks/`, `overlays/` and `heatmaps/`.
            name: file name without suffix; None: that of the image.
            overlay: write the overlay.
            caption: write class, probability and size of the mask on a strip below the overlay.
            heatmap: write the soft mask in colours, with a colour bar.
        """
        folder, name = Path(folder), name or self.name
        kinds = ["soft_mask", "mask", *(["overlay"] if overlay else []), *(["heatmap"] if heatmap else [])]
        files = {kind: f"{kind}s/{name}.png" for kind in kinds}
        save_soft_mask(self.soft_mask, folder / files["soft_mask"])
        save_binary_mask(self.mask, folder / files["mask"])
        if overlay:
            save_picture(self.overlay(caption), folder / files["overlay"])
        if heatmap:
            save_picture(self.heatmap(), folder / files["heatmap"])
        return {**self.record(), **files}

    def __repr__(self) -> str:
        height, width = self.soft_mask.shape
        probabilities = ", ".join(f"{name} {value:.3f}" for name, value in self.probabilities.items())
        warnings = "".join(f"; {warning}" for warning in self.warnings)
        share = f"{self.foreground_share:.1%}"
        return f"Prediction({self.name}, {width} x {height}: {probabilities}; foreground {share}{warnings})"

    def _repr_png_(self) -> bytes:
        return png_bytes(self._small_overlay())

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{value:.3f}</td></tr>" for name, value in self.probabilities.items()
        )
        rows += f"<tr><td>foreground</td><td>{self.foreground_share:.1%}</td></tr>"
        rows += "".join(f'<tr><td colspan="2">⚠ {html.escape(warning)}</td></tr>' for warning in self.warnings)
        picture = b64encode(png_bytes(self._small_overlay())).decode()
        return f'<img src="data:image/png;base64,{picture}" alt="{html.escape(self.caption)}"><table>{rows}</table>'

    def _small_overlay(self) -> Image.Image:
        picture = self.overlay()
        picture.thumbnail((_NOTEBOOK_SIDE, _NOTEBOOK_SIDE))
        return picture


def checked_threshold(threshold: float) -> float:
    """The threshold, if it is between 0 and 1."""
    if not 0 < threshold < 1:
        raise ConfigError(f"threshold {threshold}: give a number between 0 and 1, such as {THRESHOLD}")
    return threshold


class Predictor(Protocol):
    """A trained or an exported model, as commands use it."""

    classes: list[str]
    identity: str
    temperature: float

    @property
    def classifies(self) -> bool:
        """Whether the model predicts classes; some methods predict a mask only."""
        ...

    def predict(self, image: ImageLike) -> Prediction:
        """Predict class and mask of one image."""
        ...


def most_probable(probabilities: dict[str, float]) -> str:
    """The class with the highest probability."""
    return max(probabilities, key=probabilities.__getitem__)


def png_bytes(picture: Image.Image) -> bytes:
    """A picture as a PNG file in memory."""
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()


def to_size(maps: Tensor, size: tuple[int, ...]) -> np.ndarray:
    """Resize a map [1, 1, h, w] to an array of the given height and width."""
    resized = F.interpolate(maps.float(), size=size[:2], mode="bilinear", align_corners=False)
    return resized[0, 0].cpu().numpy()
