"""Parameters and inference time of every method with the paper's backbone."""

import time
from dataclasses import dataclass
from statistics import median

import torch

from histolumen.config import load_config
from histolumen.encoders.backbone import build_backbone
from histolumen.methods.base import Method, build_method
from histolumen.progress import SILENT, Progress
from histolumen.report.rows import ROWS, BenchmarkRow
from histolumen.report.tables import Table

_CLASSES = 2
_SAME_NETWORK = {"eem": "Max-Min (EEM, SEM)"}  # one row of the paper's table


@dataclass(frozen=True)
class Complexity:
    """One row of the table; the paper's values are None for methods that it does not have."""

    name: str
    title: str
    parameters: int
    seconds: float | None
    paper_parameters: int | None
    paper_seconds: float | None


def measure_complexity(
    size: tuple[int, int], repeats: int = 5, device: str = "cpu", progress: Progress = SILENT
) -> list[Complexity]:
    """Count the parameters of all methods and time them on one random image.

    Args:
        size: height and width of the image.
        repeats: timed predictions per method, interleaved; the median is reported. 0: only parameters are counted.
        device: for example "cuda".
        progress: receives the number of rounds.
    """
    rows = [row for row in ROWS if row.name not in {"all-ones", "sem"}]
    methods = {row.name: build_row(row).to(device) for row in rows}
    image = torch.rand(1, 3, *size, generator=torch.Generator().manual_seed(0)).to(device)
    times: dict[str, list[float]] = {row.name: [] for row in rows}
    with torch.inference_mode():
        for number in progress.track(range(repeats + 1 if repeats else 0), "timing"):
            for name, method in methods.items():
                started = time.perf_counter()
                method(image).probs.cpu()  # on a GPU, wait for the result
                if number > 0:  # the first round is a warm-up
                    times[name].append(time.perf_counter() - started)
    return [
        Complexity(
            name=row.name if row.name not in _SAME_NETWORK else "maxmin",
            title=_SAME_NETWORK.get(row.name, row.title),
            parameters=sum(parameter.numel() for parameter in methods[row.name].parameters()),
            seconds=median(times[row.name]) if repeats else None,
            paper_parameters=row.parameters,
            paper_seconds=row.seconds,
        )
        for row in rows
    ]


def build_row(row: BenchmarkRow) -> Method:
    """The method of a row with the paper's backbone and random weights."""
    config = load_config(f"glas-{row.name}", ["backbone.weights=none"])
    return build_method(config.method, build_backbone(config.backbone), _CLASSES).eval()


def complexity_table(lines: list[Complexity], size: tuple[int, int], device: str = "cpu") -> Table:
    """Measured values beside the paper's."""
    columns = ["method", "#pModel", "s/image", "paper: #pModel", "paper: s/image"]
    rows = []
    for line in lines:
        ours = [line.title, f"{line.parameters:,}", _or_dash(line.seconds, ".4f")]
        rows.append([*ours, _or_dash(line.paper_parameters, ","), _or_dash(line.paper_seconds, ".4f")])
    notes = ["Columns 'paper' are printed in the paper (times on a GTX 1080 Ti), not measured."]
    if any(line.seconds is not None for line in lines):
        hardware = f"a CPU with {torch.get_num_threads()} threads" if device == "cpu" else device
        timed = f"Times are medians of single images of {size[0]} x {size[1]} pixels, measured here on {hardware}."
        notes = [timed, *notes]
    return Table("Complexity: learnable parameters and time per image, two classes", columns, rows, notes)


def _or_dash(value: float | None, pattern: str) -> str:
    return "--" if value is None else format(value, pattern)
