"""Outlines and pyramid of a slide's heat map, computed by a process of their own while the network goes on.

`python -m histolumen.export.in_background FOLDER` is that process. A thread would not do: tracing thousands of outlines
holds the interpreter, and the network would wait for it between any two layers. The result is that of
`find_regions` and `save_heatmap`, to the last bit.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import numpy as np

from histolumen.export.heatmap import save_heatmap
from histolumen.export.regions import FoundRegion, Raster, find_regions

_HEAT, _PLAN, _REGIONS, HEATMAP = "heat.npy", "heat.json", "regions.wkb", "heatmap.tif"
_NICE = 5  # the network goes first
CERTAIN = 255
"""Value of a heat map for a soft mask of 1."""


@dataclass(frozen=True)
class HeatFiles:
    """What is made from a heat map [h, w] uint8."""

    scale: float
    """Pixels of the slide per pixel of the heat map."""
    size: tuple[int, int]
    """Width and height of the slide."""
    mpp: float
    min_area: float
    """Smaller regions and holes are left out, in pixels of the heat map."""
    threshold: float
    """Level of the outlines, in [0, 1]."""

    def regions(self, heat: np.ndarray) -> list[FoundRegion]:
        """Connected regions, largest first."""
        height, width = heat.shape

        def read(left: int, top: int, across: int, down: int) -> np.ndarray:
            return heat[top : top + down, left : left + across]

        return find_regions(Raster(width, height, read, self.threshold * CERTAIN, CERTAIN), self.min_area)

    def save_pyramid(self, heat: np.ndarray, path: Path) -> None:
        """Write the heat map at the size of the slide."""
        save_heatmap(heat, self.scale, self.size, self.mpp, path)


class BackgroundFiles:
    """The process that makes the files of one heat map; `close` ends it.

    Each process has its own folder in `work`: one that outlives a killed parent cannot disturb the next attempt.
    """

    def __init__(self, heat: np.ndarray, files: HeatFiles, work: Path):
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = work
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="heat-", dir=work))
            np.save(self._folder / _HEAT, heat)
            (self._folder / _PLAN).write_text(json.dumps(asdict(files)))
            command = [sys.executable, "-P", "-m", __name__, str(self._folder)]  # -P: nothing from the current folder
            nowhere = subprocess.DEVNULL
            self._process = subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere)  # noqa: S603 - ours
        except OSError:
            pass  # a full disk, or no more processes: the files are made later, and then the error is reported

    def results(self) -> tuple[list[FoundRegion], Path] | None:
        """Wait for the regions and the pyramid; None if the process failed."""
        if self._process is None or self._process.wait() or not (self._folder / HEATMAP).is_file():
            return None
        try:
            with (self._folder / _REGIONS).open("r", encoding="ascii") as file:
                return _read_regions(file), self._folder / HEATMAP
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """End the process if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _write_regions(regions: list[FoundRegion], file: IO[str]) -> None:
    import shapely  # noqa: PLC0415 - an extra

    for region in regions:
        file.write(f"{region.mean!r} {shapely.to_wkb(region.outline, hex=True)}\n")


def _read_regions(file: IO[str]) -> list[FoundRegion]:
    import shapely  # noqa: PLC0415

    return [FoundRegion(shapely.from_wkb(outline), float(mean)) for mean, outline in map(str.split, file)]  # type: ignore[arg-type] # polygons


def _main(folder: Path) -> None:
    os.nice(_NICE)
    plan = json.loads((folder / _PLAN).read_text())
    files = HeatFiles(**{**plan, "size": tuple(plan["size"])})
    heat = np.load(folder / _HEAT)
    with (folder / _REGIONS).open("w", encoding="ascii") as file:
        _write_regions(files.regions(heat), file)
    # last: it uses all cores, which are free when the network has finished
    files.save_pyramid(heat, folder / HEATMAP)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
