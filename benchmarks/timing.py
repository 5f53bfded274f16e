"""Shared by the benchmarks: interleaved timing, rows of the table in docs/performance.md, an untrained model.

Only ratios are reported: what is compared runs alternately in one process or one loop, so that other work on the
machine slows both alike.
"""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

GLAS_SIZE = (522, 775)


def interleaved(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each way in each round; every round runs all of them, after one round of warm-up."""
    for way in ways.values():
        way()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - started)
    return times


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Median over the rounds of the ratio of two times."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def row(what: str, value: str, goal: str = "") -> None:
    """Print a row of the table; `run_all.py` collects them."""
    print(f"| {what} | {value} | {goal} |", flush=True)


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Smooth coloured noise RGB [H, W, 3] uint8, as compressible as tissue."""
    from PIL import Image  # noqa: PLC0415 - quick start of benchmarks that do without

    small = np.random.default_rng(seed).integers(60, 230, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
    return np.array(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def write_untrained_run(folder: Path, backbone: str = "efficientnet_lite0", *overrides: str) -> Path:
    """A run folder with the network of `glas-best` and random weights, which takes as long as a trained one."""
    import torch  # noqa: PLC0415

    from histolumen.config import load_config  # noqa: PLC0415
    from histolumen.encoders.backbone import build_backbone  # noqa: PLC0415
    from histolumen.engine.checkpoint import ModelCard, save_model  # noqa: PLC0415
    from histolumen.methods.base import build_method  # noqa: PLC0415

    torch.manual_seed(0)
    config = load_config("glas-best", [f"backbone.name={backbone}", "backbone.weights=none", *overrides])
    method = build_method(config.method, build_backbone(config.backbone), 2)
    save_model(folder / "best", method, ModelCard(config, ["benign", "malignant"], 1, {}))
    return folder


def resident_mb() -> float:
    """Resident memory of this process (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
