"""Issues: what was odd in a source or in a result, and what was done about it.

On disk ``remarks.csv`` with the columns where, film, annotator, what and done.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from obygaze_features.common.tables import format_table, read_table
from obygaze_features.common.text import format_time, join_some, shorten
from obygaze_features.manifests.items import id_problem
from obygaze_features.manifests.labels import LabelScheme, LabelSet
from obygaze_features.manifests.manifest import Manifest

LEFT_OUT, CUT, KEPT = "left out", "cut", "kept"
MAX_ISSUES_SHOWN = 12
COLUMNS = ("where", "film", "annotator", "what", "done")


@dataclass(frozen=True)
class Issue:
    """Something odd in a source or in a result.

    `location` is a file and line, say; `action` is what was done: a segment was left out, cut, or
    kept.
    """

    location: str
    film: str
    annotator: str
    problem: str
    action: str

    def to_json(self) -> dict[str, str]:
        """The issue under the names that its file and the commands' JSON use."""
        return dict(zip(COLUMNS, vars(self).values(), strict=True))


def sort_issues(issues: Sequence[Issue]) -> list[Issue]:
    """By location: line 9 comes before line 10."""

    def key(issue: Issue) -> list[tuple[int, str]]:
        parts = re.split("([0-9]+)", issue.location)
        return [(int(part) if index % 2 else 0, part) for index, part in enumerate(parts)]

    return sorted(issues, key=key)


def describe_issues(issues: Sequence[Issue], rest: str) -> Iterator[str]:
    """Issues for a terminal, what was left out first; `rest` says where those not shown are."""
    for issue in sorted(issues, key=lambda issue: issue.action != LEFT_OUT)[:MAX_ISSUES_SHOWN]:
        names = filter(None, (issue.film, issue.annotator))
        # The names of a row that was left out may be anything.
        who = " ".join(shorten(name) if id_problem(name) else name for name in names)
        yield f"{issue.location}: {f'{who}: ' if who else ''}{issue.problem} ({issue.action})"
    if (more := len(issues) - MAX_ISSUES_SHOWN) > 0:
        yield f"and {more:,} more; {rest}"


def issues_csv(issues: Sequence[Issue]) -> str:
    """Issues as a table."""
    rows = [issue.to_json() for issue in issues]
    return format_table({name: [row[name] for row in rows] for name in COLUMNS})


def read_issues(path: Path) -> list[Issue]:
    """The issues of a table that `issues_csv` wrote; none where there is no such file."""
    if not path.exists():
        return []
    table = read_table(path, required=COLUMNS)
    return [Issue(*cells) for cells in zip(*map(table.__getitem__, COLUMNS), strict=True)]


def stopped_early(
    location: str, film: str, annotator: str, reached: float, end: float, scheme: LabelScheme
) -> list[Issue]:
    """An issue if an annotator marked nothing in the second half of a film."""
    if reached >= end / 2:
        return []
    problem = (
        f"nothing is marked after {format_time(reached)} of {format_time(end)}; "
        "did the annotator stop there?"
    )
    action = f"the rest counts as {scheme.levels[0].name}"
    return [Issue(location, film, annotator, problem, action)]


def different_timelines(label_sets: Sequence[LabelSet], manifest: Manifest) -> list[Issue]:
    """An issue if label sets were projected from several timelines."""
    names_of: dict[str, list[str]] = {}
    for labels in sorted(label_sets, key=attrgetter("name")):
        if (sha256 := timelines_sha256(labels)) is not None:
            names_of.setdefault(sha256, []).append(labels.name)
    if len(names_of) < 2:
        return []
    groups = "; ".join(join_some(names) for names in names_of.values())
    problem = f"projected from {len(names_of)} different timelines: {groups}"
    return [Issue(manifest.name, "", "", problem, "taken together")]


def timelines_sha256(labels: LabelSet) -> str | None:
    """The SHA-256 of the timelines that a label set was projected from, if it says so."""
    timelines = labels.about.get("timelines")
    sha256 = timelines.get("sha256") if isinstance(timelines, Mapping) else None
    return sha256 if isinstance(sha256, str) else None
