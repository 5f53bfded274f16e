"""Thinning of patches that are mostly tumour, on the numbers of the published list."""

from collections import Counter

import numpy as np
import pytest

from histolumen.data.sources.camelyon16.calibration import calibrate
from histolumen.data.sources.camelyon16.published_list import METASTATIC, published_slides


def published_shares(test: bool) -> list[float]:
    return [
        patch.tumour_share
        for slide in published_slides().values()
        if slide.label == METASTATIC and (slide.fold == "test") == test
        for patch in slide.patches
    ]


def named(**shares):
    """Candidates of some slides at arbitrary places."""
    return {name: {(number, 0): share for number, share in enumerate(values)} for name, values in shares.items()}


def kept_shares(candidates, kept):
    return [candidates[name][place] for name, places in kept.items() for place in places]


# before the calibration: candidates up to 50 % and above, as the survey counts them; after it, those above
@pytest.mark.parametrize(
    ("test", "few", "above", "kept_above"), [(False, 10_089, 66_238, 6_514), (True, 4_823, 56_619, 3_009)]
)
def test_shares_of_the_published_calibration(test, few, above, kept_above):
    """Published candidates up to 50 %; those that were thrown away are taken as tumour alone, as most were."""
    published = np.array(published_shares(test))
    assert ((published <= 0.5).sum(), (published > 0.5).sum()) == (few, kept_above)
    candidates = named(slide=[*published.tolist(), *[1.0] * (above - kept_above)])
    kept = np.array(kept_shares(candidates, calibrate(candidates, seed=0)))
    assert (kept <= 0.5).sum() == few
    assert (kept > 0.5).sum() == pytest.approx(kept_above, rel=0.03)
    assert (kept <= 0.5).mean() == pytest.approx(few / len(published), abs=0.01)
    assert (kept <= 0.5).mean() == pytest.approx(0.61, abs=0.001)


def test_bins_of_the_tumour_share_give_equally_many():
    above = np.linspace(0.501, 0.999, 500).tolist() + [1.0] * 5000
    candidates = named(slide=[0.3] * 100 + above)
    kept = [share for share in kept_shares(candidates, calibrate(candidates, seed=0)) if share > 0.5]
    counts = Counter(min(9, int((share - 0.5) / 0.05)) for share in kept)
    assert len(kept) == 64
    assert sorted(counts.values()) == [6] * 6 + [7] * 4


def test_what_is_drawn_follows_the_seed_and_keeps_the_order():
    rng = np.random.default_rng(0)
    candidates = named(a=rng.uniform(0.2, 1, 80).tolist(), b=rng.uniform(0.2, 1, 80).tolist())
    first = calibrate(candidates, seed=0)
    assert calibrate(candidates, seed=0) == first
    assert calibrate(candidates, seed=1) != first
    for name, places in first.items():
        assert places == sorted(places)
        assert set(places) >= {place for place, share in candidates[name].items() if share <= 0.5}


def test_too_few_above_are_all_kept():
    candidates = named(a=[0.2, 0.3, 0.5, 0.9])
    assert calibrate(candidates, seed=0) == {"a": list(candidates["a"])}


def test_a_set_of_tumour_alone_is_kept_as_it_is():
    assert calibrate(named(a=[0.9, 1.0]), seed=0) == {"a": [(0, 0), (1, 0)]}
    assert calibrate({}, seed=0) == {}
