"""The schema of a run: blocks of settings, read from a recipe and checked before anything starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import Field, ValidationError

from histolumen.data.transforms import ImageSettings
from histolumen.errors import ConfigError, nearest
from histolumen.methods.base import MethodSettings, method_names, settings_of
from histolumen.nets.backbones import BackboneSettings
from histolumen.settings import Settings

S = TypeVar("S", bound=Settings)


class TrainSettings(Settings):
    """Optimisation and the choice of the epoch; the defaults are the paper's for Max-Min on GlaS."""

    epochs: int = Field(default=80, ge=1)
    """Passes over the training images."""
    batch_size: int = Field(default=4, ge=1)
    """Images per step, over all processes together."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """SGD with Nesterov momentum (the paper), or AdamW."""
    lr: float = Field(default=1e-3, gt=0)
    """Learning rate of the backbone."""
    head_lr_factor: float = Field(default=1.0, gt=0)
    """Multiplies the learning rate of everything but the backbone."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Nesterov momentum; the first beta of AdamW."""
    weight_decay: float = Field(default=1e-4, ge=0)
    """L2 penalty on all weights; decoupled from the gradient in AdamW."""
    schedule: Literal["step", "multistep", "cosine", "constant"] = "step"
    """How the learning rate falls: every `lr_every` epochs, at `lr_milestones`, along a half cosine, or not at all."""
    lr_every: int = Field(default=10, ge=1)
    """`step`: epochs between two reductions."""
    lr_milestones: tuple[int, ...] = ()
    """`multistep`: epochs after which the rate is reduced."""
    lr_factor: float = Field(default=0.9, gt=0, le=1)
    """What a reduction multiplies the rate by."""
    lr_floor: float = Field(default=1e-7, ge=0)
    """The rate never falls below this."""
    clip_gradient: float | None = Field(default=None, gt=0)
    """Largest norm of the gradient; null: no clipping."""
    select: Literal["accuracy", "cross_entropy", "last"] = "accuracy"
    """Which epoch becomes `best/`, judged on the validation labels alone: the latest among those with the highest
    accuracy (the paper), the one with the lowest cross-entropy, or the last."""
    workers: int = Field(default=0, ge=0)
    """Processes that load images; 0 loads in the training process, best on a CPU that trains."""


@dataclass(frozen=True)
class RunConfig:
    """All blocks of one run."""

    method: MethodSettings
    backbone: BackboneSettings
    images: ImageSettings
    train: TrainSettings
    seed: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as a recipe writes them; every key is present."""
        blocks = {"method": self.method, "backbone": self.backbone, "images": self.images, "train": self.train}
        plain = {name: block.model_dump(mode="json", by_alias=True) for name, block in blocks.items()}
        return {**plain, "seed": self.seed}

    def as_yaml(self) -> str:
        """The text of `config.yaml`."""
        return yaml.safe_dump(self.as_dict(), sort_keys=False)


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
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
    """The plain values of a recipe, not yet checked."""
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
    """Check plain values against the schema; the first problem is raised as one sentence."""
    blocks = ("method", "backbone", "images", "train", "seed")
    for key in raw:
        if key not in blocks:
            raise ConfigError(f"unknown key '{key}'; {nearest(str(key), blocks)}")
    method = raw.get("method") or {}
    name = method.get("name") if isinstance(method, dict) else None
    if name is None:
        raise ConfigError(f"method.name is missing; one of: {', '.join(method_names())}")
    seed = raw.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ConfigError(f"seed: {seed!r} is not a whole number from 0 on")
    return RunConfig(
        method=_block(settings_of(str(name)), method, "method"),
        backbone=_block(BackboneSettings, raw.get("backbone"), "backbone"),
        images=_block(ImageSettings, raw.get("images"), "images"),
        train=_block(TrainSettings, raw.get("train"), "train"),
        seed=seed,
    )


def keys_of(model: type[Settings]) -> dict[str, str]:
    """Key as written in a recipe -> field name."""
    return {field.alias or name: name for name, field in model.model_fields.items()}


def _block(model: type[S], raw: Any, where: str) -> S:
    values = {} if raw is None else raw
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: expected keys and values, found {values!r}")
    for key in values:
        if key not in keys_of(model):
            raise ConfigError(f"unknown key '{where}.{key}'; {nearest(str(key), keys_of(model))}")
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join([where, *map(str, problem["loc"])])
        message = problem["msg"].removeprefix("Value error, ")
        given = f", found {problem['input']!r}" if problem["loc"] else ""
        raise ConfigError(f"{place}: {message[0].lower()}{message[1:]}{given}") from error


def _value(text: str, where: str) -> Any:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {where}: the value is not valid YAML") from error
    if isinstance(value, str):  # YAML 1.1 reads 1e-3 as text
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _yaml(text: str, where: str) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        place = f", line {line + 1}" if line is not None else ""
        raise ConfigError(f"{where}{place}: not valid YAML") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{where}: a recipe is a table of blocks (method, backbone, images, train)")
    return raw


def _shipped() -> Any:
    return resources.files("histolumen") / "recipes"
