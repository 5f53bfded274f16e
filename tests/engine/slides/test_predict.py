import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import openslide
import pytest
import shapely
import torch
from geojson_pydantic import FeatureCollection
from gland_slides import SMALL_TILES, tissue_picture
from slide_files import GLASS, write_slide
from torch import nn

from histolumen.config import load_config
from histolumen.encoders.backbone import Backbone, build_backbone
from histolumen.engine.model import Model, load
from histolumen.engine.slides import maps, predict, view
from histolumen.engine.slides.predict import SlideSettings, save_slide_prediction
from histolumen.engine.slides.prediction import OUTPUTS
from histolumen.errors import ConfigError, SlideError
from histolumen.methods.base import build_method, method_names, settings_of
from histolumen.methods.maxmin import MaxMin, MaxMinSettings
from histolumen.slides.reader import Slide
from tiny import SMALL

REAL = Path(__file__).parents[3] / "shared/data/slides/CMU-1-Small-Region.svs"


def heat_of(folder: Path) -> np.ndarray:
    with openslide.OpenSlide(folder / "heatmap.tif") as heat:
        return np.asarray(heat.read_region((0, 0), 0, heat.dimensions))[..., 0] / 255


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    return (a & b).sum() / max((a | b).sum(), 1)


class Darkness(nn.Module):
    """A trunk whose only feature is the mean darkness of 16 x 16 pixels."""

    channels = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool2d(-x.mean(1, keepdim=True), 16)


def darkness_model(**settings) -> Model:
    """Max-Min whose class scores depend only on darkness; the second class, tumour, is dark."""
    backbone = Backbone(Darkness(), 16, "shared", (0.5,) * 3, (0.5,) * 3)
    backbone.offset.fill_(7.5)
    chosen = MaxMinSettings(modalities=1, kmax=0.2, classifier_scale=1.0, alignment="centres", sigma=0.5, **settings)
    method = MaxMin(chosen, backbone, 2).eval()
    for head in (method.localizer, method.classifier):
        head.modality_maps.weight.data = torch.tensor([-8.0, 8.0]).view(2, 1, 1, 1)
        head.modality_maps.bias.data = torch.tensor([0.0, 0.0])
    return Model(method, ["normal", "tumour"], load_config("glas-sem", SMALL), torch.device("cpu"))


def two_halves(tumour: tuple[int, int, int] = (90, 10, 70)) -> np.ndarray:
    """Dark tumour on the left, and pale normal tissue on the right, with a little texture."""
    picture = np.empty((512, 1536, 3), np.int16)
    picture[:, :768], picture[:, 768:] = tumour, (200, 140, 180)
    noise = np.random.default_rng(0).integers(-6, 7, (32, 96, 1)).repeat(16, 0).repeat(16, 1)
    return (picture + noise).clip(0, 255).astype(np.uint8)


def test_normalised_per_slide_a_normal_tile_has_no_foreground(tmp_path):
    picture, model = two_halves(), darkness_model()
    slide = write_slide(tmp_path / "halves.tif", picture, mpp=0.5)
    record = save_slide_prediction(model, slide, tmp_path / "out", SMALL_TILES)
    mask = heat_of(tmp_path / "out") >= 0.5
    assert mask[:, :700].mean() > 0.95
    assert mask[:, 830:].mean() < 0.001
    assert record["prediction"] == "tumour"
    alone = model.predict(picture[:256, 1100:1356]).mask  # the same tissue as a separate image
    assert alone.mean() > 0.2  # normalised to [0, 1] by itself, it has foreground


def test_the_classifier_sees_only_the_foreground_of_the_slide(tmp_path):
    """Pale tissue is evidence for `normal`; with it masked out, the remaining evidence is for the tumour."""
    picture = two_halves()
    slide = write_slide(tmp_path / "halves.tif", picture, mpp=0.5)
    seen = []
    model = darkness_model()
    real = model.method.backbone.forward
    model.method.backbone.forward = lambda x, *case: seen.append((case, x)) or real(x, *case)
    save_slide_prediction(model, slide, tmp_path / "out", SMALL_TILES.model_copy(update={"flips": False}))
    on_plus = [x for case, x in seen if case]
    assert len(on_plus) == len(seen) / 2  # two passes, never a third for X-
    normal = [x for x in on_plus if x.abs().max() < 0.2]  # tiles of pale tissue are masked out
    assert len(normal) >= 4


