"""Remarks on anything unusual in a source or a result, which also say what was done about it.

Remarks are saved in ``remarks.csv`` with the columns where, film, annotator, what, done and code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path

from obygaze_features.common.tables import format_table, read_table
from obygaze_features.common.text import counted, join_some, shorten
from obygaze_features.items.films import known_titles
from obygaze_features.items.items import id_problem
from obygaze_features.manifests import LabelSet, Manifest

LEFT_OUT, CUT, KEPT = "left out", "cut", "kept"
#: The code of remarks on whole tiers of an ELAN file, before the tier's name if tiers of different
#: names must not be described together; other `LEFT_OUT` remarks are about rows.
TIER = "tier"
LONG_STRETCH = "long-stretch"
"""The code of remarks on one level for much of a film, which ask the user to check it."""
MAX_REMARKS_SHOWN = 12
#: The minimum number of remarks of the same kind that are printed on one line.
MIN_GROUPED = 4
COLUMNS = ("where", "film", "annotator", "what", "done", "code")


@dataclass(frozen=True)
class Remark:
    """Something unusual in a source or in a result.

    `where` is, for instance, a file and line. `done` says what was done: a segment was left out,
    cut, or kept. Remarks with the same `code` are of the same kind and differ only in details.
    Remarks without a code are of the same kind if `what` is the same.
    """

    where: str
    film: str
    annotator: str
    what: str
    done: str
    code: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the remark as JSON, with the same names as in ``remarks.csv``."""
        return asdict(self)


def sort_remarks(remarks: Sequence[Remark]) -> list[Remark]:
    """Sort remarks by location, in natural order (line 9 before line 10)."""

    def key(remark: Remark) -> list[tuple[int, str]]:
        parts = re.split("([0-9]+)", remark.where)
        return [(int(part) if index % 2 else 0, part) for index, part in enumerate(parts)]

    return sorted(remarks, key=key)


def describe_remarks(
    remarks: Sequence[Remark], rest: str, titles: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield remarks as lines for a terminal, starting with remarks on what was left out.

    If many remarks are of the same kind, one line has the first remark and the number of others.
    `rest` tells the user where to find remarks that are not shown.
    """
    titles = known_titles() | dict(titles or {})
    kinds: dict[tuple[str, str], list[Remark]] = {}
    for remark in sorted(remarks, key=lambda remark: remark.done != LEFT_OUT):
        kinds.setdefault((remark.code or remark.what, remark.done), []).append(remark)
    lines: list[tuple[int, str]] = []
    for same in kinds.values():
        if len(same) < MIN_GROUPED:
            lines += [(1, _describe(remark, titles)) for remark in same]
        else:
            more = f"and {len(same) - 1:,} more like this: {rest}"
            lines.append((len(same), f"{_describe(same[0], titles)}; {more}"))
    yield from (line for _, line in lines[:MAX_REMARKS_SHOWN])
    printed = sum(count for count, _ in lines[:MAX_REMARKS_SHOWN])
    if (more_remarks := len(remarks) - printed) > 0:
        yield f"and {more_remarks:,} more; {rest}"


def _describe(remark: Remark, titles: Mapping[str, str]) -> str:
    names = filter(None, (remark.film, remark.annotator))
    # The names in a row that was left out may be anything.
    who = " ".join(titles.get(n) or (shorten(n) if id_problem(n) else n) for n in names)
    return f"{remark.where}: {f'{who}: ' if who else ''}{remark.what} ({remark.done})"


def remarks_csv(remarks: Sequence[Remark]) -> str:
    """Format remarks as a CSV table."""
    return format_table({name: [getattr(r, name) for r in remarks] for name in COLUMNS})


def read_remarks(path: Path) -> list[Remark]:
    """Read a table that `remarks_csv` wrote; return [] if the file does not exist."""
    if not path.exists():
        return []
    table = read_table(path, required=COLUMNS[:5])
    return [Remark(*cells) for cells in zip(*map(table.get, COLUMNS), strict=True)]


def import_remarks(name: str, remarks: Sequence[Remark], lowest: str) -> list[Remark]:
    """Return what stays known of an import: stretches to check, and how much was left out."""
    kept = [remark for remark in remarks if remark.code == LONG_STRETCH]
    left_out = sum(remark.done == LEFT_OUT for remark in remarks)
    if left_out:
        problem = f"{counted(left_out, 'segment was', 'segments were')} left out at import"
        kept.append(Remark(name, "", "", problem, f"time without a segment counts as {lowest}"))
    return kept


def label_set_remarks(label_sets: Sequence[LabelSet], manifest: Manifest) -> list[Remark]:
    """Return remarks on label sets that should be combined only with care.

    These are merges together with their sources, label sets from different timelines, and what
    the import of the timelines left out or asked to check.
    """
    where, remarks, names_of = manifest.name, list[Remark](), dict[str, list[str]]()
    imports: dict[str, dict[str, str]] = {}
    for labels in sorted(label_sets, key=attrgetter("name")):
        if isinstance(timelines := labels.about.get("timelines"), Mapping):
            names_of.setdefault(str(timelines.get("sha256")), []).append(labels.name)
            imports |= {str(entry): entry for entry in timelines.get("remarks", ())}
        sources = {*labels.merged_from, *labels.merged_annotators}
        if parts := [label_set.name for label_set in label_sets if label_set.name in sources]:
            problem = (
                f"was merged from {join_some(parts)}, so it agrees with these label sets "
                "by construction"
            )
            remarks.append(Remark(where, "", labels.name, problem, KEPT, "merge-of-compared"))
    remarks += [Remark(**entry) for entry in imports.values()]
    if len(names_of) > 1:
        groups = "; ".join(join_some(names) for names in names_of.values())
        problem = f"projected from {len(names_of)} different timelines: {groups}"
        remarks.append(Remark(where, "", "", problem, "taken together", "different-timelines"))
    return remarks
