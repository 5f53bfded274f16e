"""Glands of GlaS pass at 95 %; everything else is flagged. ImageNet weights: nothing is trained here."""

from pathlib import Path

import numpy as np
import pytest

import odd_images
from histolumen.data.image import read_image
from histolumen.data.sources.glas import paper_split
from histolumen.data.transforms import ImageSettings, to_working_size
from histolumen.encoders import BackboneSettings, build_backbone
from histolumen.familiarity.features import described_layer
from histolumen.familiarity.judgement import Judgement, judge, judge_fields
from histolumen.familiarity.reference import describe_image, fit_reference
from histolumen.slides.reader import open_slide

DATA = Path(__file__).parents[3] / "shared" / "data"
GLAS, SLIDE = DATA / "glas" / "images", DATA / "slides" / "CMU-1-Small-Region.svs"
MPP = 0.62  # microns per pixel of GlaS

pytestmark = pytest.mark.skipif(not GLAS.is_dir(), reason="needs the images of GlaS")


@pytest.fixture(scope="module")
def glands() -> dict[str, list[np.ndarray]]:
    split = paper_split()
    found = {name: next(iter(GLAS.glob(f"{name}.*")), None) for name in split}
    return {
        which: [read_image(path) for name, path in found.items() if path is not None and split[name] == which]
        for which in ("train", "valid")
    }


@pytest.fixture(scope="module")
def judged(glands):
    """A function that judges an image by the training images."""
    backbone = build_backbone(BackboneSettings(name="efficientnet_lite0", output_stride=16)).eval()
    layer = described_layer(backbone)

    def describe(image: np.ndarray):
        pixels = to_working_size(image, ImageSettings(), None, backbone.size_multiple)
        return describe_image(backbone, layer, pixels.permute(1, 2, 0).numpy())

    training = [describe(image) for image in glands["train"]]
    reference = fit_reference(layer, training, [str(k) for k in range(len(training))], [(432, 640)] * len(training))
    assert reference is not None

    def judge_one(*images: np.ndarray) -> Judgement:
        described = [describe(image) for image in images]
        return judge(reference, described[0]) if len(described) == 1 else judge_fields(reference, described)

    return judge_one


def test_glands_that_were_not_trained_on_pass(glands, judged):
    passed = [not judged(image).warnings for image in glands["valid"]]
    assert len(passed) == 18
    assert sum(passed) >= 17


@pytest.mark.parametrize("change", [name for name in odd_images.CHANGES if "2 times" not in name])
def test_altered_glands_are_flagged(glands, judged, change):
    assert judged(odd_images.CHANGES[change](glands["valid"][3])).unlike > 1


def test_noise_text_photographs_and_another_stain_are_flagged(judged):
    for images in (odd_images.noise(), odd_images.text(), odd_images.photos(), odd_images.immunohistochemistry()):
        assert all(judged(image).unlike > 1 for image in images[:4])


@pytest.mark.skipif(not SLIDE.is_file(), reason="needs the slide of skin")
def test_skin_is_flagged_even_in_the_colours_of_the_glands(glands, judged):
    pytest.importorskip("openslide", reason="needs the extra [slides]")
    with open_slide(SLIDE) as slide:
        fields = odd_images.fields_of(slide, MPP)[::3]
    assert len(fields) >= 4
    assert judged(*fields).unlike > 1.5
    recoloured = odd_images.in_colours_of(fields, glands["train"][::8])
    assert judged(*recoloured).unlike > 1
