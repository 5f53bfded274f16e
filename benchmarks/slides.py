"""Whole slides: peak memory by slide size, and throughput relative to the network alone.

Memory: `histolumen slide` on synthetic slides of 10,000 and 40,000 pixels a side, full of tissue, each in its own
process. Result: the ratio of the peaks (goal: at most 1.2).
Speed: the same tiles through the same networks, once in the full pipeline (tissue, reading, blending, storing, heat
map, polygons), once from memory without it; alternating, in one process. Result: the median ratio of the two
throughputs (goal: at least 85 %). The network alone runs two tiles side by side, as the pipeline does; its throughput
with one tile at a time, divided among all threads, is printed too. Beside it the ratio of the processor times, child
processes included: how much work the pipeline adds, which depends far less on what else the machine does.

The models are `folder-best` with each backbone, trained for a few epochs on synthetic images, so that the
regions on the slide are glands; those of an untrained network would be thousands of specks.

usage: python benchmarks/slides.py [--sides 10000 40000] [--speed-side 20000] [--rounds 3] [--work DIR] [--run RUN]
           [--backbones efficientnet_lite0 ...] [--quick]
"""

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyvips
import torch
from torch import Tensor

from histolumen.data.sources.synthetic_image import make_sample
from histolumen.encoders.geometry import FLIPS, FeatureGeometry
from histolumen.engine.memory import keep_memory_flat
from histolumen.engine.model import Model, load
from histolumen.engine.slides.predict import SlideSettings, save_slide_prediction
from histolumen.engine.slides.view import TILES_AT_ONCE
from histolumen.lanes import lanes_for, stream
from histolumen.methods.view import MapNet, Mask, Masking, resized
from histolumen.slides.reader import open_slide
from histolumen.slides.tiles import TileLayout
from histolumen.tissue.mask import find_tissue
from timing import row

SLIDE_MPP, MODEL_MPP = 0.25, 1.0


def make_run(folder: Path, backbone: str) -> Path:
    """Train a model for slides, if there is none in the folder yet."""
    run = folder / f"run-{backbone}"
    if not (run / "best").exists():
        images = folder / "images"
        weights = "auto" if backbone == "efficientnet_lite0" else "none"
        changes = [
            f"backbone.name={backbone}", f"backbone.weights={weights}",
            "images.short_side=256", "images.crop=224", "train.epochs=5",
        ]  # fmt: skip
        for arguments in (
            ["data", "synthetic", str(images), "--images", "48", "--size", "256"],
            ["train", "folder-best", "--data", str(images / "manifest.csv"), "--out", str(run), "--no-report"]
            + [part for change in changes for part in ("--set", change)],
        ):
            subprocess.run([sys.executable, "-m", "histolumen", *arguments], check=True, stdout=subprocess.DEVNULL)
    return run


def make_slide(path: Path, side: int) -> Path:
    """Write a slide of repeated synthetic tissue; at MODEL_MPP its glands are as large as in training images."""
    if not path.exists():
        enlargement = MODEL_MPP / SLIDE_MPP
        times = math.ceil(side / (1024 * enlargement))
        sample = pyvips.Image.new_from_array(make_sample("malignant", 1024, 0).image).resize(enlargement)
        picture = sample.replicate(times, times).crop(0, 0, side, side).copy(interpretation="srgb")
        resolution = 1000 / SLIDE_MPP
        picture.tiffsave(
            str(path), tile=True, pyramid=True, compression="jpeg", bigtiff=True, resunit="cm",
            xres=resolution, yres=resolution, tile_width=256, tile_height=256,
        )  # fmt: skip
    return path


