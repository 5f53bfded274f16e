"""Every fault is named with its value; images of the training kind pass; the reference survives its file."""

import numpy as np
import pytest
import torch

import odd_images
from histolumen.data.sources.synthetic_image import make_sample
from histolumen.encoders import BackboneSettings, build_backbone
from histolumen.familiarity.features import described_layer
from histolumen.familiarity.judgement import judge, judge_fields
from histolumen.familiarity.reference import MIN_IMAGES, Reference, describe_image, fit_reference

SIDE = 128


def picture(seed: int) -> np.ndarray:
    return make_sample("malignant" if seed % 2 else "benign", SIDE, seed).image


@pytest.fixture(scope="module")
def backbone():
    torch.manual_seed(0)
    settings = BackboneSettings(name="test_resnet", weights="none", output_stride=16)
    return build_backbone(settings).eval()


@pytest.fixture(scope="module")
def reference(backbone) -> Reference:
    layer = described_layer(backbone)
    images = [picture(seed) for seed in range(40)]
    described = [describe_image(backbone, layer, image) for image in images]
    fitted = fit_reference(layer, described, [str(k) for k in range(40)], [(SIDE, SIDE)] * 40)
    assert fitted is not None
    return fitted


def test_nearly_all_images_of_the_training_kind_pass(backbone, reference):
    judged = [judge(reference, reference.describe(backbone, picture(seed))) for seed in range(100, 140)]
    assert sum(not each.warnings for each in judged) >= 36


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("inverted", "inverted"),
        ("grey", "grey: saturation 0"),
        ("blurred (4 pixels)", "blurred"),
        ("reduced 4 times", "finer than"),
        ("green pen", "pen marks"),
        ("blue stain", "stain"),
        ("nearly no tissue", "nearly no tissue: "),
    ],
)
def test_what_is_wrong_is_said(backbone, reference, name, sentence):
    judgement = judge(reference, reference.describe(backbone, odd_images.CHANGES[name](picture(200))))
    assert any(sentence in warning for warning in judgement.warnings)
    assert judgement.unlike > 1
    assert judgement.warnings[0] == f"unlike the training images: distance {judgement.unlike:.1f} times the limit"


def test_other_things_are_far_away(backbone, reference):
    for image in [*odd_images.noise()[:1], *odd_images.text()[:1], *odd_images.photos()[:2]]:
        assert judge(reference, reference.describe(backbone, image[:256, :256])).unlike > 2


def test_a_slide_is_judged_by_most_of_its_fields(backbone, reference):
    good = [reference.describe(backbone, picture(seed)) for seed in range(100, 109)]
    bad = [reference.describe(backbone, odd_images.grey(picture(seed))) for seed in range(9)]
    assert judge_fields(reference, [*good, *bad[:1]]).warnings == ()
    warnings = judge_fields(reference, [*good[:3], *bad]).warnings
    assert warnings[0].startswith("75 % of the tissue is unlike the training images")
    assert warnings[1].startswith("75 % of the tissue, for example: grey")


def test_the_reference_survives_its_file(backbone, reference):
    again = Reference.from_tensors(reference.layer, reference.tensors())
    described = reference.describe(backbone, picture(7))
    assert judge(again, described) == judge(reference, described)
    assert again.size == (SIDE, SIDE)


def test_too_few_images_are_no_reference(backbone, reference):
    described = [reference.describe(backbone, picture(seed)) for seed in range(MIN_IMAGES)]
    names, sizes = [str(k) for k in range(MIN_IMAGES)], [(SIDE, SIDE)] * MIN_IMAGES
    assert fit_reference(reference.layer, described[:-1], names[:-1], sizes[:-1]) is None
    assert fit_reference(reference.layer, described, names, sizes) is not None
