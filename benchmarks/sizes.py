"""Cost against size: time per megapixel from 0.4 to 40 megapixels, at the image's own resolution.

Sizes are timed in turn, round after round. Images above 1280 x 1280 pixels are predicted in windows that overlap by 64
pixels. With a trained model and images, the seams are measured instead: the share of pixels of a mosaic whose mask
differs from that of the mosaic predicted at once.

usage: python benchmarks/sizes.py [--rounds 2] [--quick]
       python benchmarks/sizes.py --seams RUN FOLDER
"""

import argparse
import math
import statistics
import tempfile
from functools import partial
from pathlib import Path

import torch

import histolumen
from histolumen.data.image import read_image
from histolumen.data.transforms import to_unit_range, to_working_size
from histolumen.engine.memory import keep_memory_flat
from histolumen.engine.prediction import THRESHOLD
from histolumen.engine.windows import map_runner
from histolumen.methods.maxmin import MaxMin
from timing import interleaved, picture, row, write_untrained_run

_MEGAPIXELS = (0.4, 1.6, 4.0, 10.0, 40.0)


def main() -> None:
    """Print the time per megapixel of each size, relative to the smallest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one round, up to 10 megapixels")
    parser.add_argument("--seams", nargs=2, type=Path, metavar=("RUN", "FOLDER"), help="measure the seams instead")
    options = parser.parse_args()
    if options.seams:
        measure_seams(*options.seams)
        return
    keep_memory_flat()  # as the command does
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


def measure_seams(run: Path, folder: Path) -> None:
    """Print how many pixels of a mosaic of the first twelve images change when it is predicted in windows."""
    model = histolumen.load(run, "cpu")
    method, multiple = model.method, model.method.backbone.size_multiple
    if isinstance(method, MaxMin):  # images in windows are never refined; here only the seams are to differ
        method.refinement = method.redrawing = None
    pictures = [read_image(path) for path in sorted(folder.iterdir()) if _is_image(path)][:12]
    tiles = [to_unit_range(to_working_size(each, model.config.images, multiple=multiple)) for each in pictures]
    height, width = (min(tile.shape[axis] for tile in tiles) for axis in (1, 2))
    rows = [torch.cat([tile[:, :height, :width] for tile in tiles[k : k + 3]], dim=2) for k in range(0, 12, 3)]
    mosaic = torch.cat(rows, dim=1)[None]
    with torch.inference_mode():
        whole = method(mosaic).soft_mask
        grid = math.lcm(multiple, method.backbone.stride)
        windows = method(mosaic, map_runner(*mosaic.shape[2:], whole_pixels=0, grid=grid)).soft_mask
    changed = ((whole >= THRESHOLD) != (windows >= THRESHOLD)).float().mean()
    print(f"{mosaic.shape[3]} x {mosaic.shape[2]} pixels in windows: {100 * changed:.2f} % of the pixels change side")


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in {".bmp", ".png", ".jpg", ".jpeg", ".tif", ".tiff"} and "anno" not in path.name


if __name__ == "__main__":
    main()
