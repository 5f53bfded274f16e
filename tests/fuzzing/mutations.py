"""Damage a file as accidents and attackers do: bits, lengths, pieces, tokens, and the sizes in headers."""

import random
import struct
import zlib
from collections.abc import Sequence

_NUMBERS = (0, 1, 2, 127, 128, 255, 256, 4096, 32767, 65535, 65536, 100_000, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
_PNG_HEADER = slice(12, 29)  # the name of the first chunk and its 13 bytes
_PNG_START = b"\x89PNG\r\n\x1a\n"


def mutated(seed: bytes, others: Sequence[bytes], tokens: Sequence[bytes], rng: random.Random) -> bytes:
    """A damaged version of `seed`.

    Args:
        seed: a valid file.
        others: further files to splice pieces from.
        tokens: words that mean something in the format.
        rng: source of all choices.
    """
    data = bytearray(seed)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        place = rng.randrange(len(data) + 1)
        match rng.randrange(9):
            case 0 | 1:
                _flip(data, rng)
            case 2:
                del data[place:]
            case 3:
                del data[place : place + rng.choice((1, 2, 4, 16, 200))]
            case 4:
                data[place:place] = data[place : place + rng.choice((1, 4, 64, 1000))] * rng.choice((1, 2, 50))
            case 5:
                other = rng.choice(others)
                start = rng.randrange(len(other) + 1)
                data[place : place + rng.choice((0, 8, 64))] = other[start : start + rng.choice((4, 32, 500))]
            case 6:
                token = rng.choice(tokens)
                data[place : place + rng.choice((0, len(token)))] = token
            case 7:
                _write_number(data, place, rng)
            case _:
                _write_number(data, rng.randrange(min(len(data), 200) + 1), rng)  # sizes stand in headers
    if data[:8] == _PNG_START and len(data) > 33 and rng.random() < 0.7:  # a wrong checksum would hide the rest
        data[29:33] = struct.pack(">I", zlib.crc32(data[_PNG_HEADER]))
    return bytes(data)


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _write_number(data: bytearray, place: int, rng: random.Random) -> None:
    order, (form, bits) = rng.choice("<>"), rng.choice((("B", 8), ("H", 16), ("I", 32), ("Q", 64)))
    number = struct.pack(order + form, rng.choice(_NUMBERS) % 2**bits)
    data[place : place + len(number)] = number
