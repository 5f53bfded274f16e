import pytest

from histolumen.errors import ConfigError
from histolumen.report.plan import Plan
from histolumen.report.rows import find_rows

BASE = {
    "target": "glas",
    "methods": (),
    "seeds": (0,),
    "recipe": None,
    "backbone": None,
    "overrides": (),
    "split": "test",
    "binarise": "honest",
}


def config(name: str, **changes):
    return Plan(**{**BASE, **changes}).config(find_rows([name])[0], seed=3)


def test_without_a_shared_recipe_each_method_has_its_own():
    assert config("pn").train.epochs == 400
    assert config("unet").train.epochs == 960
    assert config("pn").seed == 3


def test_a_shared_recipe_gives_all_methods_the_same_training():
    shared = [config(name, recipe="glas-cpu") for name in ("cam-avg", "pn", "unet", "sem", "eem")]
    assert len({(c.train, c.backbone, c.images) for c in shared}) == 1


def test_the_recipes_own_method_keeps_its_settings_but_not_its_kind():
    eem, sem = config("eem", recipe="glas-cpu").method, config("sem", recipe="glas-cpu").method
    assert (eem.background, sem.background) == ("eem", "sem")
    assert eem.sigma == sem.sigma == 0.35


def test_maps_lie_over_the_image_as_the_recipe_says():
    assert config("cam-avg").method.alignment == "corners"
    assert config("cam-avg", recipe="glas-cpu").method.alignment == "centres"
    assert config("negev", recipe="glas-cpu").method.warmup == 6  # not that of a recipe of 160 epochs


def test_backbone_and_overrides_reach_every_run():
    found = config("cam-max", backbone="efficientnet_lite0", overrides=("train.epochs=2",))
    assert (found.backbone.name, found.backbone.weights, found.train.epochs) == ("efficientnet_lite0", "auto", 2)


def test_a_wrong_override_is_refused_before_anything_runs():
    with pytest.raises(ConfigError, match="epocs"):
        config("cam-max", overrides=("train.epocs=2",))
