"""What to keep in mind: cautions and what follows from each, and how the runs of a page differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments.messages import FOLLOWS, messages_of
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


def _differences(runs: Sequence[ReportRun]) -> Iterator[RunWarning]:
    """How the runs differ in what scores depend on, so that nobody compares unlike with unlike."""
    by_subject: dict[tuple[str, str], dict[str, list[str]]] = {}
    for run in runs:
        manifest, versions = run.record.manifest, run.record.versions
        for code, subject, value in (
            ("items", "items", f"{manifest.name} {manifest.version}, {manifest.digest[:8]}"),
            ("labels", "label sets", manifest.labels),
            (
                "versions",
                "versions of scikit-learn and torch",
                f"scikit-learn {versions['scikit-learn']}, torch {versions['torch']}",
            ),
            ("seeds", "seeds", f"seed {run.record.experiment['seed']}"),
        ):
            by_value = by_subject.setdefault((code, subject), {})
            by_value.setdefault(value, []).append(run.name)
    for (code, subject), by_value in by_subject.items():
        if len(by_value) > 1:
            values = (f"{value} ({_which(who, len(runs))})" for value, who in by_value.items())
            text = f"The runs have different {subject}: {'; '.join(values)}."
            yield RunWarning(f"different-{code}", "", text)


def _which(names: Sequence[str], total: int) -> str:
    """The runs that a line applies to: by name where they are few; empty if all."""
    if not names or len(names) == total:
        return ""
    return ", ".join(names) if len(names) <= 3 else f"{len(names)} of {total} runs"
