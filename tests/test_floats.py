"""Every comparison of floats in the tests has an absolute tolerance; see `tests/kit/floats.py`."""

import ast
from pathlib import Path

TESTS = Path(__file__).parent
ABSOLUTE = {"abs", "atol", "abs_tol", "check_exact"}
COMPARISONS = {
    "allclose", "approx", "assert_allclose", "assert_close", "assert_frame_equal",
    "assert_series_equal", "isclose",
}  # fmt: skip


def comparisons():
    """Yield the place and the keywords of each comparison of floats."""
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if any(map(text.count, COMPARISONS)) else ():
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
