"""Cross-validation of a recipe: one run per fold, each evaluated on images that it has not seen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from pydantic import Field

from histolumen.config import RunConfig, parse_config, read_recipe, set_key
from histolumen.data.manifest import Manifest
from histolumen.data.splitting import stratified_folds, stratified_split
from histolumen.engine.evaluate import score_title
from histolumen.errors import DataError
from histolumen.report.runs.plan import Job, Plan
from histolumen.report.runs.runner import Results, RunResult
from histolumen.report.tables import Table

_VALID = 0.15  # share of the images that are not held out; training chooses its epoch by them
_LEFT_OUT = {"predicted_foreground_share", "true_foreground_share"}  # in [0, 1], not scores
_UNDEFINED = "--"


@dataclass(frozen=True, kw_only=True)
class FoldJob(Job):
    """A run that is evaluated on one fold and trained on the others; `fold` counts from 1."""

    fold: int
    folds: int

    def images(self, manifest: Manifest) -> Manifest:
        """The fold as test images and the others as training and validation images."""
        return fold_manifest(manifest, self.fold, self.folds, self.config.seed)


class FoldsPlan(Plan):
    """One run per fold."""

    file: ClassVar[str] = "folds.json"
    fixed: ClassVar[tuple[str, ...]] = ("recipe", "folds", "overrides")
    lists: ClassVar[tuple[str, ...]] = ()
    needs_masks: ClassVar[bool] = False
    first_column: ClassVar[str] = "fold"

    recipe: str
    """The recipe to cross-validate."""
    folds: int = Field(ge=2)
    """Number of folds."""
    seeds: tuple[int, ...] = ()
    """Not used: the seed of the recipe determines folds and training."""
    split: str = "test"
    """Split of each run's own manifest that is evaluated."""

    @property
    def name(self) -> str:
        """Recipe and number of folds."""
        return f"{self.folds}-fold cross-validation of {self.recipe}"

    @property
    def training_notes(self) -> list[str]:
        """What each run is trained on."""
        changes = f" ({', '.join(self.overrides)})" if self.overrides else ""
        return [
            f"Recipe {self.recipe}{changes}. Each fold is evaluated by a run trained on the other folds; of those, "
            f"{100 * _VALID:.0f} % are its validation images. Images of a patient are in one fold. Test images of the "
            "manifest are not used."
        ]

    def jobs(self) -> list[Job]:
        """One job per fold."""
        config = self.config()
        numbers = range(1, self.folds + 1)
        return [
            FoldJob(f"fold-{n}", f"fold {n}", config, binarise=self.binarise, fold=n, folds=self.folds) for n in numbers
        ]

    def config(self) -> RunConfig:
        """The configuration of every run."""
        raw = read_recipe(self.recipe)
        for override in self.overrides:
            set_key(raw, override)
        return parse_config(raw)


def fold_manifest(manifest: Manifest, fold: int, folds: int, seed: int) -> Manifest:
    """The training and validation images of a manifest, divided anew: one fold as test split, the rest as training and
    validation. Its own test images are left out.

    Args:
        manifest: all images.
        fold: number of the fold, from 1.
        folds: number of folds.
        seed: determines the folds.
    """
    rows = [row for row in manifest.rows if row.split != "test"]
    labels, patients = [row.label for row in rows], [row.patient for row in rows]
    numbers = stratified_folds(labels, patients, folds, seed)
    _check_folds(labels, patients, numbers, folds)
    others = [index for index, number in enumerate(numbers) if number != fold - 1]
    parts = stratified_split([labels[k] for k in others], [patients[k] for k in others], _VALID, 0.0, seed)
    split_of = dict(zip(others, parts, strict=True))
    return replace(
        manifest, rows=tuple(replace(row, split=split_of.get(index, "test")) for index, row in enumerate(rows))
    )


def _check_folds(labels: Sequence[str], patients: Sequence[str], numbers: Sequence[int], folds: int) -> None:
    """Raise an error unless every fold has every class."""
    for label in sorted(set(labels)):
        of_label = [index for index, each in enumerate(labels) if each == label]
        if len({numbers[index] for index in of_label}) < folds:
            units = {patients[index] or str(index) for index in of_label}
            kind = "patients" if any(patients) else "images"
            raise DataError(
                f"--folds {folds}: not every fold would have an image of class '{label}', which has {len(units)} "
                f"{kind} outside the test split; give fewer folds or more images"
            )


def folds_table(results: Results) -> Table:
    """One row per fold, then mean and standard deviation; scores that no fold has (no masks) are left out."""
    plan, runs = results.plan, {run.job.title: run for run in results.runs}
    jobs = plan.jobs()
    names = list(dict.fromkeys(name for run in results.runs for name in run.evaluation["interval_95"]))
    names = [name for name in names if name not in _LEFT_OUT]
    rows = []
    for job in jobs:
        run = runs.get(job.title)
        rows.append([job.title, *(_cells(run, names) if run else [_UNDEFINED] * (len(names) + 2))])
    total = sum(run.evaluation["images"] for run in results.runs)
    spread = [_mean_and_spread([run.evaluation.get(name) for run in results.runs]) for name in names]
    minutes = sum(run.seconds for run in results.runs) / 60
    rows.append(["mean ± std", str(total), *spread, f"{minutes:.1f}"])
    notes = ["Percent. The last row has the standard deviation over folds, and the total of images and minutes."]
    missing = len(jobs) - len(results.runs)
    notes += [*plan.training_notes, *([f"{missing} fold(s) are missing."] if missing else [])]
    columns = [plan.first_column, "images", *(score_title(name) for name in names), "minutes"]
    return Table(f"{plan.name}, seed {jobs[0].config.seed}", columns, rows, notes)


def _cells(run: RunResult, names: Sequence[str]) -> list[str]:
    values = [run.evaluation.get(name) for name in names]
    scores = [_UNDEFINED if value is None else f"{value:.2f}" for value in values]
    return [str(run.evaluation["images"]), *scores, f"{run.seconds / 60:.1f}"]


def _mean_and_spread(values: Sequence[float | None]) -> str:
    defined = [value for value in values if value is not None]
    if not defined:
        return _UNDEFINED
    spread = f" ± {np.std(defined, ddof=1):.2f}" if len(defined) > 1 else ""
    return f"{np.mean(defined):.2f}{spread}"
