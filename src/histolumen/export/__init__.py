"""What leaves: masks, overlays and tables."""
