"""Measured tables in the docs, each from the results of a run.

``python -m docs.measured`` lists them with their files, and ends with an error if a page has
different numbers. ``--write`` writes the tables into the pages. A table is between ``<!-- measured:
NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.result import RESULTS, Results

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"(<!-- measured: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
COVERAGE_ROWS = {
    "auroc": "AUROC",
    "average_precision": "AP",
    "f1": "F1",
    "d auroc": "difference of AUROC between two models",
    "kappa": "annotators' kappa in each film",
    "gamma": "gamma in each film",
}
QUESTIONS = {"questions": "intervals"}
"""The benchmarks of tables that are named differently."""
COVERAGE_COLUMNS = ("5 to 7 films", "8 to 50 films")
Counts = Mapping[str, Mapping[str, Any]]


def benchmark_block(name: str) -> str:
    """Return the printed output of a benchmark."""
    return f"```text\n{Results.load(name)}\n```\n"


def coverage_table(name: str) -> str:
    """Return the lowest coverage of intervals, with the bootstrap's coverage in brackets."""
    results, rows = Results.load(name), []
    for key, title in COVERAGE_ROWS.items():
        cells = [
            results[f"{key}, {films}: least coverage (bootstrap)"] for films in COVERAGE_COLUMNS
        ]
        rows.append([title, *(f"{cell.value:.1f}% ({cell.peer:.1f}%)" for cell in cells)])
    header = ["lowest coverage for any of these data sets (bootstrap)", *COVERAGE_COLUMNS]
    return markdown_table(header, rows)


def cross_validation_table(name: str) -> str:
    """Return the lowest coverage in cross-validation, with plain t intervals in brackets."""
    rows: dict[str, list[str]] = {}
    worlds: dict[str, None] = {}
    for result in Results.load(name):
        world, films, _ = re.split(r", |: ", result.name)
        worlds[world] = None
        rows.setdefault(films, [films]).append(f"{result.value:.1f}% ({result.peer:.1f}%)")
    return markdown_table(["lowest coverage (plain t interval)", *worlds], [*rows.values()])


def questions_table(name: str) -> str:
    """Return the lowest coverage of intervals within films and across films, over all worlds."""
    lowest: dict[str, dict[str, float]] = {}
    for result in Results.load(QUESTIONS[name]):
        own = re.fullmatch(r"(\d+ films), \w+ mixed, (.*), (.*): coverage .*", result.name)
        if own:
            films, protocol, score = own.groups()
            row = lowest.setdefault(f"{films}, {protocol}", {})
            row[score] = min(result.value, row.get(score, 100.0))
    scores = [*dict.fromkeys(score for row in lowest.values() for score in row)]
    rows = []
    for title, row in lowest.items():
        cells = [f"{row[score]:.1f}%" if score in row else "-" for score in scores]
        rows.append([title, *cells])
    return markdown_table(["lowest coverage", *scores], rows)


def leaks_table(name: str) -> str:
    """Return the AUROC of each model on each test set."""
    rows: dict[str, list[str]] = {}
    tests: dict[str, None] = {}
    for result in Results.load(name):
        protocol, model, test = result.name.removesuffix(" (chance)").split(", ")
        tests[test] = None
        title = f"`{protocol}`, {model}"
        rows.setdefault(title, [title]).append(f"{result.value:.2f}".removeprefix("0"))
    return markdown_table(["", *tests], [*rows.values()])


def counts_table(name: str) -> str:
    """Return the sums of the counts of a long test, over all kinds of input."""
    counts = load_counts(name)
    columns = [key for key in next(iter(counts.values())) if key != "made"]
    totals = [f"{sum(row[column] for row in counts.values()):,}" for column in columns]
    last = max(row["made"] for row in counts.values())
    return markdown_table(["last run", "kinds", *columns], [[last, str(len(counts)), *totals]])


def load_counts(name: str) -> Counts:
    """Read the saved counts of a long test."""
    counts: Counts = json.loads((RESULTS / f"{name}.json").read_text())
    return counts


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


TABLES: Mapping[str, Callable[[str], str]] = {
    "intervals": coverage_table,
    "cross_validation": cross_validation_table,
    "questions": questions_table,
    "leaks": leaks_table,
    "fuzz": counts_table,
    "faults": counts_table,
    "interrupts": counts_table,
}


def write_tables(text: str) -> str:
    """Return a page with its tables updated from the results."""

    def table(block: re.Match[str]) -> str:
        name = block[2]
        return block[1] + TABLES.get(name, benchmark_block)(name) + block[4]

    return BLOCK.sub(table, text)


def main(arguments: list[str]) -> None:
    """List the tables, and check or update them."""
    wrong = []
    for page in PAGES:
        text = page.read_text()
        current = write_tables(text)
        for block in BLOCK.finditer(text):
            source = QUESTIONS.get(block[2], block[2])
            print(f"{page.relative_to(ROOT)}: a table of benchmarks/results/{source}.json")
        if "--write" in arguments:
            page.write_text(current)
        elif current != text:
            wrong.append(f"{page.relative_to(ROOT)}: its tables differ from the results")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main(sys.argv[1:])
