"""A trained model: predicts class and mask of images and slides."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from histolumen.calibration import with_temperature
from histolumen.config import RunConfig
from histolumen.data.image import ImageLike, as_rgb
from histolumen.data.transforms import ImageSettings, refuse_unusable
from histolumen.engine.checkpoint import find_model, load_model
from histolumen.engine.inference import FastCopy
from histolumen.engine.judging import judge_image
from histolumen.engine.prediction import Prediction
from histolumen.engine.stages import Prepared, finish, prepare, run_network
from histolumen.familiarity.judgement import Judgement
from histolumen.familiarity.reference import Reference
from histolumen.methods.base import Method
from histolumen.methods.view import Output
from histolumen.progress import SILENT, Progress
from histolumen.tissue.solid import MaskSettings

if TYPE_CHECKING:
    from histolumen.engine.slides.predict import SlideSettings
    from histolumen.engine.slides.prediction import SlidePrediction

_FLIPS_CHANGED = " test_flips="


class Model:
    """A trained method with its classes and pre-processing, returned by `histolumen.load`.

    `classes` are the class names, `mpp` the microns per pixel of the network's input (None: unknown), `config` the
    training settings.
    """

    def __init__(
        self,
        method: Method,
        classes: list[str],
        config: RunConfig,
        device: torch.device | None = None,
        mpp: float | None = None,
        identity: str = "",
        temperature: float | None = None,
        reference: Reference | None = None,
    ):
        self.device = device or torch.device("cpu")
        self.method = method.to(self.device).eval()
        self.classes = classes
        self.config = config
        self.mpp = mpp
        self.identity = identity
        """SHA-256 over weights, class names and settings, and what `with_flips` changed; "" for a model that was not
        loaded from a folder."""
        self.temperature = temperature or 1.0
        """Calibration of the class probabilities; 1 leaves them as the method computes them."""
        self.reference = reference
        """What the training images look like; None: not known."""
        self._fast = FastCopy()

    @property
    def predictor(self) -> Method:
        """The method in the form that predicts fastest, with the same answers; follows changes of `method`."""
        return self._fast.of(self.method)

    @property
    def classifies(self) -> bool:
        """Whether the model predicts classes; some methods predict a mask only."""
        return self.method.classifies

    def with_flips(self, flips: bool) -> "Model":
        """The same model, with predictions averaged over four flips of each image or from the image alone.

        Its temperature stays the one that was fitted as the recipe says.
        """
        images = self.config.images
        if images.test_flips == flips:
            return self
        config = self.config.model_copy(update={"images": images.model_copy(update={"test_flips": flips})})
        identity = self.identity.partition(_FLIPS_CHANGED)[0]
        if identity == self.identity and identity:  # not back to what was trained: its answers are others
            identity += f"{_FLIPS_CHANGED}{str(flips).lower()}"
        return Model(
            self.method, self.classes, config, self.device, self.mpp, identity, self.temperature, self.reference
        )

    def predict(self, image: ImageLike) -> Prediction:
        """Predict class and mask of one image.

        Args:
            image: a path; a PIL image; an array [H, W, 3] or [H, W]; or a tensor [3, H, W]. Arrays and tensors hold
                uint8 values, or floats in [0, 1].
        """
        return next(self.predict_many([image]))

    def predict_many(self, images: Iterable[ImageLike], batch: int = 1) -> Iterator[Prediction]:
        """Predict class and mask of each image, in order, as a generator.

        Args:
            images: as for `predict`; read lazily.
            batch: number of consecutive images of equal size that are predicted in one batch.
        """
        pending: list[tuple[str, np.ndarray]] = []
        for image in images:
            source, pixels = _decoded(image)
            if pending and (len(pending) == batch or pending[0][1].shape != pixels.shape):
                yield from self._predict_batch(pending)
                pending = []
            pending.append((source, pixels))
        if pending:
            yield from self._predict_batch(pending)

    def _predict_batch(self, images: Sequence[tuple[str, np.ndarray]]) -> list[Prediction]:
        sources, pixels = zip(*images, strict=True)
        multiple = self.method.backbone.size_multiple
        prepared = [prepare(*each, self.config.images, multiple) for each in zip(pixels, sources, strict=True)]
        output = run_network(self.predictor, prepared, self.config.images, self.device)
        return [self._finished(image, output, k, self._judged(image)) for k, image in enumerate(prepared)]

    def prepare(self, image: ImageLike) -> Prepared:
        """First stage of `predict`: decode and resize. May run in another thread than the network."""
        source, pixels = _decoded(image)
        return prepare(pixels, source, self.config.images, self.method.backbone.size_multiple)

    def run(self, image: Prepared) -> tuple[Output, Judgement | None]:
        """Second stage of `predict`: the network, and the comparison with the training images."""
        return run_network(self.predictor, [image], self.config.images, self.device), self._judged(image)

    def finish(self, image: Prepared, answer: tuple[Output, Judgement | None]) -> Prediction:
        """Last stage of `predict`: the mask at the size of the image."""
        output, judgement = answer
        return self._finished(image, output, 0, judgement)

    def _judged(self, image: Prepared) -> Judgement | None:
        return judge_image(self.reference, self.predictor.backbone, image.working.permute(1, 2, 0).numpy())

    def _finished(self, image: Prepared, output: Output, k: int, judgement: Judgement | None) -> Prediction:
        settings = self.config.images
        found = finish(image, output, k, self.classes, settings, self.config.mask, classifies=self.classifies)
        return replace(found, probabilities=self.calibrated(found.probabilities), judgement=judgement)

    def calibrated(self, probabilities: dict[str, float]) -> dict[str, float]:
        """Class probabilities of the method at the model's temperature; the order of the classes stays the same."""
        if self.temperature == 1 or not self.classifies:
            return probabilities
        values = with_temperature(np.array(list(probabilities.values())), self.temperature)
        return dict(zip(probabilities, values.tolist(), strict=True))

    def predict_slide(
        self, path: Path | str, settings: "SlideSettings | None" = None, progress: Progress = SILENT
    ) -> "SlidePrediction":
        """Predict class, heat map and regions of a whole slide, in memory. Needs the extra [slides].

        Args:
            path: slide file.
            settings: resolutions, tiles, flips; None: the defaults.
            progress: receives the number of tiles of each pass.
        """
        from histolumen.engine.slides.predict import predict_slide  # noqa: PLC0415 - needs an extra

        return predict_slide(self, path, settings, progress)

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.method.parameters())
        resolution = "" if self.mpp is None else f", {self.mpp:.3g} microns per pixel"
        return (
            f"Model({self.config.method.name} on {self.config.backbone.name}, {parameters / 1e6:.1f} M parameters, "
            f"classes {', '.join(self.classes)}{resolution}, on {self.device})"
        )


