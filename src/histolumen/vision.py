"""The only module that imports torchvision and timm.

Public torchvision wheels are built against the CUDA build of torch. Beside a CPU torch their compiled part does not
load, and `import torchvision` fails with "operator torchvision::nms does not exist" although nothing here needs that
operator. Declaring the two missing schemas first lets `transforms.v2`, `tv_tensors` and timm import and work.
"""

import sys
from types import ModuleType

import torch


def _import_torchvision() -> ModuleType:
    import torchvision  # noqa: PLC0415 - this import may fail

    return torchvision


def declare_missing_operators() -> torch.library.Library:
    """Declare (without implementing) the operators whose absence breaks `import torchvision` on a CPU torch."""
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


_library: torch.library.Library | None = None  # the operators exist as long as this object
try:
    _import_torchvision()
except RuntimeError as error:
    if "torchvision::" not in str(error):
        raise
    for half_imported in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[half_imported]
    _library = declare_missing_operators()
    _import_torchvision()

import timm  # noqa: E402
from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

operators_declared = _library is not None
"""Whether the missing operators had to be declared."""

__all__ = ["operators_declared", "timm", "tv_tensors", "v2"]
