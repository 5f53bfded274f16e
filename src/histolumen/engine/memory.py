"""Configuration of memory: freed blocks are kept for the next training step and returned between predictions, which
also keep few compiled kernels."""

import ctypes
import os
import sys

# glibc's mallopt parameters (malloc.h)
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -2, -3, -4, -8
_KERNEL_CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")  # of oneDNN, and of torch in front of it
_KERNELS = "256"  # a network with two input sizes needs about 120
_ARENAS = 2
_LARGEST_KEPT = 256 * 2**20  # bytes; the largest map of an image that is predicted at once has about 200 MB
_RETURN_EVERY = 32  # images between two returns of memory, whose pages the next image has to get anew
_VARIABLES = {  # by which the user chooses a setting of glibc
    _ARENA_MAX: "MALLOC_ARENA_MAX",
    _MMAP_THRESHOLD: "MALLOC_MMAP_THRESHOLD_",
    _TRIM_THRESHOLD: "MALLOC_TRIM_THRESHOLD_",
}


def keep_memory_flat() -> None:
    """Keep the memory of predictions flat for images of many sizes; to be called before torch is imported.

    oneDNN compiles every convolution for every size of its input and keeps 1024 of them, half a gigabyte. A training
    step needs more of them (and always the same), so it keeps the default. glibc gives threads arenas of their own,
    in which gaps grow; two are enough, since threads seldom allocate at the same time. Blocks above 32 MB it would map
    anew for every layer, and the kernel would zero their pages, a quarter of the time of 1.6 megapixels; they come from
    the heap, which is returned now and then (`FreedMemory`). What the user has set stays.
    """
    for name in _KERNEL_CACHES:
        os.environ.setdefault(name, _KERNELS)
    if (libc := _glibc()) is None:
        return
    _choose(libc, _ARENA_MAX, _ARENAS)
    # Older versions of glibc refuse the first. The second alone would be worse than neither: it ends the adjustment of
    # the first, so that far smaller blocks would be mapped anew.
    if _choose(libc, _MMAP_THRESHOLD, _LARGEST_KEPT):
        _choose(libc, _TRIM_THRESHOLD, _LARGEST_KEPT)


def keep_freed_memory() -> bool:
    """Keep glibc from returning large freed blocks to the system. Returns whether that worked.

    By default glibc maps every large tensor anew and the kernel zeroes its pages, which takes a third to a half of a
    CPU training step (benchmarks/training_step.py). Without glibc this function does nothing.
    """
    if (libc := _glibc()) is None:
        return False
    mallopt = libc.mallopt
    return bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, -1) and mallopt(_TOP_PAD, 64 * 2**20))


def return_freed_memory() -> bool:
    """Return free pages between live blocks to the system. Returns whether there were any.

    Images of many sizes leave gaps of many sizes between blocks that stay, such as compiled kernels; large tensors do
    not fit into the gaps, so that memory grows although no more of it is in use. Without glibc this function does
    nothing.
    """
    libc = _glibc()
    return libc is not None and bool(libc.malloc_trim(0))


class FreedMemory:
    """Returns freed memory every few predictions."""

    def __init__(self) -> None:
        self._predictions = 0

    def after_prediction(self) -> None:
        """To be called once for each image."""
        self._predictions += 1
        if self._predictions % _RETURN_EVERY == 0:
            return_freed_memory()


def _choose(libc: ctypes.CDLL, setting: int, value: int) -> bool:
    """Set what the user has not set. Returns whether it is set now."""
    return _VARIABLES[setting] in os.environ or bool(libc.mallopt(setting, value))


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return None
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None  # musl and others have neither
