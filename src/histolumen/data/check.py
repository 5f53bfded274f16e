"""Check every file of a manifest before a long run."""

from collections.abc import Iterable
from dataclasses import dataclass

from histolumen.data.image import read_image, read_mask
from histolumen.data.manifest import Manifest
from histolumen.data.transforms import refuse_narrow
from histolumen.errors import ImageError
from histolumen.progress import SILENT, Progress


@dataclass(frozen=True)
class Findings:
    """Problems with single files, and warnings about the data set as a whole."""

    problems: list[str]
    warnings: list[str]


def check_manifest(manifest: Manifest, progress: Progress = SILENT) -> Findings:
    """Decode every image and mask, and look for common mistakes in the splits."""
    problems: list[str] = []
    for row in progress.track(manifest.rows, "checking"):
        try:
            path = manifest.image_path(row)
            image = read_image(path)
            refuse_narrow(image.shape, path)
            mask = manifest.mask_path(row)
            if mask is not None:
                read_mask(mask, image.shape[:2])
        except ImageError as error:
            problems.append(str(error))
    return Findings(problems, [*_shared_patients(manifest), *_missing_classes(manifest)])


def _shared_patients(manifest: Manifest) -> Iterable[str]:
    splits: dict[str, set[str]] = {}
    for row in manifest.rows:
        if row.patient:
            splits.setdefault(row.patient, set()).add(row.split)
    shared = sorted(patient for patient, names in splits.items() if len(names) > 1)
    if shared:
        yield (
            f"{len(shared)} patient(s) have images in more than one split (first: {shared[0]}): "
            "test results may be too optimistic"
        )


def _missing_classes(manifest: Manifest) -> Iterable[str]:
    for name in ("train", "valid", "test"):
        rows = manifest.split(name).rows
        missing = set(manifest.classes) - {row.label for row in rows}
        if rows and missing:
            yield f"the {name} split has no image of class {', '.join(sorted(missing))}"
        if not rows:
            yield f"there is no {name} split"
