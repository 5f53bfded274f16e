"""Each registered method keeps the contract, in each of its main forms."""

import pytest
from build import tiny_method
from contract import MethodContract

from histolumen.errors import ConfigError
from histolumen.methods.base import Method, MethodSettings, method_names, register, settings_of

FORMS = {
    "all_ones": ({},),
    "cam_avg": ({}, {"alignment": "centres"}),
    "cam_lse": ({},),
    "cam_max": ({},),
    "deep_mil": ({},),
    "erase": ({},),
    "grad_cam": ({},),
    "layer_cam": ({}, {"stride": 4, "alignment": "centres"}),
    "maxmin": (
        {"background": "sem"},
        {"background": "eem", "foreground": False},
        {"background": "none"},
        {"mask_from": "decoder", "grouping": 1, "edges": 1},
    ),
    "negev": ({"warmup": 0}, {"warmup": 0, "negative_class": "class 0"}),
    "pn": ({},),
    "unet": ({},),
    "wildcat": ({},),
}


@pytest.mark.parametrize("statistics", ["shared", "separate", "frozen"])
@pytest.mark.parametrize(("name", "options"), [(name, form) for name, forms in FORMS.items() for form in forms])
class TestRegisteredMethods(MethodContract):
    @pytest.fixture
    def make(self, name, options, statistics):
        def build(classes: int) -> Method:
            return tiny_method(name, classes, statistics, **options)

        return build


def test_every_registered_method_is_tested_here():
    assert set(FORMS) == set(method_names())


def test_an_unknown_method_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'maxmin'"):
        settings_of("maxmim")


def test_a_name_can_be_registered_only_once():
    class Twice(MethodSettings):
        name: str = "maxmin"

    with pytest.raises(ValueError, match="registered twice"):
        register(Twice)(Method)
