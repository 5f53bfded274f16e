"""Tissue detection."""
