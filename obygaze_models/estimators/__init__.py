"""Models that learn from features, with scikit-learn's conventions, a file each."""
