"""Two training processes with one thread each, relative to one process with two threads.

Both train the same recipe on the same synthetic images, alternately; the first epoch of each is left out. Result: the
median ratio of the seconds per epoch (goal: at most 1.10).

usage: python benchmarks/processes.py [--rounds 3] [--epochs 3] [--images 32] [--size 256] [--backbone NAME] [--quick]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from histolumen.engine.runlog import read_metrics
from timing import row

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node"]


def seconds_per_epoch(processes: int, threads: int, arguments: list[str], out: Path) -> float:
    """Train, and return the median time of an epoch after the first."""
    launcher = [*TORCHRUN, str(processes), "-m", "histolumen"] if processes > 1 else ["-m", "histolumen"]
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, *launcher, *arguments, "--out", str(out)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return statistics.median(record["seconds"] for record in read_metrics(out)[1:])


def main() -> None:
    """Print the seconds of each round and the median ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--quick", action="store_true", help="one round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        made = ["data", "synthetic", str(work / "images"), "--images", str(options.images), "--size", str(options.size)]
        subprocess.run([sys.executable, "-m", "histolumen", *made], check=True, capture_output=True)
        crop = options.size - options.size % 16
        settings = [
            f"backbone.name={options.backbone}", "backbone.weights=none", f"images.short_side={options.size}",
            f"images.crop={crop}", f"train.epochs={options.epochs}",
        ]  # fmt: skip
        arguments = ["train", "glas-sem", "--data", str(work / "images/manifest.csv")]
        arguments += [part for setting in settings for part in ("--set", setting)]
        ratios = []
        for number in range(1 if options.quick else options.rounds):
            one = seconds_per_epoch(1, 2, arguments, work / f"one-{number}-{time.monotonic_ns()}")
            two = seconds_per_epoch(2, 1, arguments, work / f"two-{number}-{time.monotonic_ns()}")
            ratios.append(two / one)
            print(f"one process {one:6.2f} s   two processes {two:6.2f} s   ratio {ratios[-1]:.2f}", flush=True)
    what = "an epoch of two processes with one thread each, relative to one process with two"
    row(what, f"{statistics.median(ratios):.2f}", "1.10")


if __name__ == "__main__":
    main()
