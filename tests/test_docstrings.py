"""The examples in docstrings do what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in ("obygaze_features", "obygaze_models")
    for path in sorted((ROOT / package).rglob("*.py"))
    if ">>>" in path.read_text()
]


@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples_run(module):
    failed, tried = doctest.testmod(importlib.import_module(module))
    assert tried > 0
    assert failed == 0
