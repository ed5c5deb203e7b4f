"""Figures written by hand as SVG: plain data in, one ``<svg>`` element out.

Drawn with `obygaze_models.drawing`: they work inside a page, whose colours they take, and as
files.
"""
