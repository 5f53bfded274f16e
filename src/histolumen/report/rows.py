"""The rows of the paper's tables: methods and their published scores."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from histolumen.errors import ConfigError, nearest


@dataclass(frozen=True)
class Printed:
    """Published scores in percent; None where the paper has "--"."""

    error: float | None
    f1_plus: float
    f1_minus: float


@dataclass(frozen=True)
class BenchmarkRow:
    """One method of the comparison.

    Args:
        name: name for `--methods`; its recipes are `glas-NAME` and `camelyon16-NAME`.
        title: title in the paper.
        printed: the paper's scores by benchmark; empty for methods that are not in the paper.
        parameters: the paper's #pModel.
        seconds: the paper's time per image, on a GTX 1080 Ti.
    """

    name: str
    title: str
    printed: dict[str, Printed] = field(default_factory=dict)
    parameters: int | None = None
    seconds: float | None = None

    @property
    def shows_error(self) -> bool:
        """Whether tables show its classification error; the paper has none for PN."""
        return self.name != "pn"


def _row(
    name: str,
    title: str,
    glas: tuple[float | None, float, float],
    camelyon16: tuple[float | None, float, float],
    parameters: int | None = None,
    seconds: float | None = None,
) -> BenchmarkRow:
    printed = {"glas": Printed(*glas), "camelyon16": Printed(*camelyon16)}
    return BenchmarkRow(name, title, printed, parameters, seconds)


ROWS = (
    _row("all-ones", "All-ones (lower bound)", (None, 66.01, 0.00), (None, 59.44, 0.00)),
    _row("pn", "PN", (None, 65.52, 24.08), (None, 31.15, 37.36), 11_330_122, 0.0034),
    _row("erase", "ERASE", (7.50, 65.60, 25.01), (8.61, 31.30, 42.48), 11_326_016, 0.0027),
    _row("cam-max", "CAM-Max", (1.25, 66.00, 26.32), (10.06, 48.28, 81.92), 11_177_538, 0.3111),
    _row("cam-lse", "CAM-LSE", (1.25, 66.05, 27.93), (1.51, 64.31, 63.78), 11_177_538, 0.3790),
    _row("grad-cam", "Grad-CAM", (0.00, 66.30, 21.30), (2.40, 62.78, 79.05), 11_177_538, 5.2132),
    _row("cam-avg", "CAM-Avg", (0.00, 66.90, 17.88), (2.40, 62.75, 79.05), 11_177_538, 0.3295),
    _row("wildcat", "WILDCAT", (1.25, 67.21, 22.96), (1.48, 62.73, 72.59), 11_180_616, 0.3596),
    _row("deep-mil", "Deep MIL", (2.50, 68.52, 41.34), (1.93, 59.01, 36.94), 11_243_460, 0.4523),
    BenchmarkRow("layer-cam", "LayerCAM"),
    BenchmarkRow("negev", "NEGEV"),
    _row("eem", "Max-Min (EEM)", (0.00, 72.11, 69.07), (6.26, 67.98, 88.80), 11_335_252, 0.0190),
    _row("sem", "Max-Min (SEM)", (0.00, 71.94, 69.23), (6.95, 68.26, 88.55), 11_335_252, 0.0190),
    _row("unet", "U-Net (full supervision)", (None, 90.19, 88.52), (None, 71.11, 89.68), 14_154_706, 0.0081),
)
_BY_NAME = {row.name: row for row in ROWS}


def find_rows(names: Iterable[str] = ()) -> list[BenchmarkRow]:
    """The rows with these names, in table order; without names, all rows."""
    wanted = [name.replace("_", "-") for name in names]
    for name in wanted:
        if name not in _BY_NAME:
            raise ConfigError(f"unknown method '{name}'; {nearest(name, _BY_NAME)}")
    return [row for row in ROWS if not wanted or row.name in wanted]
