"""Figures written by hand as SVG: plain data in, one ``<svg>`` element out.

They work inside a page, whose colours they take (see `theme`), and as files (see `file`).
"""
