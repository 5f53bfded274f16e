"""Connected regions from runs equal scipy's and scikit-image's."""

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import ndimage
from skimage import morphology

from histolumen.components import label_regions, without_small_regions

masks = arrays.arrays(bool, arrays.array_shapes(min_dims=2, max_dims=2, max_side=12))


def spiral(side: int) -> np.ndarray:
    """One region of many runs, each of which touches the next only."""
    mask = np.zeros((side, side), bool)
    for ring in range(0, side // 2, 2):
        last = side - 1 - ring
        mask[ring, ring : last + 1] = mask[last, ring : last + 1] = mask[ring : last + 1, last] = True
        mask[ring + 2 : last + 1, ring] = True
        mask[ring + 2, ring : ring + 3] = True
    return mask


@given(masks)
def test_numbers_equal_scipys(mask):
    fields, count = label_regions(mask)
    expected, expected_count = ndimage.label(mask)
    assert count == expected_count
    assert np.array_equal(fields, expected)


def test_numbers_of_large_masks_equal_scipys():
    random = np.random.default_rng(0)
    noise = random.random((301, 207))
    comb = np.zeros((40, 81), bool)
    comb[:, ::2] = comb[-1] = True
    for mask in (noise < 0.3, noise < 0.59, noise < 0.9, spiral(61), comb, comb[::-1]):
        fields, count = label_regions(mask)
        expected, expected_count = ndimage.label(mask)
        assert count == expected_count
        assert np.array_equal(fields, expected)


@given(masks, st.integers(0, 30))
def test_small_regions_are_those_of_scikit_image(mask, largest):
    before = mask.copy()
    expected = morphology.remove_small_objects(mask, max_size=largest)
    assert np.array_equal(without_small_regions(mask, largest), expected)
    assert np.array_equal(mask, before)


def test_predictions_do_without_scipys_image_processing():
    code = (
        "import sys, numpy as np, histolumen.engine.predict_files\n"
        "from histolumen.tissue.glass import find_glass\n"
        "from histolumen.tissue.solid import MaskSettings, make_solid\n"
        "find_glass(np.full((64, 64, 3), 255, np.uint8))\n"
        "make_solid(np.eye(64, dtype=np.float32), MaskSettings(fill_holes=9, min_area=9))\n"
        "print({'scipy.ndimage', 'skimage.morphology'} & set(sys.modules))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "set()\n"
