"""Run an exported graph: one class per runtime."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch

from histolumen.deploy.card import KEY, Card, Format, parse_card
from histolumen.errors import ConfigError, RunError
from histolumen.extras import require

Runtime = Literal["torch", "onnx", "openvino"]
SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "openvino": ".xml", "torchscript": ".pt"}
"""Suffix of the exported file by format."""


class Session(Protocol):
    """A loaded graph."""

    card: Card

    def run(self, image: np.ndarray, tissue: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Class probabilities [C] and soft mask [H, W] of an image [H, W, 3]."""
        ...


class OnnxSession:
    """ONNX Runtime."""

    def __init__(self, path: Path):
        require("export", "onnxruntime")
        import onnxruntime  # noqa: PLC0415 - an extra

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # threads that wait let others work
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.card = parse_card(self._session.get_modelmeta().custom_metadata_map.get(KEY), str(path))

    def run(self, image: np.ndarray, tissue: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        probabilities, soft_mask = self._session.run(None, _inputs(image, tissue))
        return np.asarray(probabilities), np.asarray(soft_mask)


class OpenVinoSession:
    """OpenVINO, which also reads ONNX files."""

    def __init__(self, path: Path):
        require("export", "openvino", "onnx")
        import openvino  # noqa: PLC0415 - an extra

        model = openvino.Core().read_model(path)
        self.card = parse_card(_onnx_card(path) if path.suffix == ".onnx" else _openvino_card(model), str(path))
        self._run = compile_openvino(model)

    def run(self, image: np.ndarray, tissue: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        return self._run(_inputs(image, tissue))


class TorchScriptSession:
    """TorchScript."""

    def __init__(self, path: Path):
        files = {f"{KEY}.json": ""}
        self._module = torch.jit.load(path, map_location="cpu", _extra_files=files)
        stored: str | bytes = files[f"{KEY}.json"]
        self.card = parse_card(stored.decode() if isinstance(stored, bytes) else stored, str(path))

    @torch.inference_mode()
    def run(self, image: np.ndarray, tissue: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        tensors = [torch.from_numpy(np.ascontiguousarray(each)) for each in _inputs(image, tissue).values()]
        probabilities, soft_mask = self._module(*tensors)
        return probabilities.numpy(), soft_mask.numpy()


_SESSIONS: dict[tuple[str, str], Callable[[Path], Session]] = {
    (".onnx", "onnx"): OnnxSession,
    (".onnx", "openvino"): OpenVinoSession,
    (".xml", "openvino"): OpenVinoSession,
    (".pt", "torch"): TorchScriptSession,
}


def is_exported(path: Path) -> bool:
    """Whether the suffix is that of an exported model."""
    return path.suffix in SUFFIXES.values()


def open_session(path: Path, runtime: Runtime | None = None) -> Session:
    """Load an exported file.

    Args:
        path: file that `export` wrote.
        runtime: None: the one its suffix names.
    """
    runtimes = [name for suffix, name in _SESSIONS if suffix == path.suffix]
    chosen = runtime or runtimes[0]
    if chosen not in runtimes:
        raise ConfigError(f"{path}: --runtime {chosen} does not run {path.suffix} files; use {' or '.join(runtimes)}")
    if not path.is_file():
        raise RunError(f"{path}: no such file; write it with `histolumen export`")
    try:
        return _SESSIONS[path.suffix, chosen](path)
    except (RuntimeError, ValueError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise RunError(f"{path}: cannot be loaded ({reason}); export it again") from error
    except Exception as error:
        if type(error).__module__.startswith("onnxruntime"):
            raise RunError(f"{path}: cannot be loaded ({str(error).splitlines()[0]}); export it again") from error
        raise


def compile_openvino(model: Any) -> Callable[[dict[str, np.ndarray]], tuple[np.ndarray, np.ndarray]]:
    """A function that runs an OpenVINO model, in single precision where it is not quantised."""
    import openvino  # noqa: PLC0415 - an extra

    options = {
        "INFERENCE_PRECISION_HINT": "f32",  # the default is bfloat16 where the processor has it
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
    }
    request = openvino.Core().compile_model(model, "CPU", options).create_infer_request()

    def run(inputs: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        answer = request.infer(inputs)
        return np.array(answer["probabilities"]), np.array(answer["soft_mask"])

    return run


def _inputs(image: np.ndarray, tissue: np.ndarray | None) -> dict[str, np.ndarray]:
    return {"image": image} if tissue is None else {"image": image, "tissue": tissue}


def _onnx_card(path: Path) -> str | None:
    import onnx  # noqa: PLC0415 - an extra

    properties = onnx.load(str(path), load_external_data=False).metadata_props
    return next((entry.value for entry in properties if entry.key == KEY), None)


def _openvino_card(model: Any) -> str | None:
    return str(model.get_rt_info([KEY]).value) if model.has_rt_info([KEY]) else None