def load(folder: Path | str, device: str | None = None) -> Model:
    """Load a trained model from a run folder or its `best/`.

    Args:
        folder: run or model folder.
        device: for example "cuda"; None: a GPU if there is one, else the CPU.
    """
    method, card = load_model(find_model(Path(folder)))
    place = torch.device(device) if device else default_device()
    return Model(method, card.classes, card.config, place, card.mpp, card.identity, card.temperature, card.reference)


def default_device() -> torch.device:
    """A GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def predict_images(
    method: Method,
    classes: list[str],
    images: Sequence[np.ndarray],
    settings: ImageSettings,
    device: torch.device,
    sources: Sequence[str],
    mask: MaskSettings | None = None,
) -> list[Prediction]:
    """Predict decoded images of equal size, read from the files `sources`; large images are predicted in windows."""
    multiple = method.backbone.size_multiple
    prepared = [prepare(pixels, source, settings, multiple) for pixels, source in zip(images, sources, strict=True)]
    output = run_network(method, prepared, settings, device)
    return [
        finish(image, output, k, classes, settings, mask, classifies=method.classifies)
        for k, image in enumerate(prepared)
    ]


def _decoded(image: ImageLike) -> tuple[str, np.ndarray]:
    """The file of an image, or "image", and its pixels."""
    source = os.fspath(image) if isinstance(image, str | os.PathLike) else "image"
    pixels = as_rgb(image)
    refuse_unusable(pixels, Path(source))
    return source, pixels
