"""The manifest: a table of image, label, mask, split and patient that every data source produces."""

import csv
import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from histolumen.atomic import new_file
from histolumen.data.names import check_labels, check_texts
from histolumen.errors import DataError, nearest

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
_COLUMNS = ("image", "label", "mask", "split", "patient")
_FORMER_NAMES = {"group": "patient"}  # column names of earlier versions
_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs"}  # of spreadsheets in other languages
_ROOT = "root"  # column of manifests that are not in the folder of their images


@dataclass(frozen=True)
class Row:
    """One image. Paths are relative to the manifest's root; `mask` and `patient` may be empty."""

    image: str
    label: str
    split: Split
    mask: str = ""
    patient: str = ""


@dataclass(frozen=True, repr=False)
class Manifest:
    """Rows, and the folder that their paths are relative to."""

    rows: tuple[Row, ...]
    root: Path

    @property
    def classes(self) -> list[str]:
        """Label names in the order of their class indices."""
        return sorted({row.label for row in self.rows})

    def split(self, name: str) -> "Manifest":
        """The rows of one split."""
        if name not in SPLITS:
            raise DataError(f"unknown split '{name}'; {nearest(name, SPLITS)}")
        return replace(self, rows=tuple(row for row in self.rows if row.split == name))

    def image_paths(self, split: str | None = None) -> list[Path]:
        """Paths of the images of a split, or of all images."""
        return [self.image_path(row) for row in (self if split is None else self.split(split)).rows]

    def image_path(self, row: Row) -> Path:
        """Path of the image of `row`."""
        return self.root / row.image

    def mask_path(self, row: Row) -> Path | None:
        """Path of the mask of `row`, if it has one."""
        return self.root / row.mask if row.mask else None

    @property
    def masked_labels(self) -> set[str]:
        """Classes of which at least one image has a mask."""
        return {row.label for row in self.rows if row.mask}

    def knows_mask(self, row: Row) -> bool:
        """Whether the true mask of `row` is known.

        If some classes have masks, the masks of a class without any (normal tissue) are known to be empty.
        """
        labels = self.masked_labels
        return bool(row.mask) or (bool(labels) and row.label not in labels)

    @property
    def shared_patients(self) -> dict[str, list[str]]:
        """Patients with images in more than one split, and those splits: their test images are not unseen."""
        splits: dict[str, set[str]] = {}
        for row in self.rows:
            if row.patient:
                splits.setdefault(row.patient, set()).add(row.split)
        return {patient: sorted(names) for patient, names in sorted(splits.items()) if len(names) > 1}

    @property
    def digest(self) -> str:
        """SHA-256 of all rows, wherever the images are: which images, labels and splits a number belongs to."""
        rows = [[row.image, row.label, row.mask, row.split, row.patient] for row in self.rows]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Manifest({self.root}: {len(self.rows)} images, classes {', '.join(self.classes)})"

    def write(self, path: Path, *, overwrite: bool = True) -> None:
        """Write as CSV; a column holds the relative path of the root if the manifest is in another folder.

        With `overwrite=False` an existing file is kept, and an error raised unless it has this content already.
        """
        content = self._csv(path)
        if not overwrite and path.exists() and not _has_content(path, content):
            raise DataError(
                f"{path}: exists and has another content; add --overwrite to replace it, or choose another --out"
            )
        with new_file(path) as temporary:
            temporary.write_bytes(content)

    def _csv(self, path: Path) -> bytes:
        root = _relative(self.root, path.parent)
        columns = _COLUMNS if root == "." else (*_COLUMNS, _ROOT)
        for row in self.rows:
            if not _is_unicode(row.image + row.mask):
                raise DataError(f"{row.image!a}: the file name is not valid Unicode; rename the file")
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(columns)
        for row in self.rows:
            values = (row.image, row.label, row.mask, row.split, row.patient)
            table.writerow(values if root == "." else (*values, root))
        return text.getvalue().encode()

    def summary(self) -> str:
        """One line per split: number of images per class and with a mask."""
        lines = []
        for name in SPLITS:
            rows = self.split(name).rows
            if rows:
                counts = Counter(row.label for row in rows)
                classes = ", ".join(f"{counts[label]} {label}" for label in sorted(counts))
                lines.append(
                    f"{name:5}  {len(rows):5} images: {classes}; {sum(bool(r.mask) for r in rows)} with a mask"
                )
        return "\n".join(lines)


def read_manifest(path: Path, images: Path | None = None) -> Manifest:
    """Read a manifest CSV.

    Args:
        path: CSV file.
        images: folder of the images, if they have moved since the manifest was written.
    """
    header, records = read_csv(path)
    check_columns(path, header, known=(*_COLUMNS, _ROOT), needed=("image", "label", "split"))
    rows = tuple(_row(path, line, record) for line, record in records.items())
    if not rows:
        raise DataError(f"{path}: lists no image")
    _refuse_duplicates(path, rows)
    check_labels(path, (row.label for row in rows))
    for column in ("image", "mask", "patient"):
        check_texts(path, column, (getattr(row, column) for row in rows))
    roots = {record.get(_ROOT) or "." for record in records.values()}
    if len(roots) > 1:
        raise DataError(f"{path}: names {len(roots)} root folders; a manifest has one")
    root = images or path.parent / roots.pop()
    _refuse_outside(path, root, rows)
    return Manifest(rows, root)


