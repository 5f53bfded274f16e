"""Tile results on disk, one record of fixed size per tile, so that memory does not grow with the slide."""

import os
from pathlib import Path

import numpy as np

from histolumen.atomic import os_errors_as_disk_error


class RecordFile:
    """Float16 records by tile. A record's flag is set after it is written, so a killed process loses at most one.

    Uses explicit reads and writes: pages of a memory map would count as memory in use.
    """

    def __init__(self, path: Path, count: int, shape: tuple[int, ...]):
        self.path, self.shape = path, shape
        self._bytes = 2 * int(np.prod(shape))
        with os_errors_as_disk_error(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._records = os.open(path, os.O_RDWR | os.O_CREAT)
            self._flags = os.open(path.with_name(f"{path.name}.done"), os.O_RDWR | os.O_CREAT)
        flags = np.frombuffer(os.pread(self._flags, count, 0), np.uint8)
        self.done = np.zeros(count, bool)
        self.done[: len(flags)] = flags == 1
        complete = os.fstat(self._records).st_size // self._bytes  # fewer than flags after a system crash
        self.done[complete:] = False

    def write(self, index: int, record: np.ndarray) -> None:
        """Store the record of tile `index`."""
        if record.shape != self.shape:
            raise ValueError(f"record of shape {record.shape} in a file of shape {self.shape}")
        with os_errors_as_disk_error(self.path):
            _write_all(self._records, record.astype(np.float16).tobytes(), index * self._bytes)
            _write_all(self._flags, b"\x01", index)
        self.done[index] = True

    def read(self, index: int) -> np.ndarray:
        """The record of a finished tile, float32."""
        data = os.pread(self._records, self._bytes, index * self._bytes)
        return np.frombuffer(data, np.float16).reshape(self.shape).astype(np.float32)

    def close(self) -> None:
        """Release the files."""
        os.close(self._records)
        os.close(self._flags)


def _write_all(file: int, data: bytes, offset: int) -> None:
    """Repeat `os.pwrite`, which may write only a part, until all is written."""
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written
