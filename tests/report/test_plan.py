import pytest

from histolumen.errors import ConfigError, RunError
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


def test_a_folder_keeps_the_methods_and_seeds_of_earlier_calls():
    earlier, now = Plan(**{**BASE, "methods": ("sem",), "seeds": (1,)}), Plan(**{**BASE, "methods": ("cam-avg",)})
    both = now.joined(earlier)
    assert [row.name for row in both.rows] == ["cam-avg", "sem"]
    assert both.seeds == (0, 1)
    with pytest.raises(RunError, match="recipe None, not 'glas-cpu'"):
        Plan(**{**BASE, "recipe": "glas-cpu"}).joined(earlier)


def test_all_ones_is_not_trained():
    assert config("all-ones", recipe="glas-cpu").train.epochs == 1


def test_backbone_and_overrides_reach_every_run():
    found = config("cam-max", backbone="efficientnet_lite0", overrides=("train.epochs=2",))
    assert (found.backbone.name, found.backbone.weights, found.train.epochs) == ("efficientnet_lite0", "auto", 2)


def test_a_wrong_override_is_refused_before_anything_runs():
    with pytest.raises(ConfigError, match="epocs"):
        config("cam-max", overrides=("train.epocs=2",))
