"""Run the contract tests on every registered method, with its main settings."""

import pytest
from build import tiny_method
from contract import MethodContract

from histolumen.errors import ConfigError
from histolumen.methods.base import Method, MethodSettings, method_names, register, settings_of

FORMS = {
    "all_ones": ({},),
    "cam_avg": ({}, {"alignment": "centres"}, {"negative_class": 1}),
    "cam_lse": ({},),
    "cam_max": ({},),
    "deep_mil": ({}, {"negative_class": 1}),
    "erase": ({"test_rounds": 3}, {}, {"test_rounds": 2, "negative_class": 1}),
    "grad_cam": ({}, {"negative_class": 0}),
    "layer_cam": ({}, {"stride": 4, "alignment": "centres"}),
    "maxmin": (
        {"background": "sem"},
        {"background": "eem", "foreground": False},
        {"background": "none"},
        {"mask_from": "decoder", "grouping": 1, "edges": 1},
        {"grouping": 1},
        {"mask_from": "decoder", "refine": True},
        {"refine": True},
        {"mask_from": "decoder", "class_from": "image"},
        {"mask_at": "features"},
        {"mask_at": "features", "mask_stride": 4, "mask_from": "decoder"},
    ),
    "negev": ({"warmup": 0}, {"warmup": 0, "negative_class": 0}),
    "pn": ({},),
    "unet": ({}, {"upsampling": "bilinear"}),
    "wildcat": ({},),
}


# BatchNorm statistics matter only to methods that also run the backbone on masked images
CASES = [
    pytest.param(name, form, statistics, id=f"{name}-{number}-{statistics}")
    for name, forms in FORMS.items()
    for number, form in enumerate(forms)
    for statistics in (("shared", "separate", "frozen") if name in {"maxmin", "erase"} and number == 0 else ("shared",))
]


@pytest.mark.parametrize(("name", "options", "statistics"), CASES)
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
