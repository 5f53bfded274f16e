"""The report of the output folder of `slide`, or of one slide in it: the table, and an overview of each slide."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from histolumen.data.image import FORMATS, read_image
from histolumen.engine.slides.batch import SlideState, read_state
from histolumen.errors import HistolumenError, RunError, first_few
from histolumen.progress import SILENT, Progress
from histolumen.report.html.content import Block, Card, Headline, Page, Section, TableBlock, Text
from histolumen.report.html.gallery import CARDS, counted, make_gallery, verdict_of
from histolumen.report.html.meaning import meaning_of_predictions
from histolumen.report.html.measured import histogram
from histolumen.report.html.pictures import HEAT_MAP, OUTLINE, draw_heat, embed, reduced, resized
from histolumen.report.tables import Table

TABLE, STATE = "slides.csv", "state.json"
_TISSUE = "tissue"
_SHOWN = {
    "prediction": "class",
    "probability": "probability",
    "foreground_share": "deciding share of tissue",
    "foreground_mm2": "deciding area, mm²",
    "tissue_mm2": "tissue, mm²",
    "regions": "regions",
    "mpp": "µm per pixel",
}
_SIDE = 1200  # longest side of an embedded slide, in pixels
_WIDEST = 4096  # pixels of the level of a heat map that is read


def slides_page(folder: Path, count: int = CARDS, progress: Progress = SILENT) -> Page:
    """Describe the slides in a folder.

    Args:
        folder: output folder of `slide`, or the folder of one slide in it.
        count: number of slides in the gallery.
        progress: counts the slides that are drawn.
    """
    folders = [folder] if (folder / STATE).is_file() else sorted(path for path in folder.iterdir() if path.is_dir())
    found = [(each, state) for each in folders if (state := read_state(each)) is not None]
    done = sorted(((f, s) for f, s in found if s.state == "done"), key=lambda pair: _probability(pair[1]))
    failures = [state.why for _, state in found if state.state == "failed"]
    if not done:
        raise RunError(f"{folder}: contains no finished slide; predict one first with `histolumen slide`")
    cards = [card for each, state in progress.track(done[:count], "drawing") if (card := _card(each, state))]
    states = [state for _, state in done]
    note = f"{counted(len(cards), 'slide')}, least certain first. Each folder has heat map and regions for QuPath."
    by_class: dict[str, list[float]] = {}
    for state in states:
        by_class.setdefault(_label(state), []).append(_probability(state))
    tissue = sum(float(state.record.get("tissue_mm2") or 0) for state in states)
    headlines = [Headline("slides", str(len(states))), Headline("tissue", f"{tissue:.1f} mm²")]
    headlines += [Headline(label, str(len(values)), beside="predicted") for label, values in by_class.items()]
    gallery: list[Block] = [make_gallery(cards, note)] if cards else []
    distribution = [histogram("Probability of the answer", by_class, "probability, %", "slides")]
    sections = [
        Section("Overview", [*gallery, TableBlock(_table(states))]),
        *([Section("Distribution", distribution)] if len(states) > 1 else []),
        *([Section("Left out", [Text(first_few(failures), listed=True)])] if failures else []),
        meaning_of_predictions(),
    ]
    answers = ", ".join(f"{len(values)} {label}" for label, values in by_class.items())
    return Page("Slides", folder.resolve().name, f"{counted(len(states), 'slide')}: {answers}.", sections, headlines)


def _table(states: list[SlideState]) -> Table:
    shown = [name for name in _SHOWN if any(state.record.get(name) not in {None, ""} for state in states)]
    extra = [
        name
        for name in dict.fromkeys(n for s in states for n in s.record)
        if name not in {*_SHOWN, "slide", "tiles"} and not name.startswith("p_")
    ]
    rows = [
        [
            Path(state.slide).name,
            *(_value(name, state.record.get(name)) for name in [*shown, *extra]),
            f"{state.seconds:.0f}",
        ]
        for state in states
    ]
    columns = ["slide", *(_SHOWN[name] for name in shown), *(name.replace("_", " ") for name in extra), "seconds"]
    return Table("Slides", columns, rows)


def _value(name: str, value: Any) -> str:
    if not isinstance(value, int | float):
        return "--" if value is None else str(value)
    return f"{100 * value:.1f} %" if name.endswith("_share") else f"{value:.4g}"


def _card(folder: Path, state: SlideState) -> Card | None:
    """The card of a slide; None if its pictures cannot be read."""
    try:
        layers = _layers(folder)
    except (HistolumenError, OSError, ValueError):
        return None
    height, width = layers[OUTLINE].shape[:2]
    share = _value("foreground_share", state.record.get("foreground_share"))
    caption = [f"deciding area {share} of the tissue, {state.record.get('regions', 0)} regions"]
    verdict = verdict_of(_label(state), _probability(state))
    return Card(Path(state.slide).name, (width, height), embed(layers), caption, verdict)


def _layers(folder: Path) -> dict[str, np.ndarray]:
    """Tissue, heat map and outline at one size, without the captions below the stored pictures."""
    heat = read_heat(folder / "heatmap.tif")
    overlay = _uncaptioned(read_image(folder / "overlay.png"), heat)
    outline = reduced(overlay, _SIDE)
    size = outline.shape[1], outline.shape[0]
    layers = {}
    if (folder / "tissue.png").is_file():
        tissue = Image.fromarray(_uncaptioned(read_image(folder / "tissue.png"), heat))
        layers[_TISSUE] = np.asarray(tissue.resize(size, Image.Resampling.LANCZOS))
    if heat is not None:
        layers[HEAT_MAP] = draw_heat(outline, resized(heat, size))
    return layers | {OUTLINE: outline}


def _uncaptioned(picture: np.ndarray, heat: np.ndarray | None) -> np.ndarray:
    """A stored picture cut to the aspect ratio of the slide, which is that of its heat map."""
    return picture if heat is None else picture[: round(picture.shape[1] * heat.shape[0] / heat.shape[1])]


def read_heat(path: Path) -> np.ndarray | None:
    """The largest level of a pyramidal heat map that is not wider than 4096 pixels, in [0, 1]; None if unreadable."""
    try:
        with Image.open(path, formats=FORMATS) as file:
            for level in range(getattr(file, "n_frames", 1)):
                file.seek(level)
                if max(file.size) <= _WIDEST:
                    return np.asarray(file.convert("L")).astype(np.float32) / 255
    except (OSError, ValueError, SyntaxError):
        pass
    return None


def _label(state: SlideState) -> str:
    return str(state.record.get("prediction") or "foreground")


def _probability(state: SlideState) -> float:
    return float(state.record.get("probability") or 0)
