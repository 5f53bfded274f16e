"""How many bits of a 16-bit image file are used: cameras store 10, 12 or 14 bits in files of 16."""

import struct
from pathlib import Path

import numpy as np
from PIL import Image

_BITS_PER_SAMPLE, _MAX_SAMPLE_VALUE = 258, 281  # TIFF tags
_CAMERA_BITS = (8, 10, 12, 14)
_PNG_START = 8  # bytes of the signature
_MAX_CHUNKS = 100  # searched for the chunk that states the bits; it precedes the pixels


def stated_bits(image: Image.Image, path: Path) -> int | None:
    """Significant bits by the header of a PNG or TIFF; None if it says nothing."""
    if image.format == "PNG":
        return _significant_bits(path)
    tags = getattr(image, "tag_v2", {})
    stored = tags.get(_BITS_PER_SAMPLE, (16,))
    bits = stored[0] if isinstance(stored, tuple) and stored else 16
    if bits in _CAMERA_BITS:
        return bits
    top = tags.get(_MAX_SAMPLE_VALUE)
    top = top[0] if isinstance(top, tuple) and top else top
    # some software writes the largest value that occurs: trusted only if it is the largest of a whole number of bits
    return next((bits for bits in _CAMERA_BITS if top == 2**bits - 1), None)


def guessed_bits(values: np.ndarray) -> int:
    """8, 12 or 16 bits, by the largest value; the same for images of one camera unless they are nearly black."""
    top = int(values.max(initial=0))
    return 8 if top < 2**8 else 12 if top < 2**12 else 16


def is_sixteen_bit_colour(image: Image.Image) -> bool:
    """Whether a file, not decoded yet, has 16 bits per colour, of which Pillow returns the upper 8."""
    modes = [str(argument) for tile in getattr(image, "tile", []) for argument in _arguments(tile)]
    return len(image.getbands()) > 1 and any(";16" in mode for mode in modes)


def _arguments(tile: tuple[object, ...]) -> tuple[object, ...]:
    last = tile[-1]
    return last if isinstance(last, tuple) else (last,)


def _significant_bits(path: Path) -> int | None:
    """The first value of the sBIT chunk of a PNG."""
    with path.open("rb") as file:
        file.seek(_PNG_START)
        for _ in range(_MAX_CHUNKS):
            head = file.read(8)
            if len(head) < 8 or head[4:] == b"IDAT":
                return None
            (length,) = struct.unpack(">I", head[:4])
            if head[4:] == b"sBIT":
                bits = file.read(1)
                return bits[0] if bits and 0 < bits[0] <= 16 else None
            file.seek(length + 4, 1)
    return None
