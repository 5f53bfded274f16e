"""The commands that must survive, each with tiny inputs so that a whole call takes a second or two."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gland_slides import tissue_picture
from outline_files import rectangle, write_outlines
from slide_files import GLASS, speckled, write_mosaic_slide, write_slide

from histolumen.config import load_config
from histolumen.data.manifest import read_manifest
from histolumen.data.sources.synthetic import write_synthetic_set
from histolumen.engine.train import train
from tiny import SMALL, TINY

_EPOCHS = 4


@dataclass(frozen=True)
class Scenario:
    """A command and what it reads.

    Args:
        make: write the inputs to a folder.
        command: arguments for a folder of inputs and an output folder.
        again: what to add when it is called again.
    """

    make: Callable[[Path], None]
    command: Callable[[Path, Path], list[str]]
    again: tuple[str, ...] = ()


def _settings(*overrides: str) -> list[str]:
    return [part for override in overrides for part in ("--set", override)]


def _make_images(root: Path) -> None:
    write_synthetic_set(root, images=12, size=64, seed=3).write(root / "manifest.csv")


def _make_model(root: Path) -> None:
    _make_images(root)
    train(load_config("glas-sem", [*TINY, "train.epochs=1"]), read_manifest(root / "manifest.csv"), root / "run")


def _make_slides(root: Path) -> None:
    _make_model(root)
    (root / "slides").mkdir()
    for number in (1, 2):
        write_slide(root / "slides" / f"glands{number}.tif", tissue_picture(seed=number), mpp=0.5)


def _make_outlined_slides(root: Path) -> None:
    empty = np.full((512, 512, 3), GLASS, np.uint8)
    layout = np.array([[0, 1, 1], [0, 1, 1], [0, 0, 0]])
    for number, name in enumerate(("normal_001", "normal_002", "tumor_001", "tumor_002")):
        write_mosaic_slide(root / f"{name}.tif", [empty, speckled(512, 512, number)], layout)
        if name.startswith("tumor"):
            write_outlines(root / f"{name}.xml", ("_0", rectangle(600, 100, 700, 700)))


def _training(recipe: str, *overrides: str) -> Scenario:
    options = [recipe, *_settings(*TINY, *overrides)]
    return Scenario(
        _make_images,
        lambda root, out: ["train", *options, "--data", str(root / "manifest.csv"), "--out", str(out)],
        ("--resume",),
    )


_BENCHMARK = ["--methods", "cam-avg", "--methods", "sem", *_settings(*SMALL)]
_STUDY = ["--recipe", "glas-sem", "--kinds", "sem", *_settings(*TINY, "train.epochs=1")]
_TILES = ["--tile", "256", "--overlap", "64", "--model-mpp", "0.5", "--min-area", "10"]
_SAMPLE = ["--patches", "sample", "--valid", "0.5", "--workers", "1"]

SCENARIOS = {
    "train": _training("glas-sem", "train.epochs=4"),
    # proposes masks before the first epoch, and again from its own masks before the third
    "train-proposals": _training("glas-best", "train.epochs=3", "method.self_training=2"),
    "benchmark": Scenario(
        _make_images,
        lambda root, out: ["benchmark", str(root / "manifest.csv"), "--out", str(out), *_BENCHMARK],
    ),
    "study": Scenario(
        _make_images,
        lambda root, out: ["study", "ablation", "--data", str(root / "manifest.csv"), "--out", str(out), *_STUDY],
    ),
    "predict": Scenario(
        _make_model,
        lambda root, out: ["predict", str(root / "run"), str(root / "images"), "--out", str(out), "--geojson"],
    ),
    "slide": Scenario(
        _make_slides,
        lambda root, out: ["slide", str(root / "run"), str(root / "slides"), "--out", str(out), *_TILES],
    ),
    "camelyon16": Scenario(
        _make_outlined_slides,
        lambda root, out: ["data", "camelyon16", str(root), "--out", str(out), *_SAMPLE],
    ),
}
