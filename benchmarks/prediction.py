"""Class and mask of one image: `Model.predict` against a plain script that runs the same model.

The plain script is what one writes first: eager, NCHW, BatchNorm as trained, flip after flip. Both start from the
decoded image and end with the mask at its size; their answers must agree within 1e-4.

usage: python benchmarks/prediction.py [--rounds 5] [--quick] [--run RUN]
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

import histolumen
from histolumen.data.transforms import to_working_size
from histolumen.engine.model import Model
from timing import GLAS_SIZE, interleaved, median_ratio, picture, row, write_untrained_run

_GOAL = 1.7


@torch.inference_mode()
def plain(model: Model, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and soft mask by the plain script."""
    method = model.method
    working = to_working_size(pixels, model.config.images, None, method.backbone.size_multiple)
    image = working[None].contiguous().float() / 255
    probs, masks = [], []
    for axes in ((), (3,), (2,), (2, 3)) if model.config.images.test_flips else ((),):
        output = method(image.flip(axes))
        probs.append(output.probs[0])
        masks.append(output.soft_mask.flip(axes))
    mask = F.interpolate(torch.stack(masks).mean(0), size=pixels.shape[:2], mode="bilinear", align_corners=False)
    return torch.stack(probs).mean(0).numpy(), mask[0, 0].numpy()


def compare(name: str, model: Model, height: int, width: int, rounds: int) -> None:
    """Print the ratio for one model and size."""
    pixels = picture(height, width)
    probs, mask = plain(model, pixels)
    ours = model.predict(pixels)
    difference = float(np.abs(ours.soft_mask - mask).max())
    same_class = list(ours.probabilities)[int(probs.argmax())] == ours.label
    times = interleaved({"plain": lambda: plain(model, pixels), "ours": lambda: model.predict(pixels)}, rounds)
    seconds = {way: statistics.median(values) for way, values in times.items()}
    ratio = median_ratio(times["plain"], times["ours"])
    print(f"{name} {height} x {width}: plain {seconds['plain']:.2f} s, ours {seconds['ours']:.2f} s", flush=True)
    agreement = f"mask within {difference:.0e}, {'same' if same_class else 'OTHER'} class"
    row(f"class + mask of one image, {name}, {height} x {width}", f"{ratio:.2f} x ({agreement})", f"{_GOAL} x")


def main() -> None:
    """Print one row per backbone and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two rounds, without flips")
    parser.add_argument("--run", type=Path, help="a trained run instead of untrained models")
    parser.add_argument("--backbones", nargs="+", default=["efficientnet_lite0", "resnet18_deep"])
    options = parser.parse_args()
    rounds = 2 if options.quick else options.rounds
    print(f"{torch.get_num_threads()} threads, {rounds} rounds")
    with tempfile.TemporaryDirectory() as temporary:
        for name in [str(options.run)] if options.run else options.backbones:
            changes = ["images.short_side=null", "images.glass=keep", "mask.fill_holes=0", "mask.min_area=0"]
            changes += ["images.test_flips=false"] if options.quick else []
            folder = options.run or write_untrained_run(Path(temporary) / name, name, *changes)
            model = histolumen.load(folder, device="cpu")
            for height, width in ((416, 416), GLAS_SIZE):
                compare(name, model, height, width, rounds)


if __name__ == "__main__":
    main()
