"""Alarms that change the conclusion of a page, limits of the conclusion, and cautions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from obygaze_features.common.text import join_some
from obygaze_models.data.warnings import RunWarning
from obygaze_models.estimators.outputs import Facts
from obygaze_models.experiments.warnings import FOLLOWS, messages_of
from obygaze_models.report.annotation import Source
from obygaze_models.report.annotators import MAX_ANNOTATORS
from obygaze_models.report.headline import Headline
from obygaze_models.report.runs import ReportRun
from obygaze_models.scoring.metrics import METRICS

MAX_LIMITS = 3


def alarms(head: Headline, runs: Sequence[ReportRun]) -> list[str]:
    """Return the alarms that change the conclusion.

    An alarm is about synthetic features, features of unknown origin, leaks, little test data, or
    a single tested film.
    """
    record, row = head.run.run, head.row
    # Include alarms of all runs, because any meaningless score on the page needs an alarm.
    messages = [m for run in runs for m in messages_of(run.run) if m.voids_scores]
    codes = ("leak", "films") if len(record.tested_groups) == 1 else ("leak",)
    messages += [message for message in messages_of(record) if message.code in codes]
    lines = list(dict.fromkeys(map(str, messages)))
    if head.row.few:
        smallest = min(row.test.classes, key=row.test.classes.__getitem__)
        title = row.task.words(row.run.about.levels)[smallest]
        lines.append(
            f"Little test data: {row.test.clips:,} clips for {row.task.title}, "
            f"{row.test.classes[smallest]:,} of them {title}, from {row.entry.films:,} "
            f"{row.run.group_noun}s. "
            "Other clips could give a very different score."
        )
    return lines


def limits(head: Headline) -> list[str]:
    """Return phrases for what the results do not show, most serious first."""
    if not head.rows:
        return _limits_of_labels(head)
    record = head.row.run.record
    codes = {warning.code for warning in head.run.record.warnings}
    noun = head.run.group_noun
    tested = [record.titles[group] for group in record.tested_groups]
    candidates = [
        (f"anything about {noun}s: the features are synthetic", "synthetic" in codes),
        (
            "anything about a backbone, or about the paper: the origin of the features is unknown",
            "unknown-origin" in codes,
        ),
        ("how the model does on clips that it was not trained on", bool(record.leaked)),
        (
            f"how the model does on {noun}s other than {join_some(tested)}",
            len(tested) == 1 and "films" in codes,
        ),
        ("how large the score is: there is too little test data", bool(head.row.few)),
        (
            "that the model ranks clips better than guessing"
            if METRICS[_guessed(head)].ranks
            else "that the model’s verdicts are better than guessing",
            _is_no_better(head),
        ),
        (
            f"that the model would do as well on a {noun} that it has never seen",
            record.header.also_trained > 0,
        ),
        (
            f"how the model does on {head.run.noun} that are {_untested(head)}",
            _untested(head),
        ),
        (
            f"that the model recognises {_seen(head.run)[1]}: it may use anything related to these "
            f"labels in these {noun}s",
            True,
        ),
        (f"that another model, backbone or set of {noun}s would score the same", True),
    ]
    return [text for text, holds in candidates if holds][:MAX_LIMITS]


def _limits_of_labels(head: Headline) -> list[str]:
    """Return phrases for what labels alone do not show."""
    noun, group = head.source.noun, head.source.group_noun
    clip = noun.removesuffix("s")
    if len(head.source.annotators) > MAX_ANNOTATORS:
        return [
            f"how well the {len(head.source.annotators)} annotators agree: a page compares at most "
            f"{MAX_ANNOTATORS} (obygaze annotations agreement compares any number)"
        ]
    if head.annotators is None:
        return [f"how reliable these labels are: no two annotators of these {noun} can be compared"]
    count = len(head.annotators.levels)
    limits = [f"how others would see these {group}s: only {count} annotators marked them"]
    if head.annotators.merged:
        limits.append(
            f"what share of a {group} {_seen(head.source)[0]}: if one annotator marks part of a "
            f"{clip}, the whole {clip} counts"
        )
    return limits


def _guessed(head: Headline) -> str:
    """Return the metric to compare with guessing: F1 if the headline metric is AUROC."""
    return "f1" if head.metric == "auroc" else head.metric


def _is_no_better(head: Headline) -> bool:
    """Return True if there is enough test data, but the model is not shown to beat guessing."""
    metric, row = _guessed(head), head.row
    is_seen = row.best_guess(metric) is not None and not row.too_few(metric)
    return is_seen and not row.beats_guess(metric)


def _untested(head: Headline) -> str:
    """Name the levels that the headline model's test set leaves out; "" for other tasks."""
    if head.run.kind != "levels":
        return ""
    tested = head.row.task.levels
    return " or ".join(name for code, name in head.run.about.levels.items() if code not in tested)


def _seen(source: Source) -> tuple[str, str]:
    """Return a verb phrase for a marked part of a film, and a noun for the models' target."""
    names = source.about.levels
    if source.about.is_obygaze:
        return "objectifies", "objectification"
    top = " or ".join(f"“{names.get(code, code)}”" for code in source.positives)
    return f"is {top}", top


NOT_SEEN = "they cannot be seen, and a bottleneck learns only visual concepts"


@dataclass(frozen=True)
class Caution:
    """A caution about scores, the consequence, and the runs that the caution applies to.

    `runs` is empty if the caution applies to all runs.
    """

    text: str
    follows: str = ""
    runs: str = ""


def cautions(runs: Sequence[ReportRun], main: ReportRun) -> list[Caution]:
    """Return a page's cautions without duplicates. Leaks are first, then the first screen's run."""
    names: dict[RunWarning, list[str]] = {}
    for run in (main, *(run for run in runs if run is not main)):
        for message in messages_of(run.run):
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
                "No test clip was used for training or for early stopping (every id was checked)."
            )
        )
    return lines


def concept_notes(runs: Sequence[ReportRun]) -> list[Caution]:
    """Return notes on concepts that are unreliable or left out: one for each model and reason."""
    lacks: dict[tuple[str, str, str], list[tuple[ReportRun, str]]] = {}
    fits: Counter[tuple[str, int]] = Counter()
    for run in runs:
        for fit in run.run.fits.to_dict("records"):
            model = fit["model"]
            fits[model, run.number] += 1
            facts = msgspec.convert(fit["facts"], Facts)
            unreliable = "are unreliable, because their direction may be arbitrary"
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
        text = f"In {total:,} fits of {model}, these concepts {flaw}: {in_fits}. Reason: {reason}."
        lines.append(Caution(text, runs=_which(list(names.values()), len(runs))))
    return lines


def _differences(runs: Sequence[ReportRun]) -> Iterator[RunWarning]:
    """Yield the differences between runs that affect scores, such as labels and versions."""
    by_subject: dict[tuple[str, str], dict[str, list[str]]] = {}
    for run in runs:
        manifest, versions = run.record.header.manifest, run.record.header.versions
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
    """Return the names of the runs that a line applies to, or "" for all runs.

    If there are more than three, return their number instead.
    """
    if not names or len(names) == total:
        return ""
    return ", ".join(names) if len(names) <= 3 else f"{len(names)} of {total} runs"