def test_a_slide_as_small_as_an_image_has_the_prediction_of_the_image(tmp_path):
    picture, model = two_halves()[:, 512:1024], darkness_model()
    slide = write_slide(tmp_path / "image.tif", picture, mpp=0.5)
    record = save_slide_prediction(model, slide, tmp_path / "out", SMALL_TILES)
    images = model.config.images.model_copy(update={"short_side": None})
    model.config = model.config.model_copy(update={"images": images})
    prediction = model.predict(picture)
    assert record["p_tumour"] == pytest.approx(prediction.probabilities["tumour"], abs=0.01)
    assert np.abs(heat_of(tmp_path / "out") - prediction.soft_mask).mean() < 0.02


@pytest.mark.parametrize("flips", [False, True])
def test_one_pass_gives_class_and_mask_of_a_slide_as_of_an_image(tmp_path, flips):
    """Class maps are repeated beside the finer logits of a decoder, stored thinned, and pooled."""
    settings = ["method.mask_from=decoder", "method.decoder_stride=4", "method.class_from=image"]
    config = load_config("glas-sem", [*SMALL, *settings, "images.short_side=null", f"images.test_flips={flips}"])
    torch.manual_seed(0)
    method = build_method(config.method, build_backbone(config.backbone), 2).eval()
    method.localizer.modality_maps.weight.data *= 400  # so that probabilities differ from one half
    model = Model(method, ["benign", "malignant"], config, torch.device("cpu"))
    picture = two_halves()[:, 512:1024]
    slide = write_slide(tmp_path / "image.tif", picture, mpp=0.5)
    passes = []
    real = method.backbone.forward
    method.backbone.forward = lambda x, *case: passes.append(case) or real(x, *case)
    record = save_slide_prediction(model, slide, tmp_path / "out", SMALL_TILES)
    assert not any(passes)  # never X+
    method.backbone.forward = real
    prediction = model.predict(picture)
    assert abs(prediction.probabilities["malignant"] - 0.5) > 0.1
    assert record["p_malignant"] == pytest.approx(prediction.probabilities["malignant"], abs=0.03)
    assert np.abs(heat_of(tmp_path / "out") - prediction.soft_mask).mean() < 0.02


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method.mask_from": "decoder", "method.decoder_stride": 8},
        {"method.mask_from": "decoder", "method.decoder_stride": 8, "method.refine": "true"},
    ],
    ids=["class maps", "decoder", "refined"],
)
def test_seams_do_not_show(tmp_path, gland_slide, settings):
    config = load_config("glas-sem", [*SMALL, *(f"{key}={value}" for key, value in settings.items())])
    torch.manual_seed(0)
    method = build_method(config.method, build_backbone(config.backbone), 2).eval()
    model = Model(method, ["benign", "malignant"], config, torch.device("cpu"))
    if method.decoder is not None:  # an untrained decoder marks everything as background
        logits = method(torch.from_numpy(tissue_picture()).permute(2, 0, 1)[None] / 255).soft_mask.logit()
        method.decoder.leave.bias.data -= logits.median()
        for values in (method.decoder.leave.weight, method.decoder.leave.bias):
            values.data *= 5
    heats = []
    for shift in (0, 320):  # half a tile; overlap and tile in the default ratio
        tiles = SMALL_TILES.model_copy(update={"tile": 640, "overlap": 128, "shift": shift})
        save_slide_prediction(model, gland_slide, tmp_path / str(shift), tiles)
        heats.append(heat_of(tmp_path / str(shift)))
    assert np.abs(heats[0] - heats[1]).mean() <= 0.02
    assert overlap(heats[0] >= 0.5, heats[1] >= 0.5) >= 0.97


