"""What a command has written: whether all of it is readable, and what it says apart from times."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import safetensors.torch
import yaml
from PIL import Image

from histolumen.atomic import finish_swap
from histolumen.engine.checkpoint import load_model, load_state
from histolumen.engine.runlog import read_metrics

_TIMES = {"seconds", "min/run", "since", "started"}
_WITH_TIMES = {".html", ".tex", ".txt"}  # the table of table.csv once more
_SKIPPED = ("events.out.tfevents", "env.json")


def files(folder: Path) -> Iterator[Path]:
    """All files without those that are being written, which have hidden names."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def unfinished(folder: Path) -> list[str]:
    """Hidden files and folders, which a command that has ended must not leave; the empty folder of locks may stay."""
    left = [path for path in folder.rglob(".*") if path.name != ".locks" or any(path.iterdir())]
    return sorted(path.relative_to(folder).as_posix() for path in left)


def read_everything(folder: Path, known: set[Path]) -> None:
    """Read every file as its readers do; raises if one is incomplete or if a model has vanished.

    Args:
        folder: a copy of the output folder of a killed command.
        known: models that existed at an earlier moment, relative to the folder; new ones are added.
    """
    for name in ("last", "best"):
        for parent in {path.parent for path in folder.rglob(f"*{name}*")} | {folder}:
            finish_swap(parent / name)
    models = {path.parent.relative_to(folder) for path in folder.rglob("model.json")}
    models = {model for model in models if not any(part.startswith(".") for part in model.parts)}
    if missing := known - models:
        raise AssertionError(f"models that existed before are gone: {sorted(map(str, missing))}")
    known |= models
    for model in models:
        load_model(folder / model)
        if model.name == "last":
            load_state(folder / model)
    for path in files(folder):
        _read(path)


def _read(path: Path) -> None:
    if path.suffix == ".json" or path.suffix == ".geojson":
        json.loads(path.read_text())
    elif path.suffix == ".csv":
        lengths = {len(row) for row in csv.reader(io.StringIO(path.read_text()))}
        assert len(lengths) == 1, f"{path}: rows of different lengths"
    elif path.suffix == ".yaml":
        yaml.safe_load(path.read_text())
    elif path.suffix == ".safetensors":
        safetensors.torch.load_file(path)
    elif path.suffix in {".png", ".tif"}:
        with Image.open(path) as image:
            image.load()
    elif path.name == "metrics.jsonl":
        read_metrics(path.parent)


def outcome(folder: Path) -> dict[str, Any]:
    """Content of every file by its name, without times and without the place of the folder."""
    return {
        path.relative_to(folder).as_posix(): _content(path, folder)
        for path in files(folder)
        if not path.name.startswith(_SKIPPED)
    }


def _content(path: Path, folder: Path) -> Any:
    if path.name == "report.html" or (path.suffix in _WITH_TIMES and path.with_suffix(".csv").exists()):
        return None  # with times
    data = path.read_bytes().replace(str(folder).encode(), b"OUT")
    if path.suffix == ".json":
        return _without_times(json.loads(data))
    if path.suffix == ".jsonl":
        return [_without_times(json.loads(line)) for line in data.splitlines()]
    if path.suffix == ".csv":
        return [_without_times(row) for row in csv.DictReader(io.StringIO(data.decode()))]
    return data


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(each) for key, each in value.items() if key not in _TIMES}
    return [_without_times(each) for each in value] if isinstance(value, list) else value
