"""Style of all figures, and how they are saved."""

import matplotlib

matplotlib.use("Agg")  # no screen needed

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from histolumen.atomic import new_file

# colour-blind-safe palette of Okabe and Ito
BLUE, ORANGE, GREEN, PINK, GREY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#555555"

plt.rcParams.update(
    {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 9,
        "legend.frameon": False,
        "figure.constrained_layout.use": True,
        "pdf.fonttype": 42,  # TrueType: text stays editable
        "savefig.dpi": 200,
    }
)


def panels(rows: int, columns: int, size: tuple[float, float], **options: object) -> tuple[Figure, list[Axes]]:
    """Create a figure of rows x columns panels of `size` inches; return it and the list of panels."""
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(size[0] * columns, size[1] * rows),
        squeeze=False,
        **options,  # type: ignore[arg-type]
    )
    return figure, list(grid.flat)


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write NAME.pdf and NAME.png."""
    paths = []
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout is found: computing it again for each file takes most of the time
    for ending in ("pdf", "png"):
        paths.append(folder / f"{name}.{ending}")
        with new_file(paths[-1]) as temporary:
            figure.savefig(temporary, format=ending)
    plt.close(figure)
    return paths
