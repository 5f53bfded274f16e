"""What a page consists of: sections of facts, tables, charts, matrices and galleries. The template draws them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from histolumen.report.tables import Table

_TABLE_ROWS = 400  # rows of a chart's table; more are nobody's text alternative

Mark = Literal["circle", "triangle", "rect", "rectRot", "star", "cross"]
MARKS: tuple[Mark, ...] = ("circle", "triangle", "rect", "rectRot", "star", "cross")
"""Shapes of points, in the order of classes and series: they tell them apart without colour."""

COLOURS = len(MARKS)
"""Number of different colours of series; further ones are dashed."""


@dataclass(frozen=True)
class Facts:
    """Names and values, such as the settings of a run."""

    kind: ClassVar[str] = "facts"
    pairs: dict[str, str]


@dataclass(frozen=True)
class Text:
    """Paragraphs, or the items of a list."""

    kind: ClassVar[str] = "text"
    paragraphs: Sequence[str]
    listed: bool = False


@dataclass(frozen=True)
class Code:
    """Text to copy, such as commands or a recipe; with a title it is folded away."""

    kind: ClassVar[str] = "code"
    text: str
    title: str = ""


@dataclass(frozen=True)
class TableBlock:
    """A table; long ones scroll."""

    kind: ClassVar[str] = "table"
    table: Table


@dataclass(frozen=True)
class Matrix:
    """A confusion matrix: counts by true (rows) and predicted (columns) name."""

    kind: ClassVar[str] = "matrix"
    title: str
    names: Sequence[str]
    predicted: Sequence[str]
    counts: Sequence[Sequence[int]]
    unit: str

    def share(self, row: int, column: int) -> float:
        """Share of the true name in [0, 1]."""
        return self.counts[row][column] / max(sum(self.counts[row]), 1)


@dataclass(frozen=True)
class Axis:
    """Title and range of an axis; None: as the values need."""

    title: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    whole: bool = False
    """Whether only whole numbers have ticks."""


@dataclass(frozen=True)
class Series:
    """Points of one colour and mark; `line` joins them."""

    label: str
    points: Sequence[tuple[float, float]]
    line: bool = True
    dashed: bool = False
    quiet: bool = False
    """Whether it is a reference, such as a diagonal, drawn in grey without marks."""
    names: Sequence[str] = ()
    """What each point is, for its tooltip and the table."""
    sizes: Sequence[float] = ()
    """Radius of each point."""
    stepped: bool = False


@dataclass(frozen=True)
class Chart:
    """Curves or points over two numeric axes, with its values as a table for those who cannot see it."""

    kind: ClassVar[str] = "chart"
    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    note: str = ""
    square: bool = False

    @property
    def specification(self) -> dict[str, Any]:
        """Everything that charts.js needs."""
        return {
            "type": "curves",
            "x": vars(self.x),
            "y": vars(self.y),
            "square": self.square,
            "series": [vars(series) | {"mark": MARKS[k % len(MARKS)]} for k, series in enumerate(self.series)],
        }

    @property
    def values(self) -> Table:
        """The values as text."""
        named = any(series.names for series in self.series)
        rows = [
            [series.label, *([series.names[k] if series.names else ""] if named else []), _number(x), _number(y)]
            for series in self.series
            if not series.quiet
            for k, (x, y) in enumerate(series.points)
        ]
        columns = ["series", *(["name"] if named else []), self.x.title, self.y.title]
        return Table(self.title, columns, rows[:_TABLE_ROWS])

    @property
    def description(self) -> str:
        """One sentence for a screen reader."""
        drawn = ", ".join(series.label for series in self.series if not series.quiet)
        return f"{self.title}: {self.y.title} over {self.x.title} of {drawn}. {self.note}".strip()


@dataclass(frozen=True)
class Bars:
    """Bars of several series over categories, stacked or side by side."""

    kind: ClassVar[str] = "chart"
    title: str
    categories: Sequence[str]
    series: dict[str, Sequence[float | None]]
    x_title: str
    y_title: str
    note: str = ""
    stacked: bool = False
    high: float | None = None
    horizontal: bool = False
    """Whether the categories are below each other, for long names."""
    square: ClassVar[bool] = False

    @property
    def specification(self) -> dict[str, Any]:
        """Everything that charts.js needs."""
        return {
            "type": "bars",
            "categories": list(self.categories),
            "x": {"title": self.x_title},
            "y": {"title": self.y_title, "high": self.high},
            "stacked": self.stacked,
            "horizontal": self.horizontal,
            "series": [{"label": label, "values": list(values)} for label, values in self.series.items()],
        }

    @property
    def values(self) -> Table:
        """The values as text."""
        rows = [
            [name, *("--" if values[k] is None else _number(values[k] or 0) for values in self.series.values())]
            for k, name in enumerate(self.categories)
        ]
        return Table(self.title, [self.x_title, *self.series], rows)

    @property
    def description(self) -> str:
        """One sentence for a screen reader."""
        return f"{self.title}: {self.y_title} by {self.x_title} for {', '.join(self.series)}. {self.note}".strip()


@dataclass(frozen=True)
class Picture:
    """A layer of a card: its name and the image as a data URI."""

    layer: str
    source: str


@dataclass(frozen=True)
class Card:
    """One image of a gallery: all its layers have the same size."""

    title: str
    size: tuple[int, int]
    layers: Sequence[Picture]
    caption: Sequence[str]
    verdict: str = ""
    """The answer in short, such as the predicted class."""
    mark: Literal["right", "wrong", ""] = ""

    @property
    def alt(self) -> str:
        """Text alternative of the picture."""
        return ". ".join(part for part in (self.title, self.verdict, *self.caption) if part)


@dataclass(frozen=True)
class Gallery:
    """Cards and the layers that a slider fades between."""

    kind: ClassVar[str] = "gallery"
    cards: Sequence[Card]
    note: str = ""
    start: int = 0
    """Layer shown first."""
    legend: Sequence[tuple[str, str]] = ()
    """CSS class of a swatch, and what it stands for."""

    @property
    def layers(self) -> list[str]:
        """Names of all layers, in order of first appearance."""
        return list(dict.fromkeys(picture.layer for card in self.cards for picture in card.layers))


Block = Facts | Text | Code | TableBlock | Matrix | Chart | Bars | Gallery


@dataclass(frozen=True)
class Headline:
    """A number at the top of the page."""

    name: str
    value: str
    interval: str = ""
    beside: str = ""
    """What to compare it with."""


@dataclass(frozen=True)
class Section:
    """A titled part of the page; charts and matrices in it stand side by side."""

    title: str
    blocks: Sequence[Block]
    intro: str = ""

    @property
    def anchor(self) -> str:
        """Identifier in links."""
        return "".join(c if c.isalnum() else "-" for c in self.title.lower())


@dataclass(frozen=True)
class Page:
    """A whole report."""

    kind: str
    title: str
    summary: str
    sections: Sequence[Section]
    headlines: Sequence[Headline] = field(default_factory=list)


def _number(value: float) -> str:
    return f"{value:.4g}"
