"""Max-Min against the paper: Eq. 8 by hand, the rows of the ablation, the schedules, and the passes at inference."""

import math
from functools import partial

import pytest
import torch
from build import tiny_method

from histolumen.data.batch import Batch
from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.encoders.batchnorm import Case
from histolumen.encoders.geometry import FeatureGeometry
from histolumen.errors import ConfigError
from histolumen.methods.maxmin import MaxMin, MaxMinSettings, mask_logits
from histolumen.methods.view import resized


def make(classes: int = 2, statistics: str = "shared", **settings) -> MaxMin:
    torch.manual_seed(0)
    backbone = build_backbone(
        BackboneSettings(name="test_resnet", weights="none", output_stride=16, statistics=statistics)
    )
    return MaxMin(MaxMinSettings(**settings), backbone, classes)


CORNERS = FeatureGeometry(16, 0.0, corner_to_corner=True)


def soft_mask(*args, **settings) -> torch.Tensor:
    return torch.sigmoid(mask_logits(*args, **settings, geometry=CORNERS))


def batch(size: int = 2, side: int = 64, classes: int = 2) -> Batch:
    torch.manual_seed(1)
    return Batch(torch.rand(size, 3, side, side), torch.arange(size) % classes)


def test_the_paper_model_has_the_papers_number_of_parameters():
    backbone = build_backbone(BackboneSettings(name="resnet18_deep", weights="none"))
    model = MaxMin(MaxMinSettings(), backbone, classes=2)
    assert sum(p.numel() for p in model.parameters()) == 11_335_252


def test_eq_8_by_hand():
    # one image, two classes, 2 x 2 maps, weighted by the probabilities
    maps = torch.tensor([[[[0.0, 2.0], [4.0, 8.0]], [[8.0, 8.0], [8.0, 0.0]]]])
    probs = torch.tensor([[0.75, 0.25]])
    winning = [2.0, 3.5, 5.0, 6.0]  # 0.75 a + 0.25 b
    normalised = [(v - 2) / 4 for v in winning]
    expected = [1 / (1 + math.exp(-5 * (v - 0.15))) for v in normalised]
    mask = soft_mask(maps, probs, (2, 2), sigma=0.15, omega=5.0)
    assert mask.flatten().tolist() == pytest.approx(expected, abs=1e-5)


def test_maps_are_normalised_per_image():
    maps = torch.rand(3, 2, 4, 4)
    probs = torch.full((3, 2), 0.5)
    scaled = maps.clone()
    scaled[1] *= 1000  # one image must not change the masks of the others
    before, after = (soft_mask(m, probs, (8, 8), 0.15, 5.0) for m in (maps, scaled))
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[2], after[2])
    assert torch.allclose(before[1], after[1], atol=1e-4)


def test_a_constant_map_gives_a_finite_mask_and_gradient():
    maps = torch.zeros(1, 2, 4, 4, requires_grad=True)
    mask = soft_mask(maps, torch.tensor([[0.5, 0.5]]), (8, 8), 0.15, 5.0)
    (gradient,) = torch.autograd.grad(mask.sum(), maps)
    assert torch.isfinite(mask).all()
    assert torch.isfinite(gradient).all()


def test_maps_are_enlarged_with_aligned_corners():
    maps = torch.tensor([[[[0.0, 1.0]], [[0.0, 1.0]]]])
    mask = soft_mask(maps, torch.tensor([[0.5, 0.5]]), (1, 3), sigma=0.5, omega=1.0)
    assert mask.flatten().tolist() == pytest.approx([1 / (1 + math.exp(0.5)), 0.5, 1 / (1 + math.exp(-0.5))], abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "terms"),
    [  # the rows of the paper's ablation table
        ({"foreground": False, "background": "none", "size_barrier": False}, {"localizer"}),
        ({"background": "none", "size_barrier": False}, {"localizer", "foreground"}),
        ({"background": "eem", "size_barrier": False}, {"localizer", "foreground", "background"}),
        ({"background": "sem", "size_barrier": False}, {"localizer", "foreground", "background"}),
        ({"background": "eem"}, {"localizer", "foreground", "background", "size"}),
        ({"background": "sem"}, {"localizer", "foreground", "background", "size"}),
    ],
)
def test_every_row_of_the_ablation_is_a_setting(settings, terms):
    model = make(**settings)
    values = model.losses(batch()).terms
    assert set(values) == terms
    assert torch.isfinite(sum(values.values()))
    output = model.eval()(batch().images)
    assert output.probs.shape == (2, 2)


