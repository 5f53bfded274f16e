"""Pyramidal BigTIFF files of grey JPEG tiles, for OpenSlide and QuPath.

Levels are plain directories, one after the other: OpenSlide does not see those of sub-directories. Tiles with the same
content, such as those of empty glass, are stored once.
"""

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

TILE = 512
"""Side of a tile in pixels."""
_SHORT, _LONG, _RATIONAL, _LONG8 = 3, 4, 5, 16  # TIFF's numbers of types
_JPEG, _BLACK_IS_ZERO, _CENTIMETRE, _REDUCED = 7, 1, 3, 1
_PRECISION = 1000  # denominator of resolutions
_HEADER = struct.pack("<2sHHH", b"II", 43, 8, 0)  # 43: BigTIFF, whose offsets have 8 bytes


@dataclass(frozen=True)
class Level:
    """One resolution of a picture."""

    width: int
    height: int
    tiles: Iterable[bytes]
    """JPEG pictures of `TILE` x `TILE` pixels, row by row; those at the right and lower border reach beyond it."""


def write_pyramid(file: BinaryIO, levels: Iterable[Level], pixels_per_cm: float) -> None:
    """Write levels, the largest first.

    Args:
        file: empty, open for writing, seekable.
        levels: whose tiles are computed while they are written.
        pixels_per_cm: resolution of the first level.
    """
    file.write(_HEADER)
    link = file.tell()  # where the place of the next directory is to be written
    file.write(bytes(8))
    full_width = 0
    for level in levels:
        offsets, lengths = _write_tiles(file, level.tiles)
        full_width = full_width or level.width
        resolution = _rational(pixels_per_cm * level.width / full_width)
        entries = (
            (254, _LONG, 1, struct.pack("<I", 0 if level.width == full_width else _REDUCED)),
            (256, _LONG, 1, struct.pack("<I", level.width)),
            (257, _LONG, 1, struct.pack("<I", level.height)),
            (258, _SHORT, 1, struct.pack("<H", 8)),  # bits
            (259, _SHORT, 1, struct.pack("<H", _JPEG)),
            (262, _SHORT, 1, struct.pack("<H", _BLACK_IS_ZERO)),
            (277, _SHORT, 1, struct.pack("<H", 1)),  # channels
            (282, _RATIONAL, 1, resolution),
            (283, _RATIONAL, 1, resolution),
            (296, _SHORT, 1, struct.pack("<H", _CENTIMETRE)),
            (322, _LONG, 1, struct.pack("<I", TILE)),
            (323, _LONG, 1, struct.pack("<I", TILE)),
            (324, _LONG8, len(offsets), struct.pack(f"<{len(offsets)}Q", *offsets)),
            (325, _LONG8, len(lengths), struct.pack(f"<{len(lengths)}Q", *lengths)),
        )
        link = _write_directory(file, entries, link)


def _write_tiles(file: BinaryIO, tiles: Iterable[bytes]) -> tuple[list[int], list[int]]:
    """Where each tile lies in the file, and how long it is."""
    offsets, lengths, known = [], [], {}
    place = file.tell()
    for tile in tiles:
        digest = hashlib.blake2b(tile, digest_size=16).digest()
        if digest not in known:
            known[digest] = place
            place += file.write(tile)
        offsets.append(known[digest])
        lengths.append(len(tile))
    return offsets, lengths


def _write_directory(file: BinaryIO, entries: Iterable[tuple[int, int, int, bytes]], link: int) -> int:
    """Write a directory and its place to `link`; return where the place of the next one belongs."""
    written = []
    for tag, kind, count, value in entries:
        inside = value
        if len(value) > 8:  # does not fit into the entry, which then holds its place
            inside = struct.pack("<Q", file.tell())
            file.write(value)
        written.append(struct.pack("<HHQ", tag, kind, count) + inside.ljust(8, b"\0"))
    place = file.tell()
    file.write(struct.pack("<Q", len(written)) + b"".join(written))
    next_link = file.tell()
    file.write(bytes(8))
    file.seek(link)
    file.write(struct.pack("<Q", place))
    file.seek(0, 2)
    return next_link


def _rational(value: float) -> bytes:
    return struct.pack("<II", round(value * _PRECISION), _PRECISION)
