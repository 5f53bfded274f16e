"""Data loading: image sources, the manifest, decoding, transforms and batches."""
