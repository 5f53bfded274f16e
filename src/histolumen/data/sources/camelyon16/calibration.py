"""Thinning of the patches that are mostly tumour, so that masks differ from the whole image."""

from collections.abc import Mapping

import numpy as np

from histolumen.data.sources.camelyon16.balance import even_shares, group_seed
from histolumen.data.sources.camelyon16.published_list import Place

MOSTLY_TUMOUR = 0.50  # patches above this tumour share are thinned, the others are all kept
KEPT_WHOLE = 0.61  # share of the patches up to MOSTLY_TUMOUR after the calibration; 14,912 of 24,435 published ones
_BIN = 0.05  # width of the tumour shares from which equally many patches are drawn


def calibrate(candidates: Mapping[str, Mapping[Place, float]], seed: int) -> dict[str, list[Place]]:
    """Places to keep of every slide of one set, in the order of the candidates.

    All patches with at most 50 % tumour are kept. Of the others, so many are drawn that they make up 39 % of the
    result, evenly over bins of the tumour share. A set without any patch of at most 50 % is kept as it is.

    Args:
        candidates: tumour share of the places of every metastatic slide of the set, by slide.
        seed: of the draw; a slide's draw depends on the seed and its name, whatever other slides there are.
    """
    bins: dict[str, list[tuple[float, str, Place]]] = {}
    few = 0
    for name, shares in candidates.items():
        order = np.random.default_rng(group_seed(seed, f"calibration/{name}")).random(len(shares))
        for (place, share), rank in zip(shares.items(), order, strict=True):
            if share <= MOSTLY_TUMOUR:
                few += 1
            else:
                number = min(int((share - MOSTLY_TUMOUR) / _BIN), round((1 - MOSTLY_TUMOUR) / _BIN) - 1)
                bins.setdefault(str(number), []).append((float(rank), name, place))
    many = sum(map(len, bins.values()))
    wanted = min(many, round(few * (1 - KEPT_WHOLE) / KEPT_WHOLE)) if few else many
    drawn = {
        (name, place)
        for number, taken in even_shares({number: len(bins[number]) for number in sorted(bins)}, wanted, seed).items()
        for _, name, place in sorted(bins[number])[:taken]
    }
    return {
        name: [place for place, share in shares.items() if share <= MOSTLY_TUMOUR or (name, place) in drawn]
        for name, shares in candidates.items()
    }
