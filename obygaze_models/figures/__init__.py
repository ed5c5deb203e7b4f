"""Functions that draw numbers as matplotlib figures. `save_figure` writes SVG, PDF or PNG."""
