"""Models that learn from features and follow scikit-learn's conventions."""
