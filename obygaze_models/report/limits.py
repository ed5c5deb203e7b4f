"""Alarms that change the conclusion of a page, and limits of its conclusions."""

from __future__ import annotations

from collections.abc import Sequence

from obygaze_features.common.text import join_some
from obygaze_models.experiments.messages import messages_of
from obygaze_models.report.annotation import Source
from obygaze_models.report.headline import Headline
from obygaze_models.report.runs import ReportRun
from obygaze_models.scoring.metrics import METRICS

MAX_LIMITS = 3


def alarms(head: Headline, runs: Sequence[ReportRun]) -> list[str]:
    """Return what changes the conclusion.

    These are features that are synthetic or of unknown origin, leaks, few clips, and a single
    tested film.
    """
    record, row = head.run.record, head.row
    # From any run: meaningless scores must not pass for real scores anywhere on the page.
    messages = [m for run in runs for m in messages_of(run.record) if m.voids_scores]
    codes = ("leak", "films") if record.films.tested == 1 else ("leak",)
    messages += [message for message in messages_of(record) if message.code in codes]
    lines = list(dict.fromkeys(map(str, messages)))
    if head.row.few:
        smallest = min(row.test.classes, key=row.test.classes.__getitem__)
        title = row.run.record.words(row.entry.test)[smallest]
        lines.append(
            f"Few test clips: {row.test.clips:,} of {row.task.title}, "
            f"{row.test.classes[smallest]:,} of them {title}, from {row.entry.films:,} "
            f"{row.run.group_noun}s. "
            "Other clips could give a very different score."
        )
    return lines


def limits(head: Headline) -> list[str]:
    """Return what may not be concluded, the most serious first."""
    if not head.rows:
        return _limits_of_labels(head)
    record = head.row.run.record
    codes = {warning.code for warning in head.run.record.warnings}
    films, noun = head.run.record.films, head.run.group_noun
    candidates = [
        (f"anything about {noun}s: the features are made up", "synthetic" in codes),
        (
            "anything about a backbone, or about the paper: the origin of the features is unknown",
            "unknown-origin" in codes,
        ),
        ("how the model does on clips that it was not trained on", bool(record.leaked)),
        (
            f"how the model does on other {noun}s than {join_some([*films.titles.values()])}",
            films.tested == 1 and bool(films.untested),
        ),
        ("how large the score is: the test clips are too few", bool(head.row.few)),
        (
            "that the model ranks clips better than guessing"
            if METRICS[_guessed(head)].ranks
            else "that the model’s verdicts are better than guessing",
            _is_no_better(head),
        ),
        (
            f"that the model would do as well on a {noun} that it has never seen",
            record.films.also_trained > 0,
        ),
        (
            "that the model reads films as well as an annotator: it is scored against the merged "
            "labels, the annotators against each other",
            head.human is not None,
        ),
        (
            f"how the model does on {head.run.noun} that are {_untested(head)}",
            _untested(head),
        ),
        (
            f"that the model recognises {_seen(head.run)[1]}: it uses whatever goes with these "
            f"annotators’ labels in these {noun}s",
            True,
        ),
        (f"that another model, backbone or set of {noun}s would score alike", True),
    ]
    return [text for text, holds in candidates if holds][:MAX_LIMITS]


def _limits_of_labels(head: Headline) -> list[str]:
    """Return what labels alone do not show."""
    noun, group = head.source.noun, head.source.group_noun
    clip = noun.removesuffix("s")
    if head.annotators is None:
        return [f"how reliable these labels are: no two annotators of these {noun} can be compared"]
    count = len(head.annotators.levels)
    limits = [f"how others would see these {group}s: only {count} annotators marked them"]
    if head.annotators.merged:
        limits.append(
            f"what share of a {group} {_seen(head.source)[0]}: a mark by one annotator on part of "
            f"a {clip} counts as the whole {clip}"
        )
    return limits


def _guessed(head: Headline) -> str:
    """Return the score that is compared with guessing; with AUROC, that of the verdicts."""
    return "f1" if head.metric == "auroc" else head.metric


def _is_no_better(head: Headline) -> bool:
    """Return True if the model does no better than guessing, although there are enough clips."""
    metric, row = _guessed(head), head.row
    is_seen = row.best_guess(metric) is not None and not row.too_few(metric)
    return is_seen and not row.beats_guess(metric)


def _untested(head: Headline) -> str:
    """Return the levels that the best model's test leaves out, or "" for other tasks."""
    if head.run.kind != "levels":
        return ""
    tested = head.row.task.levels
    return " or ".join(name for code, name in head.run.about.levels.items() if code not in tested)


def _seen(source: Source) -> tuple[str, str]:
    """Return what parts of a film do, and what a model looks for, by the source's levels."""
    names = source.about.levels
    if source.about.is_obygaze:
        return "objectifies", "objectification"
    top = " or ".join(f"“{names.get(code, code)}”" for code in source.positives)
    return f"is {top}", top
