"""Predictions of an earlier call in the same folder: kept if made with the same model and settings, else refused."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Any

from histolumen.errors import RunError
from histolumen.export.files import read_json, save_json, save_table, to_json

_TABLE, _STATE = "predictions.csv", "predictions.json"
KINDS = ("soft_mask", "mask", "overlay", "heatmap", "geojson")
"""Columns of a record that name output files."""
_RESULTS = (_TABLE, _STATE, "masks", "soft_masks", "overlays", "heatmaps", "geojson")  # what a used folder has


@dataclass(frozen=True)
class Source:
    """The image file that a prediction was made from, and the name of its output files without suffix."""

    path: str
    bytes: int
    modified_ns: int
    name: str

    @classmethod
    def of(cls, path: Path, name: str) -> "Source":
        """Describe a file as it is now."""
        status = path.stat()
        return cls(_key(path), status.st_size, status.st_mtime_ns, name)


class Ledger:
    """The predictions in a folder, one record per image, with the model and settings that made all of them."""

    def __init__(self, out: Path, made_with: dict[str, Any]):
        self.out, self.made_with = out, made_with
        self._done: dict[str, tuple[Source, dict[str, Any]]] = {}
        if any((out / name).exists() for name in _RESULTS):
            self._read()
        self._names = {source.name for source, _ in self._done.values()}

    def _read(self) -> None:
        try:
            content = read_json(self.out / _STATE)
            different = {key: content[key] for key in self.made_with if content[key] != self.made_with[key]}
            pairs = zip(content["sources"], content["images"], strict=True)
            self._done = {entry["path"]: _checked(Source(**entry), record) for entry, record in pairs}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            different = {"version": None}
        if different:
            raise RunError(
                f"{self.out}: holds predictions of {self._describe(different)}; choose another --out, or remove the "
                "folder"
            )

    def _describe(self, different: dict[str, Any]) -> str:
        settings = [key for key in different if key not in {"model", "version"}]
        if "model" in different or not settings:
            return "another model, other settings or an earlier version"
        values = [f"{key} {to_json(different[key])}, not {to_json(self.made_with[key])}" for key in settings]
        return f"the same model with {' and '.join(values)}"

    @property
    def records(self) -> list[dict[str, Any]]:
        """All records, sorted by image."""
        return [record for _, record in sorted(self._done.values(), key=lambda pair: pair[1]["image"])]

    def current(self, path: Path, kinds: tuple[str, ...]) -> dict[str, Any] | None:
        """The record of an image that was predicted before and has not changed since, if its files exist.

        Args:
            path: image file.
            kinds: columns of the record that name its output files.
        """
        source, record = self._done.get(_key(path), (None, {}))
        try:
            unchanged = source is not None and Source.of(path, source.name) == source
        except OSError:
            return None
        complete = all(kind in record and (self.out / record[kind]).is_file() for kind in kinds)
        return record if unchanged and complete else None

    def earlier_kinds(self, path: Path) -> frozenset[str]:
        """Kinds of output files that the image has from earlier calls; a new record must replace all of them."""
        _, record = self._done.get(_key(path), (None, {}))
        return frozenset(KINDS) & record.keys()

    def name_for(self, path: Path, name: str) -> str:
        """A name for the output files: the image's own from before, or `name`, changed if another image has it.

        No other image gets this name from then on.
        """
        if (before := self._done.get(_key(path))) is not None:
            return before[0].name
        number, free = 2, name
        while free in self._names:
            number, free = number + 1, f"{name}_{number}"
        self._names.add(free)
        return free

    def add(self, source: Source, record: dict[str, Any]) -> None:
        """Add or replace the record of an image."""
        self._done[source.path] = (source, record)
        self._names.add(source.name)

    def save(self, failures: list[str]) -> None:
        """Write the table and its JSON twin."""
        records = self.records
        sources = {record["image"]: asdict(source) for source, record in self._done.values()}
        if records:
            save_table(records, self.out / _TABLE)
        content = {"images": records, "failures": failures, "sources": [sources[record["image"]] for record in records]}
        save_json({**self.made_with, **content}, self.out / _STATE)


def _checked(source: Source, record: dict[str, Any]) -> tuple[Source, dict[str, Any]]:
    """Refuse what this version never writes; a name that leaves the folder would write anywhere."""
    numbers, texts = (source.bytes, source.modified_ns), (source.path, source.name, record["image"])
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(number, int) for number in numbers):
        raise TypeError("fields of other types")
    for name in (source.name, *(record[kind] for kind in KINDS if kind in record)):
        if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
            raise ValueError(f"{name} lies outside the folder")
    return source, record


def _key(path: Path) -> str:
    """The same for all ways to write the path of a file."""
    return os.path.abspath(path)  # noqa: PTH100 - `resolve` would follow links, which may have several names
