"""What a study varies, and on what."""

import hashlib
import json
from dataclasses import replace

from histolumen.config import RunConfig, parse_config, read_recipe, set_key
from histolumen.data.manifest import Manifest
from histolumen.errors import ConfigError
from histolumen.report.study_points import KINDS, Kind, Point, StudyName, points_of
from histolumen.settings import Settings


class StudyPlan(Settings):
    """What a study varies, and on what."""

    study: StudyName
    """The paper's `ablation` and its curves, or the `parts` that were added to the method."""
    recipe: str
    """The recipe whose Max-Min settings are varied."""
    overrides: tuple[str, ...] = ()
    """`block.key=value`, for every point."""
    kinds: tuple[Kind, ...] = KINDS
    """Forms of the background term."""
    seeds: tuple[int, ...] = ()
    """One training of each point per seed; none: one, with the recipe's."""
    split: str = "valid"
    """What is measured."""

    @property
    def points(self) -> list[Point]:
        """One training each."""
        points = points_of(self.study, self.kinds)
        return [replace(point, seed=seed) for seed in self.seeds or (None,) for point in points]

    def config(self, point: Point) -> RunConfig:
        """The recipe at a point."""
        raw = read_recipe(self.recipe)
        if raw.get("method", {}).get("name") != "maxmin":
            raise ConfigError(f"{self.recipe}: a study varies Max-Min, and this is a recipe of another method")
        if point.method is not None:
            alignment = raw["method"].get("alignment")
            raw["method"] = {"name": point.method} | ({"alignment": alignment} if alignment else {})
        replaced = point.method is not None  # then settings of Max-Min mean nothing
        for override in (*self.overrides, *point.overrides):
            if not replaced or not override.startswith("method.") or override.startswith("method.alignment="):
                set_key(raw, override)
        return parse_config(raw if point.seed is None else {**raw, "seed": point.seed})

    def key(self, manifest: Manifest) -> str:
        """Name in the storage; another recipe or other images are another study."""
        rows = [(row.image, row.label, row.split, row.mask) for row in manifest.rows]
        configs = [self.config(point).as_dict() for point in self.points]
        digest = hashlib.sha256(json.dumps([self.split, rows, configs]).encode()).hexdigest()
        return f"histolumen-{self.study}-{digest[:12]}"
