"""Masks from class maps, redrawn by the early features of each image."""

import pytest
import torch
from build import tiny_method

from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.errors import ConfigError
from histolumen.methods.maxmin import MaxMin
from histolumen.methods.maxmin_settings import MaxMinSettings
from histolumen.methods.redrawing import Redrawing, tissue_at
from histolumen.methods.view import ImageView, Layer, Mask


def two_halves() -> torch.Tensor:
    """A dark half on the left and a bright one on the right, with some noise."""
    torch.manual_seed(0)
    images = 0.2 * torch.rand(1, 3, 256, 320)
    images[..., 160:] += 0.7
    return images


def test_the_boundary_moves_to_where_the_image_changes():
    backbone = build_backbone(BackboneSettings(name="test_resnet", weights="none", output_stride=16)).eval()
    pixels = backbone.normalise(two_halves())
    view = ImageView(pixels)

    def rough(X: torch.Tensor) -> torch.Tensor:
        """A mask that ends 64 pixels too far to the right."""
        logits = torch.full((1, 1, X.shape[2] // 16, X.shape[3] // 16), -1.0)
        logits[..., : 224 // 16] = 1
        return logits

    mask = Mask((Layer(view.maps(rough, backbone.geometry), finish=torch.sigmoid),))
    with torch.no_grad():
        before, after = (view.render(each) >= 0.5 for each in (mask, Redrawing(backbone).redrawn(mask, view, backbone)))
    wrong = [float((each != (torch.arange(320) < 160)).float().mean()) for each in (before, after)]
    assert wrong[1] < wrong[0] / 2


def test_only_images_that_are_seen_at_once_are_redrawn():
    plain, redrawing = (tiny_method("maxmin", refine=refine).eval() for refine in (False, True))
    images = two_halves()
    with torch.no_grad():
        assert not torch.allclose(plain(images).soft_mask, redrawing(images).soft_mask, atol=1e-3)
        windowed = [method(images, lambda net, pixels: net(pixels)).soft_mask for method in (plain, redrawing)]
    assert torch.equal(*windowed)


def test_it_adds_no_weights():
    plain, redrawing = (tiny_method("maxmin", refine=refine).state_dict() for refine in (False, True))
    assert plain.keys() == redrawing.keys()


def test_networks_without_early_features_are_refused():
    backbone = build_backbone(BackboneSettings(name="test_vit", weights="none"))
    with pytest.raises(ConfigError, match=r"strides 4 and 8.*method\.mask_from=decoder"):
        MaxMin(MaxMinSettings(refine=True), backbone, 2)


def test_glass_is_told_from_tissue():
    X = torch.ones(1, 3, 8, 16)
    X[..., :4] = 0
    assert tissue_at(X, torch.zeros(1, 1, 2, 4), 4)[0, 0].tolist() == [[0, 1, 1, 1]] * 2
