from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from histolumen.errors import ConfigError
from histolumen.slides.store import RecordFile
from histolumen.slides.tiles import TileLayout

grids = st.builds(
    TileLayout,
    width=st.integers(1, 3000),
    height=st.integers(1, 3000),
    scale=st.just(1.0),
    tile=st.sampled_from([256, 512]),
    overlap=st.sampled_from([64, 128]),
    shift=st.sampled_from([0, 32, 96]),
)


@given(grids)
def test_cores_cover_the_slide_once(grid):
    lefts = sorted({grid.core(index).left for index in range(grid.rows * grid.columns)})
    assert lefts[0] <= 0
    assert lefts[-1] < grid.width <= lefts[-1] + grid.step
    assert all(b - a == grid.step for a, b in pairwise(lefts))


@given(grids, st.integers(-100, 3000), st.integers(-100, 3000))
def test_tiles_that_touch_a_rectangle_are_found(grid, left, top):
    found = set(grid.touching(left, top, 70, 50))
    for index in range(grid.rows * grid.columns):
        x, y = grid.origin(index)
        touches = x < left + 70 and left < x + grid.tile and y < top + 50 and top < y + grid.tile
        assert touches == (index in found)


@given(grids, st.sampled_from([4, 8]))
def test_weights_of_neighbours_add_up_to_one(grid, cell):
    ramp = grid.weights(cell)[grid.tile // cell // 2]
    step = grid.step // cell
    assert np.allclose(ramp[step:] + ramp[: len(ramp) - step], 1, atol=1e-6)
    assert ramp[0] == 0  # the edge has no weight
    core = grid.overlap // 2 // cell
    assert (ramp[core : core + step] > 0).all()


@pytest.mark.parametrize("wrong", [{"tile": 100}, {"overlap": 32}, {"tile": 256, "overlap": 192}])
def test_sizes_that_are_no_multiples_are_refused(wrong):
    with pytest.raises(ConfigError, match="--overlap"):
        TileLayout(1000, 1000, 1.0, **{"tile": 512, "overlap": 64, **wrong})


@pytest.mark.parametrize(
    ("multiple", "tile", "overlap", "cells"),
    [(16, 1024, 192, {4: 4, 8: 8, 16: 8}), (32, 1024, 192, {4: 4, 32: 8}), (14, 1036, 196, {4: 7, 7: 7, 14: 7}),
     (13, 1027, 208, {13: 13})],
)  # fmt: skip
def test_tiles_are_rounded_up_to_multiples(multiple, tile, overlap, cells):
    layout = TileLayout.fitting(3000, 2000, 1.0, 1024, 192, 0, multiple)
    assert (layout.tile, layout.overlap) == (tile, overlap)
    for stride, cell in cells.items():
        assert layout.cell(stride) == cell
        assert layout.tile % cell == layout.overlap // 2 % cell == 0


def test_records_persist_and_are_done_once_written(tmp_path):
    first = RecordFile(tmp_path / "a.cells", 5, (2, 3, 3))
    record = np.arange(18, dtype=np.float32).reshape(2, 3, 3)
    first.write(3, record)
    first.close()
    second = RecordFile(tmp_path / "a.cells", 5, (2, 3, 3))
    assert second.done.tolist() == [False, False, False, True, False]
    assert np.array_equal(second.read(3), record)
    with pytest.raises(ValueError, match="shape"):
        second.write(0, record[0])
    second.close()
