"""Images sent by the browser or a program: limited, decoded safely, in a temporary folder of their own."""

import asyncio
import math
import shutil
import threading
import uuid
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
from starlette.requests import Request

from histolumen.atomic import os_errors_as_disk_error
from histolumen.data.image import read_image
from histolumen.errors import ImageError
from histolumen.view.items import Item, Library
from histolumen.view.private_folder import PrivateFolder
from histolumen.view.rates import scope_client
from histolumen.view.settings import ViewSettings
from histolumen.view.tiles import Tiles
from histolumen.view.worker import QueueFullError

_NAME_LENGTH = 80
_SHOWN = Path("upload")  # instead of the path on the server


class BodyTooLargeError(Exception):
    """The body of a request is over the limit."""


class Uploads:
    """Bodies are written to files whose names come from this class, never from the request. Open it before use.

    Args:
        settings: limits.
        library: receives an item per kept image.
        tiles: receives its pixels.
    """

    def __init__(self, settings: ViewSettings, library: Library, tiles: Tiles):
        self._settings, self._library, self._tiles = settings, library, tiles
        self._private: PrivateFolder | None = None
        self._kept: deque[Item] = deque()
        self._receiving: Counter[str] = Counter()  # by client
        self._decoding = threading.Lock()  # one image at a time bounds the memory
        self._keeping = threading.Lock()

    def open(self) -> None:
        """Create the folder, and delete those of viewers that crashed."""
        self._private = PrivateFolder()

    @property
    def folder(self) -> Path:
        """Where the files are."""
        if self._private is None:
            raise RuntimeError("uploads are not open")
        return self._private.path

    @asynccontextmanager
    async def received(self, request: Request) -> AsyncIterator[Path]:
        """The body of a request as a file, deleted at the end; bodies that are received at once are limited, too."""
        client, limit = scope_client(request.scope), self._settings.queue
        if self._receiving.total() >= limit or self._receiving[client] >= math.ceil(limit / 2):
            raise QueueFullError(1)
        folder = self.folder / uuid.uuid4().hex
        self._receiving[client] += 1
        try:
            path = folder / "image"
            async with asyncio.timeout(self._settings.limits.body_seconds):
                with os_errors_as_disk_error(_SHOWN):
                    folder.mkdir()
                    await self._write(request, path)
            yield path
        finally:
            self._receiving[client] -= 1
            if self._receiving[client] <= 0:
                del self._receiving[client]
            shutil.rmtree(folder, ignore_errors=True)

    async def _write(self, request: Request, path: Path) -> None:
        limit = self._settings.upload_bytes
        stated = request.headers.get("content-length", "0")
        if stated.isdigit() and int(stated) > limit:
            raise BodyTooLargeError
        size = 0
        with path.open("wb") as file:
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit:
                    raise BodyTooLargeError
                file.write(chunk)

    def decode(self, path: Path, name: str) -> np.ndarray:
        """RGB pixels of a received file; errors name the file as the user knows it."""
        try:
            with self._decoding:
                return read_image(path, self._settings.upload_pixels)
        except ImageError as error:
            raise ImageError(str(error).replace(str(path), name)) from error

    def keep(self, path: Path, name: str) -> tuple[Item, list[Item]]:
        """Turn a received file into an item; returns it and the oldest items, which are deleted."""
        pixels = self.decode(path, name)
        identifier = uuid.uuid4().hex[:20]
        home = self.folder / identifier
        with os_errors_as_disk_error(_SHOWN):
            home.mkdir()
            moved = path.rename(home / "image")
        item = Item(identifier, "upload", moved, name)
        self._tiles.remember(item, pixels)
        self._library.add(item)
        with self._keeping:
            self._kept.append(item)
            dropped = [self._kept.popleft() for _ in range(len(self._kept) - self._settings.uploads)]
        for old in dropped:
            self._delete(old)
        return item, dropped

    def discard(self, item: Item) -> None:
        """Delete a kept image before newer ones replace it."""
        with self._keeping:
            if item not in self._kept:  # deleted by another request at this moment
                return
            self._kept.remove(item)
        self._delete(item)

    def _delete(self, item: Item) -> None:
        self._library.remove(item.id)
        self._tiles.forget(item)
        shutil.rmtree(item.path.parent, ignore_errors=True)

    def close(self) -> None:
        """Delete everything."""
        if self._private is not None:
            self._private.close()


def display_name(name: str) -> str:
    """A file name from a request, for display only: printable and short."""
    plain = "".join(character for character in name if character.isprintable())
    return plain.replace("\\", "/").rsplit("/", 1)[-1][-_NAME_LENGTH:] or "image"
