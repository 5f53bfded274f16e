"""Which slides there are, which annotation belongs to which, and what the names of Camelyon16 say about them."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from histolumen.errors import DataError
from histolumen.slides.reader import SLIDE_SUFFIXES

METASTATIC, NORMAL = "metastatic", "normal"
_OFFICIAL = re.compile(r"(normal|tumor|test)_\d+", re.IGNORECASE)


@dataclass(frozen=True)
class Source:
    """A slide and its outlines; a slide without outlines is normal."""

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
    """What lies in the two folders."""

    sources: list[Source] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    """What is wrong, by name of the slide."""
    notes: list[str] = field(default_factory=list)


def find_sources(slides: Path, annotations: Path) -> Found:
    """Pair slides and annotations by name, whatever its case; both folders are searched below too.

    Args:
        slides: folder of the slides.
        annotations: folder of the XML files.
    """
    slide_files = _by_name(slides, SLIDE_SUFFIXES)
    if not slide_files:
        raise DataError(f"{slides}: no slide in this folder; known are {', '.join(sorted(SLIDE_SUFFIXES))}")
    outline_files = _by_name(annotations, {".xml"})
    found = Found()
    for key, files in slide_files.items():
        name, outlines = files[0].stem, outline_files.get(key, [])
        problem = _problem(name, files, outlines)
        if problem:
            found.failures[name] = problem
        else:
            found.sources.append(Source(name, files[0], outlines[0] if outlines else None, _kind(name) == "test"))
    alone = [files[0].name for key, files in outline_files.items() if key not in slide_files]
    if alone:
        few = ", ".join(alone[:5]) + (", ..." if len(alone) > 5 else "")
        found.notes.append(f"{annotations}: {len(alone)} annotation(s) without a slide in {slides}: {few}")
    return found


def _kind(name: str) -> str:
    """What an official name says of its slide; empty for other names."""
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
    """Why a name cannot be used; empty where it can."""
    for kind, files in (("slides", slides), ("annotations", outlines)):
        if len(files) > 1:
            return f"{files[0]} and {files[1]}: two {kind} of one name; keep one of them or rename it"
    if not name.isprintable():
        return f"{slides[0]!a}: the name has characters that no table can hold; rename the slide"
    if _kind(name) == "tumor" and not outlines:
        return f"{slides[0]}: a tumour slide without outlines; put {name}.xml into the folder of annotations"
    if _kind(name) == "normal" and outlines:
        return f"{slides[0]}: a normal slide with outlines ({outlines[0]}); rename the slide or remove the XML"
    return ""
