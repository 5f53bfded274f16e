"""The only module that imports torchvision and timm.

Public torchvision wheels are built against the CUDA build of torch. Beside a CPU torch their compiled part does not
load, and `import torchvision` fails with "operator torchvision::nms does not exist" although nothing here needs that
operator. Declaring the two missing schemas first lets `transforms.v2`, `tv_tensors` and timm import and work.

Both packages also import torch's compiler, over a second of every start: torchvision for one question that its
detection operators ask when they are called, both to exclude a function from compilation. While they are imported, a
stand-in answers these two; anything else that is asked of it imports the compiler at once.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

_COMPILER = ("torch._dynamo", "torch._dynamo.utils")


class _LateModule(ModuleType):
    """Stands for a module of the compiler until something is needed of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system looks for some
            raise AttributeError(name)
        if name in _LATE:
            return _LATE[name]
        _remove_late_modules()
        return getattr(import_module(self.__name__), name)


def _is_compile_supported(device: str) -> bool:
    """The compiler's own answer, asked for when the question comes up."""
    return import_module("torch._dynamo.utils").is_compile_supported(device)


def _disable(function: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Any:
    """In place of the decorator that excludes a function from compilation; nothing here compiles those."""
    return (lambda decorated: decorated) if function is None else function


_LATE = {"is_compile_supported": _is_compile_supported, "disable": _disable}


def _remove_late_modules() -> None:
    for name in _COMPILER:
        if isinstance(sys.modules.get(name), _LateModule):
            del sys.modules[name]


@contextmanager
def _compiler_later() -> Iterator[None]:
    """Within the block, torch's compiler is not imported unless it is used."""
    if _COMPILER[0] not in sys.modules:
        sys.modules.update({name: _LateModule(name) for name in _COMPILER})
    try:
        yield
    finally:
        _remove_late_modules()


def _import_torchvision() -> ModuleType:
    with _compiler_later():
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

with _compiler_later():
    import timm
    from timm.layers.conv2d_same import Conv2dSame
    from timm.layers.padding import pad_same
    from torchvision import tv_tensors
    from torchvision.transforms import v2

operators_declared = _library is not None
"""Whether the missing operators had to be declared."""

__all__ = ["Conv2dSame", "operators_declared", "pad_same", "timm", "tv_tensors", "v2"]
