"""Lines of code of each room, beside its budget in pyproject.toml: `make lint` fails above it.

A line counts if it has a token that is neither comment nor docstring. To raise a budget, change
its number in the commit that needs it, and say in the message who asked for what.
"""

import ast
import io
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

SILENT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(text: str) -> int:
    """How many lines have code."""
    lines = {
        number
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in SILENT
        for number in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def room_of(path: str, budgets: dict[str, int]) -> str | None:
    """The longest folder or file with a budget that `path` is in."""
    parts = path.split("/")
    parents = ("/".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((room for room in parents if room in budgets), None)


def main() -> int:
    """Print the table; 1 where a room is over its budget, or has none."""
    budgets = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["budget"]["code"]
    listed = subprocess.run(["git", "ls-files", "*.py"], capture_output=True, text=True, check=True)
    used: Counter[str | None] = Counter()
    for path in filter(lambda path: Path(path).exists(), listed.stdout.split()):
        used[room_of(path, budgets)] += code_lines(Path(path).read_text(encoding="utf-8"))
    over = [room for room, budget in budgets.items() if used[room] > budget]
    for room, budget in budgets.items():
        mark = "  OVER" if room in over else ""
        print(f"{room:34}{used[room]:8,} of{budget:8,}{mark}")
    if over:
        print(f"Over budget: {', '.join(over)}. Take something out, or raise the number in")
        print("pyproject.toml ([tool.budget.code]) and say in the commit who asked for what.")
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
