"""What to keep in mind: cautions and what follows from each, and how the runs of a page differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments.messages import FOLLOWS, messages_of
from obygaze_models.experiments.record import LeakCount
from obygaze_models.experiments.run_folder import saved_models
from obygaze_models.report.findings import Headline
from obygaze_models.report.runs import ReportRun


@dataclass(frozen=True)
class Caution:
    """Something that limits what scores mean, what follows from it, and for which runs it holds,
    empty for all.
    """

    text: str
    follows: str = ""
    runs: str = ""


@dataclass(frozen=True)
class LeakRow:
    """How many clips of a test set its fits were trained on or stopped by: least and most."""

    run: ReportRun
    test: str
    clips: int
    train: tuple[int, int]
    validation: tuple[int, int]
    otherwise: tuple[int, int]


def cautions(runs: Sequence[ReportRun], head: Headline) -> list[Caution]:
    """All cautions of a page, those of the first screen's run first; each once."""
    names: dict[RunWarning, list[str]] = {}
    for run in (head.run, *(run for run in runs if run is not head.run)):
        for message in messages_of(run.record):
            if message.code != "concepts":  # `concept_notes` tells these in full
                names.setdefault(message, []).append(run.name)
        if run is head.run:
            names |= {message: [] for message in _differences(runs)}
    lines = [
        Caution(str(message), FOLLOWS.get(message.code, ""), _which(which, len(runs)))
        for message, which in sorted(names.items(), key=lambda pair: pair[0].code != "leak")
    ]
    if not any(run.record.leaked for run in runs):
        lines.append(Caution("No test clip was used for training or stopping; checked id by id."))
    return lines


def concept_notes(runs: Sequence[ReportRun]) -> list[Caution]:
    """What the concepts of the models lack: a line for each model and reason."""
    concepts: dict[tuple[str, str], Counter[str]] = {}
    affected: dict[tuple[str, str], set[int]] = {}
    fits: Counter[tuple[str, int]] = Counter()
    for run in runs:
        for fit in saved_models(run.run):
            fits[fit["model"], run.number] += 1
            skipped = fit["facts"].get("skipped", {})
            reasons = [(name, f"left out, {reason}") for name, reason in skipped.items()]
            reasons += [(w["subject"], w["text"]) for w in fit["facts"].get("warnings", [])]
            for concept, reason in reasons:
                concepts.setdefault((fit["model"], reason), Counter())[concept] += 1
                affected.setdefault((fit["model"], reason), set()).add(run.number)
    lines = []
    for (model, reason), counts in concepts.items():
        numbers = affected[model, reason]
        total = sum(fits[model, number] for number in numbers)
        in_fits = ", ".join(f"{name} in {count}" for name, count in counts.items())
        which = _which([run.name for run in runs if run.number in numbers], len(runs))
        text = f"{model}: {reason.rstrip('.')}. Of {total:,} fits: {in_fits}."
        lines.append(Caution(text, runs=which))
    return lines


def leak_rows(runs: Sequence[ReportRun]) -> list[LeakRow]:
    """A row for each run and test set that leaks: the least and most over the fits."""
    rows = []
    for run in runs:
        by_test: dict[str, list[LeakCount]] = {}
        for leak in run.record.leaks:
            by_test.setdefault(leak.test, []).append(leak)
        fits = len({fit.fit for fit in run.record.fits})
        for test, leaks in by_test.items():
            none = [0] * (len(leaks) < fits)  # a fit without a leak
            counts = (
                [getattr(leak, part) for leak in leaks] + none
                for part in ("train", "validation", "otherwise")
            )
            spans = [(min(numbers), max(numbers)) for numbers in counts]
            rows.append(LeakRow(run, test, leaks[0].clips, *spans))
    return rows


def _items(run: ReportRun) -> str:
    manifest = run.record.manifest
    return f"{manifest.name} {manifest.version}, {manifest.digest[:8]}"


def _versions(run: ReportRun) -> str:
    versions = run.record.versions
    return f"scikit-learn {versions['scikit-learn']}, torch {versions['torch']}"


_DIFFERENCES: dict[str, tuple[str, Callable[[ReportRun], str]]] = {
    "different-items": ("items", _items),
    "different-labels": ("label sets", lambda run: run.record.manifest.labels),
    "different-versions": ("versions of scikit-learn and torch", _versions),
    "different-seeds": ("seeds", lambda run: f"seed {run.record.experiment['seed']}"),
}
"""What may differ between runs, and how to read it from a run."""


def _differences(runs: Sequence[ReportRun]) -> Iterator[RunWarning]:
    """How the runs differ in what scores depend on, so that nobody compares unlike with unlike."""
    for code, (subject, value_of) in _DIFFERENCES.items():
        names: dict[str, list[str]] = {}
        for run in runs:
            names.setdefault(value_of(run), []).append(run.name)
        if len(names) > 1:
            values = [f"{value} ({_which(who, len(runs))})" for value, who in names.items()]
            text = f"The runs have different {subject}: {'; '.join(values)}."
            yield RunWarning(code, "", text)


def _which(names: Sequence[str], total: int) -> str:
    """The runs that a line applies to: by name where they are few; empty if all."""
    if not names or len(names) == total:
        return ""
    return ", ".join(names) if len(names) <= 3 else f"{len(names)} of {total} runs"
