"""`histolumen predict` beside a busy process that keeps one core full, relative to its time without that process.

The same command runs alternately alone and beside the busy process; also with threads that spin while they wait, as
torch does by default (OMP_WAIT_POLICY=ACTIVE).

usage: python benchmarks/neighbour.py [--images 6] [--rounds 2] [--quick]
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

from timing import GLAS_SIZE, median_ratio, picture, row, write_untrained_run

_GOAL = 2.5


def spin() -> None:
    """Keep a core full."""
    while True:
        pass


def seconds(run: Path, images: Path, *, busy: bool, policy: str) -> float:
    """Duration of one call."""
    neighbour = multiprocessing.get_context("spawn").Process(target=spin, daemon=True)
    if busy:
        neighbour.start()
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    try:
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, "-m", "histolumen", "predict", str(run), str(images), "--out", f"{out}/x"]
            started = time.perf_counter()
            environment |= {"OMP_WAIT_POLICY": policy}
            subprocess.run(command, check=True, capture_output=True, env=environment)
            return time.perf_counter() - started
    finally:
        if busy:
            neighbour.kill()
            neighbour.join()


def main() -> None:
    """Print one row per policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="3 images, one round")
    options = parser.parse_args()
    count, rounds = (3, 1) if options.quick else (options.images, options.rounds)
    with tempfile.TemporaryDirectory() as temporary:
        run, images = write_untrained_run(Path(temporary) / "run"), Path(temporary) / "images"
        images.mkdir()
        for number in range(count):
            Image.fromarray(picture(*GLAS_SIZE, seed=number)).save(images / f"{number}.png")
        for policy, goal in (("PASSIVE", f"{_GOAL} x"), ("ACTIVE", "")):
            times = [[seconds(run, images, busy=busy, policy=policy) for busy in (False, True)] for _ in range(rounds)]
            alone, beside = zip(*times, strict=True)
            print(f"{policy}: alone {min(alone):.1f} s, beside a busy process {min(beside):.1f} s", flush=True)
            name = "as shipped" if policy == "PASSIVE" else "with spinning threads"
            row(f"predict beside a busy process, {name}", f"{median_ratio(beside, alone):.2f} x alone", goal)


if __name__ == "__main__":
    main()
