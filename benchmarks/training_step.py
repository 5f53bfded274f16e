"""Duration of a Max-Min training step (X, X+, X-) relative to a one-pass step with the same backbone and batch.

The two steps are timed alternately in one process, so that a noisy machine slows both alike. The result is the median
of the ratios. The number of pixels predicts, at classifier scale 0.8: 1 + 2 * 0.64 = 2.28.

usage: python benchmarks/training_step.py [--size 416] [--batch 4] [--rounds 7] [--backbones resnet18_deep ...]
           [--layout auto] [--mask-at features --mask-stride 8] [--cpu-time] [--quick]
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from histolumen.config import TrainSettings
from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.engine.arithmetic import memory_layout
from histolumen.engine.memory import keep_freed_memory
from histolumen.engine.optim import build_optimizer
from histolumen.methods.base import Batch
from histolumen.methods.maxmin import MaxMin, MaxMinSettings
from timing import row


def make_step(
    settings: MaxMinSettings, backbone: BackboneSettings, batch: Batch, train: TrainSettings
) -> Callable[[], None]:
    """Return one optimisation step as in the engine, without data loading."""
    torch.manual_seed(0)
    method = MaxMin(settings, build_backbone(backbone), classes=2).train()
    layout = memory_layout(method, train)
    method = method.to(memory_format=layout)  # pyright: ignore[reportCallIssue]
    batch = batch.laid_out(layout)
    optimizer = build_optimizer(method, train)

    def step() -> None:
        total: Tensor = sum(method.losses(batch).terms.values(), start=torch.zeros(()))
        optimizer.zero_grad()
        total.backward()
        optimizer.step()

    return step


def seconds(step: Callable[[], None], clock: Callable[[], float]) -> float:
    """Time of one call."""
    started = clock()
    step()
    return clock() - started


def main() -> None:
    """Print one line per backbone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=416)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--backbones", nargs="+", default=["efficientnet_lite0", "resnet18_deep"])
    parser.add_argument(
        "--no-keep-memory", dest="keep_memory", action="store_false", help="use the default settings of malloc"
    )
    parser.add_argument("--layout", choices=["auto", "channels_last", "channels_first"], default="auto")
    parser.add_argument("--mask-at", choices=["image", "features"], default="image")
    parser.add_argument("--mask-stride", type=int, choices=[2, 4, 8, 16], default=8)
    parser.add_argument("--statistics", nargs="+", default=["shared", "separate"])
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="time of the processor, which other processes change less",
    )
    parser.add_argument("--quick", action="store_true", help="two rounds with small images")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.size = 2, 160
    clock = time.process_time if options.cpu_time else time.perf_counter
    train = TrainSettings(layout=options.layout)
    masked = MaxMinSettings(mask_at=options.mask_at, mask_stride=options.mask_stride)
    print(f"freed memory kept: {options.keep_memory and keep_freed_memory()}")
    batch = Batch(torch.rand(options.batch, 3, options.size, options.size), torch.arange(options.batch) % 2)
    plain = MaxMinSettings(foreground=False, background="none", size_barrier=False)  # the localizer alone
    print(f"{options.batch} images of {options.size} px, {torch.get_num_threads()} threads, {options.rounds} rounds")
    for name in options.backbones:
        for statistics_kind in options.statistics:
            backbone = BackboneSettings(name=name, weights="none", statistics=statistics_kind)
            one, three = (make_step(settings, backbone, batch, train) for settings in (plain, masked))
            one()
            three()  # warm-up
            pairs = [(seconds(one, clock), seconds(three, clock)) for _ in range(options.rounds)]
            ratio = statistics.median(three_s / one_s for one_s, three_s in pairs)
            times = [statistics.median(column) for column in zip(*pairs, strict=True)]
            what = f"a step of Max-Min, {name}, {statistics_kind} statistics"
            row(what, f"{ratio:.2f} plain steps ({times[0]:.2f} and {times[1]:.2f} s)", "2.4")


if __name__ == "__main__":
    main()
