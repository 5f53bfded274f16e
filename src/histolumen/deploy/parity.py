"""Does an exported graph answer as the trained model does?"""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from histolumen.deploy.exported import ExportedModel
from histolumen.deploy.runtimes import Session
from histolumen.engine.model import Model
from histolumen.errors import RunError
from histolumen.tissue.solid import MaskSettings

TOLERANCE = 1e-3
"""Largest accepted difference of a probability or a soft mask."""
_PIXELS = 0.999  # share of the pixels that must be within it: ERASE with several rounds erases by a hard threshold
_SIZES = ((150, 120), (97, 210), (260, 133))  # height and width; the first one is that of the trace


def check_parity(model: Model, session: Session) -> float:
    """Compare the answers for synthetic images of several sizes, and raise an error if they differ.

    Returns:
        The largest difference of a soft mask, over the pixels that count.
    """
    config = model.config.model_copy(update={"mask": MaskSettings()})  # it turns a rounding error into a region
    plain = Model(model.method, model.classes, config, model.device, temperature=model.temperature)
    exported = ExportedModel(session, config)
    generator, worst = np.random.default_rng(0), 0.0
    for size in _SIZES:
        image = _picture(size, generator)
        expected, found = plain.predict(image), exported.predict(image)
        of_class = _largest(list(expected.probabilities.values()), list(found.probabilities.values()))
        of_mask = float(np.quantile(np.abs(expected.soft_mask - found.soft_mask), _PIXELS))
        if not max(of_class, of_mask) <= TOLERANCE:
            raise RunError(
                f"the {session.card.file_format} graph of {session.card.method} on {session.card.backbone} differs "
                f"from the trained model (probability by {of_class:.1g}, mask by {of_mask:.1g}, on an image of "
                f"{size[1]} x {size[0]} pixels) and is not written; use another format, or the run folder"
            )
        worst = max(worst, of_mask)
    return worst


def _picture(size: tuple[int, int], generator: np.random.Generator) -> np.ndarray:
    """Blurred spots of any colour."""
    spots = generator.integers(0, 256, (*(side // 12 for side in size), 3), dtype=np.uint8)
    return np.array(Image.fromarray(spots).resize((size[1], size[0]), Image.Resampling.BICUBIC))


def _largest(expected: Sequence[float], found: Sequence[float]) -> float:
    return float(np.abs(np.subtract(expected, found)).max())
