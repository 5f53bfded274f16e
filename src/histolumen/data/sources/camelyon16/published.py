"""Camelyon16-P512 as published: the listed patches and their masks, cut from the user's slides."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from histolumen.data.manifest import SPLITS, Manifest, Row
from histolumen.data.sources.camelyon16.listed_slide import (
    MAX_DIFFERENT,
    TOLERANCE,
    Comparison,
    compare_with_list,
)
from histolumen.data.sources.camelyon16.pairing import Found, Source, find_sources, first_few
from histolumen.data.sources.camelyon16.patches import PatchTask, image_name, mask_name, patch_stems, write_patches
from histolumen.data.sources.camelyon16.processes import for_each
from histolumen.data.sources.camelyon16.published_list import (
    FOLDS,
    METASTATIC,
    NORMAL,
    Place,
    published_counts,
    published_slides,
)
from histolumen.errors import DataError, HistolumenError
from histolumen.progress import SILENT, Progress
from histolumen.settings import Settings


class PublishedPlan(Settings):
    """What the user may decide about the published set."""

    fold: Annotated[int, Field(ge=0, lt=FOLDS)] = 0
    """Fold for validation; the other four are for training."""
    workers: int = 1


@dataclass
class PublishedCut:
    """The published patches that could be cut."""

    manifest: Manifest
    fold: int
    notes: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    """Why a slide, or some of its patches, was left out, by name of the slide."""
    missing: list[str] = field(default_factory=list)
    """Published slides that are not at hand."""

    @property
    def left_out(self) -> list[str]:
        """A sentence for every slide that could not be used, and one for all that are missing."""
        sentences = list(self.failures.values())
        if self.missing:
            total = len(published_slides())
            sentences.append(
                f"{len(self.missing)} of the {total} published slides are missing: {first_few(self.missing)}"
            )
        return sentences

    def table(self) -> str:
        """Numbers of patches beside the published ones."""
        cut = Counter((row.split, row.label) for row in self.manifest.rows)
        listed = published_counts(self.fold)
        for counts in (cut, listed):
            counts.update({(split, "all"): counts[split, METASTATIC] + counts[split, NORMAL] for split in SPLITS})
        text = [f"{'split':5}  {'label':10}  {'published':>9}  {'at hand':>9}"]
        text += [
            f"{split:5}  {label:10}  {listed[split, label]:9,}  {cut[split, label]:9,}"
            for split in SPLITS
            for label in (METASTATIC, NORMAL, "all")
        ]
        return "\n".join(text)


def cut_published(
    slides: Path,
    annotations: Path,
    out: Path,
    plan: PublishedPlan,
    dry_run: bool = False,
    progress: Progress = SILENT,
) -> PublishedCut:
    """Cut the published patches from the slides at hand; what an earlier run left in `out` is not done again.

    Args:
        slides: folder of the slides.
        annotations: folder of the ASAP files.
        out: folder to write to; the manifest is left to the caller, when everything else is there.
        plan: what may be decided.
        dry_run: compare slides and outlines with the list, but cut nothing.
        progress: counts the slides.
    """
    listed = published_slides()
    found = find_sources(slides, annotations)
    sources = [source for source in found.sources if source.name.casefold() in listed]
    failures = {name: problem for name, problem in found.failures.items() if name.casefold() in listed}
    if not sources and not failures:
        raise DataError(
            f"{slides}: holds none of the {len(listed)} published slides (normal_001.tif, ...); "
            "for slides of your own give --patches sample"
        )
    at_hand = {name.casefold() for name in (*failures, *(source.name for source in sources))}
    notes = [*found.notes, *_not_listed(found, slides)]

    comparing = partial(compare_with_list, folder=out / "comparison")
    places: dict[str, list[Place]] = {}
    fingerprints: dict[str, str] = {}
    for source, result in zip(sources, for_each(comparing, sources, plan.workers, progress, "comparing"), strict=True):
        if isinstance(result, HistolumenError):
            failures[source.name] = str(result)
            continue
        notes += result.notes
        fingerprints[source.name] = result.fingerprint
        places[source.name] = _accepted(source, result, failures)

    usable = [source for source in sources if places.get(source.name)]
    if not dry_run:
        tasks = [PatchTask(source, out, fingerprints[source.name], places[source.name]) for source in usable]
        results = for_each(write_patches, tasks, plan.workers, progress, "cutting")
        failed = {
            source.name: str(result)
            for source, result in zip(usable, results, strict=True)
            if isinstance(result, HistolumenError)
        }
        failures |= failed
        usable = [source for source in usable if source.name not in failed]
    missing = [name for name in listed if name not in at_hand]
    return PublishedCut(_manifest(usable, places, plan.fold, out), plan.fold, notes, failures, sorted(missing))


def _accepted(source: Source, comparison: Comparison, failures: dict[str, str]) -> list[Place]:
    """Patches whose tumour share is the published one; what differs becomes a failure of the slide."""
    published = published_slides()[source.name.casefold()].patches
    places = [patch.place for patch in published]
    different = comparison.different(published)
    if not different:
        return places
    worst = max((patch for patch in published if patch.place in different),
                key=lambda patch: abs(different[patch.place] - patch.tumour_share))  # fmt: skip
    left, top = worst.place
    whole = len(different) > MAX_DIFFERENT * len(published)
    failures[source.name] = (
        f"{source.slide}: {len(different)} of {len(published)} patches have a tumour share that differs from the "
        f"published one by more than {TOLERANCE} (x {left}, y {top}: {different[worst.place]:.3f}, published "
        f"{worst.tumour_share:.3f}); {'the slide is' if whole else 'these patches are'} left out, check that slide and "
        f"outlines ({source.outlines}) are the original ones"
    )
    return [] if whole else [place for place in places if place not in different]


def _not_listed(found: Found, slides: Path) -> list[str]:
    """Notes about slides that are at hand but not in the list."""
    listed = published_slides()
    notes = [problem for name, problem in found.failures.items() if name.casefold() not in listed]
    names = [source.name for source in found.sources if source.name.casefold() not in listed]
    if names:
        notes.append(f"{slides}: {len(names)} slide(s) are not in the published list and not used: {first_few(names)}")
    return notes


def _manifest(sources: Sequence[Source], places: Mapping[str, Sequence[Place]], fold: int, out: Path) -> Manifest:
    listed = published_slides()
    rows = [
        Row(image_name(source, stem), source.label, listed[source.name.casefold()].split(fold),
            mask_name(source, stem), source.name)
        for source in sources
        for stem in patch_stems(places[source.name])
    ]  # fmt: skip
    return Manifest(tuple(sorted(rows, key=lambda row: SPLITS.index(row.split))), out)
