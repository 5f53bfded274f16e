"""The paper's comparison of methods, on its data sets or on your own images."""

from typing import Any, ClassVar

from pydantic import field_validator

from histolumen.config import RunConfig, parse_config, read_recipe, set_key
from histolumen.errors import ConfigError
from histolumen.methods.base import settings_of
from histolumen.report.rows import BenchmarkRow, find_rows
from histolumen.report.runs.plan import Job, Plan

NAMED = ("glas", "camelyon16")
_BOUNDS = {"all-ones", "unet"}  # lower and upper bound, not ranked


class BenchmarkPlan(Plan):
    """One run per method and seed."""

    file: ClassVar[str] = "benchmark.json"
    fixed: ClassVar[tuple[str, ...]] = ("target", "recipe", "backbone", "weights", "overrides")
    lists: ClassVar[tuple[str, ...]] = ("methods", "seeds")
    shows_start: ClassVar[bool] = True
    first_column: ClassVar[str] = "method"

    target: str
    """`glas`, `camelyon16`, or "" for your own images."""
    methods: tuple[str, ...]
    """Names of rows; empty: all of them."""
    recipe: str | None
    """Recipe with the backbone, images and training of every method; None: each method's own recipe for the target."""
    backbone: str | None
    """Replaces the backbone of the recipe."""

    weights: tuple[str, ...] = ()
    """`ARCHITECTURE=FILE`: initial weights of every method with that backbone."""

    @field_validator("methods")
    @classmethod
    def _in_order_of_the_table(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(row.name for row in find_rows(names))

    @property
    def name(self) -> str:
        """Name of the paper's data set, else `Benchmark`."""
        return self.target or "Benchmark"

    @property
    def training_notes(self) -> list[str]:
        """Training settings that all methods share."""
        training = "each method's own recipe" if self.recipe is None else f"recipe {self.recipe} for every method"
        changes = [f"backbone {self.backbone}"] if self.backbone else []
        return [f"Training: {', '.join([training, *changes, *self.overrides])}. Only U-Net is trained with masks."]

    def jobs(self) -> list[Job]:
        """All runs, in the order of the paper's table, then by seed."""
        return [
            Job(
                key=f"{row.name}-seed{seed}",
                title=row.title,
                config=self.config(row, seed),
                binarise=self.binarise,
                printed=row.printed.get(self.target),
                ranked=row.name not in _BOUNDS,
                shows_error=row.shows_error,
            )
            for row in find_rows(self.methods)
            for seed in self.seeds
        ]

    def config(self, row: BenchmarkRow, seed: int) -> RunConfig:
        """Configuration of one run."""
        own = read_recipe(f"{self.target or 'glas'}-{row.name}")
        raw = own if self.recipe is None else _with_method(read_recipe(self.recipe), own)
        raw["seed"] = seed
        if self.backbone is not None:
            raw["backbone"] = {**raw.get("backbone", {}), "name": self.backbone, "weights": "auto"}
        for override in self.overrides:
            set_key(raw, override)
        for choice in self.weights:
            architecture, equals, file = choice.partition("=")
            if not equals or not file:
                raise ConfigError(
                    f"--weights {choice}: write it as ARCHITECTURE=FILE, for example resnet18=resnet18.pth"
                )
            if parse_config(raw).backbone.name == architecture:
                set_key(raw, f"backbone.weights={file}")
        if row.name == "all-ones":  # has no weights
            set_key(raw, "train.epochs=1")
        return parse_config(raw)


def _with_method(recipe: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The shared recipe with the method of `own`.

    If both have the same method, its settings in the shared recipe are used. Any other method has its defaults, with
    the `alignment` of the shared recipe. The class without foreground is a fact about the images and stays the row's.
    """
    negative = own.get("images", {}).get("negative_class")
    if negative is not None:
        recipe = {**recipe, "images": {**recipe.get("images", {}), "negative_class": negative}}
    given = recipe["method"]
    row = {key: own["method"][key] for key in ("name", "background") if key in own["method"]}
    if given["name"] == row["name"]:
        return {**recipe, "method": {**given, **row}}
    common = {"alignment"} & given.keys() & settings_of(row["name"]).model_fields.keys()
    return {**recipe, "method": {**row, **{key: given[key] for key in common}}}
