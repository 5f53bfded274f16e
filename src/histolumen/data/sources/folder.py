"""A user's own images: a folder per class, or a CSV with image and label."""

import re
from dataclasses import dataclass
from pathlib import Path

from histolumen.data.image import IMAGE_SUFFIXES
from histolumen.data.manifest import SPLITS, Manifest, Row, check_columns, first_repeated, read_csv
from histolumen.data.splitting import stratified_split
from histolumen.errors import DataError, nearest
from histolumen.settings import Settings

CORRECTED = "_corrected"
"""Ending of the masks that are corrected in the viewer."""
MASK_ENDINGS = ("_mask", "_anno", CORRECTED)
"""Endings of mask files, in order of preference."""
_SPLIT_NAMES = {"train": "train", "valid": "valid", "val": "valid", "validation": "valid", "test": "test"}
_CSV_COLUMNS = ("image", "label", "mask", "split", "patient")


class SplitPlan(Settings):
    """How images without a given split are divided."""

    valid: float = 0.15
    test: float = 0.20
    seed: int = 0


@dataclass(frozen=True)
class _Entry:
    image: str
    label: str
    split: str = ""
    mask: str = ""
    patient: str = ""


def manifest_from_folder(source: Path, plan: SplitPlan, patient_pattern: str | None = None) -> Manifest:
    """Read `CLASS/*.png` or `SPLIT/CLASS/*.png`.

    A file called `x_mask.*`, `x_anno.*` or `x_corrected.*` beside `x.*` is its mask, used for evaluation only.

    Args:
        source: the folder.
        plan: shares of the splits, unless the folder defines them.
        patient_pattern: regular expression, searched in the path, whose first group (...) is the patient.
    """
    if not source.is_dir():
        raise DataError(f"{source}: no such folder")
    expression = _compile(patient_pattern)
    entries: list[_Entry] = []
    files = image_files(source)
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
    return _to_manifest(entries, source, plan)


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
    labels, patients = [item.label for item in entries], [item.patient for item in entries]
    splits = given if all(given) else stratified_split(labels, patients, plan.valid, plan.test, plan.seed)
    rows = [
        Row(item.image, item.label, split, item.mask, item.patient)  # type: ignore[arg-type] # checked to be a Split
        for item, split in zip(entries, splits, strict=True)
    ]
    return Manifest(tuple(rows), source)


def image_files(folder: Path) -> list[Path]:
    """All image files below a folder, sorted; hidden files (`._x.png` from macOS) are skipped."""
    files = [path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()]
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts))


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
