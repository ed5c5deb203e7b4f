"""Runs and annotations as pages for readers."""
