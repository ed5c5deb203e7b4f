"""Lines of code of each room, beside its budget in pyproject.toml: `make lint` fails above it.

A line counts if it has a token that is neither comment nor docstring. To raise a budget, change
its number in the commit that needs it, and say in the message who asked for what. No function
of `SHORT` may have more than `MAX_LINES`, either.
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


MAX_LINES = 60
"""Lines of code that a function of `SHORT` may have."""
SHORT = ("obygaze_features/", "obygaze_models/")


def code_lines(text: str) -> set[int]:
    """Return the numbers of the lines that have code."""
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
    return lines


def long_functions(text: str) -> list[str]:
    """Return the functions with more than `MAX_LINES` lines of code, and their lines."""
    lines, functions = code_lines(text), []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = len(lines.intersection(range(node.lineno, (node.end_lineno or 0) + 1)))
            if count > MAX_LINES:
                functions.append(f"{node.name} ({count} lines)")
    return functions


def room_of(path: str, budgets: dict[str, int]) -> str | None:
    """Return the longest folder or file with a budget that contains `path`."""
    parts = path.split("/")
    parents = ("/".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((room for room in parents if room in budgets), None)


def main() -> int:
    """Print the table; 1 where a room is over its budget or has none, or a function is too long."""
    budgets = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["budget"]["code"]
    listed = subprocess.run(["git", "ls-files", "*.py"], capture_output=True, text=True, check=True)
    used: Counter[str | None] = Counter()
    long = []
    for path in filter(lambda path: Path(path).exists(), listed.stdout.split()):
        text = Path(path).read_text(encoding="utf-8")
        used[room_of(path, budgets)] += len(code_lines(text))
        if path.startswith(SHORT):
            long += [f"{path}: {function}" for function in long_functions(text)]
    over = [room for room, budget in budgets.items() if used[room] > budget]
    for room, budget in budgets.items():
        mark = "  OVER" if room in over else ""
        print(f"{room:34}{used[room]:8,} of{budget:8,}{mark}")
    if over:
        print(f"Over budget: {', '.join(over)}. Take something out, or raise the number in")
        print("pyproject.toml ([tool.budget.code]) and say in the commit who asked for what.")
    for function in long:
        print(f"Over {MAX_LINES} lines of code: {function}. Split it.")
    return bool(over or long)


if __name__ == "__main__":
    sys.exit(main())
