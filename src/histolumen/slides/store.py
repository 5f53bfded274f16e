"""Tile results on disk, one record of fixed size per tile, so that memory does not grow with the slide."""

import os
import tempfile
import threading
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


class KeptPixels:
    """Pixels of tiles [T, T, 3] uint8 that a later pass needs again: reading a slide takes ten times as long.

    The first tiles are kept, up to a limit. The file has no name, so that nothing remains of a killed process.
    """

    def __init__(self, folder: Path, limit: int):
        self._limit, self._offsets, self._end = limit, dict[int, int](), 0
        self._lock = threading.Lock()
        with os_errors_as_disk_error(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - until `close`

    def keep(self, index: int, pixels: np.ndarray) -> None:
        """Store the pixels of tile `index` if there is room."""
        with self._lock:
            offset = self._end
            if index in self._offsets or offset + pixels.nbytes > self._limit:
                return
            self._end += pixels.nbytes
        try:
            _write_all(self._file.fileno(), pixels.tobytes(), offset)
        except OSError:  # a full disk: the slide can be read again
            self._limit = 0
            return
        self._offsets[index] = offset

    def get(self, index: int, side: int) -> np.ndarray | None:
        """The pixels of tile `index` [side, side, 3]; None if they were not kept."""
        offset = self._offsets.get(index)
        if offset is None:
            return None
        data = os.pread(self._file.fileno(), 3 * side * side, offset)
        return np.frombuffer(data, np.uint8).reshape(side, side, 3)

    def close(self) -> None:
        """Delete the file."""
        self._file.close()


def _write_all(file: int, data: bytes, offset: int) -> None:
    """Repeat `os.pwrite`, which may write only a part, until all is written."""
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written
