"""GlaS (Warwick-QU, colon glands): the official folder with the paper's 67 / 18 / 80 split."""

from importlib import resources
from pathlib import Path

from histolumen.data.image import IMAGE_SUFFIXES
from histolumen.data.manifest import Manifest, Row, read_csv
from histolumen.data.sources.folder import MASK_ENDINGS
from histolumen.errors import DataError

_GRADE = "grade (GlaS)"
_PATIENT = "patient ID"


def manifest_from_glas(source: Path) -> Manifest:
    """Read the official layout: `train_1.bmp`, `train_1_anno.bmp`, ..., `Grade.csv`, in any lossless format."""
    grades = _grades(source)
    rows = []
    for name, split in paper_split().items():
        image = _find(source, name)
        if image is None:
            continue
        if name not in grades:
            raise DataError(f"{source / 'Grade.csv'}: has no line for {name}; use the official file")
        mask = next((path for ending in MASK_ENDINGS if (path := _find(source, name + ending))), None)
        label, patient = grades[name]
        rows.append(Row(image.name, label, split, mask.name if mask else "", patient))  # type: ignore[arg-type]
    if not rows:
        raise DataError(f"{source}: no GlaS images (train_1.bmp, testA_1.bmp, ...); give the folder that holds them")
    return Manifest(tuple(rows), source)


def paper_split() -> dict[str, str]:
    """Image name -> split, for all 165 images, as in the paper."""
    with resources.as_file(resources.files("histolumen.data.sources") / "glas_split.csv") as path:
        return {record["name"]: record["split"] for record in read_csv(path)[1].values()}


def _grades(source: Path) -> dict[str, tuple[str, str]]:
    """Name -> (benign or malignant, patient) from Grade.csv, whose lines end in a bare CR."""
    if not source.is_dir():
        raise DataError(f"{source}: no such folder")
    path = source / "Grade.csv"
    header, records = read_csv(path)
    if not {"name", _GRADE, _PATIENT} <= set(header):
        raise DataError(f"{path}: not the GlaS grade table (columns name, {_PATIENT}, {_GRADE})")
    return {record["name"]: (record[_GRADE], record[_PATIENT]) for record in records.values()}


def _find(source: Path, stem: str) -> Path | None:
    return next((path for suffix in sorted(IMAGE_SUFFIXES) if (path := source / (stem + suffix)).is_file()), None)
