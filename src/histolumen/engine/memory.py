"""Configuration of memory: freed blocks are kept for the next training step, few compiled kernels for predictions."""

import ctypes
import os
import sys

# glibc's mallopt parameters (malloc.h)
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_KERNEL_CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")  # of oneDNN, and of torch in front of it
_KERNELS = "256"  # a network with two input sizes needs about 120


def keep_few_kernels() -> None:
    """Keep the memory of predictions flat for images of many sizes; to be called before torch is imported.

    oneDNN compiles every convolution for every size of its input and keeps 1024 of them, half a gigabyte. A training
    step needs more of them (and always the same), so it keeps the default. What the user has set stays.
    """
    for name in _KERNEL_CACHES:
        os.environ.setdefault(name, _KERNELS)


def keep_freed_memory() -> bool:
    """Keep glibc from returning large freed blocks to the system. Returns whether that worked.

    By default glibc maps every large tensor anew and the kernel zeroes its pages, which takes a third to a half of a
    CPU training step (benchmarks/training_step.py). Without glibc this function does nothing.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # musl and others
        return False
    return bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, -1) and mallopt(_TOP_PAD, 64 * 2**20))
