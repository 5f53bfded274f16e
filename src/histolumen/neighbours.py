"""Erosion and dilation by the four neighbours, with shifted copies: much faster than scipy's on images."""

import numpy as np


def eroded(mask: np.ndarray, steps: int = 1, *, outside: bool = False) -> np.ndarray:
    """Remove the outermost pixels of a mask.

    Args:
        mask: [H, W] bool.
        steps: how often.
        outside: whether pixels outside the image belong to the mask.

    Returns:
        A new mask, or `mask` itself if there are no steps.
    """
    for _ in range(steps):
        inside = mask.copy()
        inside[1:] &= mask[:-1]
        inside[:-1] &= mask[1:]
        inside[:, 1:] &= mask[:, :-1]
        inside[:, :-1] &= mask[:, 1:]
        if not outside:
            inside[[0, -1]] = inside[:, [0, -1]] = False
        mask = inside
    return mask


def dilated(mask: np.ndarray, steps: int = 1) -> np.ndarray:
    """Add the pixels next to a mask [H, W] bool, `steps` times."""
    return ~eroded(~mask, steps, outside=True)
