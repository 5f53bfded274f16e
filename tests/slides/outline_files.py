"""Write ASAP annotation files for tests."""

from collections.abc import Sequence
from pathlib import Path

Points = Sequence[tuple[float, float]]
SQUARE: Points = [(0, 0), (100, 0), (100, 100), (0, 100)]


def write_outlines(path: Path, *annotations: tuple[str, Points]) -> Path:
    """Write annotations, each given as (group, points), in ASAP's format."""
    text = []
    for number, (group, points) in enumerate(annotations):
        nodes = "".join(f'<Coordinate Order="{k}" X="{x}" Y="{y}" />' for k, (x, y) in enumerate(points))
        text.append(
            f'<Annotation Name="outline {number}" Type="Polygon" PartOfGroup="{group}" Color="#F4FA58">'
            f"<Coordinates>{nodes}</Coordinates></Annotation>"
        )
    body = "".join(text)
    path.write_text(f'<?xml version="1.0"?><ASAP_Annotations><Annotations>{body}</Annotations></ASAP_Annotations>')
    return path


def rectangle(left: float, top: float, width: float, height: float) -> Points:
    """Corners of a rectangle."""
    return [(left, top), (left + width, top), (left + width, top + height), (left, top + height)]
