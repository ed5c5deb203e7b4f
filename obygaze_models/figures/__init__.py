"""Functions that draw numbers as matplotlib figures."""
