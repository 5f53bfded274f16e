"""JPEG tiles whose blocks of 8 x 8 pixels each have one value, quickly and without loss.

The cosine transform of such a block is its mean, so nothing is transformed: a tile is the differences between the
values of neighbouring blocks in a Huffman code. numpy encodes all of them at once, in a small part of the time that a
general encoder needs for all pixels.
"""

import struct

import numpy as np

BLOCK = 8
_QUANTISATION = 8  # the transform of a block with value v is 8 (v - 128): divided by 8, values are kept as they are
_LENGTHS = (1, 3, 3, 4, 4, 4, 5, 6, 7)  # of the codes of differences of 0 to 8 bits; 0 is common
_LARGEST = 255  # difference of two values
_END_BITS = 1  # of the code that ends a block; the only one in its table


def encode_flat(values: np.ndarray) -> bytes:
    """A grey JPEG picture.

    Args:
        values: of the blocks, [rows, columns] uint8.
    """
    rows, columns = values.shape
    differences = np.diff(values.ravel().astype(np.int16), prepend=128)
    lengths, codes = _BITS[differences + _LARGEST], _CODES[differences + _LARGEST]
    ends = np.cumsum(lengths)
    total = int(ends[-1])
    # each bit of the result: the code that it belongs to, shifted by the number of bits that follow in that code
    following = np.repeat(ends, lengths) - np.arange(1, total + 1)
    bits = (np.repeat(codes, lengths) >> following & 1).astype(np.uint8)
    padded = np.concatenate([bits, np.ones(-total % 8, np.uint8)])
    data = np.packbits(padded).tobytes().replace(b"\xff", b"\xff\x00")  # 255 alone would begin a marker
    return _head(rows * BLOCK, columns * BLOCK) + data + b"\xff\xd9"


def _head(height: int, width: int) -> bytes:
    """All segments in front of the data: quantisation, size, the two tables of codes, start."""
    quantisation = bytes([0, *[_QUANTISATION] * 64])
    frame = struct.pack(">BHHBBBB", 8, height, width, 1, 1, 0x11, 0)  # 8 bits, one component without subsampling
    means = bytes([0x00, *(_LENGTHS.count(length) for length in range(1, 17)), *range(len(_LENGTHS))])
    others = bytes([0x10, *(int(length == _END_BITS) for length in range(1, 17)), 0])
    scan = bytes([1, 1, 0x00, 0, 63, 0])
    segments = ((0xDB, quantisation), (0xC0, frame), (0xC4, means), (0xC4, others), (0xDA, scan))
    return b"\xff\xd8" + b"".join(struct.pack(">BBH", 255, kind, len(body) + 2) + body for kind, body in segments)


def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Number of bits, and code, of every difference from -255 to 255 with the end of its block."""
    prefixes, code, length = [], 0, _LENGTHS[0]
    for each in _LENGTHS:  # canonical: codes count up, and get longer by zeros
        code <<= each - length
        prefixes.append(code)
        code, length = code + 1, each
    bits, codes = [], []
    for difference in range(-_LARGEST, _LARGEST + 1):
        category = abs(difference).bit_length()
        amount = difference if difference >= 0 else difference + (1 << category) - 1
        bits.append(_LENGTHS[category] + category + _END_BITS)
        codes.append((prefixes[category] << category | amount) << _END_BITS)  # the end is a zero
    return np.array(bits), np.array(codes)


_BITS, _CODES = _tables()
