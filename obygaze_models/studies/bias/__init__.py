"""Published measures of bias, computed from embeddings and tables."""
