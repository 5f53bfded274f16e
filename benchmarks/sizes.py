"""Cost against size: time per megapixel from 0.4 to 40 megapixels, at the image's own resolution.

Sizes are timed in turn, round after round. Images above 4 megapixels are predicted in windows, whose overlap costs
1.78 times the pixels at most.

usage: python benchmarks/sizes.py [--rounds 2] [--quick]
"""

import argparse
import math
import statistics
import tempfile
from functools import partial
from pathlib import Path

import histolumen
from timing import interleaved, picture, row, write_untrained_run

_MEGAPIXELS = (0.4, 1.6, 4.0, 10.0, 40.0)


def main() -> None:
    """Print the time per megapixel of each size, relative to the smallest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one round, up to 10 megapixels")
    options = parser.parse_args()
    sizes = _MEGAPIXELS[:-1] if options.quick else _MEGAPIXELS
    with tempfile.TemporaryDirectory() as temporary:
        changes = ["images.short_side=null", "images.test_flips=false"]
        model = histolumen.load(write_untrained_run(Path(temporary) / "run", "efficientnet_lite0", *changes), "cpu")
        images = {
            size: picture(round(1000 * math.sqrt(size * 0.8)), round(1000 * math.sqrt(size / 0.8))) for size in sizes
        }
        ways = {str(size): partial(model.predict, image) for size, image in images.items()}
        times = interleaved(ways, 1 if options.quick else options.rounds)
    per_megapixel = {size: statistics.median(times[str(size)]) / size for size in sizes}
    for size, seconds in per_megapixel.items():
        print(f"{size:5.1f} megapixels: {seconds:.2f} s per megapixel")
    relative = ", ".join(
        f"{size:g}: {seconds / per_megapixel[sizes[0]]:.2f}" for size, seconds in per_megapixel.items()
    )
    row("time per megapixel relative to 0.4 megapixels", relative, "flat")


if __name__ == "__main__":
    main()
