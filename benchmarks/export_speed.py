"""Class and mask of one image: exported graphs relative to the same model run eagerly, pass by pass, in NCHW.

usage: python benchmarks/export_speed.py [--rounds 5] [--threads 2] [--backbones efficientnet_lite0 ...] [--quick]

All versions are timed in turn within one process; the rows have the median of the ratios of each round, above 1 where
the graph is faster. `glas-best` with efficientnet_lite0 makes four passes an image (its flips), `glas-sem` with
resnet18_deep two (X and X+). The share of the peak is the time of all convolutions as plain matrix products of the same
sizes, divided by the time of the graph in single precision.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from histolumen.config import load_config
from histolumen.data.transforms import to_unit_range, to_working_size
from histolumen.deploy.card import Format, card_of
from histolumen.deploy.formats import write_graph
from histolumen.deploy.quantise import quantise
from histolumen.deploy.runtimes import SUFFIXES, open_session
from histolumen.encoders.backbone import build_backbone
from histolumen.encoders.geometry import FLIPS
from histolumen.engine.model import Model
from histolumen.engine.prediction import to_size
from histolumen.methods.base import build_method
from timing import row

RECIPES = {"efficientnet_lite0": "glas-best", "resnet18_deep": "glas-sem", "resnet18": "glas-sem"}
SIZES = ((416, 416), (522, 775))
FORMATS: tuple[Format, ...] = ("onnx", "openvino")


def untrained(backbone: str) -> Model:
    """A model with random weights: speed does not depend on them."""
    torch.manual_seed(0)
    config = load_config(RECIPES[backbone], [f"backbone.name={backbone}", "backbone.weights=none"])
    images = config.images.model_copy(update={"glass": "keep"})  # found outside the graph
    config = config.model_copy(update={"images": images})
    method = build_method(config.method, build_backbone(config.backbone), 2)
    return Model(method, ["benign", "malignant"], config, torch.device("cpu"))


def eager(model: Model, image: np.ndarray) -> Callable[[], object]:
    """The plain way: one pass after the other, no folding, no channels_last, no batches."""
    method = build_method(model.config.method, build_backbone(model.config.backbone, load_weights=False), 2).eval()
    settings = model.config.images

    @torch.inference_mode()
    def run() -> np.ndarray:
        working = to_working_size(image, settings, None, method.backbone.size_multiple)
        batch = to_unit_range(working[None])
        flips = FLIPS if settings.test_flips else FLIPS[:1]
        masks = [method(batch.flip(axes)).soft_mask.flip(axes) for axes in flips]
        return to_size(torch.stack(masks).mean(0), image.shape[:2])

    return run


def products(model: Model, run: Callable[[], object]) -> Callable[[], object]:
    """All convolutions of one prediction as matrix products of the same sizes."""
    sizes: list[tuple[int, int, int, int]] = []

    def record(module: nn.Module, _inputs: object, output: Tensor) -> None:
        if isinstance(module, nn.Conv2d):
            taps = module.in_channels // module.groups * module.kernel_size[0] * module.kernel_size[1]
            positions = output.shape[2] * output.shape[3]
            sizes.append((module.groups, module.out_channels // module.groups, taps, positions))

    handle = nn.modules.module.register_module_forward_hook(record)
    run()
    handle.remove()
    matrices = {
        size: (torch.rand(size[0], size[1], size[2]), torch.rand(size[0], size[2], size[3])) for size in set(sizes)
    }

    @torch.inference_mode()
    def multiply() -> None:
        for size in sizes:
            torch.bmm(*matrices[size])

    return multiply


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def main() -> None:
    """Print three rows per backbone and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--backbones", nargs="+", default=["efficientnet_lite0", "resnet18_deep"], choices=list(RECIPES)
    )
    parser.add_argument("--quick", action="store_true", help="one round")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    generator = np.random.default_rng(0)
    images = [generator.integers(0, 256, (*size, 3), dtype=np.uint8) for size in SIZES]
    count = 1 if options.quick else options.rounds
    print(f"{options.threads} threads, {count} rounds")
    for backbone in options.backbones:
        model = untrained(backbone)
        with tempfile.TemporaryDirectory() as folder:
            paths = {}
            for file_format in FORMATS:
                card = card_of(model, file_format)
                plain, small = (Path(folder) / f"{name}{SUFFIXES[file_format]}" for name in ("fp32", "int8"))
                write_graph(model, card, plain)
                quantise(plain, small, card, [{"image": image} for image in images])
                paths |= {f"{file_format} fp32": plain, f"{file_format} int8": small}
            sessions = {name: open_session(path) for name, path in paths.items()}
            for image in images:
                runs: dict[str, Callable[[], object]] = {
                    name: partial(session.run, image) for name, session in sessions.items()
                }
                runs["eager"] = eager(model, image)
                runs["products"] = products(model, runs["eager"])
                for run in runs.values():
                    run()  # warm-up
                rounds = [{name: seconds(run) for name, run in runs.items()} for _ in range(count)]

                def ratio(above: str, below: str, rounds: list[dict[str, float]] = rounds) -> float:
                    return statistics.median(times[above] / times[below] for times in rounds)

                image_of = f"{backbone}, {image.shape[0]} x {image.shape[1]}"
                for precision, goal in (("fp32", "1.7 x"), ("int8", "3 x")):
                    faster = " and ".join(f"{ratio('eager', f'{name} {precision}'):.2f} x" for name in FORMATS)
                    row(f"exported, {precision}, {image_of}: ONNX Runtime and OpenVINO", faster, goal)
                peak = " and ".join(f"{ratio('products', f'{name} fp32'):.0%}" for name in FORMATS)
                row(f"share of the peak, {image_of}: ONNX Runtime and OpenVINO", peak, "60 %")


if __name__ == "__main__":
    main()
