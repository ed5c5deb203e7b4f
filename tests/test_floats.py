"""Every comparison of floats in the tests has an absolute tolerance; see `tests/kit/floats.py`."""

import ast
from pathlib import Path

import numpy as np
import pytest

from tests.kit.floats import close

TESTS = Path(__file__).parent
ABSOLUTE = {"abs", "atol", "abs_tol", "check_exact"}
COMPARISONS = {
    "allclose", "approx", "assert_allclose", "assert_close", "assert_frame_equal",
    "assert_series_equal", "isclose",
}  # fmt: skip


def comparisons():
    """Yield the place and the keywords of each comparison of floats."""
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in COMPARISONS:
                    keywords = {keyword.arg for keyword in node.keywords}
                    yield f"{path.relative_to(TESTS)}:{node.lineno}", keywords


def test_no_comparison_has_only_a_relative_tolerance():
    places = dict(comparisons())
    assert len(places) > 100
    assert [place for place, keywords in places.items() if not keywords & ABSOLUTE] == []
    assert [place for place, keywords in places.items() if "rel" in keywords] == []


@pytest.mark.parametrize(
    ("actual", "expected", "is_close"),
    [
        (0.0069 + 7e-7, 0.0069, True),
        (0.0069 + 2e-6, 0.0069, False),
        (np.float32(1000.0005), 1000, True),
        ([1000.0, 2e-4], [1000, 0], True),
        ([1000.0, 2e-3], [1000, 0], False),
        ({"a": 1.0}, {"a": 1 + 1e-7}, True),
        ({"a": 1.0}, {"b": 1.0}, False),
        (np.ones(3), np.ones(4), False),
    ],
)
def test_the_tolerance_is_a_share_of_the_largest_number(actual, expected, is_close):
    assert (actual == close(expected)) == is_close
