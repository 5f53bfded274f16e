"""Overrides that make any recipe small enough for a test: timm's smallest network on 64-pixel images."""

SMALL = (
    "backbone.name=test_resnet",
    "backbone.weights=none",
    "backbone.output_stride=16",
    "images.short_side=64",
    "images.crop=64",
    "train.epochs=2",
)
"""For recipes of any method."""
TINY = (*SMALL, "method.classifier_scale=1.0")
"""For recipes of Max-Min."""
