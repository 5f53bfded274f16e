"""Post-training quantisation: convolutions in 8 bits, with activation ranges measured on training images.

The first convolution (it sees the image) and convolutions to few channels (logits) stay in single precision, and so
does everything that is not a convolution: resizing, min-max normalisation, the refinement of a mask, sigmoid.
"""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from histolumen.data.image import read_image
from histolumen.data.manifest import Manifest
from histolumen.data.transforms import refuse_unusable
from histolumen.deploy.card import Card
from histolumen.deploy.exported import tissue_input
from histolumen.deploy.formats import save_onnx, save_openvino
from histolumen.errors import DataError, ImageError
from histolumen.progress import SILENT, Progress
from histolumen.tissue.glass import find_glass

_IMAGES = 48  # evenly spaced in the training split
_COLOURS = 3  # channels of the image: the input of the first convolution
_FEW_CHANNELS = 16  # convolutions to this many channels or fewer: class maps, logits, the narrowest bottleneck

Inputs = dict[str, np.ndarray]


def quantise(source: Path, target: Path, card: Card, inputs: Iterable[Inputs]) -> None:
    """Quantise an exported ONNX or OpenVINO file.

    Args:
        source: the file in single precision.
        target: the file to write.
        card: of the model.
        inputs: of the graph, for the ranges of activations.
    """
    examples = list(inputs)
    logging.disable(logging.WARNING)  # both libraries report every layer and advise on options
    try:
        (_quantise_openvino if card.file_format == "openvino" else _quantise_onnx)(source, target, card, examples)
    finally:
        logging.disable(logging.NOTSET)


def calibration_inputs(card: Card, manifest: Manifest, progress: Progress = SILENT) -> Iterator[Inputs]:
    """Inputs of the graph from the training images of a manifest."""
    paths = manifest.image_paths("train")
    if not paths:
        raise DataError("--calibrate: the manifest has no image in split 'train'")
    chosen = [paths[k] for k in np.linspace(0, len(paths) - 1, min(_IMAGES, len(paths))).round().astype(int)]
    problem, count = "", 0
    for path in progress.track(chosen, "reading images to calibrate with"):
        try:
            image = read_image(path)
            refuse_unusable(image, path)
        except ImageError as error:
            problem = str(error)
            continue
        tissue = tissue_input(find_glass(image)) if card.removes_glass else None
        count += 1
        yield {"image": image} if tissue is None else {"image": image, "tissue": tissue}
    if not count:
        raise DataError(f"--calibrate: no training image could be read; first problem: {problem}")


def _quantise_onnx(source: Path, target: Path, card: Card, inputs: list[Inputs]) -> None:
    import onnx  # noqa: PLC0415 - an extra
    from onnxruntime.quantization import (  # noqa: PLC0415
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._inputs = iter(inputs)

        def get_next(self) -> Any:
            return next(self._inputs, None)

    graph = onnx.load(str(source)).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    quantize_static(
        str(source),
        str(target),
        Reader(),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=["Conv"],
        per_channel=True,
        reduce_range=True,  # 7 bits of weight: 8 overflow on processors without VNNI
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        nodes_to_exclude=[node.name for node in convolutions if _is_sensitive(shapes[node.input[1]])],
    )
    save_onnx(onnx.load(str(target)), card, target)


def _quantise_openvino(source: Path, target: Path, card: Card, inputs: list[Inputs]) -> None:
    import nncf  # noqa: PLC0415 - an extra
    import openvino  # noqa: PLC0415 - an extra

    model = openvino.Core().read_model(source)
    sensitive = [
        node.get_friendly_name()
        for node in model.get_ops()
        if node.get_type_name() == "Convolution" and _is_sensitive(tuple(node.input(1).get_shape()))
    ]
    quantised = nncf.quantize(
        model,
        nncf.Dataset(inputs),
        preset=nncf.QuantizationPreset.MIXED,
        subset_size=len(inputs),
        ignored_scope=nncf.IgnoredScope(
            names=sensitive,
            patterns=[".*refinement/.*"],  # of a mask; most models have none
            types=["MatMul", "Interpolate", "Multiply", "Divide"],
            validate=False,
        ),
    )
    save_openvino(quantised, card, target)


def _is_sensitive(shape: tuple[int, ...]) -> bool:
    """Whether a convolution with weights [out, in, ...] stays in single precision."""
    return shape[0] <= _FEW_CHANNELS or shape[1] == _COLOURS
