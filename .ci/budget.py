"""What each room weighs, and how dense the code is, beside the limits in pyproject.toml.

Weight is counted in tokens, without comments, docstrings and line ends, so that air costs nothing
and squeezing gains nothing. `make lint` fails if all rooms together are above the limit. The tests
have a limit of their own. The templates of pages are counted in bytes, and their lines are short.
"""

import ast
import io
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

CODE = ("cli.py", "obygaze_features", "obygaze_models")
PAGES = (".html", ".css", ".js")
"""The files of pages, which are counted in bytes."""
MAX_COLUMNS = 120
"""Letters that a line of a page may have."""
LARGE = 15
"""The number of expressions above which a statement counts as large."""
MAX_LINES = 60
"""Lines of code that a function may have."""
AIR = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
KINDS = {
    ast.ListComp: "comprehension",
    ast.SetComp: "comprehension",
    ast.DictComp: "comprehension",
    ast.GeneratorExp: "comprehension",
    ast.IfExp: "conditional",
    ast.JoinedStr: "f-string",
}
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def room_of(path: str) -> str:
    """Return the folder of a package that a file is in, or the package, or the file itself."""
    parts = path.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def is_docstring(node: ast.AST) -> bool:
    """Return whether a statement is only a text."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    return isinstance(node.value.value, str)


def expressions(node: ast.AST) -> int:
    """Count the expressions of a statement, without those of the statements inside it."""
    children = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]
    return sum(isinstance(child, ast.expr) + expressions(child) for child in children)


def count_kinds(tree: ast.AST) -> Counter[str]:
    """Count the statements of a file, and what makes them dense."""
    counts: Counter[str] = Counter()
    for node in ast.walk(tree):
        counts[KINDS.get(type(node), "")] += 1

        if isinstance(node, ast.stmt) and not is_docstring(node):
            counts["statement"] += 1
            if not isinstance(node, DEFINITIONS):
                counts["large"] += expressions(node) > LARGE

        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            counts["tuple assignment"] += isinstance(node.targets[0], ast.Tuple)
    return counts


def token_lines(text: str, tree: ast.AST) -> list[int]:
    """Return the line of each token that counts."""
    docs: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and is_docstring(node):
            docs.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))

    lines = []
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        is_doc = kind == "STRING" and token.start[0] in docs
        if not depth and not is_doc and token.type not in AIR:
            lines.append(token.start[0])

        # Python 3.12 and later take f-strings apart; here each is one token.
        depth += kind == "FSTRING_START"
        depth -= kind == "FSTRING_END"
    return lines


def long_functions(tree: ast.AST, lines: list[int]) -> list[str]:
    """Return the functions with more than `MAX_LINES` lines of code."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            if len(body.intersection(lines)) > MAX_LINES:
                names.append(node.name)
    return names


def list_files(*folders: str) -> list[str]:
    """Return the files of some folders that git knows or would know."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return [path for path in listed.stdout.split() if Path(path).exists()]


def count_rest() -> dict[str, int]:
    """Count the tokens of the tests, and the bytes of templates and of style sheets."""
    weights = {"tests": 0, "templates": 0, "style sheets": 0}
    for path in list_files("tests", *CODE):
        text = Path(path).read_text(encoding="utf-8") if path.endswith((".py", *PAGES)) else ""
        if path.startswith("tests/") and path.endswith(".py"):
            weights["tests"] += len(token_lines(text, ast.parse(text)))
        elif path.endswith(PAGES) and not path.startswith("tests/"):
            kind = "style sheets" if path.endswith(".css") else "templates"
            weights[kind] += len(text.encode())
    return weights


def wide_pages() -> list[str]:
    """Return the files of pages with a line of more than `MAX_COLUMNS` letters."""
    wide = []
    for path in list_files(*CODE):
        if path.endswith(PAGES):
            lines = Path(path).read_text(encoding="utf-8").splitlines()
            if max(map(len, lines)) > MAX_COLUMNS:
                wide.append(f"{path} has a line of more than {MAX_COLUMNS} letters")
    return wide


def main() -> int:
    """Print each weight beside its limit; return 1 if anything is over its limit."""
    limits = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["budget"]
    tokens: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    failures = wide_pages()

    for path in list_files(*CODE):
        if not path.endswith(".py"):
            continue
        text = Path(path).read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines = token_lines(text, tree)
        tokens[room_of(path)] += len(lines)
        counts += count_kinds(tree)
        failures += [f"{path}: {name} is long; split it" for name in long_functions(tree, lines)]

    for room, weight in sorted(tokens.items()):
        print(f"{room:32}{weight:9,} tokens")
    print(f"{'together':32}{tokens.total():9,} of {limits['tokens']:9,} tokens")
    if tokens.total() > limits["tokens"]:
        failures.append("the packages are heavier than [tool.budget] allows; remove something")

    for kind, weight in count_rest().items():
        unit = "tokens" if kind == "tests" else "bytes"
        print(f"{kind:32}{weight:9,} of {limits[kind]:9,} {unit}")
        if weight > limits[kind]:
            failures.append(f"{kind} are heavier than [tool.budget] allows; remove something")

    for kind, limit in limits["per_100_statements"].items():
        rate = 100 * counts[kind] / counts["statement"]
        print(f"{kind:32}{rate:9.2f} of {limit:9.2f} per 100 statements")
        if rate > limit:
            failures.append(f"too many of {kind}; write them as plain statements")

    for failure in failures:
        print(failure)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
