"""A viewer in a process of its own, for measurements and soaks."""

import http.client
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from PIL import Image

from histolumen.config import load_config
from histolumen.data.sources.synthetic_image import Kind, make_sample
from histolumen.encoders.backbone import build_backbone
from histolumen.engine.checkpoint import ModelCard, save_model
from histolumen.methods.base import build_method

CLASSES: tuple[Kind, ...] = ("benign", "malignant")


def make_model(folder: Path) -> Path:
    """The network of the demo, untrained: its predictions do not matter here."""
    config = load_config("demo")
    torch.manual_seed(0)
    method = build_method(config.method, build_backbone(config.backbone), len(CLASSES))
    save_model(folder, method, ModelCard(config, list(CLASSES), 0, {}))
    return folder


def make_images(folder: Path, count: int, side: int) -> list[Path]:
    """Synthetic glands."""
    folder.mkdir()
    paths = [folder / f"{number:03}.png" for number in range(count)]
    for number, path in enumerate(paths):
        Image.fromarray(make_sample(CLASSES[number % 2], side, number).image).save(path)
    return paths


@contextmanager
def server(
    run: Path, images: Path, log: IO[str] | None = None, environment: dict[str, str] | None = None
) -> Iterator[tuple[int, int]]:
    """A viewer in its own process; yields its port and process id."""
    command = ["-m", "histolumen", "view", str(run), "--images", str(images), "--port", "0", "--no-browser"]
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=log, text=True, env=environment
    )
    try:
        for line in process.stdout or ():
            if found := re.match(r"open http://127\.0\.0\.1:(\d+)/", line):
                yield int(found[1]), process.pid
                break
        else:
            raise SystemExit("the viewer did not start")
    finally:
        process.terminate()
        process.wait()


def ask(port: int, method: str, path: str, body: bytes | None = None, client: str = "127.0.0.1") -> tuple[int, bytes]:
    """One request from an address of this machine (Linux has a whole network of them: 127.0.0.0/8)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120, source_address=(client, 0))
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def items_of(port: int) -> dict[str, Any]:
    """The list of items."""
    return json.loads(ask(port, "GET", "/api/items")[1])


def megabytes_of(pid: int) -> float:
    """Resident memory of a process in megabytes."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
