"""A balanced choice of patches: as many normal as metastatic ones in every split, evenly over the slides."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from histolumen.data.manifest import Split
from histolumen.data.splitting import stratified_split
from histolumen.slides.pairing import METASTATIC, NORMAL, Source
from histolumen.slides.sampling import Place


def split_slides(sources: Sequence[Source], valid: float, seed: int) -> dict[str, Split]:
    """Split of every slide, by name: the official test slides are the test, the others are divided by class.

    Args:
        sources: every slide, also those that turn out to be unusable: mending one must not move the others.
        valid: share of the other slides for validation.
        seed: of the division.
    """
    pool = [source for source in sources if not source.test]
    parts = stratified_split([source.label for source in pool], [""] * len(pool), valid, 0.0, seed)
    splits: dict[str, Split] = {source.name: "test" for source in sources if source.test}
    splits.update((source.name, part) for source, part in zip(pool, parts, strict=True))
    return splits


def choose(
    sources: Sequence[Source],
    offers: Mapping[str, Sequence[Place]],
    splits: Mapping[str, Split],
    per_slide: int | None,
    seed: int,
) -> dict[str, list[Place]]:
    """Patches to take from each slide, by name and in the order of the offer.

    The order in which a slide gives its patches depends on the seed and its own name only, so that another slide beside
    it changes how many are taken from it but not which come first.

    Args:
        sources: the slides.
        offers: every patch that may be taken, by slide; slides that are absent offer nothing.
        splits: of each slide.
        per_slide: most metastatic patches of one slide.
        seed: of the choice.
    """
    chosen: dict[str, list[Place]] = {source.name: [] for source in sources}
    for split in sorted(set(splits.values())):
        queues = {
            label: {
                source.name: _shuffled(offers.get(source.name, ()), seed, source.name)
                for source in sources
                if source.label == label and splits[source.name] == split
            }
            for label in (METASTATIC, NORMAL)
        }
        queues[METASTATIC] = {name: places[:per_slide] for name, places in queues[METASTATIC].items()}
        wanted = min(sum(map(len, queue.values())) for queue in queues.values())
        for queue in queues.values():
            for name, taken in _shares({name: len(places) for name, places in queue.items()}, wanted, seed).items():
                first = set(queue[name][:taken])
                chosen[name] = [place for place in offers[name] if place in first] if first else []
    return chosen


def _shares(offered: Mapping[str, int], wanted: int, seed: int) -> dict[str, int]:
    """How many to take from each slide when the slides give one patch each in turn until there are enough."""
    taken = dict.fromkeys(offered, 0)
    while wanted:
        giving = [name for name in offered if taken[name] < offered[name]]
        rounds = min(wanted // len(giving), *(offered[name] - taken[name] for name in giving))
        if rounds == 0:  # not enough for all in the last round: who gives is drawn
            giving = sorted(giving, key=lambda name: _draw(seed, name))[:wanted]
            rounds = 1
        for name in giving:
            taken[name] += rounds
        wanted -= rounds * len(giving)
    return taken


def _shuffled(places: Sequence[Place], seed: int, name: str) -> list[Place]:
    order = np.random.default_rng(_draw(seed, name)).permutation(len(places))
    return [places[index] for index in order]


def _draw(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode(errors="surrogateescape")).digest()[:16])
