"""Saved models: their files, and their predictions."""
