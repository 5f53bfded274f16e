"""Balanced sampling: as many normal as metastatic patches in every split, spread evenly over the slides."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from histolumen.data.manifest import Split
from histolumen.data.sources.camelyon16.pairing import Source
from histolumen.data.sources.camelyon16.published_list import METASTATIC, NORMAL, Place
from histolumen.data.splitting import stratified_split


def split_slides(sources: Sequence[Source], valid: float, seed: int) -> dict[str, Split]:
    """Split of every slide, by name: official test slides are the test split, the others are stratified by class.

    Args:
        sources: all slides, including unusable ones, so that repairing one does not change the split of the others.
        valid: share of the non-test slides for validation.
        seed: of the stratified split.
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
    """Patches to sample from each slide, by slide name, in the order of `offers`.

    The random order of a slide's patches depends only on the seed and its name: adding another slide changes how many
    are sampled, not which come first.

    Args:
        sources: the slides.
        offers: candidate patches by slide name.
        splits: split by slide name.
        per_slide: maximum number of metastatic patches per slide.
        seed: of the random order.
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
        total = min(sum(map(len, queue.values())) for queue in queues.values())
        for queue in queues.values():
            sizes = {name: len(places) for name, places in queue.items()}
            for name, count in even_shares(sizes, total, seed).items():
                sampled = set(queue[name][:count])
                chosen[name] = [place for place in offers[name] if place in sampled] if sampled else []
    return chosen


def even_shares(offered: Mapping[str, int], total: int, seed: int) -> dict[str, int]:
    """Number of patches per slide, or other group, if each gives one patch per round until `total` is reached.

    Args:
        offered: number of patches of each group; at least `total` together.
        total: number of patches to take.
        seed: decides which groups give a patch in the last, incomplete round.
    """
    taken = dict.fromkeys(offered, 0)
    while total:
        available = [name for name in offered if taken[name] < offered[name]]
        rounds = min(total // len(available), *(offered[name] - taken[name] for name in available))
        if rounds == 0:  # last round: fewer patches than groups, drawn at random
            available = sorted(available, key=lambda name: group_seed(seed, name))[:total]
            rounds = 1
        for name in available:
            taken[name] += rounds
        total -= rounds * len(available)
    return taken


def _shuffled(places: Sequence[Place], seed: int, name: str) -> list[Place]:
    order = np.random.default_rng(group_seed(seed, name)).permutation(len(places))
    return [places[index] for index in order]


def group_seed(seed: int, name: str) -> int:
    """Seed of one slide or group, derived from its name."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode(errors="surrogateescape")).digest()[:16])
