"""Feature extractors: timm networks cut at a stride, their weights, and the image positions of their features."""

from histolumen.encoders.backbone import Backbone, BackboneSettings, build_backbone

__all__ = ["Backbone", "BackboneSettings", "build_backbone"]
