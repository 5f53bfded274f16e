"""A viewer of a tiny run: images with labels and masks, one slide."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient
from gland_slides import tissue_picture
from slide_files import write_slide

from histolumen.data.manifest import Manifest
from histolumen.view.app import create_app
from histolumen.view.items import Library, find_items
from histolumen.view.predictions import LoadedRun, load_runs
from histolumen.view.serve import server_config
from histolumen.view.settings import ViewSettings


@pytest.fixture(scope="session")
def runs(tiny_run: Path) -> list[LoadedRun]:
    """Two runs, which are the same model under two names."""
    copy = tiny_run.parent / "copy"
    if not copy.exists():
        shutil.copytree(tiny_run, copy)
    return load_runs([tiny_run, copy])


@pytest.fixture
def pictures(tmp_path: Path, tiny_manifest: Manifest) -> Path:
    """A folder of three images with masks and a manifest; the viewer may write to it."""
    folder = tmp_path / "pictures"
    rows = tiny_manifest.rows[:3]
    for row in rows:
        for name in (row.image, row.mask):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(tiny_manifest.root / name, folder / name)
    Manifest(rows, folder).write(folder / "manifest.csv")
    return folder


@pytest.fixture
def slides(tmp_path: Path) -> Path:
    """A folder with one slide."""
    folder = tmp_path / "slides"
    folder.mkdir()
    write_slide(folder / "glands.tif", tissue_picture(), mpp=0.5)
    return folder


@pytest.fixture
def make_app(pictures: Path, slides: Path, runs: list[LoadedRun]) -> Callable[..., FastAPI]:
    """Build the application with settings; by default with one run."""

    def make(with_runs: list[LoadedRun] | None = None, **settings: object) -> FastAPI:
        library = Library(find_items([pictures], [slides]))
        return create_app(ViewSettings(**settings), library, runs[:1] if with_runs is None else with_runs)

    return make


@pytest.fixture
def client(make_app: Callable[..., FastAPI]) -> Iterator[TestClient]:
    """Requests to the viewer, from this machine."""
    with TestClient(make_app(), base_url="http://127.0.0.1:8000") as client:
        yield client


@contextmanager
def running(app: FastAPI) -> Iterator[str]:
    """Serve an application from a thread; yields its address."""
    server = uvicorn.Server(server_config(app, app.state.viewer.settings.model_copy(update={"port": 0})))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)


@pytest.fixture
def serving() -> Callable[[FastAPI], AbstractContextManager[str]]:
    """A function that serves an application."""
    return running


@pytest.fixture
def address(make_app: Callable[..., FastAPI], runs: list[LoadedRun]) -> Iterator[str]:
    """The address of a running viewer with two runs."""
    with running(make_app(runs)) as found:
        yield found
