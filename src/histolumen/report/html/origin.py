"""Where a run comes from: the nearest shipped recipe, and the row of the paper that it can be compared with."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from histolumen.config import RunConfig, load_config, recipe_names
from histolumen.data.manifest import Manifest
from histolumen.data.sources.camelyon16.published_list import METASTATIC, NORMAL
from histolumen.data.sources.glas import paper_split
from histolumen.report.rows import ROWS, BenchmarkRow, Printed

_MOST_CHANGES = 8  # a recipe that differs in more keys is not worth naming
_CAMELYON_SLIDE = re.compile(r"(normal|tumor|test)_\d{3}")


class PaperRow(NamedTuple):
    """The paper's scores of a method on a benchmark."""

    benchmark: str
    row: BenchmarkRow
    printed: Printed


def recipe_of(config: RunConfig) -> str:
    """The shipped recipe with the fewest different keys, and those keys; the seed does not count."""
    own = config.flat()
    best: tuple[str, dict[str, Any]] | None = None
    for name in recipe_names():
        shipped = load_config(name).flat()
        keys = {*own, *shipped} - {"seed"}
        changes = {key: own.get(key) for key in sorted(keys) if own.get(key) != shipped.get(key)}
        if best is None or len(changes) < len(best[1]):
            best = name, changes
    if best is None or len(best[1]) > _MOST_CHANGES:
        return "settings of its own (see the end of this page)"
    name, changes = best
    return ", ".join([name, *(f"{key}={value}" for key, value in changes.items())])


def paper_row(config: RunConfig, manifest: Manifest) -> PaperRow | None:
    """The row of the paper with the method of a run, if its images are those of GlaS or Camelyon16."""
    benchmark = _benchmark(manifest)
    if benchmark is None:
        return None
    for row in ROWS:
        method = load_config(f"{benchmark}-{row.name}").method
        same_term = getattr(method, "background", None) == getattr(config.method, "background", None)
        if method.name == config.method.name and same_term and benchmark in row.printed:
            return PaperRow(benchmark, row, row.printed[benchmark])
    return None


def _benchmark(manifest: Manifest) -> str | None:
    if {Path(row.image).stem for row in manifest.rows} <= paper_split().keys():
        return "glas"
    patches = all(_CAMELYON_SLIDE.search(row.image) for row in manifest.rows)
    return "camelyon16" if patches and set(manifest.classes) == {NORMAL, METASTATIC} else None
