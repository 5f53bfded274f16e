"""A user's own images: a folder per class, or a CSV with image and label."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from histolumen.data.image import IMAGE_SUFFIXES
from histolumen.data.manifest import (
    SPLITS,
    Manifest,
    Row,
    check_columns,
    describe_shared,
    first_repeated,
    read_csv,
)
from histolumen.data.names import check_labels, check_texts
from histolumen.data.search import Search, search_images
from histolumen.data.splitting import stratified_split
from histolumen.errors import DataError, nearest
from histolumen.progress import SILENT, Progress
from histolumen.settings import Settings

CORRECTED = "_corrected"
"""Ending of the masks that are corrected in the viewer."""
MASK_ENDINGS = ("_mask", "_anno", CORRECTED)
"""Endings of mask files, in order of preference."""
_SPLIT_NAMES = {"train": "train", "valid": "valid", "val": "valid", "validation": "valid", "test": "test"}
_CSV_COLUMNS = ("image", "label", "mask", "split", "patient")


class SplitPlan(Settings):
    """How images without a given split are divided."""

    valid: float = Field(default=0.15, ge=0, lt=1)
    test: float = Field(default=0.20, ge=0, lt=1)
    seed: int = Field(default=0, ge=0)


@dataclass(frozen=True)
class _Entry:
    image: str
    label: str
    split: str = ""
    mask: str = ""
    patient: str = ""


def manifest_from_folder(
    source: Path, plan: SplitPlan, patient_pattern: str | None = None, progress: Progress = SILENT
) -> Manifest:
    """Read `CLASS/*.png` or `SPLIT/CLASS/*.png`.

    A file called `x_mask.*`, `x_anno.*` or `x_corrected.*` beside `x.*` is its mask, used for evaluation only.

    Args:
        source: the folder.
        plan: shares of the splits, unless the folder defines them.
        patient_pattern: regular expression, searched in the path, whose first group (...) is the patient.
        progress: receives a message for each file or subfolder that cannot be read.
    """
    if not source.is_dir():
        raise DataError(f"{source}: no such folder")
    expression = _compile(patient_pattern)
    entries: list[_Entry] = []
    search = search_images(source)
    files = search.images
    masks = {path.with_suffix(""): path for path in files if is_mask(path)}
    for path in files:
        if is_mask(path):
            continue
        relative = path.relative_to(source)
        *above, _ = relative.parts
        split = _SPLIT_NAMES.get(above[0].lower(), "") if above else ""
        inner = above[1:] if split else above
        if not inner:
            raise DataError(
                f"{path}: is not in a class folder; put images into {source}/CLASS/ or {source}/SPLIT/CLASS/, "
                "or give a table with --labels"
            )
        patient = _patient(expression, relative.as_posix())
        mask = next(
            (masks[key] for ending in MASK_ENDINGS if (key := path.with_name(path.stem + ending)) in masks), None
        )
        mask_name = mask.relative_to(source).as_posix() if mask else ""
        entries.append(_Entry(relative.as_posix(), inner[0], split, mask_name, patient))
    if not entries:
        raise DataError(f"{source}: no images in class folders ({', '.join(sorted(IMAGE_SUFFIXES))})")
    _refuse_empty_classes(source, entries, search)
    for path, reason in search.left_out:
        progress.message(f"left out: {path}: {reason}")
    return _to_manifest(entries, source, plan)


def _refuse_empty_classes(source: Path, entries: list[_Entry], search: Search) -> None:
    """Raise an error for a class folder without images: the class would be missing from the data set."""
    filled = {source / Path(*Path(item.image).parts[: 2 if item.split else 1]) for item in entries}
    for folder in _class_folders(source):
        if folder in filled:
            continue
        unread = next((f"{path}: {reason}" for path, reason in search.left_out if path.is_relative_to(folder)), None)
        if unread:
            raise DataError(f"{unread}, and class '{folder.name}' has no image without it")
        raise DataError(
            f"{folder}: this class folder has no image ({', '.join(sorted(IMAGE_SUFFIXES))}); "
            "add its images, or move the folder away if it is no class"
        )


def _class_folders(source: Path) -> Iterator[Path]:
    """The folders of classes: those in `source`, or in its folders of splits."""
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        if entry.name.startswith(".") or not entry.is_dir():
            continue
        if entry.name.lower() in _SPLIT_NAMES:
            yield from (
                Path(inner.path) for inner in os.scandir(entry) if inner.is_dir() and not inner.name.startswith(".")
            )
        else:
            yield Path(entry.path)


def manifest_from_table(source: Path, table: Path, plan: SplitPlan) -> Manifest:
    """Read a CSV with the columns image and label and, optionally, mask, split and patient."""
    header, records = read_csv(table)
    check_columns(table, header, known=_CSV_COLUMNS, needed=("image", "label"))
    entries = []
    for number, record in records.items():
        split = record.get("split", "").lower()
        if split and split not in _SPLIT_NAMES:
            raise DataError(f"{table}, line {number}: unknown split '{split}'; {nearest(split, SPLITS)}")
        if not record["image"] or not record["label"]:
            raise DataError(f"{table}, line {number}: image and label must both be given")
        mask, patient = record.get("mask", ""), record.get("patient", "")
        entries.append(_Entry(record["image"], record["label"], _SPLIT_NAMES.get(split, ""), mask, patient))
    if not entries:
        raise DataError(f"{table}: lists no image")
    repeated = first_repeated(item.image for item in entries)
    if repeated:
        raise DataError(f"{table}: lists {repeated} twice; an image has one label")
    missing = [item.image for item in entries if not (source / item.image).is_file()]
    if missing:
        raise DataError(
            f"{table}: {len(missing)} of {len(entries)} images are not in {source} (first: {missing[0]}); "
            "paths in the table are relative to that folder"
        )
    return _to_manifest(entries, source, plan)


def _to_manifest(entries: list[_Entry], source: Path, plan: SplitPlan) -> Manifest:
    """Build the manifest; images without a split are divided by `plan`."""
    given = [item.split for item in entries]
    if any(given) and not all(given):
        raise DataError(f"{source}: only some images have a split; give all of them one, or none")
    check_labels(source, (item.label for item in entries))
    check_texts(source, "patient", (item.patient for item in entries))
    labels, patients = [item.label for item in entries], [item.patient for item in entries]
    splits = given if all(given) else stratified_split(labels, patients, plan.valid, plan.test, plan.seed)
    rows = [
        Row(item.image, item.label, split, item.mask, item.patient)  # type: ignore[arg-type] # checked to be a Split
        for item, split in zip(entries, splits, strict=True)
    ]
    manifest = Manifest(tuple(rows), source)
    if manifest.shared_patients:
        raise DataError(
            f"{source}: {describe_shared(manifest.shared_patients)}; give all images of a patient the same split"
        )
    return manifest


def is_mask(path: Path) -> bool:
    """Whether the name of a file marks it as a mask."""
    return path.stem.endswith(MASK_ENDINGS)


def _compile(pattern: str | None) -> re.Pattern[str] | None:
    if pattern is None:
        return None
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise DataError(f"patient pattern '{pattern}' is not a regular expression: {error}") from error
    if expression.groups < 1:
        raise DataError(
            f"patient pattern '{pattern}' has no group (...); put one around the part that names the patient"
        )
    return expression


def _patient(expression: re.Pattern[str] | None, path: str) -> str:
    if expression is None:
        return ""
    match = expression.search(path)
    if match is None:
        raise DataError(f"{path}: does not match the patient pattern '{expression.pattern}'")
    return match.group(1) or ""
