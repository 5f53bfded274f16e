"""`histolumen view` as a process."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from PIL import Image

from commands import histolumen
from histolumen.errors import ConfigError

PATIENT = "Jane-Doe-1950"


def test_the_command_serves_until_interrupted_and_asks_others_for_a_token(pictures):
    command = ["histolumen", "view", "--images", str(pictures), "--port", "0", "--no-browser", "--host", "0.0.0.0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-m", *command], env=os.environ, **pipes)
    try:
        lines = []
        while not lines or not lines[-1].startswith("open "):
            lines.append(process.stdout.readline())
            assert lines[-1], process.stderr.read()
        assert "3 images, 0 slides, 0 runs" in lines[0]
        assert "histolumen view RUN" in lines[1]
        port, token = re.search(r":(\d+)/\?token=([\w-]{20,})", lines[-1]).groups()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/api/items")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request, timeout=20)
        request.add_header("Authorization", f"Bearer {token}")
        assert b"images/" in urllib.request.urlopen(request, timeout=20).read()
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert err == ""


def test_a_used_port_is_an_error_with_advice(pictures):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = histolumen("view", "--images", pictures, "--no-browser", "--port", taken.getsockname()[1])
    assert result.returncode == 2
    assert "choose another --port" in result.stderr


def test_a_missing_extra_gives_the_install_command(monkeypatch, pictures):
    from histolumen.view import serve

    def missing(extra, *modules):
        raise ConfigError(f"run: pip install '.[{extra}]'")

    monkeypatch.setattr(serve, "require", missing)
    result = histolumen("view", "--images", pictures, "--no-browser")
    assert result.returncode == 2
    assert "[view]" in result.stderr


def test_the_images_of_the_run_are_shown_by_default(tiny_run, tmp_path, monkeypatch):
    import uvicorn

    from histolumen.view import serve

    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: [each.close() for each in sockets])
    monkeypatch.setattr(serve, "configure_logs", lambda verbose: None)  # it is for a process of its own
    result = histolumen("view", tiny_run, "--no-browser", "--port", "0")
    assert result.returncode == 0, result.stderr
    assert "12 images, 0 slides, 1 run\n" in result.stdout
    assert re.search(r"open http://127\.0\.0\.1:\d+/ ", result.stdout)  # without a token


def test_a_running_viewer_logs_no_names(pictures, tiny_run):
    """Broken files, refused and failing requests: nothing of it names the patient."""
    named = pictures / "images" / f"{PATIENT}.png"
    named.write_bytes(b"no image")
    Image.new("RGB", (64, 64)).save(pictures / "images" / f"{PATIENT}-blank.png")
    (pictures / "manifest.csv").unlink()
    command = ["histolumen", "view", str(tiny_run), "--images", str(pictures), "--port", "0", "--no-browser"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-m", *command], env=os.environ, **pipes)
    try:
        out = ""
        while "open " not in out:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            out += line
        address = re.search(r"http://[\d.]+:\d+", out)[0]
        listing = urllib.request.urlopen(f"{address}/api/items", timeout=60).read().decode()
        identifiers = re.findall(rf'"id":"(\w+)","kind":"image","name":"[^"]*{PATIENT}', listing)
        assert len(identifiers) == 2
        paths = [f"/api/items/{each}{end}" for each in identifiers for end in ("", "/thumbnail.jpg", "/predictions/0")]
        for path in [*paths, f"/static/{PATIENT}", f"/api/uploads?name={PATIENT}", "/api/predict"]:
            body = b"no image" if path.endswith("/0") or "upload" in path or "predict" in path else None
            for data in (body, None):
                try:
                    urllib.request.urlopen(urllib.request.Request(f"{address}{path}", data=data), timeout=60).read()
                except urllib.error.HTTPError as error:
                    assert error.code < 500 or error.code == 503
    finally:
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=60)
    assert PATIENT not in out + rest + err
    assert process.returncode == 0
