"""A patch set from any slides by the protocol of Camelyon16-P512: count candidates, calibrate, balance, write."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from histolumen.data.manifest import SPLITS, Manifest, Row, Split
from histolumen.data.sources.camelyon16.balance import choose, split_slides
from histolumen.data.sources.camelyon16.calibration import calibrate
from histolumen.data.sources.camelyon16.candidates import MIN_TISSUE, Count, count_patches
from histolumen.data.sources.camelyon16.outline_scan import MIN_TUMOUR, PATCH
from histolumen.data.sources.camelyon16.pairing import Source, find_sources
from histolumen.data.sources.camelyon16.patches import PatchTask, image_name, mask_name, patch_stems, write_patches
from histolumen.data.sources.camelyon16.processes import for_each
from histolumen.data.sources.camelyon16.published_list import METASTATIC, NORMAL, Place
from histolumen.errors import HistolumenError
from histolumen.progress import SILENT, Progress
from histolumen.settings import Settings


class SamplingPlan(Settings):
    """Options of the user; everything else is fixed by the protocol."""

    valid: float = 0.20
    """Share of the training slides for validation."""
    per_slide: int | None = None
    """Maximum number of metastatic patches per slide."""
    seed: int = 0
    workers: int = 1


class Line(NamedTuple):
    """Counts of one slide."""

    split: Split
    slide: str
    label: str
    offered: int
    chosen: int


@dataclass
class Sample:
    """Result of sampling: manifest, counts per slide, notes and failures."""

    manifest: Manifest
    """Of the chosen patches."""
    lines: list[Line]
    """One for every usable slide."""
    notes: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    """Error messages of skipped slides, by slide name."""

    @property
    def left_out(self) -> list[str]:
        """A sentence for every slide that could not be used."""
        return list(self.failures.values())

    def table(self) -> str:
        """The counts per slide and per split."""
        width = max([len("slide"), *(len(line.slide) for line in self.lines)])
        text = [f"{'split':5}  {'slide':{width}}  {'label':10}  {'candidates':>10}  {'chosen':>8}"]
        for split, name, label, offered, chosen in self.lines:
            text.append(f"{split:5}  {name:{width}}  {label:10}  {offered:10}  {chosen:8}")
        for split in SPLITS:
            for label in (METASTATIC, NORMAL):
                group = [line for line in self.lines if (line.split, line.label) == (split, label)]
                if group:
                    offered, chosen = sum(line.offered for line in group), sum(line.chosen for line in group)
                    text.append(f"{split:5}  {len(group)} {label} slides: {offered} candidates, {chosen} chosen")
        return "\n".join(text)


def sample_camelyon16(
    slides: Path,
    annotations: Path,
    out: Path,
    plan: SamplingPlan,
    dry_run: bool = False,
    progress: Progress = SILENT,
) -> Sample:
    """Sample a set of patches; results of an earlier run in `out` are reused.

    Args:
        slides: folder of the slides.
        annotations: folder of the ASAP files.
        out: output folder; the caller writes the manifest last.
        plan: options of the user.
        dry_run: count and choose, but write no patches.
        progress: counts the slides.
    """
    found = find_sources(slides, annotations)
    splits = split_slides(found.sources, plan.valid, plan.seed)
    failures, notes = dict(found.failures), list(found.notes)

    counting = partial(count_patches, counts=out / "counts", previews=out / "tissue")
    counts: dict[str, Count] = {}
    for source, count in zip(
        found.sources, for_each(counting, found.sources, plan.workers, progress, "counting"), strict=True
    ):
        if isinstance(count, HistolumenError):
            failures[source.name] = str(count)
            continue
        notes += count.notes
        if count.places:
            counts[source.name] = count
        elif count.tissue == 0:
            failures[source.name] = _no_candidates(source, count, out)
        else:  # not a failure: many metastases are smaller than a fifth of a patch
            notes.append(_no_candidates(source, count, out))

    while True:
        usable = [source for source in found.sources if source.name in counts]
        chosen = choose(usable, _calibrated(usable, counts, plan.seed), splits, plan.per_slide, plan.seed)
        if dry_run:
            break
        tasks = [PatchTask(source, out, counts[source.name].fingerprint, chosen[source.name]) for source in usable]
        results = for_each(write_patches, tasks, plan.workers, progress, "writing")
        failed = {
            task.source.name: str(result)
            for task, result in zip(tasks, results, strict=True)
            if isinstance(result, HistolumenError)
        }
        if not failed:
            break
        failures |= failed  # choose again without them, so that the set stays balanced
        counts = {name: count for name, count in counts.items() if name not in failed}

    lines = [
        Line(splits[source.name], source.name, source.label, len(counts[source.name].places), len(chosen[source.name]))
        for source in sorted(usable, key=lambda source: (SPLITS.index(splits[source.name]), source.label, source.name))
    ]
    notes += _empty_splits(lines, plan)
    return Sample(_manifest(usable, chosen, splits, out), lines, notes, failures)


def _calibrated(sources: Sequence[Source], counts: Mapping[str, Count], seed: int) -> dict[str, list[Place]]:
    """Patches that may be chosen, by slide: test slides and the others are calibrated apart, as in the survey."""
    offers = {source.name: counts[source.name].places for source in sources}
    for test in (False, True):
        metastatic = [source.name for source in sources if source.test == test and source.label == METASTATIC]
        shares = {name: dict(zip(counts[name].places, counts[name].tumour_shares, strict=True)) for name in metastatic}
        offers |= calibrate(shares, seed)
    return offers


def _manifest(
    sources: Sequence[Source], chosen: Mapping[str, Sequence[Place]], splits: Mapping[str, Split], out: Path
) -> Manifest:
    rows = [
        Row(image_name(source, stem), source.label, splits[source.name], mask_name(source, stem), source.name)
        for source in sources
        for stem in patch_stems(chosen[source.name])
    ]
    return Manifest(tuple(sorted(rows, key=lambda row: SPLITS.index(row.split))), out)


def _no_candidates(source: Source, count: Count, out: Path) -> str:
    if count.tissue == 0:
        reason = "no tissue found"
    else:
        reason = f"no patch of {PATCH} x {PATCH} pixels has at least {100 * MIN_TISSUE:.0f} % tissue"
        if source.outlines:
            reason += f" and {100 * MIN_TUMOUR:.0f} % tumour"
    return f"{source.slide}: {reason}; {out / 'tissue' / source.name}.png shows the detected tissue"


def _empty_splits(lines: Sequence[Line], plan: SamplingPlan) -> list[str]:
    """Notes on splits that stay empty because a class is missing, so that the other cannot be balanced."""
    notes = []
    for split in SPLITS:
        labels = {line.label for line in lines if line.split == split}
        if len(labels) == 1:
            missing = NORMAL if METASTATIC in labels else METASTATIC
            advice = "; are the outlines of the test slides among the annotations?" if split == "test" else ""
            notes.append(f"{split}: no slide has {missing} patches, so the split stays empty{advice}")
        elif not labels and split == "valid" and plan.valid > 0:
            notes.append("valid: too few slides for a validation set; add slides or use a larger --valid")
    return notes
