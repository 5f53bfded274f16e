"""The pages of the viewer: files of this package, read once."""

import hashlib
import mimetypes
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import APIRouter, HTTPException, Request
from starlette.responses import Response

from histolumen import __version__
from histolumen.view.problems import refusals
from histolumen.view.server import viewer_of

router = APIRouter()


@dataclass(frozen=True)
class _Page:
    content: bytes
    kind: str
    tag: str


def _read_pages(folder: Traversable, prefix: str = "") -> dict[str, _Page]:
    """All files by name: a request is looked up here and never becomes a path."""
    pages: dict[str, _Page] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            pages |= _read_pages(entry, f"{prefix}{entry.name}/")
        else:
            content = entry.read_bytes()
            kind = mimetypes.guess_type(entry.name)[0] or "text/plain"
            kind = "text/javascript" if entry.name.endswith(".js") else kind
            pages[prefix + entry.name] = _Page(content, kind, f'"{hashlib.sha256(content).hexdigest()[:16]}"')
    return pages


_pages = _read_pages(resources.files("histolumen.view") / "static")


@router.get("/", include_in_schema=False)
def index(request: Request) -> Response:
    """The viewer."""
    return _respond("index.html", request)


@router.get("/docs", include_in_schema=False)
def docs(request: Request) -> Response:
    """The API on one page; FastAPI's own page loads its code from another host."""
    return _respond("docs.html", request)


@router.get("/static/{name:path}", include_in_schema=False)
def static(name: str, request: Request) -> Response:
    """A script, a style or an icon."""
    return _respond(name, request)


@router.get("/healthz", tags=["server"], responses=refusals())
def healthz(request: Request) -> dict[str, str | int]:
    """Whether the server runs, and how many predictions wait."""
    return {"status": "ok", "version": __version__, "waiting": viewer_of(request).predictor.worker.waiting}


def _respond(name: str, request: Request) -> Response:
    page = _pages.get(name)
    if page is None:
        raise HTTPException(404, "no such page")
    headers = {"ETag": page.tag, "Cache-Control": "private, no-cache"}
    if request.headers.get("if-none-match") == page.tag:
        return Response(status_code=304, headers=headers)
    return Response(page.content, media_type=page.kind, headers=headers)
