"""Logs of a run: metrics.jsonl, TensorBoard events, env.json."""

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from histolumen.atomic import os_errors_as_disk_error
from histolumen.engine.checkpoint import write_text
from histolumen.engine.event_file import EventFile
from histolumen.export.files import parse_json

_PACKAGES = (
    "histolumen",
    "torch",
    "torchvision",
    "timm",
    "lightning-fabric",
    "monai",
    "numpy",
    "pillow",
    "safetensors",
)


class RunLog:
    """Writes one JSON object per epoch to metrics.jsonl, and the same values to TensorBoard."""

    def __init__(self, folder: Path, done_epochs: int):
        self.path = folder / "metrics.jsonl"
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in read_metrics(folder)[:done_epochs]))
        self.board = EventFile(folder, done_epochs + 1)

    def write(self, record: dict[str, Any]) -> None:
        """Append one epoch."""
        with os_errors_as_disk_error(self.path), self.path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(record) + "\n")
            handle.flush()
            os.fsync(handle.fileno())
        scalars = {
            f"{name}/{key}" if key else name: scalar
            for name, value in record.items()
            for key, scalar in (value.items() if isinstance(value, dict) else [("", value)])
        }
        self.board.write(scalars, record["epoch"])


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The records of the finished epochs, up to the first line that is incomplete or damaged."""
    path = folder / "metrics.jsonl"
    records = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            record = parse_json(line)
        except ValueError:
            break
        if not isinstance(record, dict):
            break
        records.append(record)
    return records


def environment() -> dict[str, Any]:
    """Versions and hardware, for env.json."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version(name) for name in _PACKAGES},
        "torch_build": torch.__version__,
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "cpu_threads": torch.get_num_threads(),
    }
