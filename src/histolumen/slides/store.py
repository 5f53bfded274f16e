"""Results of tiles on disk: one record of fixed size for each, so that a slide of any size needs the same memory."""

import os
from pathlib import Path
from types import TracebackType

import numpy as np

from histolumen.atomic import explained


class RecordFile:
    """Float16 records by tile. A record counts once its flag is set, after it was written: a kill loses one at most.

    Explicit reads and writes instead of a memory map: mapped pages of a large file would count as memory in use.
    """

    def __init__(self, path: Path, count: int, shape: tuple[int, ...]):
        self.path, self.shape = path, shape
        self._bytes = 2 * int(np.prod(shape))
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._records = os.open(path, os.O_RDWR | os.O_CREAT)
            self._flags = os.open(path.with_name(f"{path.name}.done"), os.O_RDWR | os.O_CREAT)
        flags = np.frombuffer(os.pread(self._flags, count, 0), np.uint8)
        self.done = np.zeros(count, bool)
        self.done[: len(flags)] = flags == 1
        whole = os.fstat(self._records).st_size // self._bytes  # after a crash of the machine it may be shorter
        self.done[whole:] = False

    def write(self, index: int, record: np.ndarray) -> None:
        """Keep the record of tile `index`."""
        if record.shape != self.shape:
            raise ValueError(f"record of shape {record.shape} in a file of {self.shape}")
        with explained(self.path):
            _write_all(self._records, record.astype(np.float16).tobytes(), index * self._bytes)
            _write_all(self._flags, b"\x01", index)
        self.done[index] = True

    def read(self, index: int) -> np.ndarray:
        """The record of a tile that has one, float32."""
        data = os.pread(self._records, self._bytes, index * self._bytes)
        return np.frombuffer(data, np.float16).reshape(self.shape).astype(np.float32)

    def close(self) -> None:
        """Release the files."""
        os.close(self._records)
        os.close(self._flags)


class RasterFile:
    """A grey picture [height, width] uint8 as raw rows; what was never written is 0."""

    def __init__(self, path: Path, width: int, height: int):
        self.path, self.width, self.height = path, width, height
        with explained(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            os.truncate(self._file, width * height)

    def write(self, left: int, top: int, block: np.ndarray) -> None:
        """Put a block at its place."""
        with explained(self.path):
            for row, values in enumerate(block, start=top):
                _write_all(self._file, values.tobytes(), row * self.width + left)

    def read(self, left: int, top: int, width: int, height: int) -> np.ndarray:
        """A block [height, width]."""
        rows = [os.pread(self._file, width, row * self.width + left) for row in range(top, top + height)]
        return np.frombuffer(b"".join(rows), np.uint8).reshape(height, width)

    def __enter__(self) -> "RasterFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._file)


def _write_all(file: int, data: bytes, offset: int) -> None:
    """`os.pwrite` may write less than asked for."""
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written
