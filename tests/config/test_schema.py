"""Shipped recipes load, and errors are one sentence that suggests the nearest name."""

import pytest
import yaml

from histolumen.config import load_config, parse_config, recipe_names, recipe_text
from histolumen.errors import ConfigError
from histolumen.methods.maxmin import MaxMinSettings


@pytest.mark.parametrize("name", recipe_names())
def test_shipped_recipes_load_and_survive_a_round_trip(name):
    config = load_config(name)
    assert parse_config(yaml.safe_load(config.as_yaml())) == config
    assert recipe_text(name).startswith("# ")  # the line that `histolumen recipes` shows


def test_the_papers_recipe_has_the_papers_values():
    config = load_config("glas-sem")
    method = config.method
    assert isinstance(method, MaxMinSettings)
    assert (method.background, method.lambda_, method.sigma, method.omega) == ("sem", 1e-7, 0.15, 5.0)
    assert (method.sigma_step, method.sigma_max, method.classifier_scale) == (0.0, 0.20, 0.8)
    assert (method.t, method.t_factor, method.t_max, method.size_unit) == (5.0, 1.01, 10.0, "pixels")
    assert (method.modalities, method.kmax, method.kmin, method.dropout) == (5, 0.3, 0.0, 0.1)
    assert (config.backbone.name, config.backbone.output_stride, config.backbone.statistics) == (
        "resnet18_deep",
        32,
        "shared",
    )
    assert (config.images.short_side, config.images.crop, config.images.jitter) == (432, 416, (0.5, 0.5, 0.5, 0.05))
    train = config.train
    assert (train.epochs, train.batch_size, train.lr, train.momentum, train.weight_decay) == (80, 4, 1e-3, 0.9, 1e-4)
    assert (train.schedule, train.lr_every, train.lr_factor, train.lr_floor) == ("step", 10, 0.9, 1e-7)
    assert train.select == "accuracy"
    assert train.clip_gradient is None
    assert load_config("glas-eem").method.background == "eem"


@pytest.mark.parametrize("name", recipe_names())
def test_recipes_of_a_data_set_have_its_resolution(name):
    mpp = {"glas": 0.62, "camelyon16": 0.243}
    assert load_config(name).images.mpp == mpp.get(name.split("-")[0])


def test_overrides():
    config = load_config(
        "glas-sem", ["train.lr=1e-4", "method.lambda=1", "images.short_side=null", "images.jitter=[0, 0, 0, 0]"]
    )
    assert config.train.lr == 1e-4
    assert config.method.lambda_ == 1
    assert config.images.short_side is None
    assert config.images.jitter == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["train.epoch=3"], "unknown key 'train.epoch'; did you mean 'epochs'?"),
        (["method.lamda=3"], "unknown key 'method.lamda'; did you mean 'lambda'?"),
        (["trian.epochs=3"], "unknown key 'trian'; did you mean 'train'?"),
        (["method.name=maxmn"], "unknown method 'maxmn'; did you mean 'maxmin'?"),
        (["train.epochs=0"], "train.epochs: input should be greater than or equal to 1, found 0"),
        (["train.epochs=many"], "train.epochs: input should be a valid integer"),
        (["method.background=both"], "method.background: input should be 'none', 'eem' or 'sem', found 'both'"),
        (["images.crop=500"], "images: crop 500 is larger than short_side 432"),
        (["backbone.output_stride=7"], "backbone.output_stride: input should be 8, 16 or 32"),
        (["epochs"], "write it as block.key=value"),
        (["train.epochs.x=3"], "'epochs' has no keys below it"),
        (["seed=-1"], "seed: input should be greater than or equal to 0, found -1"),
        (["train=3"], "train: expected keys and values"),
        (["method=maxmin"], "method: expected keys and values, found 'maxmin'"),
    ],
)
def test_mistakes_are_one_clear_sentence(overrides, message):
    base = ["train.epochs=1"] if overrides == ["train.epochs.x=3"] else []
    with pytest.raises(ConfigError) as error:
        load_config("glas-sem", [*base, *overrides])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_unknown_recipe_names_the_nearest():
    with pytest.raises(ConfigError, match="unknown recipe 'glas-sen'; did you mean 'glas-sem'"):
        load_config("glas-sen")


@pytest.mark.parametrize("text", ["a: [1", "- just\n- a list\n", "words"])
def test_a_broken_recipe_file_is_named(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.yaml"):
        load_config(str(path))


def test_a_users_own_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("method: {name: maxmin}\ntrain:\n")
    assert load_config(str(path), ["train.epochs=3"]).train.epochs == 3


@pytest.mark.parametrize("name", recipe_names())
def test_normal_patches_of_camelyon16_have_no_foreground(name):
    negative = load_config(name).images.negative_class
    assert negative == ("normal" if name.startswith(("camelyon16-", "metastases-")) else None)


@pytest.mark.parametrize("name", ["camelyon16-eem", "camelyon16-sem"])
def test_max_min_on_camelyon16_may_answer_with_an_empty_mask(name):
    assert load_config(name).method.negative_evidence == 1
    literal = load_config(name, ["method.negative_evidence=0"])  # Eq. 8 to the letter
    assert literal.method.negative_evidence == 0
