"""Figures: numbers in, a matplotlib `Figure` out. `save_figure` writes SVG, PDF or PNG."""