def _refuse_outside(path: Path, root: Path, rows: Sequence[Row]) -> None:
    """Refuse paths that leave the root, so that one place says which folder a manifest may read from."""
    top = os.path.abspath(root)  # noqa: PTH100 - by name: links are the user's own
    for row in rows:
        for name in filter(None, (row.image, row.mask)):
            place = os.path.normpath(os.path.join(top, name))  # noqa: PTH118 - as above
            if not place.startswith(os.path.join(top, "")):  # noqa: PTH118
                raise DataError(
                    f"{path}: {name} lies outside the folder of the images, {top}; if that is meant, name a folder "
                    "that holds all images: --images FOLDER, or a column 'root' in the manifest"
                )


def read_csv(path: Path) -> tuple[list[str], dict[int, dict[str, str]]]:
    """Header, and records by line number, of a CSV with any line endings (bare CR too); values are stripped."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except (UnicodeDecodeError, OSError) as error:
        raise DataError(f"{path}: not a readable CSV file ({error}); save it as CSV, UTF-8") from error
    reader = csv.reader(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), skipinitialspace=True)
    try:
        stripped = [(reader.line_num, [value.strip() for value in values]) for values in reader]
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: not a CSV table ({error})") from error
    lines = {number: values for number, values in stripped if any(values)}
    if not lines:
        raise DataError(f"{path}: the file is empty")
    header = [_FORMER_NAMES.get(name, name) for name in lines.pop(min(lines))]
    for mark, name in _OTHER_SEPARATORS.items():
        if len(header) == 1 and mark in header[0]:
            raise DataError(f"{path}: its columns are separated by {name}; save it as CSV with commas")
    for number, values in lines.items():
        if len(values) != len(header):
            raise DataError(f"{path}, line {number}: {len(values)} values for {len(header)} columns")
    return header, {number: dict(zip(header, values, strict=True)) for number, values in lines.items()}


def check_columns(path: Path, header: Sequence[str], known: Sequence[str], needed: Sequence[str]) -> None:
    """Raise an error for an unknown column or a missing required one."""
    for column in header:
        if column not in known:
            raise DataError(f"{path}: unknown column '{column}'; {nearest(column, known)}")
    for column in needed:
        if column not in header:
            raise DataError(f"{path}: no column '{column}'; the columns are {', '.join(known)}")


def check_trainable(manifest: Manifest, source: Path) -> None:
    """Raise an error for fewer than two training classes, and for labels that do not occur in training."""
    train = {row.label for row in manifest.split("train").rows}
    if len(train) < 2:
        present = f"only '{next(iter(train))}'" if train else "no image"
        raise DataError(f"{source}: the training split has {present}; at least two classes are needed")
    for name in ("valid", "test"):
        unseen = {row.label for row in manifest.split(name).rows} - train
        if unseen:
            raise DataError(
                f"{source}: label '{sorted(unseen)[0]}' appears in the {name} split but not in training; "
                f"{nearest(sorted(unseen)[0], train)}"
            )


def describe_shared(shared: Mapping[str, Sequence[str]]) -> str:
    """The first patient with images in several splits, and how many there are besides."""
    patient, splits = next(iter(shared.items()))
    more = f" ({len(shared) - 1} more patient(s) too)" if len(shared) > 1 else ""
    return f"patient {patient} has images in the splits {' and '.join(splits)}{more}"


def _row(path: Path, number: int, record: dict[str, str]) -> Row:
    for column in ("image", "label"):
        if not record[column]:
            raise DataError(f"{path}, line {number}: no {column}")
    split = record["split"]
    if split not in SPLITS:
        raise DataError(f"{path}, line {number}: unknown split '{split}'; {nearest(split, SPLITS)}")
    return Row(record["image"], record["label"], split, record.get("mask", ""), record.get("patient", ""))


def _refuse_duplicates(path: Path, rows: Sequence[Row]) -> None:
    repeated = first_repeated(row.image for row in rows)
    if repeated:
        raise DataError(f"{path}: lists {repeated} twice; an image belongs to one split, once")


def first_repeated(names: Iterable[str]) -> str | None:
    """The first name that occurs more than once."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _has_content(path: Path, content: bytes) -> bool:
    return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content


def _is_unicode(name: str) -> bool:
    """Whether a file name is valid Unicode; names from old archives may not be."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _relative(folder: Path, start: Path) -> str:
    try:
        return Path(os.path.relpath(folder.resolve(), start.resolve())).as_posix()
    except ValueError:  # on another drive
        return folder.resolve().as_posix()
