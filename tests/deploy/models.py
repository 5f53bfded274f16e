"""Small models of any method, without training."""

from build import tiny_method

from histolumen.config import load_config
from histolumen.engine.model import Model
from histolumen.methods.base import settings_of
from tiny import SMALL


def tiny_model(name: str, *overrides: str, negative_class: str | None = None, **options: object) -> Model:
    """A model of method `name` with random weights, on images of 64 pixels."""
    config = load_config("glas-cam-avg", [*SMALL, *overrides])
    images = config.images.model_copy(update={"negative_class": negative_class})
    config = config.model_copy(update={"method": settings_of(name)(**options), "images": images})
    classes = ["benign", "malignant"]
    method = tiny_method(name, negative_class=images.negative_index(classes), **options)
    return Model(method, classes, config, identity=f"tiny {name}")
