"""The functions of `import histolumen`: read images, train, evaluate."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from histolumen.config import RunConfig, parse_config, read_recipe
from histolumen.console import ConsoleProgress
from histolumen.data.check import split_notes
from histolumen.data.manifest import Manifest, check_trainable, read_manifest
from histolumen.data.sources.folder import SplitPlan, manifest_from_folder
from histolumen.engine.evaluate import Binarisation, Evaluation
from histolumen.engine.evaluate import evaluate as evaluate_model
from histolumen.engine.model import Model, load
from histolumen.engine.runlog import read_metrics
from histolumen.engine.train import train as train_model
from histolumen.errors import ConfigError, DataError, nearest
from histolumen.progress import Progress
from histolumen.settings import Settings, from_options

Data = Manifest | Path | str


@dataclass(frozen=True)
class Run:
    """A finished training run: its folder, model and metrics."""

    folder: Path
    config: RunConfig
    best_epoch: int

    @cached_property
    def model(self) -> Model:
        """The model of the best epoch."""
        return load(self.folder)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One record per epoch: losses, learning rate, validation."""
        return read_metrics(self.folder)

    def __repr__(self) -> str:
        return f"Run({self.folder}: {self.config.method.name}, {len(self.metrics)} epochs, best {self.best_epoch})"


def read_folder(
    folder: Path | str,
    *,
    valid: float = 0.15,
    test: float = 0.20,
    seed: int = 0,
    patient_pattern: str | None = None,
) -> Manifest:
    """Labelled images from a folder with one folder per class (`CLASS/*.png` or `SPLIT/CLASS/*.png`).

    Args:
        folder: the folder.
        valid: share of validation images, if the folder has no splits.
        test: share of test images, if the folder has no splits.
        seed: seed of the split.
        patient_pattern: regular expression whose first group in the path is the patient; all images of a patient are
            in the same split.

    Example:
        >>> data = histolumen.read_folder("my-images")      # doctest: +SKIP
        >>> print(data.summary())                           # doctest: +SKIP
    """
    plan, progress = from_options(SplitPlan, valid=valid, test=test, seed=seed), ConsoleProgress()
    manifest = manifest_from_folder(Path(folder), plan, patient_pattern, progress)
    for note in split_notes(manifest):
        progress.message(f"note: {note}")
    return manifest


def train(
    recipe: str | RunConfig,
    data: Data,
    out: Path | str,
    *,
    resume: bool = False,
    devices: str = "auto",
    progress: Progress | None = None,
    **overrides: Any,
) -> Run:
    """Train a model from labelled images and write a run folder.

    Args:
        recipe: name of a shipped recipe such as "folder-best", a YAML file, or a `RunConfig`.
        data: a manifest from `read_folder`, a manifest file, or a folder of class folders.
        out: run folder to write.
        resume: continue after the last finished epoch of `out`.
        devices: number of processes on this machine; "auto" is one.
        progress: receives steps and epochs; None: a progress bar or lines on standard error.
        **overrides: settings to change: `key` if only one block has it (`epochs=5`, `short_side=256`), else
            `block__key` (`backbone__name="resnet18"`).

    Example:
        >>> run = histolumen.train("folder-best", data, out="runs/first", epochs=5)     # doctest: +SKIP
        >>> run.model.predict("x.png").label                                            # doctest: +SKIP
    """
    config = _config(recipe, overrides)
    manifest = _manifest(data)
    check_trainable(manifest, manifest.root)
    reporting = ConsoleProgress() if progress is None else progress
    state = train_model(config, manifest, Path(out), resume=resume, devices=devices, progress=reporting)
    return Run(Path(out), config, state.best_epoch)


def evaluate(
    model: Model | Run | Path | str,
    data: Data,
    split: str = "test",
    *,
    binarise: Binarisation = "threshold",
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate a model: classification always, masks where the data has ground truth.

    Args:
        model: a model, a run, or a run folder.
        data: as for `train`.
        split: "train", "valid" or "test".
        binarise: "threshold" (the soft mask at 0.5), or "true-label" (the paper's rule for its baselines).
        progress: receives the number of images; None: a progress bar or lines on standard error.
    """
    if isinstance(model, Run):
        model = model.model
    elif not isinstance(model, Model):
        model = load(model)
    reporting = ConsoleProgress() if progress is None else progress
    return evaluate_model(model, _manifest(data), split, binarise=binarise, progress=reporting)


def _manifest(data: Data) -> Manifest:
    if isinstance(data, Manifest):
        return data
    path = Path(data)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; give a manifest or a folder of class folders")
    return read_folder(path) if path.is_dir() else read_manifest(path)


def _config(recipe: str | RunConfig, overrides: dict[str, Any]) -> RunConfig:
    raw = recipe.as_dict() if isinstance(recipe, RunConfig) else read_recipe(recipe)
    if not overrides:
        return parse_config(raw)
    current = parse_config(raw).as_dict()
    for name, value in overrides.items():
        plain = _plain(value)
        block, _, key = name.partition("__")
        if not key:
            block, key = _block_of(name, current), name
        if block == key:  # seed is not in a block
            raw[key] = plain
        else:
            raw[block] = {**(raw.get(block) or {}), key: plain}
    return parse_config(raw)


def _block_of(key: str, config: dict[str, Any]) -> str:
    """The only block of a configuration that has `key`."""
    key = "lambda" if key == "lambda_" else key
    blocks = [name for name, block in config.items() if name == key or (isinstance(block, dict) and key in block)]
    if len(blocks) == 1:
        return blocks[0]
    if blocks:
        ways = " or ".join(f"{block}__{key}" for block in blocks)
        raise ConfigError(f"setting '{key}' is in several blocks; write {ways}")
    keys = [name for block in config.values() if isinstance(block, dict) for name in block]
    raise ConfigError(f"unknown setting '{key}'; {nearest(key, [*keys, 'seed'])}")


def _plain(value: Any) -> Any:
    if isinstance(value, Settings):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
