"""Recipes: YAML files, shipped with the package or written by the user, and `block.key=value` overrides."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from histolumen.config.former import read_former_keys, read_former_run
from histolumen.config.schema import RunConfig
from histolumen.errors import ConfigError, nearest
from histolumen.methods.base import method_names, settings_of
from histolumen.settings import complaint, keys_of


def recipe_names() -> list[str]:
    """Names of the recipes shipped with the package."""
    return sorted(entry.name.removesuffix(".yaml") for entry in _shipped().iterdir() if entry.name.endswith(".yaml"))


def recipe_text(name_or_path: str) -> str:
    """The YAML of a shipped recipe or of a file."""
    path = Path(name_or_path)
    if path.suffix in {".yaml", ".yml"} or path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read as a recipe ({error})") from error
    if name_or_path not in recipe_names():
        raise ConfigError(f"unknown recipe '{name_or_path}'; {nearest(name_or_path, recipe_names())}")
    return (_shipped() / f"{name_or_path}.yaml").read_text(encoding="utf-8")


def load_config(name_or_path: str, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a recipe and apply `block.key=value` overrides."""
    raw = read_recipe(name_or_path)
    for override in overrides:
        set_key(raw, override)
    return parse_config(raw)


def read_recipe(name_or_path: str) -> dict[str, Any]:
    """The plain values of a recipe, not yet validated."""
    return _yaml(recipe_text(name_or_path), name_or_path)


def set_key(raw: dict[str, Any], override: str) -> None:
    """Apply one `block.key=value` to plain values."""
    path, equals, text = override.partition("=")
    *blocks, key = path.strip().split(".")
    if not equals or not key:
        raise ConfigError(f"--set {override}: write it as block.key=value, for example train.epochs=10")
    target = raw
    for block in blocks:
        if target.get(block) is None:  # absent, or an empty block
            target[block] = {}
        target = target[block]
        if not isinstance(target, dict):
            raise ConfigError(f"--set {override}: '{block}' has no keys below it")
    target[key] = _value(text, override)


def parse_config(raw: dict[str, Any]) -> RunConfig:
    """Validate plain values against the schema; the first problem is raised as one sentence."""
    raw = {name: {} if block is None else block for name, block in raw.items()}  # an empty block has no keys
    method = raw.get("method", {})
    if isinstance(method, dict):
        if method.get("name") is None:
            raise ConfigError(f"method.name is missing; one of: {', '.join(method_names())}")
        settings_of(str(method["name"]))  # raises with the nearest known name if unknown
    raw = read_former_keys(raw)
    try:
        return RunConfig.model_validate(raw)
    except ValidationError as error:
        problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")  # typos first
        raise ConfigError(_sentence(problems[0])) from error


def parse_run_config(raw: dict[str, Any]) -> RunConfig:
    """Validate the plain values that a run folder holds; runs of earlier versions keep their meaning."""
    return parse_config(read_former_run(raw))


def _sentence(problem: Any) -> str:
    """A pydantic error as one sentence for the user."""
    block, *rest = map(str, problem["loc"])
    keys = rest[1:] if block == "method" else rest  # pydantic adds the name of the method after its block
    where = ".".join([block, *keys])
    if problem["type"] == "extra_forbidden":
        known = keys_of(_settings_at(block, rest)) if keys else keys_of(RunConfig)
        return f"unknown key '{where}'; {nearest(where.rpartition('.')[2], known)}"
    if problem["type"] in {"model_type", "model_attributes_type"}:
        return f"{where}: expected keys and values, found {problem['input']!r}"
    given = f", found {problem['input']!r}" if keys or block == "seed" else ""
    return f"{where}: {complaint(problem)}{given}"


def _settings_at(block: str, rest: list[str]) -> Any:
    return settings_of(rest[0]) if block == "method" else RunConfig.model_fields[block].annotation


def _value(text: str, where: str) -> Any:
    try:
        value = _load_yaml(text)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"--set {where}: the value is not valid YAML") from error
    if isinstance(value, str):  # YAML 1.1 reads 1e-3 as text
        try:
            return float(value)
        except ValueError:
            return value
    return value


class _Loader(yaml.SafeLoader):
    """Plain values only. A block that is repeated by reference could grow without limit when it is shown."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.CollectionNode):
            if id(node) in self._seen:
                raise yaml.MarkedYAMLError(problem="a block is repeated by reference", problem_mark=node.start_mark)
            self._seen.add(id(node))
        return node

    def __init__(self, text: str):
        super().__init__(text)
        self._seen: set[int] = set()


def _load_yaml(text: str) -> Any:
    """Values of a YAML text; everything that is wrong with it is a YAMLError or a ValueError."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    except (RecursionError, OverflowError, AttributeError, TypeError, LookupError) as error:
        raise ValueError("not a recipe") from error


def _yaml(text: str, where: str) -> dict[str, Any]:
    try:
        raw = _load_yaml(text)
    except (yaml.YAMLError, ValueError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        place = f", line {line + 1}" if line is not None else ""
        raise ConfigError(f"{where}{place}: not valid YAML") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{where}: a recipe is a table of blocks (method, backbone, images, mask, train)")
    return raw


def _shipped() -> Any:
    return resources.files("histolumen.config") / "recipes"
