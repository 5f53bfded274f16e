"""The end of training: what the training images look like and how certain the model may be, stored with the model.

Both need the weights of the best epoch, so they are computed once, after the last epoch. A run that was killed in
between is completed when it is resumed; so is a run of an earlier version.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from histolumen.calibration import fit_temperature
from histolumen.data.image import read_image
from histolumen.data.manifest import Manifest, Row
from histolumen.data.transforms import to_working_size
from histolumen.engine.checkpoint import ModelCard, is_complete, load_model, save_model
from histolumen.engine.model import predict_images
from histolumen.familiarity.features import described_layer
from histolumen.familiarity.reference import Reference, describe_image, fit_reference
from histolumen.methods.base import Method
from histolumen.progress import SILENT, Progress

_MOST_IMAGES = 1000  # described; a random sample of more shows no more


def complete_model(
    folder: Path, training: Manifest, validation: Manifest, device: torch.device, progress: Progress = SILENT
) -> None:
    """Add reference and temperature to a saved model, unless it has them.

    Args:
        folder: the model.
        training: the images that it was trained on; only their pixels and patients are used.
        validation: images that it was not trained on; their labels calibrate the probabilities.
        device: where the networks run.
        progress: receives the number of images.
    """
    if not (folder / "model.json").is_file() or is_complete(folder):
        return
    method, card = load_model(folder)
    reference = describe_training(method, card, training, device, progress)
    temperature = calibrate(method, card, validation, device, progress)
    save_model(folder, method.cpu(), replace(card, temperature=temperature, reference=reference))


def describe_training(
    method: Method, card: ModelCard, training: Manifest, device: torch.device, progress: Progress = SILENT
) -> Reference | None:
    """What the training images look like to the backbone; None if they are too few."""
    layer = described_layer(method.backbone)
    backbone, settings = method.backbone.to(device).eval(), card.config.images
    rows = _sample(training.rows, card.config.seed)
    described, sizes = [], []
    for row in progress.track(rows, "describing the training images"):
        path = training.image_path(row)
        pixels = to_working_size(read_image(path), settings, path, backbone.size_multiple).permute(1, 2, 0).numpy()
        described.append(describe_image(backbone, layer, pixels))
        sizes.append((pixels.shape[0], pixels.shape[1]))
    return fit_reference(layer, described, [row.patient or row.image for row in rows], sizes)


def calibrate(
    method: Method, card: ModelCard, validation: Manifest, device: torch.device, progress: Progress = SILENT
) -> float:
    """Temperature of the class probabilities, from the labels of the validation images."""
    if not method.classifies or not validation.rows:
        return 1.0
    method = method.to(device).eval()
    probabilities, labels = [], []
    for row in progress.track(validation.rows, "calibrating on the validation images"):
        path = validation.image_path(row)
        [prediction] = predict_images(method, card.classes, [read_image(path)], card.config.images, device, [str(path)])
        probabilities.append(list(prediction.probabilities.values()))
        labels.append(card.classes.index(row.label))
    return fit_temperature(np.array(probabilities).reshape(len(labels), -1), np.array(labels, dtype=int))


def _sample(rows: tuple[Row, ...], seed: int) -> list[Row]:
    if len(rows) <= _MOST_IMAGES:
        return list(rows)
    chosen = np.random.default_rng(seed).choice(len(rows), _MOST_IMAGES, replace=False)
    return [rows[index] for index in sorted(chosen)]
