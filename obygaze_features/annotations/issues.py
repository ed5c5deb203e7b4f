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
from obygaze_features.manifests.importers.reading import parse_time
from obygaze_features.manifests.items import id_problem
from obygaze_features.manifests.labels import LabelScheme, LabelSet
from obygaze_features.manifests.manifest import Manifest

LEFT_OUT, CUT, KEPT = "left out", "cut", "kept"
MAX_ISSUES_SHOWN = 12
#: This many issues of one kind, or more, are one line.
MIN_GROUPED = 4
#: A frame of film at 23.976 frames a second, rounded up to the millisecond.
FRAME_S = 0.042
#: A stretch of one level is unusual from this length on, if it is so much longer than all others.
LONG_STRETCH_S, LONG_STRETCH_RATIO, MAX_LONG_STRETCHES, MIN_STRETCHES = 600.0, 3.0, 3, 8
_OVERLAP = re.compile("overlaps .+ by ([0-9:.]+)")
_NUMBERS = re.compile("[0-9][0-9:.,]*")
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
    """Issues for a terminal, what was left out first; `rest` says where those not shown are.

    Issues of one kind, which differ only by their numbers, are one line with their count.
    """
    kinds: dict[tuple[str, str], list[Issue]] = {}
    for issue in sorted(issues, key=lambda issue: issue.action != LEFT_OUT):
        kinds.setdefault(_kind_of(issue), []).append(issue)
    lines = [line for same in kinds.values() for line in _describe_kind(same, rest)]
    printed = sum(count for count, _ in lines[:MAX_ISSUES_SHOWN])
    yield from (line for _, line in lines[:MAX_ISSUES_SHOWN])
    if (more := len(issues) - printed) > 0:
        yield f"and {more:,} more; {rest}"


def _kind_of(issue: Issue) -> tuple[str, str]:
    """A key for issues that say the same of other places."""
    problem = _OVERLAP.sub("overlaps", issue.problem)
    return _NUMBERS.sub("0", problem.replace(issue.film or "\0", "")), issue.action


def _describe_kind(issues: Sequence[Issue], rest: str) -> list[tuple[int, str]]:
    """How many issues a line stands for, and the line."""
    if len(issues) < MIN_GROUPED:
        return [(1, _describe(issue)) for issue in issues]
    overlaps = [_OVERLAP.fullmatch(issue.problem) for issue in issues]
    if all(overlaps):
        longest = max(parse_time(match[1], "overlap") for match in overlaps if match)
        by = "one frame" if longest <= FRAME_S else f"up to {format_time(longest)}"
        action = issues[0].action
        return [
            (len(issues), f"{len(issues):,} segments overlap others by {by} ({action}): {rest}")
        ]
    more = len(issues) - 1
    return [(len(issues), f"{_describe(issues[0])}; and {more:,} more like this: {rest}")]


def _describe(issue: Issue) -> str:
    names = filter(None, (issue.film, issue.annotator))
    # The names of a row that was left out may be anything.
    who = " ".join(shorten(name) if id_problem(name) else name for name in names)
    return f"{issue.location}: {f'{who}: ' if who else ''}{issue.problem} ({issue.action})"


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


@dataclass(frozen=True)
class Stretch:
    """One level of one annotator without a break, in seconds of a film."""

    location: str
    film: str
    annotator: str
    level: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return self.end - self.start


def unusual_stretches(stretches: Sequence[Stretch], scheme: LabelScheme) -> list[Issue]:
    """An issue for each stretch that is far longer than its annotator's others in the same film.

    At least ten minutes, and three times as long as the longest of the others; at most three of an
    annotator and film can be so. Films are judged one by one, so that a film has the same issues
    whether it is imported alone or among others. Of MObyGaze's 40 pairs of film and annotator, one
    has an issue, at 3.9 times the next; the second highest ratio is 2.2.
    """
    of_film: dict[tuple[str, str], list[Stretch]] = {}
    for stretch in sorted(stretches, key=lambda stretch: -stretch.seconds):
        of_film.setdefault((stretch.film, stretch.annotator), []).append(stretch)
    issues = []
    for longest_first in of_film.values():
        lengths = [stretch.seconds for stretch in longest_first]
        if len(lengths) < MIN_STRETCHES:
            continue
        apart = [
            count
            for count in range(1, MAX_LONG_STRETCHES + 1)
            if lengths[count - 1] >= max(LONG_STRETCH_S, LONG_STRETCH_RATIO * lengths[count])
        ]
        for stretch in longest_first[: max(apart, default=0)]:
            others = lengths[max(apart)] / 60
            problem = (
                f"{scheme.name_of[stretch.level]} for {stretch.seconds / 60:.1f} minutes without a "
                f"break ({format_time(stretch.start)} to {format_time(stretch.end)}), the next "
                f"longest of the film is {others:.1f}; was anything annotated there?"
            )
            issues.append(Issue(stretch.location, stretch.film, stretch.annotator, problem, KEPT))
    return issues


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
