"""Whole slides: does memory stay the same when a slide grows, and how much of the network's speed is left?

Memory: `histolumen slide` on synthetic slides of 10,000 and 40,000 pixels a side, full of tissue, each in a process of
its own; what counts is the ratio of their peaks (goal: at most 1.2).
Speed: the same tiles through the same networks, once read from the slide with all that belongs to it (tissue, reading,
blending, storing, heat map, polygons), once from memory with nothing else; in turns, in one process. What counts is the
median share of the network's own speed that is left (goal: at least 85 %).

usage: python benchmarks/slides.py [--sides 10000 40000] [--speed-side 20000] [--rounds 3] [--work DIR] [--run RUN]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyvips
import torch
from torch import Tensor

from histolumen.config import load_config
from histolumen.data.synthetic import make_sample
from histolumen.engine.checkpoint import ModelCard, save_model
from histolumen.engine.model import Model, load
from histolumen.methods.base import SlideMask, SlideNet, build_method
from histolumen.nets.backbones import build_backbone
from histolumen.nets.geometry import FLIPS, Grid
from histolumen.slides.predict import SlideSettings, predict_slide
from histolumen.slides.reader import open_slide
from histolumen.slides.tiles import TileGrid
from histolumen.slides.tissue import find_tissue

SLIDE_MPP, MODEL_MPP = 0.25, 1.0


def make_model(folder: Path) -> Path:
    """The network of `glas-best`, untrained: what it answers does not matter here."""
    config = load_config("glas-best")
    torch.manual_seed(0)
    method = build_method(config.method, build_backbone(config.backbone), 2)
    save_model(folder, method, ModelCard(config, ["benign", "malignant"], 0, {}))
    return folder


def make_slide(path: Path, side: int) -> Path:
    """Synthetic tissue over and over."""
    if not path.exists():
        times = -(-side // 1024)
        sample = pyvips.Image.new_from_array(make_sample("malignant", 1024, 0).image)
        picture = sample.replicate(times, times).crop(0, 0, side, side).copy(interpretation="srgb")
        resolution = 1000 / SLIDE_MPP
        picture.tiffsave(
            str(path), tile=True, pyramid=True, compression="jpeg", bigtiff=True, resunit="cm",
            xres=resolution, yres=resolution, tile_width=256, tile_height=256,
        )  # fmt: skip
    return path


def peak_memory(run: Path, slide: Path, out: Path, options: list[str]) -> tuple[float, float]:
    """Megabytes and seconds of one command."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "histolumen", "slide", str(run), str(slide), "--out", str(out), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(command)}")
    return usage.ru_maxrss / 1024, time.perf_counter() - started


@dataclass
class MapsInMemory:
    """The maps of one pass."""

    found: list[Tensor]

    @property
    def positions(self) -> Tensor:
        return _long(self.found)

    def range_of(self, value: Callable[[Tensor], Tensor]) -> tuple[float, float]:
        values = [value(found) for found in self.found]
        return float(min(x.min() for x in values)), float(max(x.max() for x in values))


@dataclass
class TilesInMemory:
    """Runs the networks of a method over tiles that are already there, and times nothing but them."""

    tiles: list[Tensor]
    flips: bool
    seconds: float = 0.0

    def maps(self, net: SlideNet, grid: Grid) -> "MapsInMemory":  # noqa: ARG002 - the interface of a slide
        return MapsInMemory(self._run(net, torch.ones(1, 1, 1, 1)))

    def positions(self, net: SlideNet, grid: Grid, seen: SlideMask | None = None) -> Tensor:  # noqa: ARG002
        side = self.tiles[0].shape[-1]
        return _long(self._run(net, torch.full((1, 1, side, side), 0.5)))

    @torch.inference_mode()
    def _run(self, net: SlideNet, mask: Tensor) -> list[Tensor]:
        started = time.perf_counter()
        flips = FLIPS if self.flips else FLIPS[:1]
        found = [net(tile.flip(axes), mask.flip(axes)) for tile in self.tiles for axes in flips]
        self.seconds += time.perf_counter() - started
        return found


def _long(maps: list[Tensor]) -> Tensor:
    return torch.cat([found.flatten(2) for found in maps], dim=2)[:, :, None]


def speeds(model: Model, path: Path, work: Path, settings: SlideSettings) -> tuple[int, float, float]:
    """Tiles, seconds of the network alone, and seconds of the whole way."""
    with open_slide(path) as slide:
        scale = slide.natural_scale(MODEL_MPP / SLIDE_MPP)
        grid = TileGrid(int(slide.width / scale), int(slide.height / scale), scale, settings.tile, settings.overlap)
        tiles = [
            torch.from_numpy(slide.read(grid.region(tile), (grid.tile, grid.tile), scale)).permute(2, 0, 1)[None] / 255
            for tile in grid.with_tissue(find_tissue(slide))
        ]
    model.method.predict_slide(TilesInMemory(tiles[:1], bool(settings.flips)))  # warm now
    alone = TilesInMemory(tiles, bool(settings.flips))
    model.method.predict_slide(alone)
    started = time.perf_counter()
    predict_slide(model, path, work / f"out-{time.monotonic_ns()}", settings)
    return len(tiles), alone.seconds, time.perf_counter() - started


def main() -> None:
    """Print memory by size, then speeds by round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", type=int, nargs=2, default=[10_000, 40_000])
    parser.add_argument("--speed-side", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=None, help="where slides and answers go; else a temporary folder")
    parser.add_argument("--run", type=Path, default=None, help="a trained model; else an untrained one, full of specks")
    parser.add_argument("--flips", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        run = options.run or make_model(work / "model")
        paths = [make_slide(work / f"slide-{side}.tif", side) for side in options.sides]
        flips = "--flips" if options.flips else "--no-flips"
        peaks = []
        for side, path in zip(options.sides, paths, strict=True):
            out = work / f"memory-{time.monotonic_ns()}"
            peak, seconds = peak_memory(run, path, out, ["--model-mpp", str(MODEL_MPP), flips])
            peaks.append(peak)
            print(f"{side:6} x {side}: peak {peak:6.0f} MB, {seconds:5.0f} s", flush=True)
        print(f"memory ratio {peaks[1] / peaks[0]:.2f}", flush=True)
        model, settings = load(run, "cpu"), SlideSettings(model_mpp=MODEL_MPP, flips=options.flips)
        path = make_slide(work / f"slide-{options.speed_side}.tif", options.speed_side)
        shares = []
        for _ in range(options.rounds):
            tiles, alone, whole = speeds(model, path, work, settings)
            shares.append(alone / whole)
            print(
                f"{tiles} tiles: network alone {tiles / alone:.2f} tiles/s, from the slide {tiles / whole:.2f} tiles/s "
                f"({100 * alone / whole:.0f} %)",
                flush=True,
            )
        print(f"median share of the network's own speed: {100 * statistics.median(shares):.0f} %")


if __name__ == "__main__":
    main()
