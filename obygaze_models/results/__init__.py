"""Runs and what follows from their tables: scores, comparisons and summaries."""
