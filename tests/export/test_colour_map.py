"""Heat maps: colours that are read evenly, pixel by pixel as the mask, with a colour bar."""

import re
from pathlib import Path

import numpy as np
import pytest

import histolumen
from histolumen.export import colour_map
from histolumen.export.colour_map import draw_heat_map, viridis


def test_the_colours_are_those_of_matplotlib():
    matplotlib = pytest.importorskip("matplotlib")
    expected = 255 * matplotlib.colormaps["viridis"](np.arange(256))[:, :3]
    assert np.abs(viridis() - expected).max() <= 4


def test_brightness_rises_evenly():
    linear = (viridis() / 255) ** 2.2
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16  # CIE L*
    steps = np.diff(lightness[::15])  # single steps are mostly rounding
    assert 0 < steps.max() < 1.5 * steps.min()


def test_the_viewer_has_the_same_colours():
    script = (Path(histolumen.__file__).parent / "view" / "static" / "colours.js").read_text()
    assert re.search(r'VIRIDIS = "([^"]*)"', script).group(1) == colour_map._VIRIDIS


def test_each_pixel_has_the_colour_of_its_value():
    soft = np.random.default_rng(0).random((120, 150))
    picture = np.asarray(draw_heat_map(soft))
    assert picture.shape[0] == 120
    assert (picture[:, :150] == viridis()[(255 * soft).round().astype(int)]).all()


def test_the_bar_on_the_right_runs_from_violet_to_yellow():
    picture = np.asarray(draw_heat_map(np.zeros((200, 100)), 0.3)).astype(int)
    bar = picture[:, 112]
    colours = viridis()
    yellow, violet = (np.flatnonzero((bar == colours[index]).all(1)) for index in (255, 0))
    assert yellow.size and violet.size
    assert yellow.max() < violet.min()
    threshold = np.flatnonzero((bar == 255).all(1))  # white around the bar, and the mark of the threshold in it
    inside = threshold[(threshold > yellow.min()) & (threshold < violet.max())]
    assert inside.mean() == pytest.approx(yellow.min() + 0.7 * (violet.max() - yellow.min()), abs=2)


@pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 1), (3000, 40)])
@pytest.mark.parametrize("threshold", [0.001, 0.5, 0.999])
def test_every_size_and_threshold_can_be_drawn(size, threshold):
    picture = draw_heat_map(np.ones(size), threshold)
    assert picture.width > size[1]
    assert picture.height >= size[0]
    assert picture.getpixel((0, 0)) == (0xFD, 0xE7, 0x25)
