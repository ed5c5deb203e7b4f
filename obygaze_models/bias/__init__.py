"""Formulas of published work on bias, over embeddings and tables: arrays in, numbers out."""
