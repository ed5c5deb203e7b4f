"""Benchmarks: tables of ratios, with both sides measured in turn within one run.

``python -m benchmarks`` runs all benchmarks, and ``python -m benchmarks manifests`` runs one. A
benchmark is a module here with a function `measure` that yields `Result`s. Its name is listed in
``__main__.py``.
"""
