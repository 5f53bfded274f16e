"""Write the graph of a model in one of the formats."""

import contextlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from histolumen.deploy.card import KEY, Card, Format
from histolumen.deploy.graph import ImageGraph
from histolumen.engine.model import Model
from histolumen.errors import RunError
from histolumen.extras import require

_OPSET = 18  # reductions take their axes as inputs, as OpenVINO and ONNX Runtime have it since 2023
_EXAMPLE = (150, 120)  # height and width of the traced image; the graph computes all sizes anew
_MODULES: dict[Format, tuple[str, ...]] = {
    "onnx": ("onnx", "onnxruntime"),
    "openvino": ("onnx", "openvino"),
    "torchscript": (),
}


def require_format(file_format: Format, *, int8: bool) -> None:
    """Raise an error with the install command if a package is missing."""
    require("export", *_MODULES[file_format], *(("nncf",) if int8 and file_format == "openvino" else ()))


def write_graph(model: Model, card: Card, path: Path) -> None:
    """Write the graph of a model to `path`, with its card inside."""
    writers = {"onnx": _write_onnx, "openvino": _write_openvino, "torchscript": _write_torchscript}
    graph = ImageGraph(model.method, model.config, model.temperature).eval()
    generator = torch.Generator().manual_seed(0)
    image = torch.randint(256, (*_EXAMPLE, 3), dtype=torch.uint8, generator=generator)
    tissue = (torch.ones(_EXAMPLE, dtype=torch.uint8),) if card.removes_glass else ()
    try:
        with torch.no_grad(), _quiet():
            writers[card.file_format](graph, (image, *tissue), card, path)
    except RuntimeError as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise RunError(
            f"{card.method} on {card.backbone} cannot be written as {card.file_format} ({reason}); try --format "
            "torchscript, or use the run folder"
        ) from error


def save_onnx(model: Any, card: Card, path: Path) -> None:
    """Write an ONNX model with its card in `metadata_props`."""
    import onnx  # noqa: PLC0415 - an extra

    del model.metadata_props[:]
    onnx.helper.set_model_props(model, {KEY: card.as_json()})
    onnx.save(model, str(path))


def save_openvino(model: Any, card: Card, path: Path) -> None:
    """Write an OpenVINO model with its card in `rt_info`; weights in single precision beside it, as .bin."""
    import openvino  # noqa: PLC0415 - an extra

    model.set_rt_info(card.as_json(), [KEY])
    openvino.save_model(model, path, compress_to_fp16=False)


def replace_card(path: Path, card: Card) -> None:
    """Store another card in an ONNX or OpenVINO file."""
    if card.file_format == "onnx":
        import onnx  # noqa: PLC0415 - an extra

        save_onnx(onnx.load(str(path)), card, path)
    else:
        import openvino  # noqa: PLC0415 - an extra

        model = openvino.Core().read_model(path.read_bytes(), path.with_suffix(".bin").read_bytes())
        save_openvino(model, card, path)


def _write_torchscript(graph: ImageGraph, example: tuple[Tensor, ...], card: Card, path: Path) -> None:
    traced = torch.jit.trace(graph, example, check_trace=False)
    torch.jit.save(torch.jit.freeze(traced), path, _extra_files={f"{KEY}.json": card.as_json().encode()})


def _write_onnx(graph: ImageGraph, example: tuple[Tensor, ...], card: Card, path: Path) -> None:
    import onnx  # noqa: PLC0415 - an extra

    model = onnx.load_from_string(_onnx_bytes(graph, example))
    _use_weights_directly(model.graph)
    save_onnx(model, card, path)


def _write_openvino(graph: ImageGraph, example: tuple[Tensor, ...], card: Card, path: Path) -> None:
    import openvino  # noqa: PLC0415 - an extra

    save_openvino(openvino.Core().read_model(io.BytesIO(_onnx_bytes(graph, example))), card, path)


def _use_weights_directly(graph: Any) -> None:
    """Remove identity nodes behind weights: the exporter writes them where two passes share a layer, and they hide the
    weights from quantisation."""
    weights = {tensor.name for tensor in graph.initializer}
    copies = {node.output[0]: node for node in graph.node if node.op_type == "Identity" and node.input[0] in weights}
    for node in graph.node:
        for k, name in enumerate(node.input):
            if name in copies:
                node.input[k] = copies[name].input[0]
    for node in copies.values():
        graph.node.remove(node)


def _onnx_bytes(graph: ImageGraph, example: tuple[Tensor, ...]) -> bytes:
    """The traced graph as ONNX. The exporter by tracing is used: sizes are computed by operations of the graph, which
    the newer one, by symbolic shapes, turns into conditions that hold for the example alone."""
    names = ["image", "tissue"][: len(example)]
    sizes = {"image": {0: "height", 1: "width"}, "soft_mask": {0: "height", 1: "width"}}
    if len(example) > 1:
        sizes["tissue"] = {0: "tissue_height", 1: "tissue_width"}
    buffer = io.BytesIO()
    torch.onnx.export(
        graph,
        example,
        buffer,  # pyright: ignore[reportArgumentType] - the exporter by tracing takes a buffer
        dynamo=False,
        opset_version=_OPSET,
        input_names=names,
        output_names=["probabilities", "soft_mask"],
        dynamic_axes=sizes,
    )
    return buffer.getvalue()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the tracer's warnings about constants, which `export` checks by comparing answers at other sizes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
