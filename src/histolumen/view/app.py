"""The web application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI

from histolumen import __version__
from histolumen.errors import ConfigError
from histolumen.view import pages, problems, routes_items, routes_predictions
from histolumen.view.items import Library
from histolumen.view.predictions import LoadedRun
from histolumen.view.rates import RateLimit
from histolumen.view.security import Guard
from histolumen.view.server import Viewer
from histolumen.view.settings import ViewSettings
from histolumen.view.shield import Shield

_THREADS = 8  # requests that read, decode or draw at once: each may need the memory of an image


def create_app(settings: ViewSettings, library: Library, runs: list[LoadedRun]) -> FastAPI:
    """The viewer as an ASGI application.

    Args:
        settings: address and limits.
        library: the images and slides to show.
        runs: the models; without any, images are shown without predictions.
    """
    if not settings.is_local and not settings.token:
        raise ConfigError(f"--host {settings.host}: others could connect; give a --token")
    viewer = Viewer.of(settings, library, runs)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = _THREADS
        viewer.uploads.open()
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
    app.add_middleware(RateLimit, limits=settings.limits)
    app.add_middleware(Shield)  # the last one is the outermost
    for part in (pages, routes_items, routes_predictions):
        app.include_router(part.router)
    problems.add_handlers(app, settings)
    return app
