"""Data sources, one module or package each: folders, GlaS, Camelyon16 slides, synthetic images."""