def peak_memory(run: Path, slide: Path, out: Path, options: list[str]) -> tuple[float, float]:
    """Peak memory in megabytes and duration in seconds of `histolumen slide`."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "histolumen", "slide", str(run), str(slide), "--out", str(out), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(command)}")
    return usage.ru_maxrss / 1024, time.perf_counter() - started


@dataclass(frozen=True)
class Spent:
    """Seconds on the clock, and of processors, in this process and in child processes that have ended."""

    seconds: float
    processor: float

    @classmethod
    def until_now(cls) -> "Spent":
        return cls(time.perf_counter(), sum(os.times()[:4]))

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.seconds + other.seconds, self.processor + other.processor)

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(self.seconds - other.seconds, self.processor - other.processor)


@dataclass
class MapsInMemory:
    """The maps of one pass."""

    outputs: list[Tensor]

    @property
    def positions(self) -> Tensor:
        return _concatenated(self.outputs)

    def range_of(self, value: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        values = torch.cat([value(maps).flatten() for maps in self.outputs])
        return values.min().view(1, 1, 1, 1), values.max().view(1, 1, 1, 1)


@dataclass
class TilesInMemory:
    """A `View` of tiles in memory that times the networks alone."""

    tiles: list[Tensor]
    flips: bool
    at_the_same_time: int = TILES_AT_ONCE
    spent: "Spent" = field(default_factory=lambda: Spent(0, 0))

    count = 1
    at_once = False

    def maps(
        self,
        net: MapNet,
        geometry: FeatureGeometry,
        seen: Mask | None = None,
        scale: float = 1.0,
        masking: Masking = torch.mul,
    ) -> "MapsInMemory":
        return MapsInMemory(self._run(net, scale))

    def positions(
        self,
        net: MapNet,
        geometry: FeatureGeometry,
        seen: Mask | None = None,
        scale: float = 1.0,
        masking: Masking = torch.mul,
    ) -> Tensor:
        return _concatenated(self._run(net, scale))

    @torch.inference_mode()
    def _run(self, net: MapNet, scale: float) -> list[Tensor]:
        started = Spent.until_now()
        flips = FLIPS if self.flips else FLIPS[:1]
        passes = [(tile, axes) for tile in self.tiles for axes in flips]
        lanes = lanes_for(self.at_the_same_time, torch.device("cpu"))
        outputs = list(stream(lambda each: net(resized(each[0].flip(each[1]), scale)), passes, lanes))
        self.spent += Spent.until_now() - started
        return outputs


def _concatenated(outputs: list[Tensor]) -> Tensor:
    return torch.cat([maps.flatten(2) for maps in outputs], dim=2)[:, :, None]


def speeds(model: Model, path: Path, work: Path, settings: SlideSettings) -> tuple[int, Spent, Spent, Spent]:
    """Number of tiles, and what the network alone, the network tile by tile, and the full pipeline took."""
    with open_slide(path) as slide:
        scale = slide.natural_scale(MODEL_MPP / SLIDE_MPP)
        grid = TileLayout(int(slide.width / scale), int(slide.height / scale), scale, settings.tile, settings.overlap)
        tiles = [
            torch.from_numpy(slide.read(grid.region(tile), (grid.tile, grid.tile), scale)).permute(2, 0, 1)[None] / 255
            for tile in grid.where(find_tissue(slide).touches)
        ]
    model.predictor.predict(TilesInMemory(tiles[:1], bool(settings.flips)))  # warm-up
    alone, one_by_one = (TilesInMemory(tiles, bool(settings.flips), count) for count in (TILES_AT_ONCE, 1))
    for view in (alone, one_by_one):
        model.predictor.predict(view)
    started = Spent.until_now()
    save_slide_prediction(model, path, work / f"out-{time.monotonic_ns()}", settings)
    return len(tiles), alone.spent, one_by_one.spent, Spent.until_now() - started


def main() -> None:
    """Print memory by size, then speeds by round and backbone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", type=int, nargs=2, default=[10_000, 40_000])
    parser.add_argument("--speed-side", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--work", type=Path, default=None, help="folder for slides and results; default: a temporary folder"
    )
    parser.add_argument(
        "--run",
        type=Path,
        default=None,
        help="a trained model instead of those with --backbones",
    )
    parser.add_argument("--backbones", nargs="+", default=["efficientnet_lite0", "resnet18_deep"])
    parser.add_argument("--flips", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one round with small slides")
    options = parser.parse_args()
    if options.quick:
        options.sides, options.speed_side, options.rounds = [1500, 4000], 6000, 1
    keep_memory_flat()  # as the command does
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        runs = {name: make_run(work, name) for name in options.backbones} if options.run is None else {"": options.run}
        report_memory(next(iter(runs.values())), work, options.sides, flips=options.flips)
        for name, run in runs.items():
            report_speed(name, run, work, options)


def report_memory(run: Path, work: Path, sides: list[int], *, flips: bool) -> None:
    """Print the peaks of the command, and their ratio."""
    peaks = []
    for side in sides:
        out = work / f"memory-{time.monotonic_ns()}"
        arguments = ["--model-mpp", str(MODEL_MPP), "--flips" if flips else "--no-flips"]
        peak, seconds = peak_memory(run, make_slide(work / f"slide-{side}.tif", side), out, arguments)
        peaks.append(peak)
        print(f"{side:6} x {side}: peak {peak:6.0f} MB, {seconds:5.0f} s", flush=True)
    what = f"`histolumen slide`, peak memory of {sides[1]:,} x {sides[1]:,} relative to {sides[0]:,} x {sides[0]:,}"
    row(what, f"{peaks[1] / peaks[0]:.2f} ({peaks[1]:.0f} and {peaks[0]:.0f} MB)", "1.2")


def report_speed(name: str, run: Path, work: Path, options: argparse.Namespace) -> None:
    """Print throughputs by round, and the medians of their ratios."""
    model, settings = load(run, "cpu"), SlideSettings(model_mpp=MODEL_MPP, flips=options.flips)
    path = make_slide(work / f"slide-{options.speed_side}.tif", options.speed_side)
    shares, work_shares, tiles = [], [], 0
    for _ in range(options.rounds):
        tiles, alone, one_by_one, whole = speeds(model, path, work, settings)
        shares.append(alone.seconds / whole.seconds)
        work_shares.append(alone.processor / whole.processor)
        print(
            f"{tiles} tiles: network alone {tiles / alone.seconds:.2f} tiles/s "
            f"({tiles / one_by_one.seconds:.2f} one by one), from the slide "
            f"{tiles / whole.seconds:.2f} tiles/s ({100 * shares[-1]:.0f} %); processor time "
            f"{alone.processor:.1f} and {whole.processor:.1f} s ({100 * work_shares[-1]:.0f} %)",
            flush=True,
        )
    if shares:  # --rounds 0: memory alone
        value = f"{statistics.median(shares):.0%} (processor time {statistics.median(work_shares):.0%})"
        network = f", {name}" if name else ""
        row(f"tiles per second from a slide of {tiles} tiles, relative to the network alone{network}", value, "85 %")


if __name__ == "__main__":
    main()
