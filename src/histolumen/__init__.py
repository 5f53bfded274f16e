"""Learn from image-level labels of histology images; answer with the class and the pixels that decided it.

import histolumen

model = histolumen.load("runs/x/best")
prediction = model.predict("image.png")
prediction.label, prediction.probabilities, prediction.soft_mask, prediction.mask
"""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from histolumen.errors import HistolumenError

if TYPE_CHECKING:
    from histolumen.engine.model import Model, Prediction, load

__version__ = version("histolumen")
__all__ = ["HistolumenError", "Model", "Prediction", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Import torch and the engine only when they are used: `histolumen --help` stays quick."""
    if name in {"Model", "Prediction", "load"}:
        from histolumen.engine import model

        return getattr(model, name)
    raise AttributeError(f"module 'histolumen' has no attribute '{name}'")
