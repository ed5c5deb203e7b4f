"""Formulas of other works on bias, over embeddings and tables: numpy in, numbers out."""
