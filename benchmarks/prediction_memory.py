"""Does memory grow with the number of predicted images? python benchmarks/prediction_memory.py [--images 1000]

Prints, for every method, the resident memory after a warm-up and after all images, predicted one by one.
"""

import argparse
import gc
import resource
import sys
from pathlib import Path

import numpy as np
import torch

from histolumen.config import load_config
from histolumen.encoders.backbone import build_backbone
from histolumen.engine.model import predict_images
from histolumen.methods.base import build_method
from histolumen.report.rows import ROWS

_WARM_UP = 50


def resident_mb() -> float:
    """Resident memory of this process; its peak on systems without /proc."""
    if sys.platform.startswith("linux"):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    """Print one line per method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--size", type=int, default=96)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (arguments.size, arguments.size, 3), dtype=np.uint8)
    for row in ROWS:
        small = ["backbone.name=test_resnet", "backbone.weights=none", "backbone.output_stride=16"]
        config = load_config(f"glas-{row.name}", [*small, "images.short_side=null"])
        method = build_method(config.method, build_backbone(config.backbone), 2).eval()
        before = 0.0
        for number in range(arguments.images):
            predict_images(method, ["a", "b"], [pixels], config.images, torch.device("cpu"), ["image"])
            if number == _WARM_UP:
                gc.collect()
                before = resident_mb()
        gc.collect()
        print(f"{row.name:10} {before:7.1f} MB -> {resident_mb():7.1f} MB after {arguments.images} images", flush=True)


if __name__ == "__main__":
    main()
