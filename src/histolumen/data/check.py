"""Check every file of a manifest before a long run."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from histolumen.data.image import READ_AS_TWELVE_BIT, ImageWarning, read_image, read_mask
from histolumen.data.leakage import Fingerprints, fingerprint, is_published_split
from histolumen.data.manifest import Manifest, describe_shared
from histolumen.data.transforms import refuse_unusable
from histolumen.errors import ImageError
from histolumen.progress import SILENT, Progress

_SHOWN = 5  # pairs of similar images that are named


@dataclass(frozen=True)
class Findings:
    """Problems with single files, and warnings about the data set as a whole."""

    problems: list[str]
    warnings: list[str]


def check_manifest(manifest: Manifest, progress: Progress = SILENT) -> Findings:
    """Decode every image and mask, and look for common mistakes in the splits."""
    problems: list[str] = []
    fingerprints, dim = Fingerprints(), []
    shared = manifest.shared_patients
    if shared and not is_published_split(manifest):
        problems.append(f"{describe_shared(shared)}; give all images of a patient the same split")
    for row in progress.track(manifest.rows, "checking"):
        try:
            path = manifest.image_path(row)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always", ImageWarning)
                image = read_image(path)
            dim += [row.image] if any(issubclass(warning.category, ImageWarning) for warning in said) else []
            refuse_unusable(image, path)
            mask = manifest.mask_path(row)
            if mask is not None:
                read_mask(mask, image.shape[:2])
            fingerprints.add(row.image, row.split, fingerprint(image))
        except ImageError as error:
            problems.append(str(error))
    notes = [*split_notes(manifest), *_alike(fingerprints)]
    if dim:
        notes.append(f"{len(dim)} image(s) have {READ_AS_TWELVE_BIT} (first: {dim[0]})")
    return Findings(problems, notes)


def split_notes(manifest: Manifest) -> list[str]:
    """What makes the numbers of a split less meaningful: classes it lacks, patients of the published split of GlaS."""
    return [*_shared_patients(manifest), *_missing_classes(manifest)]


def _alike(fingerprints: Fingerprints) -> Iterable[str]:
    pairs = list(fingerprints.across_splits())
    if pairs:
        shown = "; ".join(f"{one} ({split}) and {other} ({before})" for (one, split), (other, before) in pairs[:_SHOWN])
        more = f"; and {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else ""
        yield (
            f"{len(pairs)} image(s) look like one of another split, which makes results too optimistic: {shown}{more}"
        )


def _shared_patients(manifest: Manifest) -> Iterable[str]:
    shared = manifest.shared_patients
    if shared and is_published_split(manifest):
        yield f"in this published split {describe_shared(shared)}"


def _missing_classes(manifest: Manifest) -> Iterable[str]:
    for name in ("train", "valid", "test"):
        rows = manifest.split(name).rows
        missing = set(manifest.classes) - {row.label for row in rows}
        if rows and missing:
            yield f"the {name} split has no image of class {', '.join(sorted(missing))}"
        if not rows:
            yield f"there is no {name} split"
