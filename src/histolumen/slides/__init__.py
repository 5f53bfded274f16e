"""Whole slides: reading, tiles, annotations and stored tile results."""
