"""The parts of a running viewer, shared by its routes."""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import HTTPException, Request
from PIL import Image
from starlette.responses import Response

from histolumen.view.cache import BoundedCache
from histolumen.view.items import Item, Library
from histolumen.view.predictions import LoadedRun, Predictor
from histolumen.view.settings import ViewSettings
from histolumen.view.tiles import Geometry, Tiles
from histolumen.view.uploads import Uploads

KEEP_AN_HOUR = {"Cache-Control": "private, max-age=3600"}
GEOJSON = "application/geo+json"
BINARY = {"type": "string", "format": "binary"}
_THUMBNAIL_BYTES = 32_000_000
_JPEG: dict[str, Any] = {"format": "JPEG", "quality": 90, "subsampling": 0}


@dataclass(frozen=True)
class Viewer:
    """Everything that a request may use."""

    settings: ViewSettings
    library: Library
    tiles: Tiles
    predictor: Predictor
    uploads: Uploads
    thumbnails: BoundedCache[bytes]

    @classmethod
    def of(cls, settings: ViewSettings, library: Library, runs: list[LoadedRun]) -> "Viewer":
        """A viewer of these items by these runs."""
        tiles = Tiles(settings.cache_bytes, settings.slides.slide_mpp)
        predictor = Predictor(runs, library, tiles, settings)
        uploads = Uploads(settings, library, tiles)
        return cls(settings, library, tiles, predictor, uploads, BoundedCache(_THUMBNAIL_BYTES, len))

    def item(self, item_id: str) -> Item:
        """The item that a request names."""
        item = self.library.get(item_id)
        if item is None:
            raise HTTPException(404, "no such image or slide")
        return item

    def run(self, run_id: str) -> LoadedRun:
        """The run that a request names."""
        if run_id not in self.predictor.runs:
            raise HTTPException(404, "no such run; start the viewer with one: histolumen view RUN")
        return self.predictor.runs[run_id]

    def geometry(self, item: Item) -> Geometry:
        """Size and resolution of an item; that of images is what the runs were trained with, if they agree."""
        found = self.tiles.geometry(item)
        if item.kind == "slide":
            return found
        stated = {run.model.config.images.mpp for run in self.predictor.runs.values()} - {None}
        return Geometry(found.width, found.height, stated.pop() if len(stated) == 1 else None)

    def forget(self, item: Item) -> None:
        """Release what was computed from an upload that has been deleted."""
        self.predictor.forget(item)
        self.thumbnails.remove(item.id)


def viewer_of(request: Request) -> Viewer:
    """The viewer that serves a request."""
    return request.app.state.viewer


def content(kind: str) -> dict[int | str, dict[str, Any]]:
    """The type of a route's response, for the API's description."""
    schema = {"type": "object", "required": ["type", "features"]} if kind == GEOJSON else BINARY
    return {200: {"content": {kind: {"schema": schema}}}}


def jpeg(pixels: np.ndarray) -> bytes:
    """RGB pixels as JPEG."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, **_JPEG)
    return buffer.getvalue()


def png_response(picture: Image.Image, download: str = "") -> Response:
    """A picture as PNG; `download` is the file name under which a browser saves it."""
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", compress_level=3)
    return file_response(buffer.getvalue(), "image/png", download)


def file_response(content: bytes, kind: str, download: str = "") -> Response:
    """A file; names of the user's files are reduced to plain characters for the header."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._- ") else "_" for c in download)
    headers = {"Content-Disposition": f'attachment; filename="{plain}"'} if download else {}
    return Response(content, media_type=kind, headers=headers)
