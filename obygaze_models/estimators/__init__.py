"""Models that learn from features, with scikit-learn's conventions, one per file."""
