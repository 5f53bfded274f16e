"""Images sent by the browser or a program: limited, decoded safely, in a temporary folder of their own."""

import asyncio
import shutil
import tempfile
import threading
import uuid
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
from starlette.requests import Request

from histolumen.data.image import read_image
from histolumen.errors import ImageError
from histolumen.view.items import Item, Library
from histolumen.view.settings import ViewSettings
from histolumen.view.tiles import Tiles
from histolumen.view.worker import QueueFullError

_BODY_SECONDS = 120  # a slower upload is refused
_NAME_LENGTH = 80


class BodyTooLargeError(Exception):
    """The body of a request is over the limit."""


class Uploads:
    """Bodies are written to files whose names come from this class, never from the request.

    Args:
        settings: limits.
        library: receives an item per kept image.
        tiles: receives its pixels.
    """

    def __init__(self, settings: ViewSettings, library: Library, tiles: Tiles):
        self._settings, self._library, self._tiles = settings, library, tiles
        self._folder = Path(tempfile.mkdtemp(prefix="histolumen-view-"))
        self._kept: deque[Item] = deque()
        self._receiving = 0
        self._decoding = threading.Lock()  # one image at a time bounds the memory
        self._keeping = threading.Lock()

    @asynccontextmanager
    async def received(self, request: Request) -> AsyncIterator[Path]:
        """The body of a request as a file, deleted at the end; bodies that are received at once are limited, too."""
        if self._receiving >= self._settings.queue:
            raise QueueFullError(1)
        folder = self._folder / uuid.uuid4().hex
        self._receiving += 1
        try:
            folder.mkdir()
            path = folder / "image"
            async with asyncio.timeout(_BODY_SECONDS):
                await self._write(request, path)
            yield path
        finally:
            self._receiving -= 1
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
        home = self._folder / identifier
        home.mkdir()
        item = Item(identifier, "upload", path.rename(home / "image"), name)
        self._tiles.remember(item, pixels)
        self._library.add(item)
        with self._keeping:
            self._kept.append(item)
            dropped = [self._kept.popleft() for _ in range(len(self._kept) - self._settings.uploads)]
        for old in dropped:
            self._library.remove(old.id)
            self._tiles.forget(old)
            shutil.rmtree(old.path.parent, ignore_errors=True)
        return item, dropped

    def close(self) -> None:
        """Delete everything."""
        shutil.rmtree(self._folder, ignore_errors=True)


def display_name(name: str) -> str:
    """A file name from a request, for display only: printable and short."""
    plain = "".join(character for character in name if character.isprintable())
    return plain.replace("\\", "/").rsplit("/", 1)[-1][-_NAME_LENGTH:] or "image"
