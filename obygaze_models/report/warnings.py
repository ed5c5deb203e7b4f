"""What to know before any score, what the data do not allow, and how the runs of a page differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from obygaze_features.common.text import join_some
from obygaze_models.experiments.record import LeakCount, TestSet
from obygaze_models.experiments.run_folder import saved_models
from obygaze_models.experiments.summary import describe_official
from obygaze_models.report.html import Html, count, html, joined, number
from obygaze_models.report.runs import ReportRun
from obygaze_models.report.score_tables import PROTOCOL_HEADINGS, ScoreTable
from obygaze_models.warnings import RunWarning

__all__ = [
    "LeakRow",
    "concept_notes",
    "describe_differences",
    "leak_rows",
    "limits",
    "page_warnings",
]

SUMMARIES = {
    "leak": "LEAKAGE: test clips were used for training or for stopping, so that their scores are "
    "too high; below they are counted. ",
    "concepts": "CONCEPTS: some concepts were learnt badly or not at all; below each is named. ",
}
"""What replaces the warnings of a code, if there are more than `MAX_OF_A_CODE`."""
MAX_OF_A_CODE = 3
_TAG = re.compile("<[^>]+>")


@dataclass(frozen=True)
class LeakRow:
    """How many clips of a test set its fits were trained on or stopped by: least and most."""

    run: ReportRun
    test: str
    clips: int
    train: tuple[int, int]
    validation: tuple[int, int]
    otherwise: tuple[int, int]


def page_warnings(runs: Sequence[ReportRun]) -> list[Html]:
    """What must be read first: each warning once, with its runs.

    Many warnings on leaks or concepts become a summary here; the section of limits has them all.
    """
    by_warning: dict[RunWarning, list[ReportRun]] = {}
    for run in runs:
        for warning in run.record.warnings:
            by_warning.setdefault(warning, []).append(run)
    lines = []
    for code in ("", *SUMMARIES):
        chosen = {
            warning: affected
            for warning, affected in by_warning.items()
            if (warning.code if warning.code in SUMMARIES else "") == code
        }
        if not code or len(chosen) <= MAX_OF_A_CODE:
            lines += [
                html("{} {}", str(warning), _which([run.name for run in affected], len(runs)))
                for warning, affected in chosen.items()
            ]
        else:
            names = {run.number: run.name for affected in chosen.values() for run in affected}
            lines.append(html("{}{}", SUMMARIES[code], _which(list(names.values()), len(runs))))
    return lines


def concept_notes(runs: Sequence[ReportRun]) -> list[Html]:
    """What the concepts of the models lack: a line for each model and reason."""
    concepts: dict[tuple[str, str], Counter[str]] = {}
    affected: dict[tuple[str, str], set[int]] = {}
    fits: Counter[tuple[str, int]] = Counter()
    for run in runs:
        for fit in saved_models(run.results.run):
            fits[fit["model"], run.number] += 1
            for concept, reason in _concept_reasons(fit["facts"]):
                concepts.setdefault((fit["model"], reason), Counter())[concept] += 1
                affected.setdefault((fit["model"], reason), set()).add(run.number)
    lines = []
    for (model, reason), counts in concepts.items():
        numbers = affected[model, reason]
        lines.append(
            html(
                "{}: {}; in so many of {} fits: {}. {}",
                model,
                reason,
                count(sum(fits[model, number] for number in numbers)),
                ", ".join(f"{name} ({total})" for name, total in counts.items()),
                _which([run.name for run in runs if run.number in numbers], len(runs)),
            )
        )
    return lines


def _concept_reasons(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Concept and reason of what a fit recorded."""
    skipped = [(name, f"left out, {reason}") for name, reason in facts.get("skipped", {}).items()]
    warned = [(warning["subject"], warning["text"]) for warning in facts.get("warnings", [])]
    return [*skipped, *warned]


def leak_rows(runs: Sequence[ReportRun]) -> list[LeakRow]:
    """A row for each run and test set that leaks: the least and most over the fits."""
    rows = []
    for run in runs:
        by_test: dict[str, list[LeakCount]] = {}
        for leak in run.record.leaks:
            by_test.setdefault(leak.test, []).append(leak)
        fits = len({fit.fit for fit in run.record.fits})
        for test, leaks in by_test.items():
            spans = {
                part: (
                    min(getattr(leak, part) for leak in leaks) if len(leaks) >= fits else 0,
                    max(getattr(leak, part) for leak in leaks),
                )
                for part in ("train", "validation", "otherwise")
            }
            rows.append(LeakRow(run, test, leaks[0].clips, **spans))
    return rows


def _items(run: ReportRun) -> str:
    manifest = run.record.manifest
    return f"{manifest.name} {manifest.version}, {manifest.digest[:8]}"


def _versions(run: ReportRun) -> str:
    versions = run.record.versions
    return f"scikit-learn {versions['scikit-learn']}, torch {versions['torch']}"


_DIFFERENCES: tuple[tuple[str, str, Callable[[ReportRun], str]], ...] = (
    ("items", "Scores of different items are scores of different clips.", _items),
    (
        "label sets",
        "The same clip may have another level or other concepts in each.",
        lambda run: run.record.manifest.labels,
    ),
    (
        "versions of scikit-learn and torch",
        "Small differences between runs may come from these.",
        _versions,
    ),
    ("seeds", "", lambda run: f"seed {run.record.experiment['seed']}"),
)
"""What may differ between runs, what follows from it, and how to read it from a run."""


