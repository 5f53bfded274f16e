"""Parameters and time per image of every method, on the paper's networks."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

import torch

from histolumen.config import load_config
from histolumen.methods.base import Method, build_method
from histolumen.nets.backbones import build_backbone
from histolumen.report.rows import ROWS, BenchmarkRow
from histolumen.report.tables import Table

_CLASSES = 2
_SAME_NETWORK = {"eem": "Max-Min (EEM, SEM)"}  # one row of the paper's table


@dataclass(frozen=True)
class Complexity:
    """One line of the table; the paper's figures are None for systems that are not in it."""

    name: str
    title: str
    parameters: int
    seconds: float
    paper_parameters: int | None
    paper_seconds: float | None


def measure_complexity(
    size: tuple[int, int], repeats: int = 5, track: Callable[[list[int]], Iterable[int]] = lambda rounds: rounds
) -> list[Complexity]:
    """Count and time all methods on one random image.

    Args:
        size: height and width of the image.
        repeats: timed predictions per method; they are interleaved, and the median counts.
        track: wraps the rounds to show progress.
    """
    rows = [row for row in ROWS if row.name not in {"all-ones", "sem"}]
    methods = {row.name: build_row(row) for row in rows}
    image = torch.rand(1, 3, *size, generator=torch.Generator().manual_seed(0))
    times: dict[str, list[float]] = {row.name: [] for row in rows}
    with torch.inference_mode():
        for number in track(list(range(repeats + 1))):
            for name, method in methods.items():
                started = time.perf_counter()
                method.predict(image)
                if number > 0:  # the first round warms up
                    times[name].append(time.perf_counter() - started)
    return [
        Complexity(
            name=row.name if row.name not in _SAME_NETWORK else "maxmin",
            title=_SAME_NETWORK.get(row.name, row.title),
            parameters=sum(parameter.numel() for parameter in methods[row.name].parameters()),
            seconds=median(times[row.name]),
            paper_parameters=row.parameters,
            paper_seconds=row.seconds,
        )
        for row in rows
    ]


def build_row(row: BenchmarkRow) -> Method:
    """The row's method on the paper's backbone, with random weights."""
    config = load_config(f"glas-{row.name}", ["backbone.weights=none"])
    return build_method(config.method, build_backbone(config.backbone), _CLASSES).eval()


def complexity_table(lines: list[Complexity], size: tuple[int, int]) -> Table:
    """Ours and the paper's figures side by side."""
    columns = ["method", "#pModel", "s/image", "paper: #pModel", "paper: s/image"]
    rows = []
    for line in lines:
        ours = [line.title, f"{line.parameters:,}", f"{line.seconds:.4f}"]
        rows.append([*ours, _or_dash(line.paper_parameters, ","), _or_dash(line.paper_seconds, ".4f")])
    device = f"CPU with {torch.get_num_threads()} threads"
    notes = [
        f"Times are medians of single images of {size[0]} x {size[1]} pixels, measured here on a {device}.",
        "Columns 'paper' are printed in the paper (times on a GTX 1080 Ti), not measured.",
    ]
    return Table("Complexity: learnable parameters and time per image, two classes", columns, rows, notes)


def _or_dash(value: float | None, pattern: str) -> str:
    return "--" if value is None else format(value, pattern)
