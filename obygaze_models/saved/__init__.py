"""Saved models: their files, and what they predict."""
