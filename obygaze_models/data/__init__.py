"""Clips, classes and rows: from a manifest and its stores to arrays."""
