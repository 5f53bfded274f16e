"""Recipes and run folders of earlier versions mean what they meant."""

import pytest

from histolumen.config import load_config, parse_config, parse_run_config
from histolumen.errors import ConfigError


@pytest.mark.parametrize(
    ("method", "negative"),
    [
        ({"name": "maxmin", "negative_evidence": 0.0, "negative_class": "normal"}, None),  # written by every run
        ({"name": "maxmin", "negative_evidence": 1.0, "negative_class": "healthy"}, "healthy"),
        ({"name": "maxmin", "negative_evidence": 1.0}, "normal"),
        ({"name": "negev", "negative_class": "healthy"}, "healthy"),
        ({"name": "negev", "negative_class": None}, None),
    ],
)
def test_the_methods_negative_class_is_that_of_the_images(method, negative):
    raw = {"method": method, "images": {"short_side": 64, "crop": 64}}
    config = parse_config(raw)
    assert config.images.negative_class == negative
    assert config.images.short_side == 64
    assert parse_config(config.as_dict()) == config
    assert raw["method"] is method
    assert "negative_class" not in raw["images"]


def test_a_recipe_without_a_block_of_images_is_read_too():
    assert parse_config({"method": {"name": "negev", "negative_class": "normal"}}).images.negative_class == "normal"


def test_the_class_may_have_another_name():
    config = load_config("glas-sem", ["method.negative_evidence=1", "images.negative_class=healthy"])
    assert config.images.negative_class == "healthy"


def test_two_names_for_one_class_are_refused():
    raw = {"method": {"name": "negev", "negative_class": "normal"}, "images": {"negative_class": "healthy"}}
    with pytest.raises(ConfigError, match=r"negative_class 'normal' and images\.negative_class 'healthy' differ"):
        parse_config(raw)


def test_other_methods_never_had_the_key():
    with pytest.raises(ConfigError, match=r"unknown key 'method\.negative_class'"):
        load_config("glas-cam-avg", ["method.negative_class=normal"])


def test_an_earlier_run_of_erase_predicts_with_as_many_passes_as_in_training():
    """Run folders hold every key: one without `test_rounds` was written before there was the key."""
    former = load_config("glas-erase", ["method.rounds=4"]).as_dict()
    del former["method"]["test_rounds"]
    assert parse_run_config(former).method.test_rounds == 4
    assert parse_config(former).method.test_rounds == 1  # in a recipe, an absent key has its default
    assert "test_rounds" not in former["method"]
    now = load_config("glas-erase")
    assert parse_run_config(now.as_dict()) == now
    assert parse_run_config({"method": {"name": "erase"}}).method.test_rounds == 1


def test_an_earlier_run_of_unet_keeps_its_decoder():
    former = load_config("glas-unet").as_dict()
    del former["method"]["upsampling"]
    assert parse_run_config(former).method.upsampling == "bilinear"
    assert parse_config(former).method.upsampling == "nearest"
