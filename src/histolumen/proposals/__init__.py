"""Mask proposals for the training images, computed before training from tissue clusters in a network's features."""
