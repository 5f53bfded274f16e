"""U-Net keeps the epoch with the best validation loss; no other method may be selected by masks."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from histolumen.config import load_config, recipe_names
from histolumen.data.image import read_mask
from histolumen.data.manifest import Manifest
from histolumen.encoders.backbone import build_backbone
from histolumen.engine.checkpoint import load_model
from histolumen.engine.launch import make_fabric
from histolumen.engine.model import load
from histolumen.engine.runlog import read_metrics
from histolumen.engine.supervised import MaskValidation, blocks
from histolumen.engine.train import train
from histolumen.errors import ConfigError, DataError
from histolumen.methods.base import build_method, reads_masks
from tiny import SMALL

UNSUPERVISED = [name for name in recipe_names() if not reads_masks(load_config(name).method.name)]


def test_a_large_image_is_divided_into_blocks_that_cover_it_once():
    image = torch.arange(5 * 7).view(1, 5, 7).expand(3, -1, -1).float()
    mask = (image[:1] > 10).float()
    found = list(blocks(image, mask, side=4))
    assert [tuple(block.images.shape) for block in found] == [(1, 3, 4, 4), (1, 3, 4, 3), (1, 3, 1, 4), (1, 3, 1, 3)]
    assert sorted(torch.cat([block.images[0, 0].flatten() for block in found]).tolist()) == list(range(35))
    assert all(torch.equal(block.masks, (block.images[:, :1] > 10).float()) for block in found)


def test_the_validation_loss_is_the_mean_over_images_of_the_pixel_cross_entropy(tiny_manifest, unet_config):
    torch.manual_seed(0)
    method = build_method(unet_config.method, build_backbone(unet_config.backbone), 2)
    for logits in method.network.last.parameters():  # the same logits everywhere: log 3 more for the background
        logits.data.zero_()
    method.network.last.bias.data = torch.tensor([3.0, 1.0]).log()
    validation = MaskValidation(method, tiny_manifest, ["benign", "malignant"], unet_config.images)
    part = tiny_manifest.split("valid")
    shares = [read_mask(part.mask_path(row), (64, 64)).mean() for row in part.rows]
    expected = np.mean([-share * np.log(1 / 4) - (1 - share) * np.log(3 / 4) for share in shares])
    assert validation.pixel_cross_entropy(make_fabric("1", 1)) == pytest.approx(expected, rel=1e-5)


def test_both_recipes_of_unet_select_by_the_validation_loss():
    assert {name for name in recipe_names() if name not in UNSUPERVISED} == {"glas-unet", "camelyon16-unet"}
    for name in ("glas-unet", "camelyon16-unet"):
        assert load_config(name).train.select == "pixel_cross_entropy"


@pytest.mark.parametrize("recipe", UNSUPERVISED)
def test_no_other_recipe_may_select_by_masks(recipe):
    with pytest.raises(ConfigError, match=r"pixel_cross_entropy reads masks, and \w+ learns without them"):
        load_config(recipe, ["train.select=pixel_cross_entropy"])


def test_a_method_without_masks_is_refused_by_the_engine_too(tiny_run, tiny_manifest):
    model = load(tiny_run)
    with pytest.raises(ConfigError, match="learns without them"):
        MaskValidation(model.method, tiny_manifest, model.classes, model.config.images)


@pytest.fixture(scope="module")
def unet_config():
    return load_config("glas-unet", [*SMALL, "train.epochs=4", "train.batch_size=4", "train.lr=0.5"])


@pytest.fixture(scope="module")
def unet_run(tmp_path_factory, tiny_manifest, unet_config):
    out = tmp_path_factory.mktemp("unet") / "run"
    train(unet_config, tiny_manifest, out)
    return out


def test_unet_keeps_the_epoch_with_the_lowest_validation_loss(unet_run, tiny_manifest):
    losses = [record["valid"]["pixel_cross_entropy"] for record in read_metrics(unet_run)]
    card = json.loads((unet_run / "best" / "model.json").read_text())
    assert card["epoch"] == 1 + int(np.argmin(losses))
    method, loaded = load_model(unet_run / "best")
    validation = MaskValidation(method, tiny_manifest, loaded.classes, loaded.config.images)
    again = validation.pixel_cross_entropy(make_fabric("1", 1))
    assert again == pytest.approx(min(losses), rel=1e-4)
    assert card["validation"]["pixel_cross_entropy"] == pytest.approx(again, rel=1e-4)


def test_a_validation_split_without_masks_is_refused_before_training(tiny_manifest, unet_config, tmp_path):
    rows = tuple(replace(row, mask="") if row.split == "valid" else row for row in tiny_manifest.rows)
    with pytest.raises(DataError, match=r"no validation image has one; .* train\.select=last"):
        train(unet_config, Manifest(rows, tiny_manifest.root), tmp_path / "run")
    assert not (tmp_path / "run" / "last").exists()


def test_without_validation_images_unet_keeps_the_last_epoch(tiny_manifest, tmp_path):
    rows = tuple(row for row in tiny_manifest.rows if row.split == "train")
    config = load_config("glas-unet", SMALL)
    assert train(config, Manifest(rows, tiny_manifest.root), tmp_path / "run").best_epoch == 2
