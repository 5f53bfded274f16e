"""What ablations vary, the paper's and our own: a study is a list of points, each point a set of overrides."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from histolumen.errors import ConfigError, nearest

Kind = Literal["sem", "eem"]
StudyName = Literal["ablation", "parts", "lambda", "sigma", "omega"]
KINDS: tuple[Kind, ...] = ("sem", "eem")
_VALUES: dict[str, tuple[float, ...]] = {
    "lambda": (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1),
    "sigma": (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    "omega": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
}


@dataclass(frozen=True)
class Point:
    """One training of a study.

    Args:
        label: its name in tables.
        kind: which form of the background term it has, where it has one.
        value: of the hyper-parameter, where the study varies one.
        method: the recipe's method is replaced by this one, if given.
        overrides: of the recipe.
        printed: the paper's error, F1+ and F1- on the GlaS test set, where it prints them.
        seed: replaces the recipe's, if given.
    """

    label: str
    kind: Kind | None
    value: float | None
    overrides: tuple[str, ...]
    method: str | None = None
    printed: tuple[float, float, float] | None = None
    seed: int | None = None

    @property
    def key(self) -> str:
        """Its name in the storage that workers share, and of its folder."""
        return self.label if self.seed is None else f"{self.label} seed={self.seed}"


def find_kinds(names: Iterable[str] = ()) -> tuple[Kind, ...]:
    """The kinds of these names, or all of them."""
    wanted = list(names)
    for name in wanted:
        if name not in KINDS:
            raise ConfigError(f"unknown kind '{name}'; {nearest(name, KINDS)}")
    return tuple(kind for kind in KINDS if not wanted or kind in wanted)


def points_of(study: StudyName, kinds: tuple[Kind, ...] = KINDS) -> list[Point]:
    """All points of a study."""
    if study == "parts":
        return list(_PARTS)
    if study == "ablation":
        return [point for point in _ABLATION if point.kind is None or point.kind in kinds]
    return [
        Point(f"{kind} {study}={value:g}", kind, value, (f"method.background={kind}", *_varied(study, value)))
        for kind in kinds
        for value in _VALUES[study]
    ]


def _varied(study: str, value: float) -> tuple[str, ...]:
    if study == "sigma":  # constant: what is studied is its value, not its schedule
        return (f"method.sigma={value}", "method.sigma_step=0")
    return (f"method.{study}={value}",)


def _step(label: str, kind: Kind | None, background: str, barrier: bool, printed: tuple[float, float, float]) -> Point:
    terms = {"foreground": "true", "background": background, "size_barrier": str(barrier).lower()}
    return Point(label, kind, None, tuple(f"method.{key}={value}" for key, value in terms.items()), printed=printed)


_ABLATION = (
    Point("WILDCAT", None, None, (), method="wildcat", printed=(1.25, 67.21, 22.96)),
    _step("FG only", None, "none", False, (1.25, 71.54, 49.23)),
    _step("FG + BG (EEM)", "eem", "eem", False, (1.25, 72.54, 61.82)),
    _step("FG + BG (EEM) + ASC", "eem", "eem", True, (0.00, 72.11, 69.07)),
    _step("FG + BG (SEM)", "sem", "sem", False, (1.25, 72.96, 61.95)),
    _step("FG + BG (SEM) + ASC", "sem", "sem", True, (0.00, 71.94, 69.23)),
)

_PARTS = (
    Point("all parts", None, None, ()),
    Point("no grouping", None, None, ("method.grouping=0",)),
    Point("class maps instead of a decoder", None, None, ("method.grouping=0", "method.mask_from=cam")),
    Point("decoder at stride 16", None, None, ("method.decoder_stride=16",)),
    Point("no background term", None, None, ("method.background=none",)),
    Point("no X+ and X-", None, None, ("method.foreground=false", "method.background=none")),
    Point("no size barrier", None, None, ("method.size_barrier=false",)),
    Point("no test-time flips", None, None, ("images.test_flips=false",)),
    Point("separate statistics", None, None, ("backbone.statistics=separate",)),
    Point("with self-training", None, None, ("method.self_training=2",)),
    Point("with edges", None, None, ("method.edges=1",)),
    Point("with stain jitter", None, None, ("images.stain=0.2",)),
    Point("NEGEV", None, None, (), method="negev"),
)
