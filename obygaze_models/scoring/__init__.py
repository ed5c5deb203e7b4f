"""Scores and their intervals."""