@pytest.mark.skipif(not REAL.exists(), reason="the research slide is not here")
def test_the_real_slide_from_file_to_regions(tmp_path, tiny_run):
    """The whole command; its files are checked by OpenSlide, a GeoJSON schema and shapely."""
    options = ["--out", tmp_path, "--model-mpp", 2, "--tile", 256, "--overlap", 64]
    said = subprocess.run(
        [sys.executable, "-m", "histolumen", "slide", *map(str, [tiny_run, REAL, *options])],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    folder = tmp_path / REAL.stem
    with openslide.OpenSlide(REAL) as slide, openslide.OpenSlide(folder / "heatmap.tif") as heat:
        assert heat.dimensions == slide.dimensions
        assert float(heat.properties["openslide.mpp-x"]) == pytest.approx(0.499, abs=1e-5)
    collection = FeatureCollection.model_validate_json((folder / "regions.geojson").read_text())
    mask = heat_of(folder) >= 0.5
    polygons = [shapely.geometry.shape(feature.geometry.model_dump()) for feature in collection.features]
    assert all(polygon.is_valid for polygon in polygons)
    rows, columns = (np.arange(1, side, 3) for side in mask.shape)
    points = np.meshgrid(columns + 0.5, rows + 0.5)
    regions = shapely.union_all(polygons)
    shapely.prepare(regions)
    assert overlap(shapely.contains_xy(regions, *points), mask[np.ix_(rows, columns)]) >= 0.98
    areas = [feature.properties["measurements"]["Area µm^2"] for feature in collection.features]
    assert sum(areas) == pytest.approx(mask.sum() * 0.499**2, rel=0.02)
    (row,) = csv.DictReader((tmp_path / "slides.csv").open())
    assert int(row["regions"]) == len(areas)
    assert float(row["foreground_mm2"]) == pytest.approx(sum(areas) / 1e6, rel=0.01)
    assert (folder / "overlay.png").exists()
    assert not (folder / "unfinished").exists()


def test_regions_have_the_class_whose_evidence_the_mask_shows(tmp_path):
    """Little tumour on much normal tissue: the slide is normal by its pooled scores, its regions are tumour."""
    model = darkness_model(negative_evidence=1.0)
    model.method.negative_class = model.classes.index("normal")
    model.method.classifier.modality_maps.bias.data = torch.tensor([9.0, 0.0])  # always predicts normal
    slide = write_slide(tmp_path / "halves.tif", two_halves(), mpp=0.5)
    record = save_slide_prediction(model, slide, tmp_path / "out", SMALL_TILES)
    assert record["prediction"] == "normal"
    features = json.loads((tmp_path / "out/regions.geojson").read_text())["features"]
    assert {feature["properties"]["classification"]["name"] for feature in features} == {"tumour"}


def test_tissue_without_any_position_is_an_error(tmp_path, gland_slide, monkeypatch):
    monkeypatch.setattr(view, "_pooled_positions", lambda *arguments: np.zeros(arguments[-1], bool))
    with pytest.raises(SlideError, match="too little tissue"):
        save_slide_prediction(darkness_model(), gland_slide, tmp_path / "out", SMALL_TILES)


def test_polygons_start_at_the_origin_of_qupath(tmp_path, monkeypatch):
    slide = write_slide(tmp_path / "halves.tif", two_halves(), mpp=0.5)
    lefts = []
    for bounds in ((0, 0), (100, 50)):
        monkeypatch.setattr("histolumen.slides.reader._bounds", lambda _, bounds=bounds: bounds)
        save_slide_prediction(darkness_model(), slide, tmp_path / str(bounds[0]), SMALL_TILES)
        features = json.loads((tmp_path / str(bounds[0]) / "regions.geojson").read_text())["features"]
        lefts.append(shapely.geometry.shape(features[0]["geometry"]).bounds)
    assert np.subtract(lefts[0], lefts[1]).round(1).tolist() == [100, 50, 100, 50]


def test_finished_tiles_are_not_repeated_after_an_interruption(tmp_path, gland_slide, tiny_run, monkeypatch):
    model, settings = load(tiny_run), SMALL_TILES.model_copy(update={"readers": 1})
    whole = save_slide_prediction(model, gland_slide, tmp_path / "whole", settings)
    reads = []
    real = Slide.read

    def stopping(self, region, size, scale):
        if size == (256, 256):
            reads.append(region)
            if len(reads) == 8:
                raise KeyboardInterrupt
        return real(self, region, size, scale)

    monkeypatch.setattr(Slide, "read", stopping)
    with pytest.raises(KeyboardInterrupt):
        save_slide_prediction(model, gland_slide, tmp_path / "parts", settings)
    flags = (tmp_path / "parts/unfinished/pass-1.positions.done").read_bytes()
    done = flags.count(1)
    assert done > 2
    before = len(reads)
    parts = save_slide_prediction(model, gland_slide, tmp_path / "parts", settings)
    assert len(reads) - before == whole["tiles"]  # those kept for the second pass are lost, and no more are read twice
    assert parts == whole
    assert np.array_equal(heat_of(tmp_path / "parts"), heat_of(tmp_path / "whole"))


@pytest.mark.parametrize(
    "method", [{}, {"mask_from": "decoder", "class_from": "image"}], ids=["two passes", "one pass"]
)
def test_tiles_side_by_side_give_what_they_do_one_by_one(tmp_path, gland_slide, method):
    """Several threads share the network, the readers and the comparison with the training images."""
    config = load_config("demo")
    torch.manual_seed(0)
    settings = config.method.model_copy(update=method)
    model = Model(build_method(settings, build_backbone(config.backbone), 2), ["a", "b"], config)
    records, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            records.append(save_slide_prediction(model, gland_slide, tmp_path / str(threads), SMALL_TILES))
    finally:
        torch.set_num_threads(before)
    assert records[0]["tiles"] == records[1]["tiles"] > 4
    assert records[0]["p_a"] == pytest.approx(records[1]["p_a"], abs=1e-4)
    one_by_one, side_by_side = (heat_of(tmp_path / str(threads)).astype(int) for threads in (1, 2))
    assert np.abs(one_by_one - side_by_side).max() <= 1


@pytest.mark.parametrize("broken", [False, True])
def test_files_made_in_the_background_are_the_same_byte_for_byte(tmp_path, gland_slide, tiny_run, monkeypatch, broken):
    """A large heat map's outlines and pyramid are made while the second pass runs; if that fails, afterwards."""
    model = load(tiny_run)
    here = save_slide_prediction(model, gland_slide, tmp_path / "here/slide", SMALL_TILES)
    started = []
    real = predict.BackgroundFiles
    monkeypatch.setattr(predict, "_WORTH_A_PROCESS", 0)
    monkeypatch.setattr(predict, "BackgroundFiles", lambda *given: started.append(real(*given)) or started[-1])
    if broken:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    there = save_slide_prediction(model, gland_slide, tmp_path / "there/slide", SMALL_TILES)
    assert len(started) == 1
    assert (started[0].results() is None) or not broken
    assert here == there
    for name in OUTPUTS:
        assert (tmp_path / "here/slide" / name).read_bytes() == (tmp_path / "there/slide" / name).read_bytes(), name
    assert not (tmp_path / "there/slide/unfinished").exists()


def test_unfinished_work_of_another_model_is_discarded(tmp_path, gland_slide, tiny_run):
    model = load(tiny_run)
    monkey = tmp_path / "out/unfinished"
    monkey.mkdir(parents=True)
    (monkey / "made-with").write_text("another")
    (monkey / "pass-1.json").write_text("[[9, 9, 9], [9, 9]]")
    assert save_slide_prediction(model, gland_slide, tmp_path / "out", SMALL_TILES)["tiles"] > 0


def test_unknown_resolutions_are_errors(tmp_path, gland_slide, tiny_run):
    model = load(tiny_run)
    model.mpp = None
    with pytest.raises(ConfigError, match="--model-mpp"):
        save_slide_prediction(model, gland_slide, tmp_path, SMALL_TILES.model_copy(update={"model_mpp": None}))
    square = model.config.images.model_copy(update={"resize": "square"})
    model.config = model.config.model_copy(update={"images": square})
    with pytest.raises(ConfigError, match="distorted to a square"):
        save_slide_prediction(model, gland_slide, tmp_path, SMALL_TILES.model_copy(update={"model_mpp": None}))
    unstated = write_slide(tmp_path / "a.tif", tissue_picture(), mpp=None)
    with pytest.raises(SlideError, match="--slide-mpp"):
        save_slide_prediction(model, unstated, tmp_path / "out", SMALL_TILES)
    assert (
        save_slide_prediction(model, unstated, tmp_path / "out", SMALL_TILES.model_copy(update={"slide_mpp": 0.5}))[
            "mpp"
        ]
        == 0.5
    )


def test_a_finer_slide_is_read_at_the_resolution_of_the_model(tmp_path, tiny_run):
    """The same tissue scanned at twice the resolution has nearly the same prediction."""
    coarse, fine = tissue_picture(), tissue_picture().repeat(2, 0).repeat(2, 1)
    heats = []
    for name, picture, mpp in (("coarse", coarse, 0.5), ("fine", fine, 0.25)):
        slide = write_slide(tmp_path / f"{name}.tif", picture, mpp=mpp)
        save_slide_prediction(load(tiny_run), slide, tmp_path / name, SMALL_TILES)
        heats.append(heat_of(tmp_path / name))
    assert overlap(heats[0] >= 0.5, heats[1][::2, ::2] >= 0.5) > 0.9


def test_a_slide_without_tissue_is_an_error_with_a_preview(tmp_path, tiny_run):
    slide = write_slide(tmp_path / "empty.tif", np.full((300, 300, 3), GLASS, np.uint8), mpp=0.5)
    with pytest.raises(SlideError, match="no tissue found"):
        save_slide_prediction(load(tiny_run), slide, tmp_path / "out", SMALL_TILES)
    assert (tmp_path / "out/tissue.png").exists()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {"test_rounds": 2} if name == "erase" else {}) for name in method_names()),  # 2: a second pass
        ("maxmin", {"mask_at": "features"}),
    ],
)
def test_every_method_predicts_slides(tmp_path, gland_slide, name, options):
    from histolumen.encoders.backbone import build_backbone

    config = load_config("glas-sem", SMALL)
    torch.manual_seed(0)
    method = build_method(settings_of(name)(**options), build_backbone(config.backbone), 2)
    model = Model(method, ["benign", "malignant"], config, torch.device("cpu"))
    record = save_slide_prediction(model, gland_slide, tmp_path, SMALL_TILES)
    assert record["p_benign"] + record["p_malignant"] == pytest.approx(1, abs=1e-5)
    assert heat_of(tmp_path).max() <= 1


def test_pooling_takes_a_sample_with_the_extremes(tmp_path, gland_slide, tiny_run, monkeypatch):
    model = load(tiny_run)
    whole = save_slide_prediction(model, gland_slide, tmp_path / "whole", SMALL_TILES)
    monkeypatch.setattr(maps, "_SAMPLE", 200)
    sampled = save_slide_prediction(model, gland_slide, tmp_path / "sampled", SMALL_TILES)
    assert sampled["p_benign"] == pytest.approx(whole["p_benign"], abs=0.02)


def test_a_resolution_that_needs_endless_memory_is_refused(tiny_run, gland_slide):
    settings = SlideSettings(model_mpp=1e-5, tile=256, overlap=64, flips=False)
    with pytest.raises(SlideError, match="would enlarge the slide 50000 times; check --model-mpp and --slide-mpp"):
        load(tiny_run).predict_slide(gland_slide, settings)
