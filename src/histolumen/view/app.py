"""The web application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

from histolumen import __version__
from histolumen.errors import DiskError, HistolumenError
from histolumen.view import pages, routes_items, routes_predictions
from histolumen.view.items import Library
from histolumen.view.predictions import LoadedRun
from histolumen.view.security import Guard
from histolumen.view.server import Viewer
from histolumen.view.settings import ViewSettings
from histolumen.view.uploads import BodyTooLargeError
from histolumen.view.worker import QueueFullError


def create_app(settings: ViewSettings, library: Library, runs: list[LoadedRun]) -> FastAPI:
    """The viewer as an ASGI application.

    Args:
        settings: address and limits.
        library: the images and slides to show.
        runs: the models; without any, images are shown without predictions.
    """
    viewer = Viewer.of(settings, library, runs)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        viewer.predictor.worker.start()
        try:
            yield
        finally:
            viewer.predictor.worker.stop()
            viewer.uploads.close()

    app = FastAPI(
        title="histolumen viewer",
        version=__version__,
        description="Predictions, masks and tiles of histology images. For research; not a medical device.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.viewer = viewer
    app.add_middleware(Guard, settings=settings)
    for part in (pages, routes_items, routes_predictions):
        app.include_router(part.router)
    _add_errors(app, settings)
    return app


def _add_errors(app: FastAPI, settings: ViewSettings) -> None:
    @app.exception_handler(QueueFullError)
    async def full(_: Request, error: QueueFullError) -> JSONResponse:
        detail = "too many predictions are waiting; try again soon"
        return JSONResponse({"detail": detail}, 503, {"Retry-After": str(error.retry_after)})

    @app.exception_handler(BodyTooLargeError)
    async def too_large(_: Request, __: BodyTooLargeError) -> JSONResponse:
        detail = f"the file is larger than {settings.upload_bytes // 1_000_000} MB; cut it into tiles, or start the "
        return JSONResponse({"detail": detail + "viewer with --images on its folder"}, 413, {"Connection": "close"})

    @app.exception_handler(ClientDisconnect)
    async def gone(_: Request, __: ClientDisconnect) -> JSONResponse:
        return JSONResponse({"detail": "the connection was closed before the file had arrived"}, 400)

    @app.exception_handler(TimeoutError)
    async def too_slow(_: Request, __: TimeoutError) -> JSONResponse:
        return JSONResponse({"detail": "the file did not arrive in time"}, 408)

    @app.exception_handler(DiskError)
    async def disk(_: Request, error: DiskError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 507)

    @app.exception_handler(HistolumenError)
    async def user_error(_: Request, error: HistolumenError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 422)
