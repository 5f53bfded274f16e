"""Prediction on whole slides: maps stored tile by tile, one slide, many slides, a cluster."""
