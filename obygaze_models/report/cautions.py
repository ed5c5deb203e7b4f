"""Cautions on the runs of a page, and notes on unreliable concepts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from obygaze_models.data.warnings import RunWarning
from obygaze_models.estimators.facts import Facts
from obygaze_models.experiments.messages import FOLLOWS, messages_of
from obygaze_models.report.runs import ReportRun

NOT_SEEN = (
    "they cannot be seen; a bottleneck learns them only from a separate store (concept_stores)"
)


@dataclass(frozen=True)
class Caution:
    """A limit of what scores mean, its consequence, and the runs that it applies to.

    `runs` is empty for all runs.
    """

    text: str
    follows: str = ""
    runs: str = ""


def cautions(runs: Sequence[ReportRun], main: ReportRun) -> list[Caution]:
    """Return the cautions of a page without duplicates, those of the first screen's run first."""
    names: dict[RunWarning, list[str]] = {}
    for run in (main, *(run for run in runs if run is not main)):
        for message in messages_of(run.record):
            if message.code != "concepts":  # `concept_notes` lists these
                names.setdefault(message, []).append(run.name)
        if run is main:
            names |= {message: [] for message in _differences(runs)}
    lines = [
        Caution(str(message), main.in_groups(follows), _which(run_names, len(runs)))
        for message, run_names in sorted(names.items(), key=lambda pair: pair[0].code != "leak")
        for follows in [FOLLOWS.get(message.code, "")]
    ]
    if not any(run.record.leaked for run in runs):
        lines.append(
            Caution(
                "No test clip was used for training or for early stopping; every id was checked."
            )
        )
    return lines


def concept_notes(runs: Sequence[ReportRun]) -> list[Caution]:
    """Return the concepts that are unreliable or left out: a line for each model and reason."""
    lacks: dict[tuple[str, str, str], list[tuple[ReportRun, str]]] = {}
    fits: Counter[tuple[str, int]] = Counter()
    for run in runs:
        titles = {name: about.title for name, about in run.record.models.items()}
        for fit in run.run.fits().to_dict("records"):
            model = titles.get(fit["model"], fit["model"])
            fits[model, run.number] += 1
            facts = msgspec.convert(fit["facts"], Facts)
            unreliable = "are unreliable, as their direction may be arbitrary"
            reasons = [(name, "are left out", reason) for name, reason in facts.skipped.items()]
            reasons += [(warning.subject, unreliable, warning.text) for warning in facts.warnings]
            named = {*(facts.concepts or run.about.senses), *facts.skipped}
            unseen = [c for c, s in run.about.senses.items() if s != "seen" and c not in named]
            reasons += [(c, "are left out", NOT_SEEN) for c in unseen]
            for concept, flaw, reason in reasons:
                key = model, flaw, reason.rstrip(".")
                lacks.setdefault(key, []).append((run, concept))
    lines = []
    for (model, flaw, reason), marks in lacks.items():
        names = {run.number: run.name for run, _ in marks}
        total = sum(fits[model, number] for number in names)
        counts = Counter(concept for _, concept in marks)
        in_fits = ", ".join(f"{name} in {count}" for name, count in counts.items())
        text = f"Of the {total:,} fits of {model} these concepts {flaw}: {in_fits}. Why: {reason}."
        lines.append(Caution(text, runs=_which(list(names.values()), len(runs))))
    return lines


def _differences(runs: Sequence[ReportRun]) -> Iterator[RunWarning]:
    """Yield the differences between runs that affect scores, such as labels and versions."""
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
            ("seeds", "seeds", f"seed {run.record.experiment.seed}"),
        ):
            by_value = by_subject.setdefault((code, subject), {})
            by_value.setdefault(value, []).append(run.name)
    for (code, subject), by_value in by_subject.items():
        if len(by_value) > 1:
            values = (f"{value} ({_which(who, len(runs))})" for value, who in by_value.items())
            text = f"The runs have different {subject}: {'; '.join(values)}."
            yield RunWarning(f"different-{code}", "", text)


def _which(names: Sequence[str], total: int) -> str:
    """Return the runs that a line applies to, or their number if there are many; "" for all."""
    if not names or len(names) == total:
        return ""
    return ", ".join(names) if len(names) <= 3 else f"{len(names)} of {total} runs"
