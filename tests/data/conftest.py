"""Fixtures that write small image files, including formats that Pillow reads but does not write."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Write an array or image below `tmp_path` and return its path."""

    def write(content: np.ndarray | Image.Image, name: str = "x.png", **options: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = content if isinstance(content, Image.Image) else Image.fromarray(content)
        picture.save(path, **options)
        return path

    return write


@pytest.fixture(scope="session")
def png() -> Callable[..., bytes]:
    """Assemble a PNG by hand: any size in the header, 16 bits per channel."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    def make(width: int, height: int, bits: int, colour_type: int, lines: list[bytes], sbit: bytes = b"") -> bytes:
        header = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, 0)
        pixels = zlib.compress(b"".join(b"\0" + line for line in lines))
        significant = chunk(b"sBIT", sbit) if sbit else b""
        start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + significant
        return start + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")

    return make
