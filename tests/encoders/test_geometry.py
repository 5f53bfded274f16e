"""Maps are aligned with the receptive fields of their features."""

import pytest
import torch

from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.encoders.geometry import FeatureGeometry, enlarge


@pytest.mark.parametrize(
    ("name", "stride", "weights", "low", "high"),
    [
        ("resnet18", 32, "none", -2, 2),  # symmetric padding: 0
        ("resnet18_deep", 16, "none", -2, 2),
        ("convnext_atto", 16, "none", 5, 10),  # patches: 7.5
        ("efficientnet_lite0", 16, "none", 10, 18),  # TensorFlow pads right and below only: 15
        ("efficientnet_lite0", 16, "auto", 7, 12),  # partly compensated by training
    ],
)
def test_the_offset_of_a_network_is_measured(name, stride, weights, low, high):
    torch.manual_seed(0)
    backbone = build_backbone(BackboneSettings(name=name, output_stride=stride, weights=weights))
    assert low < backbone.geometry.offset < high
    assert backbone.training


def test_the_offset_is_deterministic_and_saved_with_the_weights():
    first, again = (build_backbone(BackboneSettings(output_stride=16)) for _ in range(2))
    assert first.offset == again.offset
    empty = build_backbone(BackboneSettings(output_stride=16), load_weights=False)
    empty.load_state_dict(first.state_dict())
    assert empty.offset == first.offset


def test_a_position_is_drawn_at_the_centre_of_its_receptive_field():
    maps = torch.zeros(1, 1, 4, 4)
    maps[0, 0, 1, 2] = 1.0
    large = enlarge(maps, (32, 32), FeatureGeometry(stride=8, offset=3.0))
    assert (large == large.max()).nonzero().tolist() == [[0, 0, 8 * 1 + 3, 8 * 2 + 3]]


def test_linear_maps_stay_linear_between_the_outermost_positions():
    maps = torch.arange(4.0).view(1, 1, 1, 4)
    row = enlarge(maps, (1, 32), FeatureGeometry(8, 3.5))[0, 0, 0]
    assert row[:5].tolist() == [0, 0, 0, 0, 0.0625]
    assert torch.allclose(row[4:28].diff(), torch.full((23,), 1 / 8), atol=1e-6)
    assert row[-1] == 3


def test_corner_to_corner_aligns_the_corners():
    maps = torch.rand(2, 3, 5, 4)
    expected = torch.nn.functional.interpolate(maps, size=(40, 33), mode="bilinear", align_corners=True)
    assert torch.equal(enlarge(maps, (40, 33), FeatureGeometry(1, 0.0, corner_to_corner=True)), expected)


def test_a_shape_is_found_where_it_is():
    """The features that a bright square changes, resized to the image, are centred on the square."""
    backbone = build_backbone(BackboneSettings(output_stride=16)).eval()

    def error(left: int, geometry: FeatureGeometry) -> float:
        image = torch.zeros(1, 3, 256, 256)
        with torch.no_grad():
            empty = backbone(backbone.normalise(image))
            image[..., left : left + 32, left : left + 32] = 1.0
            change = (backbone(backbone.normalise(image)) - empty).pow(2).mean(1, keepdim=True)
        weight = enlarge(change, (256, 256), geometry)[0, 0].sum(0)
        return float((weight * torch.arange(256)).sum() / weight.sum()) - (left + 15.5)

    places = (64, 112, 160)
    centred, stretched = (
        [error(place, geometry) for place in places]
        for geometry in (backbone.geometry, FeatureGeometry(16, 0.0, corner_to_corner=True))
    )
    assert max(map(abs, centred)) < 4
    assert max(centred) - min(centred) < max(stretched) - min(stretched)  # stretched, errors grow with distance
