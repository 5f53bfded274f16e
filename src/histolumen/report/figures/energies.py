"""Fig. 3: the two background energies (EEM, SEM) and their derivatives, for two classes, logarithms of base 2."""

import numpy as np
from matplotlib.figure import Figure

from histolumen.report.figures.style import BLUE, ORANGE, panels


def negative_entropy(p: np.ndarray) -> np.ndarray:
    """-H(p), Eq. 6."""
    return p * np.log2(p) + (1 - p) * np.log2(1 - p)


def uniform_cross_entropy(p: np.ndarray) -> np.ndarray:
    """H(q, p) with q uniform, Eq. 7."""
    return -(np.log2(p) + np.log2(1 - p)) / 2


def entropy_slope(p: np.ndarray) -> np.ndarray:
    """Derivative of -H(p), Appendix A."""
    return np.log2(p / (1 - p))


def cross_entropy_slope(p: np.ndarray) -> np.ndarray:
    """Derivative of H(q, p), Appendix A."""
    return -(1 / p - 1 / (1 - p)) / (2 * np.log(2))


def draw_energies() -> Figure:
    """Draw four panels; the last one is limited to [0.1, 0.9], where the derivatives are comparable."""
    figure, (energy_eem, energy_sem, slopes, inner) = panels(2, 2, (3.2, 2.3))
    p = np.linspace(0.002, 0.998, 999)
    for axes, curve, colour, title in (
        (energy_eem, negative_entropy, BLUE, "EEM: $-H(\\hat{p}^-)$"),
        (energy_sem, uniform_cross_entropy, ORANGE, "SEM: $H(q, \\hat{p}^-)$"),
    ):
        axes.plot(p, curve(p), color=colour)
        axes.set_title(title)
    for axes, low, title in ((slopes, 0.002, "derivatives"), (inner, 0.1, "derivatives, 0.1 to 0.9")):
        x = np.linspace(low, 1 - low, 999)
        axes.plot(x, entropy_slope(x), color=BLUE, label="EEM")
        axes.plot(x, cross_entropy_slope(x), color=ORANGE, linestyle="--", label="SEM")
        axes.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        axes.set_title(title)
        axes.legend()
    slopes.set_ylim(-40, 40)
    for axes in (energy_eem, energy_sem, slopes, inner):
        axes.set_xlabel("$\\hat{p}^-$")
    return figure
