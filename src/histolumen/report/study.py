"""Ablations and curves over one setting, the paper's and this project's. A study is a list of points."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from histolumen.config import RunConfig, parse_config, read_recipe, set_key
from histolumen.engine.evaluate import Binarisation
from histolumen.errors import ConfigError, nearest
from histolumen.report.rows import Printed
from histolumen.report.runs.plan import Job, Plan

Kind = Literal["sem", "eem"]
StudyName = Literal["ablation", "parts", "lambda", "sigma", "omega"]
KINDS: tuple[Kind, ...] = ("sem", "eem")
_VALUES: dict[str, tuple[float, ...]] = {
    "lambda": (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1),
    "sigma": (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    "omega": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
}
CURVES: tuple[StudyName, ...] = ("lambda", "sigma", "omega")
"""Studies of one setting, in the order of the paper's figure."""


@dataclass(frozen=True)
class Point:
    """One configuration of a study.

    Args:
        label: name in tables.
        overrides: changes of the recipe.
        kind: form of the background term; None: no such term.
        value: value of the varied setting; None: the study is not a curve.
        method: replaces the method of the recipe.
        recipe: its method and training replace those of the study's recipe.
        binarise: replaces the rule of the study.
        printed: the paper's scores on the GlaS test set.
    """

    label: str
    overrides: tuple[str, ...] = ()
    kind: Kind | None = None
    value: float | None = None
    method: str | None = None
    recipe: str | None = None
    binarise: Binarisation | None = None
    printed: Printed | None = None


