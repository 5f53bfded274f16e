"""Find slides, pair them with annotations by name, and label the official slides of Camelyon16."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from histolumen.data.sources.camelyon16.published_list import METASTATIC, NORMAL, published_slides
from histolumen.errors import DataError
from histolumen.slides.reader import SLIDE_SUFFIXES

_SHOWN = 5  # names in a sentence
_NOT_OUTLINED = "test_114"  # has tumour, but the survey had no outlines of it
_OFFICIAL = re.compile(r"(normal|tumor|test)_\d+", re.IGNORECASE)


@dataclass(frozen=True)
class Source:
    """A slide and its outlines; a slide without outlines is normal, which `find_sources` makes sure of."""

    name: str
    slide: Path
    outlines: Path | None
    test: bool
    """One of the official test slides."""

    @property
    def label(self) -> str:
        """Class of every patch taken from the slide."""
        return METASTATIC if self.outlines else NORMAL


@dataclass
class Found:
    """Result of searching the two folders."""

    sources: list[Source] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    """Error messages by slide name."""
    notes: list[str] = field(default_factory=list)


def find_sources(slides: Path, annotations: Path) -> Found:
    """Pair slides and annotations by name, ignoring case; subfolders are searched too.

    Args:
        slides: folder of the slides.
        annotations: folder of the XML files.
    """
    slide_files = _by_name(slides, SLIDE_SUFFIXES)
    if not slide_files:
        raise DataError(f"{slides}: no slide in this folder; known formats are {', '.join(sorted(SLIDE_SUFFIXES))}")
    outline_files = _by_name(annotations, {".xml"})
    found = Found()
    for key, files in slide_files.items():
        name, outlines = files[0].stem, outline_files.get(key, [])
        problem = _problem(name, files, outlines)
        if problem:
            found.failures[name] = problem
        else:
            found.sources.append(Source(name, files[0], outlines[0] if outlines else None, _kind(name) == "test"))
    unpaired = [files[0].name for key, files in outline_files.items() if key not in slide_files]
    if unpaired:
        names = first_few(unpaired)
        found.notes.append(f"{annotations}: {len(unpaired)} annotation(s) without a slide in {slides}: {names}")
    return found


def first_few(names: Sequence[str]) -> str:
    """The first names of a list, for a sentence."""
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _kind(name: str) -> str:
    """`normal`, `tumor` or `test` from an official name; empty for other names."""
    official = _OFFICIAL.fullmatch(name)
    return official[1].lower() if official else ""


def _by_name(folder: Path, suffixes: set[str] | frozenset[str]) -> dict[str, list[Path]]:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder")
    files: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in suffixes and not path.name.startswith(".") and path.is_file():
            files[path.stem.casefold()].append(path)
    return dict(sorted(files.items()))


def _problem(name: str, slides: list[Path], outlines: list[Path]) -> str:
    """Why a slide cannot be used; empty if it can."""
    for kind, files in (("slides", slides), ("annotations", outlines)):
        if len(files) > 1:
            return f"{files[0]} and {files[1]}: two {kind} with the same name; keep one of them or rename it"
    if not name.isprintable():
        return f"{slides[0]!a}: the name has characters that cannot be printed; rename the slide"
    return _label_problem(name, slides[0], outlines[0] if outlines else None)


def _label_problem(name: str, slide: Path, outlines: Path | None) -> str:
    """Why the class of a slide is not known for sure; empty where it is."""
    if name.casefold() == _NOT_OUTLINED:
        return f"{slide}: has tumour that is not reliably outlined, so its patches cannot be labelled"
    label = _official_label(name)
    if label == METASTATIC and not outlines:
        return f"{slide}: a tumour slide without outlines; put {name}.xml into the folder of annotations"
    if label == NORMAL and outlines:
        return f"{slide}: a normal slide with outlines ({outlines}); rename the slide or remove the XML"
    if label is None and _kind(name) == "test" and not outlines:
        return (
            f"{slide}: a test slide without outlines that is not in the published list may be normal or not; "
            f"put {name}.xml into the folder of annotations, or rename the slide if it is your own and normal"
        )
    return ""


def _official_label(name: str) -> str | None:
    """Class that the name of a training slide states, or the published list for a test slide; None: not known."""
    kind = _kind(name)
    if kind == "test":
        published = published_slides().get(name.casefold())
        return published.label if published else None
    return {"tumor": METASTATIC, "normal": NORMAL}.get(kind)
