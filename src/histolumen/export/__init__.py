"""Output files: masks, overlays, regions, heat maps and tables."""