def test_there_is_no_classifier_without_its_loss_terms():
    """Its weights would have no gradient, which distributed training does not allow."""
    model = make(foreground=False, background="none")
    sum(model.losses(batch()).terms.values()).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_eem_and_sem_are_weighted_by_lambda():
    one, ten = (make(**{"lambda": value, "dropout": 0}).losses(batch()).terms["background"] for value in (1.0, 10.0))
    assert ten.item() == pytest.approx(10 * one.item(), rel=1e-5)


def test_the_classifier_terms_train_the_mask():
    """The terms on X+ and X- and the size term have gradients in the localizer."""
    model = make(**{"lambda": 1.0})
    terms = model.losses(batch()).terms
    for name in ("foreground", "background", "size"):
        (gradient,) = torch.autograd.grad(terms[name], model.localizer.modality_maps.weight, retain_graph=True)
        assert gradient.abs().sum() > 0, name


def record_cases(model: MaxMin) -> list[tuple[Case, int]]:
    calls = []
    inner = model.backbone.forward

    def forward(images, case=Case.WHOLE):
        calls.append((case, len(images)))
        return inner(images, case)

    model.backbone.forward = forward
    return calls


@pytest.mark.parametrize("statistics", ["shared", "separate"])
def test_training_runs_foreground_and_background_apart(statistics):
    model = make(statistics=statistics)
    calls = record_cases(model)
    model.losses(batch())
    assert calls == [(Case.WHOLE, 2), (Case.FOREGROUND, 2), (Case.BACKGROUND, 2)]


@pytest.mark.parametrize("mask_at", ["image", "features"])
def test_with_frozen_statistics_one_batch_of_both_regions_equals_two(mask_at):
    model = make(statistics="frozen", dropout=0, mask_at=mask_at).train()
    unmasked, foreground, run = torch.randn(2, 3, 64, 64), torch.rand(2, 1, 64, 64), model.backbone
    if model.masked_layer is not None:
        unmasked = model.backbone.up_to(model.masked_layer, unmasked)
        run = partial(model.backbone.after, model.masked_layer)
    assert not model.backbone.tells_cases_apart
    together = model._classify_regions(model.classifier, unmasked, foreground)
    for case, images in model._masked(unmasked, foreground).items():
        assert torch.allclose(together[case], model.classifier(run(images, case)), atol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 0.8])
@pytest.mark.parametrize("background", ["none", "eem"])
def test_the_classifier_sees_the_masked_images_resized(scale, background):
    model = make(classifier_scale=scale, background=background)
    unmasked, foreground = torch.randn(2, 3, 64, 48), torch.rand(2, 1, 64, 48)
    seen, forward = [], model.backbone.forward
    model.backbone.forward = lambda images, case: seen.append(images) or forward(images, case)
    model._classify_regions(model.classifier, unmasked, foreground)
    masks = [foreground, 1 - foreground] if background == "eem" else [foreground]
    for found, mask in zip(seen, masks, strict=True):
        assert torch.allclose(found, resized(unmasked * mask, scale), rtol=0, atol=2e-6)


def test_inference_never_computes_the_background_image():
    model = make().eval()
    calls = record_cases(model)
    model(batch().images)
    assert calls == [(Case.WHOLE, 2), (Case.FOREGROUND, 2)]


def test_schedules_advance_and_are_saved_with_the_weights():
    model = make(sigma_step=0.001)
    for _ in range(60):
        model.on_epoch_end()
    assert model.sigma.item() == pytest.approx(0.20)
    assert model.t.item() == pytest.approx(min(5 * 1.01**60, 10), rel=1e-4)
    for _ in range(60):
        model.on_epoch_end()
    assert model.t.item() == pytest.approx(10)
    fresh = make()
    fresh.load_state_dict(model.state_dict())
    assert fresh.sigma.item() == model.sigma.item()
    assert fresh.t.item() == model.t.item()


def test_classifier_scale_resizes_the_input_of_the_classifier():
    model = make(classifier_scale=0.5).eval()
    sizes = []
    inner = model.backbone.forward
    model.backbone.forward = lambda images, *parts: (sizes.append(tuple(images.shape[2:])), inner(images, *parts))[1]
    model(batch(side=64).images)
    assert sizes == [(64, 64), (32, 32)]


