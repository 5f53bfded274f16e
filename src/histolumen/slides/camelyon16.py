"""Camelyon16-P512 from the slides: count what every slide offers, choose a balanced set, write patches and masks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from histolumen.data.manifest import SPLITS, Manifest, Row, Split
from histolumen.errors import HistolumenError
from histolumen.slides.balance import choose, split_slides
from histolumen.slides.pairing import METASTATIC, NORMAL, Source, find_sources
from histolumen.slides.patches import PatchTask, image_name, mask_name, write_patches
from histolumen.slides.processes import Track, for_each
from histolumen.slides.sampling import MIN_TISSUE, MIN_TUMOUR, PATCH, Count, Place, count_patches


@dataclass(frozen=True)
class SamplingPlan:
    """What the user may decide; the rest is the protocol."""

    valid: float = 0.25
    """Share of the training slides for validation."""
    per_slide: int | None = None
    """Most metastatic patches of one slide."""
    seed: int = 0
    workers: int = 1


class Line(NamedTuple):
    """One slide of the table of counts."""

    split: Split
    slide: str
    label: str
    offered: int
    chosen: int


@dataclass
class Sample:
    """What was found, chosen and, unless it was only counted, written."""

    manifest: Manifest
    """Of the chosen patches."""
    lines: list[Line]
    """One for every slide that could be used."""
    notes: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    """Why a slide was left out, by its name."""

    def table(self) -> str:
        """The counts per slide and per split."""
        width = max([len("slide"), *(len(line.slide) for line in self.lines)])
        text = [f"{'split':5}  {'slide':{width}}  {'label':10}  {'candidates':>10}  {'chosen':>8}"]
        for split, name, label, offered, chosen in self.lines:
            text.append(f"{split:5}  {name:{width}}  {label:10}  {offered:10}  {chosen:8}")
        for split in SPLITS:
            for label in (METASTATIC, NORMAL):
                mine = [line for line in self.lines if (line.split, line.label) == (split, label)]
                if mine:
                    offered, chosen = sum(line.offered for line in mine), sum(line.chosen for line in mine)
                    text.append(f"{split:5}  {len(mine)} {label} slides: {offered} candidates, {chosen} chosen")
        return "\n".join(text)


def sample_camelyon16(
    slides: Path,
    annotations: Path,
    out: Path,
    plan: SamplingPlan,
    dry_run: bool = False,
    track: Track = lambda items, _: items,
) -> Sample:
    """Sample a set of patches; what an earlier run left in `out` is not done again.

    Args:
        slides: folder of the slides.
        annotations: folder of the ASAP files.
        out: folder to write to; the manifest is left to the caller, when everything else is there.
        plan: what may be decided.
        dry_run: count and choose only.
        track: shows progress.
    """
    found = find_sources(slides, annotations)
    splits = split_slides(found.sources, plan.valid, plan.seed)
    failures, notes = dict(found.failures), list(found.notes)

    counting = partial(count_patches, counts=out / "counts", previews=out / "tissue")
    counts: dict[str, Count] = {}
    for source, count in zip(
        found.sources, for_each(counting, found.sources, plan.workers, track, "counting"), strict=True
    ):
        if isinstance(count, HistolumenError):
            failures[source.name] = str(count)
            continue
        notes += count.notes
        if count.places:
            counts[source.name] = count
        elif count.tissue == 0:
            failures[source.name] = _nothing_to_take(source, count, out)
        else:  # nothing is wrong with it: many metastases are smaller than a fifth of a patch
            notes.append(_nothing_to_take(source, count, out))

    while True:
        usable = [source for source in found.sources if source.name in counts]
        chosen = choose(
            usable, {name: count.places for name, count in counts.items()}, splits, plan.per_slide, plan.seed
        )
        if dry_run:
            break
        tasks = [PatchTask(source, out, counts[source.name].fingerprint, chosen[source.name]) for source in usable]
        results = for_each(write_patches, tasks, plan.workers, track, "writing")
        failed = {
            task.source.name: str(result)
            for task, result in zip(tasks, results, strict=True)
            if isinstance(result, HistolumenError)
        }
        if not failed:
            break
        failures |= failed  # others take their place, so that the set stays balanced
        counts = {name: count for name, count in counts.items() if name not in failed}

    lines = [
        Line(splits[source.name], source.name, source.label, len(counts[source.name].places), len(chosen[source.name]))
        for source in sorted(usable, key=lambda source: (SPLITS.index(splits[source.name]), source.label, source.name))
    ]
    notes += _empty_splits(lines, plan)
    return Sample(_manifest(usable, chosen, splits, out), lines, notes, failures)


def _manifest(
    sources: Sequence[Source], chosen: Mapping[str, Sequence[Place]], splits: Mapping[str, Split], out: Path
) -> Manifest:
    rows = [
        Row(image_name(source, place), source.label, splits[source.name], mask_name(source, place), source.name)
        for source in sources
        for place in chosen[source.name]
    ]
    return Manifest(tuple(sorted(rows, key=lambda row: SPLITS.index(row.split))), out)


def _nothing_to_take(source: Source, count: Count, out: Path) -> str:
    if count.tissue == 0:
        reason = "no tissue on it"
    else:
        reason = f"no patch of {PATCH} x {PATCH} pixels has at least {100 * MIN_TISSUE:.0f} % tissue"
        if source.outlines:
            reason += f" and {100 * MIN_TUMOUR:.0f} % tumour"
    return f"{source.slide}: {reason}; {out / 'tissue' / source.name}.png shows what was taken as tissue"


def _empty_splits(lines: Sequence[Line], plan: SamplingPlan) -> list[str]:
    """What to say of splits that got nothing: a class is missing, so there is nothing to balance the other with."""
    notes = []
    for split in SPLITS:
        labels = {line.label for line in lines if line.split == split}
        if len(labels) == 1:
            missing = NORMAL if METASTATIC in labels else METASTATIC
            advice = "; are the outlines of the test slides among the annotations?" if split == "test" else ""
            notes.append(f"{split}: no slide gives {missing} patches, so no patch is taken at all{advice}")
        elif not labels and split == "valid" and plan.valid > 0:
            notes.append("valid: too few slides for a validation set; give more or a larger --valid")
    return notes
