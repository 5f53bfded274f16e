"""Camelyon16-P512: patches of 512 x 512 pixels sampled from whole slides."""