def test_with_masked_features_only_later_layers_run_again():
    """The first convolution sees X, and then only a placeholder; the last one sees X, then X+ and X-."""
    method = make(mask_at="features").train()
    convolutions = [module for module in method.backbone.modules() if isinstance(module, torch.nn.Conv2d)]
    pixels = {}
    for place, layer in (("first", convolutions[0]), ("last", convolutions[-1])):
        layer.register_forward_hook(
            lambda _, inputs, __, place=place: pixels.setdefault(place, []).append(inputs[0][:, 0].numel())
        )
    terms = method.losses(batch(2, 128)).terms
    assert set(terms) == {"localizer", "size", "foreground", "background"}
    assert pixels["first"][0] == 2 * 128**2
    assert pixels["first"][1:] == [64**2] * 2
    assert pixels["last"][1:] == pixels["last"][:1] * 2


def test_an_open_mask_on_features_changes_nothing():
    method = make(mask_at="features").eval()
    X = torch.rand(1, 3, 64, 96)
    with torch.no_grad():
        whole = method.backbone(X, Case.FOREGROUND)
        opened = method._region_features(torch.cat([X, torch.ones(1, 1, 64, 96)], 1), Case.FOREGROUND)
        shut = method._region_features(torch.cat([X, torch.zeros(1, 1, 64, 96)], 1), Case.FOREGROUND)
    assert torch.equal(opened, whole)
    assert not torch.allclose(shut, whole)


def test_features_to_mask_need_later_layers():
    with pytest.raises(ConfigError, match=r"ends at stride 16.*smaller method\.mask_stride"):
        make(mask_at="features", mask_stride=16)
    vit = build_backbone(BackboneSettings(name="test_vit", weights="none"))
    with pytest.raises(ConfigError, match="all layers of this backbone have stride"):
        MaxMin(MaxMinSettings(mask_at="features"), vit, 2)


def test_only_images_that_are_seen_at_once_are_refined():
    """Fitted to windows or tiles, the refinement would depend on where they lie."""
    torch.manual_seed(0)
    images = torch.rand(1, 3, 256, 320)
    images[..., :160] *= 0.3
    plain, refining = (tiny_method("maxmin", mask_from="decoder", refine=refine).eval() for refine in (False, True))
    for method in (plain, refining):
        method.decoder.leave.weight.data *= 500  # so that an untrained mask has sure pixels
    with torch.no_grad():
        assert not torch.allclose(plain(images).soft_mask, refining(images).soft_mask, atol=1e-3)
        windowed = [method(images, lambda net, pixels: net(pixels)).soft_mask for method in (plain, refining)]
    assert torch.equal(*windowed)


def test_pooling_beside_a_mask_needs_shares_of_positions():
    with pytest.raises(ValueError, match="set kmax and kmin below 1"):
        make(mask_from="decoder", class_from="image", kmax=20)
    assert make(mask_from="cam", class_from="image", kmax=20).masks_pixels is False


@pytest.mark.parametrize("mask_from", ["cam", "decoder"])
def test_the_class_can_come_from_the_whole_image_in_the_same_pass(mask_from):
    """X+ is not computed, and pooling beside the finer mask gives the localizer's own scores."""
    method = make(mask_from=mask_from, class_from="image").eval()
    calls = record_cases(method)
    images = torch.rand(2, 3, 72, 100)  # no multiple of the stride: positions are not repeated equally often
    with torch.no_grad():
        method.localizer.modality_maps.weight *= 40  # so that probabilities differ from one half
        probs = method(images).probs
        assert calls == [(Case.WHOLE, 2)]
        own = method.localizer(method.backbone(method.backbone.normalise(images))).softmax(1)
    assert (own - 0.5).abs().min() > 0.1
    assert torch.allclose(probs, own, atol=0.02)
    with torch.no_grad():
        method.classifier.modality_maps.weight.neg_()  # which has no part in the answer
        assert torch.equal(method(images).probs, probs)


def test_the_training_error_is_that_of_the_head_that_predicts():
    method = make(class_from="image").eval()
    images = batch()
    with torch.no_grad():
        own = method.localizer(method.backbone(method.backbone.normalise(images.images)))
        assert torch.allclose(method.losses(images).scores, own, atol=1e-5)


def test_a_coarse_level_has_no_part_in_the_refinement():
    backbone = build_backbone(BackboneSettings(name="test_resnet", weights="none", output_stride=32))
    method = MaxMin(MaxMinSettings(mask_from="decoder", refine=True), backbone, 2).eval()
    assert len(method.decoder.level_channels) == 3  # strides 4, 8 and 16
    levels = []
    method.refinement.register_forward_pre_hook(lambda _, inputs: levels.extend(inputs[1]))
    with torch.no_grad():
        method(torch.rand(1, 3, 64, 96))
    assert [tuple(level.shape[2:]) for level in levels] == [(16, 24), (8, 12)]