class StudyPlan(Plan):
    """One run per point and seed."""

    file: ClassVar[str] = "study.json"
    fixed: ClassVar[tuple[str, ...]] = ("study", "recipe", "overrides")
    lists: ClassVar[tuple[str, ...]] = ("kinds", "rows", "seeds")
    first_column: ClassVar[str] = "setting"

    study: StudyName
    """The paper's `ablation`, one of its curves, or `parts`: the additions of the -best recipes."""
    recipe: str
    """The recipe whose Max-Min settings are varied."""
    kinds: tuple[Kind, ...] = KINDS
    """Forms of the background term; empty: both."""
    rows: tuple[str, ...] = Field(default=(), validate_default=True)
    """Labels of the points; empty: all of them."""
    seeds: tuple[int, ...] = ()
    """One run per point and seed; empty: one run with the recipe's seed."""
    split: str = "valid"
    """Split to evaluate."""

    @field_validator("kinds")
    @classmethod
    def _in_order(cls, kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
        return tuple(kind for kind in KINDS if not kinds or kind in kinds)

    @field_validator("rows")
    @classmethod
    def _known(cls, rows: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if not {"study", "kinds"} <= info.data.keys():  # refused already
            return rows
        labels = [point.label for point in points_of(info.data["study"], info.data["kinds"])]
        for row in rows:
            if row not in labels:
                raise ConfigError(f"--rows: the study {info.data['study']} has no row '{row}'; {nearest(row, labels)}")
        return tuple(label for label in labels if not rows or label in rows)

    @property
    def name(self) -> str:
        """Name of the study."""
        return f"Study of {self.study}"

    @property
    def training_notes(self) -> list[str]:
        """The recipe, and the abbreviations of the ablation."""
        notes = [f"Training: {', '.join([f'recipe {self.recipe}', *self.overrides])}."]
        if self.study == "ablation":
            notes.append("FG: Eq. 1-1. BG: Eq. 6 (EEM) or 7 (SEM). ASC: the size barrier of Eq. 5.")
        return notes

    def jobs(self) -> list[Job]:
        """All points with the first seed, then with the next; without those that change nothing in this recipe."""
        points = points_of(self.study, self.kinds)
        whole = self.config(points[0])
        changing = [point for point in points if point == points[0] or self.config(point) != whole]
        return [
            Job(
                key=_folder_name(point.label if seed is None else f"{point.label} seed={seed}"),
                title=point.label,
                config=self.config(point, seed),
                binarise=point.binarise or self.binarise,
                printed=point.printed,
                kind=point.kind,
                value=point.value,
            )
            for seed in self.seeds or (None,)
            for point in changing
            if point.label in self.rows
        ]

    def config(self, point: Point, seed: int | None = None) -> RunConfig:
        """Configuration of a point."""
        raw = read_recipe(self.recipe)
        if raw.get("method", {}).get("name") != "maxmin":
            raise ConfigError(
                f"{self.recipe}: a study varies Max-Min, and this recipe has another method; give a Max-Min recipe"
            )
        alignment = {key: raw["method"][key] for key in ("alignment",) if key in raw["method"]}
        if point.recipe is not None:
            own = read_recipe(point.recipe)
            raw |= {"method": own["method"] | alignment, "train": own.get("train", {})}
        elif point.method is not None:
            raw["method"] = {"name": point.method} | alignment
        replaced = point.recipe is not None or point.method is not None  # then settings of Max-Min do not apply
        for override in (*self.overrides, *point.overrides):
            if not replaced or not override.startswith("method.") or override.startswith("method.alignment="):
                set_key(raw, override)
        return parse_config(raw if seed is None else {**raw, "seed": seed})


def points_of(study: StudyName, kinds: tuple[Kind, ...] = KINDS) -> list[Point]:
    """All points of a study."""
    if study == "parts":
        return list(_PARTS)
    if study == "ablation":
        return [point for point in _ABLATION if point.kind is None or point.kind in kinds]
    return [
        Point(f"{kind} {study}={value:g}", (f"method.background={kind}", *_varied(study, value)), kind, value)
        for kind in kinds
        for value in _VALUES[study]
    ]


def _varied(study: str, value: float) -> tuple[str, ...]:
    if study == "sigma":  # no schedule: the study varies a constant sigma
        return (f"method.sigma={value}", "method.sigma_step=0")
    return (f"method.{study}={value}",)


def _step(label: str, kind: Kind | None, barrier: bool, printed: Printed) -> Point:
    terms = {"foreground": "true", "background": kind or "none", "size_barrier": str(barrier).lower()}
    return Point(label, tuple(f"method.{key}={value}" for key, value in terms.items()), kind, printed=printed)


def _folder_name(label: str) -> str:
    return "".join(c if c.isalnum() or c in ".-=" else "-" for c in label)


_ABLATION = (
    # the row of the paper's first table: its own schedule, and the rule by which the paper binarised its baselines
    Point("WILDCAT", recipe="glas-wildcat", binarise="true-label", printed=Printed(1.25, 67.21, 22.96)),
    _step("FG only", None, False, Printed(1.25, 71.54, 49.23)),
    _step("FG + BG (EEM)", "eem", False, Printed(1.25, 72.54, 61.82)),
    _step("FG + BG (EEM) + ASC", "eem", True, Printed(0.00, 72.11, 69.07)),
    _step("FG + BG (SEM)", "sem", False, Printed(1.25, 72.96, 61.95)),
    _step("FG + BG (SEM) + ASC", "sem", True, Printed(0.00, 71.94, 69.23)),
)

_PARTS = (
    Point("all parts"),
    Point("no grouping", ("method.grouping=0",)),
    Point("class maps instead of a decoder", ("method.refine=false", "method.mask_from=cam")),
    Point("class maps without clusters", ("method.grouping=0", "method.refine=false", "method.mask_from=cam")),
    Point("no refinement", ("method.refine=false",)),
    Point("glass kept", ("images.glass=keep",)),
    Point("holes and specks kept", ("mask.fill_holes=0", "mask.min_area=0")),
    Point("decoder at stride 16", ("method.decoder_stride=16",)),
    Point("network cut at stride 16", ("backbone.output_stride=16",)),
    Point("class from X+", ("method.class_from=foreground",)),
    Point("no background term", ("method.background=none",)),
    Point("no X+ and X-", ("method.foreground=false", "method.background=none")),
    Point("no size barrier", ("method.size_barrier=false",)),
    Point("no test-time flips", ("images.test_flips=false",)),
    Point("separate statistics", ("backbone.statistics=separate",)),
    Point("with self-training", ("method.self_training=2",)),
    Point("with edges", ("method.edges=1",)),
    Point("with stain jitter", ("images.stain=0.2",)),
    Point("NEGEV", method="negev"),
)
