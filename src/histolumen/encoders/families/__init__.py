"""Families of encoders, one file each; importing this package registers all of them."""

from histolumen.encoders.families import listed, lite, stages, vit
from histolumen.encoders.families.base import SUITABLE, Architecture, Cut, Family, family_of

__all__ = ["SUITABLE", "Architecture", "Cut", "Family", "family_of", "listed", "lite", "stages", "vit"]
