"""An exported model: predicts class and mask of images with the runtime of its file."""

import os
from pathlib import Path

import numpy as np

from histolumen.config import RunConfig
from histolumen.data.image import ImageLike, as_rgb
from histolumen.data.transforms import refuse_unusable, working_size
from histolumen.deploy.runtimes import Runtime, Session, is_exported, open_session
from histolumen.engine.model import load
from histolumen.engine.prediction import Prediction, Predictor
from histolumen.errors import ConfigError, ImageError
from histolumen.tissue.glass import find_glass
from histolumen.tissue.solid import make_solid

_NO_GLASS = np.ones((1, 1), np.uint8)


class ExportedModel:
    """Answers as the trained model does: what the graph leaves out, glass and solid regions, is computed here.

    Images are not compared with the training images: that needs the run folder.
    """

    temperature = 1.0
    """The graph's probabilities are calibrated already."""

    def __init__(self, session: Session, config: RunConfig | None = None):
        self._session, self.card = session, session.card
        self.config = config or self.card.run_config()
        self.classes, self.classifies, self.identity = self.card.classes, self.card.classifies, self.card.identity

    def predict(self, image: ImageLike) -> Prediction:
        """Predict class and mask of one image, as `Model.predict`."""
        source = os.fspath(image) if isinstance(image, str | os.PathLike) else "image"
        pixels = as_rgb(image)
        refuse_unusable(pixels, Path(source))
        self._refuse_large(pixels, Path(source))
        settings = self.config.images
        glass = find_glass(pixels) if self.card.removes_glass else None
        probabilities, soft_mask = self._session.run(pixels, tissue_input(glass))
        return Prediction(
            probabilities=dict(zip(self.classes, probabilities.tolist(), strict=True)),
            soft_mask=make_solid(soft_mask, self.config.mask, settings.mpp),
            image=pixels,
            name=Path(source).stem,
            classifies=self.classifies,
            mpp=settings.mpp,
            negative_class=settings.negative_class,
            glass=glass,
        )

    def _refuse_large(self, pixels: np.ndarray, path: Path) -> None:
        height, width = pixels.shape[:2]
        multiple = self.card.preprocessing["size_multiple"]
        height, width = working_size(height, width, self.config.images, path, multiple)
        if height * width > self.card.max_working_pixels:
            raise ImageError(
                f"{path}: {width} x {height} pixels at working size; an exported model takes at most "
                f"{self.card.max_working_pixels:,} at once. Use the run folder, which predicts in windows"
            )


def tissue_input(glass: np.ndarray | None) -> np.ndarray | None:
    """The graph's input `tissue` from a mask of bare glass; None for models that keep glass."""
    if glass is None:
        return None
    return (~glass).astype(np.uint8) if glass.any() else _NO_GLASS


def load_predictor(path: Path, runtime: Runtime | None = None) -> Predictor:
    """Load a run folder with torch, or an exported file with the runtime that its suffix names.

    Args:
        path: run folder, its `best/`, or a file that `export` wrote.
        runtime: None: as above.
    """
    if is_exported(path):
        return ExportedModel(open_session(path, runtime))
    if runtime in {"onnx", "openvino"}:
        raise ConfigError(
            f"{path}: --runtime {runtime} needs an exported model: histolumen export {path} --format {runtime} --out "
            "FOLDER, then give the file that it writes instead of the run folder"
        )
    return load(path)
