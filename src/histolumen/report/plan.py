"""What a benchmark is to run: the configuration of every row and seed, decided before the first one starts."""

from typing import Any

from histolumen.config import RunConfig, parse_config, read_recipe, set_key
from histolumen.engine.evaluate import Binarisation
from histolumen.errors import RunError
from histolumen.methods.base import settings_of
from histolumen.report.rows import BenchmarkRow, find_rows
from histolumen.settings import Settings

NAMED = ("glas", "camelyon16")


class Plan(Settings):
    """A benchmark."""

    target: str
    """`glas`, `camelyon16`, or "" for images of one's own."""
    methods: tuple[str, ...]
    """Names of rows; none: all of them."""
    seeds: tuple[int, ...]
    """One run per method and seed."""
    recipe: str | None
    """Gives every method the same backbone, images and training; unset: each row's own recipe of the target."""
    backbone: str | None
    """Replaces the recipe's."""
    overrides: tuple[str, ...]
    """`block.key=value`, for every run."""
    split: str
    """Which part of the manifest is measured."""
    binarise: Binarisation
    """How soft masks become binary ones."""

    @property
    def rows(self) -> list[BenchmarkRow]:
        """The systems to compare."""
        return find_rows(self.methods)

    def joined(self, earlier: "Plan") -> "Plan":
        """This plan with the methods and seeds of an earlier one in the same folder."""
        for key in ("target", "recipe", "backbone", "overrides"):
            before, now = getattr(earlier, key), getattr(self, key)
            if before != now:
                raise RunError(f"--out holds a benchmark with {key} {before!r}, not {now!r}; choose another folder")
        names = {row.name for row in (*earlier.rows, *self.rows)}
        methods = tuple(row.name for row in find_rows(names))
        return self.model_copy(update={"methods": methods, "seeds": tuple(sorted({*earlier.seeds, *self.seeds}))})

    def config(self, row: BenchmarkRow, seed: int) -> RunConfig:
        """What one run is trained with."""
        own = read_recipe(f"{self.target or 'glas'}-{row.name}")
        raw = own if self.recipe is None else _shared(read_recipe(self.recipe), own)
        raw["seed"] = seed
        if self.backbone is not None:
            raw["backbone"] = {**raw.get("backbone", {}), "name": self.backbone, "weights": "auto"}
        for override in self.overrides:
            set_key(raw, override)
        if row.name == "all-ones":  # nothing to learn
            set_key(raw, "train.epochs=1")
        return parse_config(raw)


def _shared(recipe: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The shared recipe with the row's method in it.

    The method that the recipe is for keeps the recipe's settings; any other has its defaults, with maps laid over the
    image as the recipe lays them.
    """
    given = recipe["method"]
    row = {key: own["method"][key] for key in ("name", "background") if key in own["method"]}
    if given["name"] == row["name"]:
        return {**recipe, "method": {**given, **row}}
    common = {"alignment"} & given.keys() & settings_of(row["name"]).model_fields.keys()
    return {**recipe, "method": {**row, **{key: given[key] for key in common}}}
