"""`predict` on a folder of images of many sizes: its share of the network's own rate, and its memory.

Blocks of images are predicted into a folder (decoding, network, masks, pictures, table) and, alternately, run through
the network alone, already decoded and resized. Memory is that of the process after image 50 and after the last.

usage: python benchmarks/folder.py [--images 500] [--quick] [--run RUN]
"""

import argparse
import gc
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

import histolumen
from histolumen.engine.memory import keep_memory_flat
from timing import GLAS_SIZE, picture, resident_mb, row, write_untrained_run

_BLOCK, _SETTLED = 25, 50


def main() -> None:
    """Print the share of the network's rate and the growth of memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--quick", action="store_true", help="75 small images")
    parser.add_argument("--run", type=Path, help="a trained run instead of an untrained model")
    options = parser.parse_args()
    keep_memory_flat()  # as the command does, before torch is imported
    from histolumen.engine.predict_files import find_images, predict_files  # noqa: PLC0415

    count = 75 if options.quick else options.images
    changes = ["images.short_side=224", "images.crop=224"] if options.quick else []
    sizes = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.run or write_untrained_run(Path(temporary) / "run", "efficientnet_lite0", *changes)
        model = histolumen.load(folder, device="cpu")
        images = Path(temporary) / "images"
        for number in range(count):
            height, width = (round(side * sizes.uniform(0.8, 1.2)) for side in GLAS_SIZE)
            (images / str(number // _BLOCK)).mkdir(parents=True, exist_ok=True)
            file = images / str(number // _BLOCK) / f"{number:04}.png"
            Image.fromarray(picture(height, width, number)).save(file)
        network, whole, memory, done = 0.0, 0.0, [], 0
        model.predict(picture(*GLAS_SIZE))
        for block in sorted(images.iterdir(), key=lambda path: int(path.name)):
            prepared = [model.prepare(file) for file in sorted(block.iterdir())]
            started = time.perf_counter()
            for image in prepared:
                model.run(image)
            network += time.perf_counter() - started
            del prepared
            started = time.perf_counter()
            predict_files(model, find_images([block]), Path(temporary) / "out" / block.name)
            whole += time.perf_counter() - started
            done += _BLOCK
            gc.collect()
            memory.append((done, resident_mb()))
    print(f"{count} images: network {count / network:.2f} a second, predict {count / whole:.2f} a second")
    row(f"predict on a folder of {count} images", f"{100 * network / whole:.0f} % of the network's rate", "90 %")
    first = next(megabytes for images_done, megabytes in memory if images_done >= _SETTLED)
    value = f"{first:.0f} MB, then {memory[-1][1]:.0f} MB"
    row(f"memory after image {_SETTLED} and after image {count}", value, "no growth")


if __name__ == "__main__":
    main()
