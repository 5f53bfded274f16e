"""The settings of a run: schema, shipped recipes, and the reference of all keys."""

from histolumen.config.recipes import (
    load_config,
    parse_config,
    parse_run_config,
    read_recipe,
    recipe_names,
    recipe_text,
    set_key,
)
from histolumen.config.schema import RunConfig, TrainSettings

__all__ = [
    "RunConfig",
    "TrainSettings",
    "load_config",
    "parse_config",
    "parse_run_config",
    "read_recipe",
    "recipe_names",
    "recipe_text",
    "set_key",
]
