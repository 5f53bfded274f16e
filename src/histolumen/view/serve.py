"""Run the viewer's server."""

import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from histolumen.errors import ConfigError
from histolumen.extras import require
from histolumen.view.items import MANIFEST, Library, find_items
from histolumen.view.logs import configure_logs
from histolumen.view.settings import ViewSettings

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

_SHUTDOWN_SECONDS = 5  # for responses that are being computed; then they are cancelled


def serve(
    runs: list[Path],
    images: list[Path],
    slides: list[Path],
    settings: ViewSettings,
    *,
    browser: bool,
    say: Callable[[str], None],
) -> None:
    """Serve until interrupted.

    Args:
        runs: run folders; the images of the first one are shown if no others are given.
        images: folders of images, or manifests.
        slides: slides, or folders of them.
        settings: address and limits.
        browser: whether to open a browser.
        say: receives the lines that tell the user what is shown and where.
    """
    require("view", "fastapi", "uvicorn")
    if slides:
        require("slides", "openslide")
    import uvicorn  # noqa: PLC0415 - an extra

    from histolumen.view.app import create_app  # noqa: PLC0415 - needs the extra
    from histolumen.view.predictions import load_runs  # noqa: PLC0415

    if not settings.is_local and not settings.token:
        settings = settings.model_copy(update={"token": secrets.token_urlsafe(24)})
    if not images and not slides:
        images = [folder / MANIFEST for folder in runs[:1] if (folder / MANIFEST).is_file()]
    library = Library(find_items(images, slides))
    for folder in runs:
        say(f"loading {folder}")
    loaded = load_runs(runs)
    kinds = [item.kind for item in library.all()]
    counts = {"image": kinds.count("image"), "slide": kinds.count("slide"), "run": len(loaded)}
    say(", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items()))
    if not loaded:
        say("no run given: images are shown without predictions (histolumen view RUN --images FOLDER)")
    if not kinds:
        say("no images given: drop one onto the page, or start with --images FOLDER")
    listener = _listen(settings)
    address = _address(settings, listener.getsockname()[1])
    say(f"open {address}    (Ctrl-C ends the viewer)")
    if browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    configure_logs(verbose=settings.verbose)
    config = server_config(create_app(settings, library, loaded), settings)
    with suppress(KeyboardInterrupt):  # the server has closed everything when it passes Ctrl-C on
        uvicorn.Server(config).run(sockets=[listener])


def server_config(app: "FastAPI", settings: ViewSettings) -> "uvicorn.Config":
    """The server with its limits; it logs through the process's own log."""
    import uvicorn  # noqa: PLC0415 - an extra

    from histolumen.view.connection import bounded_protocol  # noqa: PLC0415 - needs the extra

    return uvicorn.Config(
        app,
        port=settings.port,
        http=bounded_protocol(settings.limits),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=settings.verbose,
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )


def _listen(settings: ViewSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen()  # a browser that is opened at once waits instead of failing
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"--host {settings.host} --port {settings.port}: cannot listen there ({error.strerror}); "
            "choose another --port, or --port 0 for any free one"
        ) from error
    return listener


def _address(settings: ViewSettings, port: int) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    if settings.host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        host = socket.gethostname()
    return f"http://{host}:{port}/" + (f"?token={settings.token}" if settings.token else "")
