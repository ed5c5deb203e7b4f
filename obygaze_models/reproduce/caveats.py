"""What the data themselves say against comparing: shares, leaks, and what differs by protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from obygaze_features.common.text import counted
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.audit import audit
from obygaze_models.experiments.plan import RELEASED
from obygaze_models.experiments.results import Results
from obygaze_models.metrics import METRICS
from obygaze_models.reproduce.bench import Setting
from obygaze_models.reproduce.tables import Block, Line, Table, Value

__all__ = ["about_runs", "leakage", "once", "pools"]

RELEASED_EASY, RELEASED_HARD = "02_EN_S", "02_HN_S"
BESIDE = "leak-free-released-labels"
"""The setting that differs from the released one in its folds alone."""


def about_runs(setting: Setting, what: str, results: Results) -> list[str]:
    """What a run's data and models do not allow one to conclude.

    Parameters
    ----------
    what
        The row and the training that the run is of.
    """
    record = results.run.record
    notes = [str(one) for one in record.warnings if one.code == "synthetic"]
    where = f"{what}, {setting.key}"
    if lost := record.join.without_features:
        notes.append(
            f"{where}: {counted(len(lost), 'labelled clip')} of {record.join.labelled:,} "
            f"have no features in {record.store.name}, such as {', '.join(lost[:3])}."
        )
    if skipped := record.skipped:
        first = skipped[0]
        more = f" (and {len(skipped) - 1} more)" if len(skipped) > 1 else ""
        notes.append(f"SKIPPED: {where}: {first.task}, {first.what}: {first.why}{more}.")
    for one in record.warnings:
        if one.code == "concepts":
            notes.append(f"CONCEPTS: {where}: {one.text}")
    if setting.protocol != "released":  # of which `pools` says more
        for test in record.tests:
            used = [
                leak.train + leak.validation
                for leak in record.leaks
                if leak.test == test and leak.train + leak.validation
            ]
            if used:
                notes.append(
                    f"LEAKAGE: {where}: up to {max(used)} of the {record.tests[test].clips} "
                    f"test clips of {test} trained or stopped a run of their own test."
                )
    return notes


def pools(manifest: Manifest) -> list[str]:
    """How many test clips of the released splits are in the others' training pools and runs."""
    notes = []
    leaks = audit(manifest, train=[RELEASED_EASY, RELEASED_HARD], test=sorted(RELEASED.values()))
    for test, train in dict.fromkeys((leak.test, leak.train) for leak in leaks):
        pair = [leak for leak in leaks if (leak.test, leak.train) == (test, train)]
        pool, runs = pair[0], pair[1:]
        if not pool.ids:
            continue
        positive = next(name for name in pool.by_class if name in ("S", "Sure"))
        sure = [leak.by_class[positive][0] for leak in pair]
        every = [len(leak.ids) for leak in runs]
        notes.append(
            f"LEAKAGE in the released files: of the {len(pool.tested)} test clips of {test} "
            f"({pool.by_class[positive][1]} of them Sure), {len(pool.ids)} ({sure[0]}) are in the "
            f"training pool of {train}, and {min(every)} to {max(every)} ({min(sure[1:])} to "
            f"{max(sure[1:])}) in the training set of each of its runs. (Clips without a "
            "video count here; they are not scored.)"
        )
    return notes


def leakage(
    name: str, lines_of: Mapping[str, Mapping[str, Sequence[Line]]], columns: Sequence[str]
) -> Table | None:
    """The released figures beside the leak-free ones of the same label set.

    Parameters
    ----------
    lines_of
        By score and setting the rows, all of the same network.
    """
    blocks = []
    for score, by_setting in lines_of.items():
        beside = {line.name: line for line in by_setting.get(BESIDE, ())}
        rows = []
        for line in by_setting.get("released", ()):
            other = beside.get(line.name)
            if other is None:
                continue
            apart: dict[str, Value | None] = {}
            for column in columns:
                here, there = line.values.get(column), other.values.get(column)
                apart[column] = Value(here.mean - there.mean) if here and there else None
            rows += [
                Line(f"{line.name}, released", "ours", line.values),
                Line(f"{line.name}, leak-free", "ours", other.values),
                Line("released less leak-free", "difference", apart),
            ]
        if rows:
            blocks.append(Block(METRICS[score].title, "released and leak-free", score, rows))
    if not blocks:
        return None
    return Table(
        f"{name}-leakage",
        "Released beside leak-free: the same labels, other folds",
        columns,
        blocks,
        [
            "Networks are the text's in both. What differs is which clips train and which test, "
            "and so how many test clips were trained on; the balancing of classes (by folds, by a "
            "draw); and for PCBM that the released one is a single fit, the leak-free one a mean "
            "of nine. A test fold is about a hundred clips: the report's intervals over films say "
            "what chance does."
        ],
    )


def once(lines: Sequence[str]) -> list[str]:
    """Each line the first time that it is said."""
    return list(dict.fromkeys(lines))
