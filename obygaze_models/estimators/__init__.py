"""Models that learn from features, after scikit-learn's conventions; one a file."""
