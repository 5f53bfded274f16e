"""Windows of large images."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from histolumen.engine import windows
from histolumen.engine.windows import WINDOW, map_runner


@given(st.integers(1, 120), st.integers(1, 120), st.sampled_from([14, 16, 32]))
def test_windows_divide_an_image_evenly(rows, columns, grid):
    """As few windows as the largest ones would be, and none larger than needed."""
    size, largest, overlap = (rows * grid, columns * grid), 20 * grid, math.ceil(64 / grid)
    seen: list[tuple[int, int]] = []

    def net(images: torch.Tensor) -> torch.Tensor:
        seen.append((images.shape[2], images.shape[3]))
        return images[..., ::grid, ::grid].clone()  # MONAI writes into it

    image = torch.arange(rows * columns).view(1, 1, rows, columns).repeat_interleave(grid, 2).repeat_interleave(grid, 3)
    maps = map_runner(*size, whole_pixels=0, window=largest, grid=grid)(net, image.float())
    assert torch.allclose(maps, image[..., ::grid, ::grid].float(), rtol=1e-4, atol=1e-3)
    assert all(side % grid == 0 and side <= largest for window in seen for side in window)
    fewest = [1 if n <= 20 else math.ceil((n - overlap) / (20 - overlap)) for n in (rows, columns)]
    assert len(seen) == fewest[0] * fewest[1]
    even = [
        grid * math.ceil((count + (number - 1) * overlap) / number)
        for count, number in zip((rows, columns), fewest, strict=True)
    ]
    assert set(seen) == {tuple(even)}


@given(st.integers(WINDOW + 1, 20_000), st.sampled_from([8, 14, 16, 32]))
def test_windows_overlap_by_64_pixels_whatever_the_grid(length, grid):
    length += -length % grid
    side, step = windows._even_windows(length, WINDOW, grid)
    assert side <= WINDOW
    assert 64 <= side - step < 64 + grid
