"""Names of files and labels identify patients: they are not in the log."""

import logging
import re
import warnings

import pytest
from fastapi.testclient import TestClient

from histolumen.view import logs

SECRET = "Jane-Doe-1950"


@pytest.fixture
def written(capsys):
    """A function that returns what was written to stderr; the loggers are as before afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield lambda: capsys.readouterr().err
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def fail(name=SECRET):
    raise FileNotFoundError(f"no such file: {name}")


def write_everything():
    warnings.warn(f"{SECRET}.tif: 12 bits in a 16-bit file", UserWarning, stacklevel=1)
    logging.getLogger("tifffile").error("<TiffFile '%s'> is damaged", SECRET)
    logging.getLogger("asyncio").error(f"never retrieved: {SECRET}")
    try:
        fail()
    except FileNotFoundError:
        logging.getLogger("histolumen.view.shield").exception("a request failed")
        logging.getLogger("uvicorn.error").error("Exception in ASGI application\n", exc_info=True)


def test_the_log_says_what_and_where_but_no_names(written):
    logs.configure_logs(verbose=False)
    write_everything()
    text = written()
    assert SECRET not in text
    assert re.search(r"error: a request failed \(FileNotFoundError at test_logs.py:\d+\)", text)
    assert "tifffile at test_logs.py" in text
    assert text.count("\n") == 5


def test_the_verbose_log_has_everything(written):
    logs.configure_logs(verbose=True)
    write_everything()
    assert written().count(SECRET) >= 5


def test_a_line_that_repeats_is_written_once_a_minute(written):
    logs.configure_logs(verbose=False)
    for _ in range(1000):
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    assert written().count("Invalid") == 1


def test_an_unforeseen_error_gets_an_answer_without_its_text(make_app, written, monkeypatch):
    logs.configure_logs(verbose=False)
    app = make_app()
    monkeypatch.setattr(app.state.viewer.predictor, "counts", lambda: {}["x"])
    with TestClient(app, base_url="http://localhost") as client:
        response = client.get("/api/items")
    assert response.status_code == 500
    assert response.headers["Content-Security-Policy"]
    assert "error of the viewer" in response.json()["detail"]
    assert "a request failed (KeyError at test_logs.py" in written()


@pytest.mark.parametrize("error", [PermissionError(13, "denied", SECRET), MemoryError(SECRET)])
def test_errors_of_the_system_are_503_without_names(make_app, written, monkeypatch, error):
    logs.configure_logs(verbose=False)
    app = make_app()

    def broken():
        raise error

    monkeypatch.setattr(app.state.viewer.predictor, "counts", broken)
    with TestClient(app, base_url="http://localhost") as client:
        response = client.get("/api/items")
    assert response.status_code == 503
    assert SECRET not in response.text + written()
