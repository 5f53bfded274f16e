"""Whole slides: reading, tissue, tiles, annotations, and answers in constant memory."""
