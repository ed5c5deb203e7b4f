"""What the data themselves say against comparing: shares, leaks, and what differs by protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from obygaze_features.common.words import counted
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.audit import audit
from obygaze_models.experiments.plan import RELEASED
from obygaze_models.experiments.results import Results
from obygaze_models.reproduce.bench import Setting
from obygaze_models.reproduce.tables import Block, Line, Table, Value

__all__ = ["about_runs", "leakage", "pools"]

RELEASED_EASY, RELEASED_HARD = "02_EN_S", "02_HN_S"
BESIDE = "leak-free-released-labels"
"""The setting that differs from the released one in its folds alone."""


def about_runs(
    setting: Setting, row: str, runs: Mapping[tuple[str, ...], tuple[Results, str]]
) -> list[str]:
    """Which clips could not take part, and which test clips were in training."""
    notes = []
    for negatives, (results, _) in runs.items():
        record = results.run.record
        if lost := record["join"]["without_features"]:
            notes.append(
                f"{row}, {setting.key}: {counted(len(lost), 'labelled clip')} of "
                f"{record['join']['labelled']:,} have no features in {record['store']['name']}, "
                f"such as {', '.join(lost[:3])}."
            )
        for skipped in record["skipped"]:
            notes.append(
                f"SKIPPED: {row}, {setting.key}: {skipped['task']}, {skipped['what']}: "
                f"{skipped['why']}."
            )
        if setting.protocol == "released":
            continue  # `pools` says more
        for test in record["tests"]:
            of = [leak for leak in record["leaks"] if leak["test"] == test and leak["train"]]
            if of:
                trained = [leak["train"] for leak in of]
                quiet = len({draw["run"] for draw in record["draws"]}) - len(of)
                low = 0 if quiet else min(trained)
                notes.append(
                    f"LEAKAGE, {setting.key}: trained on {negatives[0]} against S, {low} to "
                    f"{max(trained)} of the {record['tests'][test]['clips']} test clips of {test} "
                    "are in each run's own training set."
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
            f"{max(sure[1:])}) in the training set of each of its runs."
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
    words = {"f1_weighted": "F1 weighted by support", "f1": "F1 of the positive class"}
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
            blocks.append(Block(words[score], "released and leak-free", score, rows))
    if not blocks:
        return None
    return Table(
        f"{name}-leakage",
        "Released beside leak-free: the same labels, other folds",
        columns,
        blocks,
        [
            "Both are of the text's network. What differs is which clips train and which test: "
            "test clips that were trained on as well, and chance, for a test fold is about a "
            "hundred clips; the report's intervals over films say how much that is."
        ],
    )
