"""Errors as responses: each a JSON object with the key `detail`, as the API's description says."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from histolumen.errors import DiskError, HistolumenError
from histolumen.settings import complaint
from histolumen.view.schema import Problem
from histolumen.view.settings import ViewSettings
from histolumen.view.uploads import BodyTooLargeError
from histolumen.view.worker import QueueFullError

_CLOSE = {"Connection": "close"}  # the rest of the body is not read
_DESCRIPTIONS = {
    400: "the body ended too early",
    403: "from a page of another site",
    404: "not known",
    408: "the body came too slowly",
    409: "not predicted yet, or no longer in memory",
    413: "the body is too large",
    422: "cannot be used; the detail says why",
    429: "too many requests, or wrong tokens, from this address: see Retry-After",
    503: "too many requests or predictions wait, or a file could not be written: see Retry-After, where it is given",
}
_ALWAYS = (429, 503)
_log = logging.getLogger(__name__)


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, for the API's description; those of every route are added."""
    return {status: {"model": Problem, "description": _DESCRIPTIONS[status]} for status in (*statuses, *_ALWAYS)}


def add_handlers(app: FastAPI, settings: ViewSettings) -> None:
    """Turn the exceptions of the routes into responses."""

    @app.exception_handler(QueueFullError)
    async def full(_: Request, error: QueueFullError) -> JSONResponse:
        detail = "too many predictions are waiting; try again soon"
        return JSONResponse({"detail": detail}, 503, {"Retry-After": str(error.retry_after)})

    @app.exception_handler(BodyTooLargeError)
    async def too_large(_: Request, __: BodyTooLargeError) -> JSONResponse:
        detail = f"the file is larger than {settings.upload_bytes // 1_000_000} MB; cut it into tiles, or start the "
        return JSONResponse({"detail": detail + "viewer with --images on its folder"}, 413, _CLOSE)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        problem = error.errors()[0]
        return JSONResponse({"detail": f"{problem['loc'][-1]}: {complaint(problem)}"}, 422)

    @app.exception_handler(HistolumenError)
    async def user_error(_: Request, error: HistolumenError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 503 if isinstance(error, DiskError) else 422)

    app.add_exception_handler(
        ClientDisconnect, _constant(400, "the connection was closed before the file had arrived", _CLOSE)
    )
    app.add_exception_handler(TimeoutError, _constant(408, "the file did not arrive in time", _CLOSE))
    app.add_exception_handler(OSError, _constant(503, "a file could not be read or written; try again", log=True))
    app.add_exception_handler(MemoryError, _constant(503, "not enough memory; try again", log=True))


def _constant(
    status: int, detail: str, headers: dict[str, str] | None = None, *, log: bool = False
) -> Callable[[Request, Exception], Awaitable[JSONResponse]]:
    async def respond(_: Request, error: Exception) -> JSONResponse:
        if log:
            _log.error("a request failed", exc_info=error)
        return JSONResponse({"detail": detail}, status, headers)

    return respond
