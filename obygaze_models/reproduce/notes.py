"""What the data say against a comparison: missing clips, leaks, and what differs by protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from obygaze_features.common.text import counted
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.audit import audit
from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments.division import RELEASED
from obygaze_models.experiments.run_folder import Run
from obygaze_models.reproduce.context import Setting
from obygaze_models.reproduce.render import Block, Line, Table, Value
from obygaze_models.scoring.metrics import METRICS

RELEASED_POOLS = ("02_EN_S", "02_HN_S")
"""The split files whose last folds the released networks train on."""
_SAME_LABELS = "leak-free-released-labels"
"""The key of the setting that differs from the released one only in its folds."""


def notes(*texts: str) -> list[RunWarning]:
    """Sentences about how to read a table."""
    return [RunWarning("note", "", text) for text in texts]


def run_warnings(setting: Setting, subject: str, run: Run) -> list[RunWarning]:
    """What a run's data and models do not allow to conclude.

    Parameters
    ----------
    subject
        The row and the training levels that the run belongs to.
    """
    record = run.record
    where = f"{subject}, {setting.key}"
    warnings = [warning for warning in record.warnings if warning.voids_scores]
    if lost := record.join.without_features:
        text = (
            f"{where}: {counted(len(lost), 'labelled clip')} of {record.join.labelled:,} "
            f"have no features in {record.store.name}, such as {', '.join(lost[:3])}."
        )
        warnings.append(RunWarning("no-features", where, text))
    if skipped := record.skipped:
        first = skipped[0]
        more = f" (and {len(skipped) - 1} more)" if len(skipped) > 1 else ""
        text = f"{where}: {first.task}, {first.what}: {first.why}{more}."
        warnings.append(RunWarning("skipped", where, text))
    warnings += [
        RunWarning("concepts", where, f"{where}: {warning.text}")
        for warning in record.warnings
        if warning.code == "concepts"
    ]
    if setting.protocol != "released":  # `released_leaks` says more about those
        for test in record.tests:
            used = [leak.train + leak.validation for leak in record.leaks if leak.test == test]
            if max(used, default=0):
                text = (
                    f"{where}: up to {max(used)} of the {record.tests[test].clips} test clips of "
                    f"{test} trained or stopped a fit that they test."
                )
                warnings.append(RunWarning("leak", where, text))
    return warnings


def released_leaks(manifest: Manifest) -> Iterable[RunWarning]:
    """How many test clips of the released splits are in the others' training pools and runs."""
    leaks = audit(manifest, train=[*RELEASED_POOLS], test=sorted(RELEASED.values()))
    for test, train in dict.fromkeys((leak.test, leak.train) for leak in leaks):
        pool, *runs = (leak for leak in leaks if (leak.test, leak.train) == (test, train))
        if not pool.ids:
            continue
        positive = next(name for name in pool.by_class if name in ("S", "Sure"))
        clips = [len(leak.ids) for leak in runs]
        sure = [leak.by_class[positive][0] for leak in runs]
        yield RunWarning(
            "leak",
            test,
            f"in the released files, of the {len(pool.tested)} test clips of {test} "
            f"({pool.by_class[positive][1]} of them Sure), {len(pool.ids)} "
            f"({pool.by_class[positive][0]}) are in the training pool of {train}, and "
            f"{min(clips)} to {max(clips)} ({min(sure)} to {max(sure)}) in the training set of "
            "each of its runs. (Clips without a video count here; they are not scored.)",
        )


def leakage_table(
    name: str, lines_by_score: Mapping[str, Mapping[str, Sequence[Line]]], columns: Sequence[str]
) -> Table | None:
    """The released numbers beside the leak-free ones of the same label set.

    Parameters
    ----------
    lines_by_score
        By metric and by key of the setting the rows, all of the same network.
    """
    blocks = []
    for score, by_setting in lines_by_score.items():
        leak_free = {line.name: line for line in by_setting.get(_SAME_LABELS, ())}
        lines = []
        for released in by_setting.get("released", ()):
            counterpart = leak_free.get(released.name)
            if counterpart is None:
                continue
            differences: dict[str, Value | None] = {}
            for column in columns:
                here, there = released.values.get(column), counterpart.values.get(column)
                differences[column] = Value(here.mean - there.mean) if here and there else None
            lines += [
                Line(f"{released.name}, released", "ours", released.values),
                Line(f"{released.name}, leak-free", "ours", counterpart.values),
                Line("released minus leak-free", "difference", differences),
            ]
        if lines:
            blocks.append(Block(METRICS[score].title, "released and leak-free", score, lines))
    if not blocks:
        return None
    return Table(
        f"{name}-leakage",
        "Released beside leak-free: the same labels, other folds",
        columns,
        blocks,
        notes(
            "Both use the network of the text. They differ in which clips train and which test, "
            "and so in how many test clips were trained on; in how classes are balanced (by folds, "
            "or by a draw); and for PCBM the released number is one fit, the leak-free one a mean "
            "of nine. A test fold has about a hundred clips: the report's intervals over films "
            "show how much is chance."
        ),
    )
