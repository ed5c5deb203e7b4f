"""Explanations of predictions, concepts and errors."""
