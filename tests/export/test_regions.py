import json

import numpy as np
import openslide
import pytest
import shapely
from geojson_pydantic import FeatureCollection
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage

from histolumen.export import geojson, regions
from histolumen.export.geojson import GeoJsonStyle, save_geojson
from histolumen.export.heatmap import save_heatmap
from histolumen.export.regions import Raster, draw_polygon, find_regions


def blobs(height: int, width: int, seed: int = 0) -> np.ndarray:
    """A smooth random soft mask in [0, 1], with holes and regions at the edge."""
    field = ndimage.gaussian_filter(np.random.default_rng(seed).standard_normal((height, width)), 7)
    return (field - field.min()) / (field.max() - field.min())


def drawn(found: list, height: int, width: int, scale: float = 1.0) -> np.ndarray:
    mask = np.zeros((height, width), bool)
    for region in found:
        mask |= draw_polygon(shapely.transform(region.outline, lambda points: points * scale), 0, 0, width, height)
    return mask


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    return (a & b).sum() / (a | b).sum()


def enlarged(mask: np.ndarray, times: int) -> np.ndarray:
    """Bilinear interpolation that repeats the edge, as for the outlines."""
    places = [(np.arange(side * times) + 0.5) / times - 0.5 for side in mask.shape]
    return ndimage.map_coordinates(mask, np.meshgrid(*places, indexing="ij"), order=1, mode="nearest")


@given(st.integers(0, 1000), st.integers(40, 90), st.integers(40, 90))
def test_rasterised_regions_equal_the_mask(seed, height, width):
    mask = blobs(height, width, seed)
    found = find_regions(Raster.of(mask))
    wrong = (drawn(found, 8 * height, 8 * width, 8) != (enlarged(mask, 8) >= 0.5)).sum() / 8**2
    assert wrong <= 0.25 * sum(region.outline.length for region in found) + 0.25  # pixels along the outlines


@pytest.mark.parametrize("block", [16, 33, 50])
def test_regions_do_not_depend_on_the_block_size(monkeypatch, block):
    mask = blobs(90, 120)
    whole = shapely.union_all([region.outline for region in find_regions(Raster.of(mask))])
    monkeypatch.setattr(regions, "_BLOCK", block)
    parts = find_regions(Raster.of(mask))
    joined = shapely.union_all([region.outline for region in parts])
    assert whole.symmetric_difference(joined).area < 0.005 * whole.area  # simplified before and after joining
    inside, _ = ndimage.label(mask >= 0.5)
    assert len(parts) <= inside.max()  # no region is left in pieces


def test_holes_of_regions_that_blocks_cut_are_kept(monkeypatch):
    """Holes within a block, on the border of two blocks, and in a region within a hole that blocks cut."""
    mask = np.ones((60, 60))
    mask[3:7, 3:7] = mask[10:50, 14:19] = mask[25:35, 25:35] = 0
    mask[26:34, 26:34] = 1  # an island that the border cuts ...
    mask[28:31, 27:29] = 0  # ... with a hole beside the border
    whole = find_regions(Raster.of(mask))
    monkeypatch.setattr(regions, "_BLOCK", 30)
    parts = find_regions(Raster.of(mask))
    assert [len(region.outline.interiors) for region in parts] == [3, 1]
    for one, other in zip(whole, parts, strict=True):
        assert other.outline.is_valid
        assert one.outline.symmetric_difference(other.outline).area < 0.01


def test_holes_small_regions_and_means():
    mask = np.zeros((60, 80))
    mask[10:50, 10:50] = 0.8
    mask[20:30, 20:30] = 0.0  # a hole
    mask[40:42, 40:42] = 0.0  # a small one
    mask[5:8, 70:73] = 1.0
    large, small = find_regions(Raster.of(mask))
    assert len(large.outline.interiors) == 2
    assert large.mean == pytest.approx(0.8, abs=0.02)
    assert large.outline.area == pytest.approx(1600 - 100 - 4, rel=0.03)
    assert small.outline.area < 12
    (only,) = find_regions(Raster.of(mask), min_area=20)
    assert len(only.outline.interiors) == 1


def test_a_full_mask_is_one_region_and_an_empty_mask_none():
    (region,) = find_regions(Raster.of(np.ones((20, 30))))
    assert region.outline.equals(shapely.box(0, 0, 30, 20))
    assert find_regions(Raster.of(np.zeros((20, 30)))) == []


@pytest.mark.parametrize("at_once", [1, 3])
def test_features_do_not_depend_on_how_many_are_made_at_once(monkeypatch, at_once):
    found, style = find_regions(Raster.of(blobs(90, 130))), GeoJsonStyle("a", ["a"], "a", scale=4)
    whole = list(geojson.features(found, style))
    assert len(whole) > 3
    monkeypatch.setattr(geojson, "_AT_ONCE", at_once)
    assert list(geojson.features(iter(found), style)) == whole
    assert list(geojson.features([], style)) == []


