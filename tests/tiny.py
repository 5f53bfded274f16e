"""Overrides that make any recipe small enough for a test: timm's smallest network on 64-pixel images."""

TINY = (
    "backbone.name=test_resnet",
    "backbone.weights=none",
    "backbone.output_stride=16",
    "images.short_side=64",
    "images.crop=64",
    "train.epochs=2",
    "method.classifier_scale=1.0",
)
