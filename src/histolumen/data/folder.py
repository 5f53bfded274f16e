"""A user's own images: a folder per class, or a CSV that names image and label."""

import re
from dataclasses import dataclass
from pathlib import Path

from histolumen.data.image import IMAGE_SUFFIXES
from histolumen.data.manifest import SPLITS, Manifest, Row, check_columns, first_repeated, read_csv
from histolumen.data.splitting import stratified_split
from histolumen.errors import DataError, nearest

MASK_ENDINGS = ("_mask", "_anno")
_SPLIT_NAMES = {"train": "train", "valid": "valid", "val": "valid", "validation": "valid", "test": "test"}
_CSV_COLUMNS = ("image", "label", "mask", "split", "group")


@dataclass(frozen=True)
class SplitPlan:
    """How images without a split of their own are divided."""

    valid: float = 0.15
    test: float = 0.20
    seed: int = 0


@dataclass(frozen=True)
class _Found:
    image: str
    label: str
    split: str = ""
    mask: str = ""
    group: str = ""


def manifest_from_folder(source: Path, plan: SplitPlan, group_pattern: str | None = None) -> Manifest:
    """Read `CLASS/*.png` or `SPLIT/CLASS/*.png`.

    A file called `x_mask.*` or `x_anno.*` beside `x.*` is its mask, used for evaluation only.

    Args:
        source: the folder.
        plan: shares of the splits, where the folder does not say.
        group_pattern: regular expression whose first group, searched in the path, is the patient.
    """
    if not source.is_dir():
        raise DataError(f"{source}: no such folder")
    expression = _compiled(group_pattern)
    found: list[_Found] = []
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
                f"{path}: lies in no class folder; put images into {source}/CLASS/ or {source}/SPLIT/CLASS/, "
                "or give a table with --labels"
            )
        group = _group(expression, relative.as_posix())
        mask = next(
            (masks[key] for ending in MASK_ENDINGS if (key := path.with_name(path.stem + ending)) in masks), None
        )
        mask_name = mask.relative_to(source).as_posix() if mask else ""
        found.append(_Found(relative.as_posix(), inner[0], split, mask_name, group))
    if not found:
        raise DataError(f"{source}: no images in class folders ({', '.join(sorted(IMAGE_SUFFIXES))})")
    return _complete(found, source, plan)


def manifest_from_table(source: Path, table: Path, plan: SplitPlan) -> Manifest:
    """Read a CSV with the columns image and label, and mask, split, group where the user has them."""
    header, records = read_csv(table)
    check_columns(table, header, known=_CSV_COLUMNS, needed=("image", "label"))
    found = []
    for number, record in records.items():
        split = record.get("split", "").lower()
        if split and split not in _SPLIT_NAMES:
            raise DataError(f"{table}, line {number}: unknown split '{split}'; {nearest(split, SPLITS)}")
        if not record["image"] or not record["label"]:
            raise DataError(f"{table}, line {number}: image and label must both be given")
        mask, group = record.get("mask", ""), record.get("group", "")
        found.append(_Found(record["image"], record["label"], _SPLIT_NAMES.get(split, ""), mask, group))
    if not found:
        raise DataError(f"{table}: lists no image")
    repeated = first_repeated(item.image for item in found)
    if repeated:
        raise DataError(f"{table}: lists {repeated} twice; an image has one label")
    missing = [item.image for item in found if not (source / item.image).is_file()]
    if missing:
        raise DataError(
            f"{table}: {len(missing)} of {len(found)} images are not in {source} (first: {missing[0]}); "
            "paths in the table are relative to that folder"
        )
    return _complete(found, source, plan)


def _complete(found: list[_Found], source: Path, plan: SplitPlan) -> Manifest:
    """Give every image a split; those without one are divided by `plan`."""
    given = [item.split for item in found]
    if any(given) and not all(given):
        raise DataError(f"{source}: only some images have a split; give all of them one, or none")
    labels, groups = [item.label for item in found], [item.group for item in found]
    splits = given if all(given) else stratified_split(labels, groups, plan.valid, plan.test, plan.seed)
    rows = [
        Row(item.image, item.label, split, item.mask, item.group)  # type: ignore[arg-type] # checked to be a Split
        for item, split in zip(found, splits, strict=True)
    ]
    return Manifest(tuple(rows), source)


def image_files(folder: Path) -> list[Path]:
    """All image files below a folder, sorted; hidden ones (`._x.png` of a Mac) are no images."""
    files = [path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()]
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def is_mask(path: Path) -> bool:
    """Whether a file is, by its name, the mask of another."""
    return path.stem.endswith(MASK_ENDINGS)


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    if pattern is None:
        return None
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise DataError(f"group pattern '{pattern}' is not a regular expression: {error}") from error
    if expression.groups < 1:
        raise DataError(f"group pattern '{pattern}' has no (...) around the part that names the patient")
    return expression


def _group(expression: re.Pattern[str] | None, path: str) -> str:
    if expression is None:
        return ""
    match = expression.search(path)
    if match is None:
        raise DataError(f"{path}: the group pattern '{expression.pattern}' does not occur in it")
    return match.group(1) or ""
