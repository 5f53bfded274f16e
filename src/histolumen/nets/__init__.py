"""Heads and decoders: plain modules without labels or losses."""
