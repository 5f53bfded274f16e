"""Looking at every file of a manifest before a long run does."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from histolumen.data.image import read_image, read_mask
from histolumen.data.manifest import Manifest, Row
from histolumen.data.transforms import refuse_narrow
from histolumen.errors import ImageError


@dataclass(frozen=True)
class Findings:
    """What is wrong (files) and what is worth knowing (the data as a whole)."""

    problems: list[str]
    warnings: list[str]


def check_manifest(manifest: Manifest, track: Callable[[Iterable[Row]], Iterable[Row]] = lambda rows: rows) -> Findings:
    """Decode every image and mask and look for what usually goes wrong.

    Args:
        manifest: to check.
        track: wraps the rows to show progress.
    """
    problems: list[str] = []
    for row in track(manifest.rows):
        try:
            path = manifest.image_path(row)
            image = read_image(path)
            refuse_narrow(image.shape, path)
            mask = manifest.mask_path(row)
            if mask is not None:
                read_mask(mask, image.shape[:2])
        except ImageError as error:
            problems.append(str(error))
    return Findings(problems, [*_shared_groups(manifest), *_missing_classes(manifest)])


def _shared_groups(manifest: Manifest) -> Iterable[str]:
    splits: dict[str, set[str]] = {}
    for row in manifest.rows:
        if row.group:
            splits.setdefault(row.group, set()).add(row.split)
    shared = sorted(group for group, names in splits.items() if len(names) > 1)
    if shared:
        yield (
            f"{len(shared)} group(s) have images in more than one split (first: {shared[0]}): "
            "the test may look better than it is"
        )


def _missing_classes(manifest: Manifest) -> Iterable[str]:
    for name in ("train", "valid", "test"):
        rows = manifest.split(name).rows
        missing = set(manifest.classes) - {row.label for row in rows}
        if rows and missing:
            yield f"the {name} split has no image of class {', '.join(sorted(missing))}"
        if not rows:
            yield f"there is no {name} split"
