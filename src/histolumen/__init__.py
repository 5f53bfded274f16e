"""Train on image-level labels of histology images; predict the class and the pixels that decided it.

    import histolumen as hl

    data = hl.read_folder("my-images")                          # one folder per class
    run = hl.train("folder-best", data, out="runs/first")       # labels only, no masks
    print(hl.evaluate(run, data, split="test"))

    model = hl.load("runs/first")
    prediction = model.predict("x.png")                         # a path, PIL image, array or tensor
    prediction.label, prediction.probabilities, prediction.soft_mask, prediction.mask
    prediction.overlay().show()
    for prediction in model.predict_many(paths, batch=4):
        prediction.save("predictions")
    model.predict_slide("slide.svs").save("slides/slide")       # needs the extra [slides]

Methods as plain PyTorch modules are in `histolumen.methods`. The command line is `histolumen --help`.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from histolumen import threads
from histolumen.errors import HistolumenError

threads.prepare()  # before anything imports torch, whose threads follow the environment of that moment

if TYPE_CHECKING:
    from histolumen.api import Run, evaluate, read_folder, train
    from histolumen.config import RunConfig, load_config
    from histolumen.data.manifest import Manifest, read_manifest
    from histolumen.engine.evaluate import Evaluation
    from histolumen.engine.model import Model, load
    from histolumen.engine.prediction import Prediction
    from histolumen.engine.slides.predict import SlideSettings
    from histolumen.engine.slides.prediction import SlidePrediction
    from histolumen.progress import Progress

__version__ = version("histolumen")

_HOMES = {  # imported when they are used: `histolumen --help` needs no torch
    "histolumen.api": ("Run", "evaluate", "read_folder", "train"),
    "histolumen.config": ("RunConfig", "load_config"),
    "histolumen.data.manifest": ("Manifest", "read_manifest"),
    "histolumen.engine.evaluate": ("Evaluation",),
    "histolumen.engine.model": ("Model", "load"),
    "histolumen.engine.prediction": ("Prediction",),
    "histolumen.engine.slides.predict": ("SlideSettings",),
    "histolumen.engine.slides.prediction": ("SlidePrediction",),
    "histolumen.progress": ("Progress",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Evaluation",
    "HistolumenError",
    "Manifest",
    "Model",
    "Prediction",
    "Progress",
    "Run",
    "RunConfig",
    "SlidePrediction",
    "SlideSettings",
    "__version__",
    "evaluate",
    "load",
    "load_config",
    "read_folder",
    "read_manifest",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'histolumen' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
