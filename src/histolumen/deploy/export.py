"""Export a trained model: write its graph, compare its answers with the model's, quantise it on request."""

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from histolumen.atomic import new_file, refuse_replacing
from histolumen.data.manifest import Manifest
from histolumen.deploy.card import Format, card_of
from histolumen.deploy.formats import replace_card, require_format, write_graph
from histolumen.deploy.parity import check_parity
from histolumen.deploy.quality import QualityChange, measure_change, refuse_loss
from histolumen.deploy.quantise import calibration_inputs, quantise
from histolumen.deploy.runtimes import SUFFIXES, open_session
from histolumen.encoders.trunk import Trunk
from histolumen.engine.model import Model
from histolumen.errors import ConfigError
from histolumen.progress import SILENT, Progress


@dataclass(frozen=True)
class Exported:
    """What `export_model` wrote."""

    path: Path
    """The graph; its card is beside it."""
    difference: float
    """Largest difference of a soft mask from the trained model's, in single precision."""
    change: QualityChange | None = None
    """What quantisation changed."""


def export_model(
    model: Model,
    out: Path,
    file_format: Format,
    *,
    calibrate: Manifest | None = None,
    accept_loss: bool = False,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> Exported:
    """Write the graph of a model and its card.

    Args:
        model: a trained model.
        out: file with the suffix of the format, or a folder for `model` with that suffix.
        file_format: of the file.
        calibrate: quantise to 8 bits, with ranges from its training images and scores on its validation images.
        accept_loss: write an 8-bit model even if F1 falls by more than a point.
        overwrite: replace existing files.
        progress: receives one message per step.
    """
    require_format(file_format, int8=calibrate is not None)
    _refuse_method(model, file_format, int8=calibrate is not None)
    suffix = SUFFIXES[file_format]
    target = out if out.suffix == suffix else out / f"model{suffix}"
    for path in _files(target):
        refuse_replacing(path, overwrite)
    card = card_of(model, file_format)
    with tempfile.TemporaryDirectory(prefix="histolumen-") as folder:
        draft = Path(folder) / f"fp32{suffix}"
        started = time.monotonic()
        write_graph(model, card, draft)
        progress.message(
            f"traced and written as {file_format} in {time.monotonic() - started:.0f} s; comparing answers"
        )
        difference = check_parity(model, open_session(draft))
        progress.message(f"mask differs by at most {difference:.1g} from the trained model")
        change = None
        if calibrate is not None:
            eight_bit = Path(folder) / f"int8{suffix}"
            quantise(draft, eight_bit, card, calibration_inputs(card, calibrate, progress))
            progress.message("quantised; comparing scores on validation images")
            change = measure_change(draft, eight_bit, calibrate, progress)
            progress.message(str(change))
            if not accept_loss:
                refuse_loss(change)
            card = change.on_card(card)
            replace_card(eight_bit, card)
            draft = eight_bit
        for source, path in zip(_files(draft), _files(target), strict=True):
            if source.suffix == ".json":
                source.write_text(card.as_json(), encoding="utf-8")
            with new_file(path) as temporary:
                shutil.copyfile(source, temporary)
    return Exported(target, difference, change)


def card_path(path: Path) -> Path:
    """The card of an exported file: model.onnx.json beside model.onnx."""
    return path.with_name(f"{path.name}.json")


def _refuse_method(model: Model, file_format: Format, *, int8: bool) -> None:
    name = model.config.method.name
    if model.method.needs_gradients:
        raise ConfigError(
            f"{name} computes its masks from gradients at prediction, which an exported graph does not contain; use "
            "the run folder with histolumen predict, or train cam_avg, the same network with its own maps"
        )
    trunk = model.method.backbone.trunk
    if isinstance(trunk, Trunk) and trunk.required_multiple > 1 and model.config.images.resize != "square":
        raise ConfigError(
            f"backbone {model.config.backbone.name} computes with sizes that a graph keeps as constants, so it would "
            "be right for one size only; train with images.resize=square to export it"
        )
    if int8 and file_format == "torchscript":
        raise ConfigError("--int8 is for the formats onnx and openvino")


def _files(path: Path) -> list[Path]:
    """The graph, its weights if they are a file of their own, and the card."""
    weights = [path.with_suffix(".bin")] if path.suffix == ".xml" else []
    return [*weights, path, card_path(path)]
