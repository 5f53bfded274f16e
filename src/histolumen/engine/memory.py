"""Configuration of malloc: keep freed memory for the next training step."""

import ctypes
import sys

# glibc's mallopt parameters (malloc.h)
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


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