def test_geojson_is_valid_and_measured(tmp_path):
    mask = blobs(60, 60, 3)
    found = find_regions(Raster.of(mask))
    save_geojson(
        found, tmp_path / "a.geojson", GeoJsonStyle("malignant", ["benign", "malignant"], "a", scale=4, mpp=0.5)
    )
    collection = FeatureCollection.model_validate_json((tmp_path / "a.geojson").read_text())
    assert len(collection.features) == len(found)
    for feature, region in zip(json.loads((tmp_path / "a.geojson").read_text())["features"], found, strict=True):
        properties = feature["properties"]
        assert properties["objectType"] == "annotation"
        assert properties["classification"]["name"] == "malignant"
        assert properties["measurements"]["Area µm^2"] == pytest.approx(region.outline.area * 4, rel=1e-3)
        polygon = shapely.geometry.shape(feature["geometry"])
        assert polygon.is_valid
        assert polygon.exterior.is_ccw
        assert polygon.area == pytest.approx(region.outline.area * 16, rel=0.01)


def test_the_heat_map_is_aligned_with_the_slide(tmp_path):
    grey = (255 * blobs(50, 70, 5)).round().astype(np.uint8)
    size = 444, 315  # the last cells extend beyond the slide
    save_heatmap(grey, 6.4, size, 0.499, tmp_path / "heat.tif")
    with openslide.OpenSlide(tmp_path / "heat.tif") as heat:
        assert heat.dimensions == size
        assert heat.level_count > 1
        assert float(heat.properties["openslide.mpp-x"]) == pytest.approx(0.499, abs=1e-4)
        pixels = np.asarray(heat.read_region((0, 0), 0, size))[..., 0]
    raster = Raster(70, 50, lambda x, y, w, h: grey[y : y + h, x : x + w], 127.5, 255)
    assert overlap(drawn(find_regions(raster), 315, 444, 6.4), pixels >= 128) > 0.99


def test_a_heat_map_replaces_the_previous_one(tmp_path):
    for value in (10, 200):
        save_heatmap(np.full((50, 70), value, np.uint8), 4, (280, 200), 0.5, tmp_path / "heat.tif")
        with openslide.OpenSlide(tmp_path / "heat.tif") as heat:
            assert np.asarray(heat.read_region((0, 0), 0, (10, 10)))[..., 0].max() == value


def test_rounded_polygons_are_valid(tmp_path):
    mask = np.random.default_rng(0).random((80, 80))
    save_geojson(find_regions(Raster.of(mask)), tmp_path / "a.geojson", GeoJsonStyle("a", ["a"], "a", scale=0.013))
    features = json.loads((tmp_path / "a.geojson").read_text())["features"]
    assert all(shapely.geometry.shape(feature["geometry"]).is_valid for feature in features)


def test_outlines_are_simplified_one_by_one_and_kept_apart_where_they_would_touch():
    """Both ways give valid polygons with all holes; the quick one equals the other wherever it is used."""
    import shapely

    from histolumen.export import regions

    holes = [shapely.Point(10 * x, 10 * y).buffer(3) for x in range(1, 9) for y in range(1, 9)]
    sieve = shapely.box(0, 0, 90, 90).difference(shapely.union_all(holes))
    assert regions._simplified(sieve).equals(sieve.simplify(regions._TOLERANCE))
    bump = [(0, 0), (10, 0), (10, 10), (5, 10.08), (0, 10)]  # a straight line would cut the hole below
    narrow = shapely.Polygon(bump, [[(5, 10.04), (4, 9), (6, 9)]])
    assert narrow.is_valid
    assert regions._simplified(narrow).is_valid
    assert len(regions._simplified(narrow).interiors) == 1
    sliver = shapely.Polygon([(0, 0), (20, 0), (20, 0.05), (10, 0.02), (0, 0.05)])  # thinner than the tolerance
    assert regions._simplified(sliver).is_valid
    assert not regions._simplified(sliver).is_empty


def test_holes_across_blocks_and_small_ones_are_judged_by_their_whole_area(monkeypatch):
    """A hole that two blocks share is kept or left out by its whole area, one inside a block is the same."""
    mask = np.ones((40, 60), np.float32)
    mask[8:12, 26:34] = 0  # 32 pixels, half of it in either block
    mask[20:24, 4:12] = 0  # 32 pixels in the first block
    mask[30:32, 29:31] = 0  # 4 pixels in both
    mask[30:32, 50:52] = 0  # 4 pixels in the second
    monkeypatch.setattr(regions, "_BLOCK", 30)
    whole = find_regions(Raster.of(mask))
    large = find_regions(Raster.of(mask), min_area=20)
    assert [len(region.outline.interiors) for region in (*whole, *large)] == [4, 2]
    assert all(20 < shapely.Polygon(hole).area < 40 for hole in large[0].outline.interiors)