def describe_differences(runs: Sequence[ReportRun]) -> list[Html]:
    """How the runs differ in what scores depend on, so that nobody compares unlike with unlike."""
    lines = []
    for subject, note, value_of in _DIFFERENCES:
        names: dict[str, list[str]] = {}
        for run in runs:
            names.setdefault(value_of(run), []).append(run.name)
        if len(names) > 1:
            values = [html("{} {}", value, _which(who, len(runs))) for value, who in names.items()]
            values_html = joined(values, "; ")
            lines.append(html("The runs have different {}: {}. {}", subject, values_html, note))
    return lines


def limits(tables: Sequence[ScoreTable], runs: Sequence[ReportRun]) -> list[Html]:
    """What these data do not allow one to conclude; equal lines of several runs once."""
    # The same text is the same line, whichever run's numbers it has.
    lines: dict[str, tuple[Html, list[str]]] = {}
    for table in tables:
        for run in table.runs:
            for line in _limits_of_run(run):
                lines.setdefault(_TAG.sub("", line), (line, []))[1].append(run.name)
    first = [_averages(table) for table in tables[:1] if table.kind == "levels"]
    if any(table.kind != "classes" for table in tables):
        first.append(
            html(
                "F1 and AP depend on the share of clips that are positive: compare within one test "
                "set, with what guessing scores at the same share."
            )
        )
    return [*first, *(html("{} {}", line, _which(who, len(runs))) for line, who in lines.values())]


def _which(names: Sequence[str], total: int) -> Html:
    """The runs that a line applies to, folded away if there are several; nothing if all."""
    if len(names) == total:
        return Html("")
    if len(names) == 1:
        return html("<small>({})</small>", names[0])
    return html(
        '<details class="who" data-print><summary>{} of {} runs</summary> <span>{}</span>'
        "</details>",
        str(len(names)),
        str(total),
        "; ".join(names),
    )


def _averages(table: ScoreTable) -> Html:
    line = (
        "Weighted F1 is the mean of both classes’ F1 by their sizes, positive F1 that of the "
        "positive class alone. On the same predictions they may lie far apart: compare within one "
        "of them."
    )
    if table.published:
        line += (
            " The paper’s rows of neural networks are weighted, its concept bottlenecks positive; "
            "its guesses are positive in version 1 and weighted in version 2, at the share of "
            "positives of the whole dataset. Each published figure stands under its own average."
        )
    return html("{}", line)


def _limits_of_run(run: ReportRun) -> list[Html]:
    return [
        *(_test_set(run.number, name, test) for name, test in run.record.tests.items()),
        *_official(run),
        _fits(run),
        *_leaks(run.record.leaked),
        *_films(run),
        *_join(run),
    ]


def _test_set(run: int, name: str, test: TestSet) -> Html:
    key = "test", run, name
    clips = number(test.clips, *key, "clips", form=",")
    if test.positives is None:
        least = min(test.classes, key=test.classes.__getitem__)
        return html(
            "{}: macro F1 counts each class alike, weighted F1 each clip; the smallest class "
            "has {} of the {} test clips.",
            name,
            number(test.classes[least], *key, "class", least, form=","),
            clips,
        )
    return html(
        "{}: {} of the {} test clips are positive. One positive clip more or less found moves "
        "recall by {}.",
        name,
        number(test.share, *key, "share", form="%"),
        clips,
        number(1 / test.positives, *key, "step", digits=3),
    )


def _official(run: ReportRun) -> list[Html]:
    return [html("{}", describe_official(run.record))] if run.record.official else []


def _fits(run: ReportRun) -> Html:
    if len({fit.fit for fit in run.record.fits}) == 1:
        return html(
            "{}: one fit. How much chance matters is not said; seeds in the experiment would say.",
            PROTOCOL_HEADINGS[run.protocol],
        )
    fits = count(len({fit.fit for fit in run.record.fits}))
    if run.protocol in ("leave-film-out", "split"):
        return html(
            "{}: the {} fits test different clips. Their standard deviation says how much scores "
            "differ between those, not how sure the mean is; for that see the interval.",
            PROTOCOL_HEADINGS[run.protocol],
            fits,
        )
    return html(
        "{}: the {} fits share one test fold. Their standard deviation says how much the choice of "
        "training clips and chance matter, not how another test set would score; the interval "
        "over draws of films says more of that.",
        PROTOCOL_HEADINGS[run.protocol],
        fits,
    )


def _leaks(leaked: Sequence[str]) -> list[Html]:
    if leaked:
        return []  # they have a table
    return [html("No test clip was used for training or for stopping; checked id by id.")]


def _films(run: ReportRun) -> list[Html]:
    films = run.record.films
    if any(entry.films < 2 for entry in run.record.scores):
        return [
            html(
                "The test clips are of one film, or no films are named: there is no interval, "
                "which would be over draws of films."
            )
        ]
    if not films.also_trained:
        return []
    return [
        html(
            "Of the {} films in the test sets, {} have other clips in training: the scores say "
            "little about a film that was never seen.",
            count(films.tested),
            count(films.also_trained),
        )
    ]


def _join(run: ReportRun) -> list[Html]:
    join = run.record.join
    used = html(
        "{} of the {} clips with a label that is used here have a fold and features.",
        count(join.used),
        count(join.labelled),
    )
    return [
        used,
        *(
            html(
                "{} {}.",
                count(len(ids)),
                f"{reason}: {join_some(ids)}",
            )
            for _, reason, ids in join.missing()
        ),
    ]
