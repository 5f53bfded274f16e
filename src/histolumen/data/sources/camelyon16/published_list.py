"""The published patches of Camelyon16-P512.

`published.csv.gz` holds all 48,870 patches as coordinates. It is rebuilt from the lists that Rony, Belharbi et al.
published beside their survey (repository jeromerony/survey_wsl_histology); slide, coordinates and shares of tumour and
tissue stand in the file names of these lists.
"""

import csv
import gzip
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import NamedTuple

from histolumen.data.manifest import Split

METASTATIC, NORMAL = "metastatic", "normal"
FOLDS = 5
Place = tuple[int, int]
"""Left and top of a patch in level-0 pixels."""
_LABELS = {"tumor": METASTATIC, "normal": NORMAL}
_TEST = "test"


class PublishedPatch(NamedTuple):
    """One line of the list."""

    place: Place
    tumour_share: float
    """Share of its pixels that are tumour."""


@dataclass(frozen=True)
class PublishedSlide:
    """The published patches of one slide; all have the same class and the same fold."""

    name: str
    label: str
    fold: str
    """`0` to `4`, or `test`."""
    patches: tuple[PublishedPatch, ...]
    """In the order of the list, which has one place of `test_110` twice."""

    def split(self, valid_fold: int) -> Split:
        """Split of the slide when one fold is the validation set; fold 0 gives the paper's split."""
        if self.fold == _TEST:
            return "test"
        return "valid" if self.fold == str(valid_fold) else "train"


@cache
def published_slides() -> Mapping[str, PublishedSlide]:
    """The published slides by name, which is in lower case."""
    content = (resources.files("histolumen.data.sources.camelyon16") / "published.csv.gz").read_bytes()
    patches: dict[tuple[str, str, str], list[PublishedPatch]] = defaultdict(list)
    for record in csv.DictReader(gzip.decompress(content).decode().splitlines()):
        patch = PublishedPatch((int(record["x"]), int(record["y"])), float(record["tumour_share"]))
        patches[record["slide"], _LABELS[record["label"]], record["fold"]].append(patch)
    return MappingProxyType({key[0]: PublishedSlide(*key, tuple(mine)) for key, mine in patches.items()})


def published_counts(valid_fold: int) -> Counter[tuple[Split, str]]:
    """Number of published patches by split and label."""
    counts: Counter[tuple[Split, str]] = Counter()
    for slide in published_slides().values():
        counts[slide.split(valid_fold), slide.label] += len(slide.patches)
    return counts
