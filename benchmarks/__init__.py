"""Benchmarks: each a table of ratios, both sides measured in turn within one run.

``python -m benchmarks`` runs all, ``python -m benchmarks manifests`` one. A benchmark is a module
here with a function `measure` that yields `Result`s, and its name in ``__main__.py``.
"""
