"""What to keep in mind: cautions and what follows from each, and how the runs of a page differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from obygaze_models.data.protocols import PROTOCOLS
from obygaze_models.experiments.record import LeakCount
from obygaze_models.experiments.run_folder import saved_models
from obygaze_models.experiments.summary import describe_official
from obygaze_models.report.findings import Headline
from obygaze_models.report.html import Html, count, html, joined, number
from obygaze_models.report.runs import ReportRun

CONCEPT_CODES = ("concepts",)
"""Warnings that `concept_notes` tells in full."""


@dataclass(frozen=True)
class Caution:
    """Something that limits what scores mean, and what follows from it."""

    text: Html
    follows: str = ""


@dataclass(frozen=True)
class LeakRow:
    """How many clips of a test set its fits were trained on or stopped by: least and most."""

    run: ReportRun
    test: str
    clips: int
    train: tuple[int, int]
    validation: tuple[int, int]
    otherwise: tuple[int, int]


def concept_notes(runs: Sequence[ReportRun]) -> list[Html]:
    """What the concepts of the models lack: a line for each model and reason."""
    concepts: dict[tuple[str, str], Counter[str]] = {}
    affected: dict[tuple[str, str], set[int]] = {}
    fits: Counter[tuple[str, int]] = Counter()
    for run in runs:
        for fit in saved_models(run.run):
            fits[fit["model"], run.number] += 1
            for concept, reason in _concept_reasons(fit["facts"]):
                concepts.setdefault((fit["model"], reason), Counter())[concept] += 1
                affected.setdefault((fit["model"], reason), set()).add(run.number)
    lines = []
    for (model, reason), counts in concepts.items():
        numbers = affected[model, reason]
        lines.append(
            html(
                "{}: {}. Of {} fits: {}. {}",
                model,
                reason.rstrip("."),
                count(sum(fits[model, number] for number in numbers)),
                ", ".join(f"{name} in {total}" for name, total in counts.items()),
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


def cautions(runs: Sequence[ReportRun], head: Headline) -> list[Caution]:
    """All cautions of a page, those of the first screen's run first; each once."""
    others = (line for run in runs if run is not head.run for line in _of_run(run))
    main = [*_leaks(runs), *_of_run(head.run)]
    lines = [*main, *_fits(runs), *_differences(runs), *others]
    if not any(run.record.leaked for run in runs):
        clean = "No test clip was used for training or stopping; checked id by id."
        lines.append(Caution(html("{}", clean)))
    # Runs that say the same may differ in digits that are not shown.
    return list({re.sub("<[^>]+>", "", line.text): line for line in lines}.values())


def _leaks(runs: Sequence[ReportRun]) -> Iterator[Caution]:
    leaking = [run for run in runs if run.record.leaked]
    if not leaking:
        return
    yield Caution(
        html(
            "{} of {} runs leak: test clips were in training or validation.",
            count(len(leaking)),
            count(len(runs)),
        ),
        "Their scores are too high. Do not compare them with the others; Methods counts the clips.",
    )


def _of_run(run: ReportRun) -> Iterator[Caution]:
    record, films = run.record, run.record.films
    for warning in record.warnings:
        if warning.code not in ("leak", *CONCEPT_CODES):
            yield Caution(html("{}", str(warning)), _FOLLOWS.get(warning.code, ""))
    if films.note:
        yield Caution(html("{} {}.", run.name, films.note), "The other films have no scores.")
    if any(entry.films < 2 for entry in record.scores):
        yield Caution(
            html("The test clips of {} are of one film, or no films are named.", run.name),
            "No interval can be given: it would be over other films.",
        )
    elif films.also_trained:
        yield Caution(
            html("Of the {} films in the test sets, {} have other clips in training.",
                 count(films.tested), count(films.also_trained)),
            "Expect lower scores on a film that the model has never seen.",
        )  # fmt: skip
    yield from _test_sets(run)
    yield from _join(run)
    if record.official:
        yield Caution(html("{}", describe_official(record)))


_FOLLOWS = {
    "synthetic": "The pipeline works; the scores mean nothing.",
    "skipped": "Scores are over fewer fits than planned.",
}


def _test_sets(run: ReportRun) -> Iterator[Caution]:
    for name, test in run.record.tests.items():
        clips = number(test.clips, form=",")
        if test.positives is None:
            least = min(test.classes, key=test.classes.__getitem__)
            yield Caution(
                html("{}: the smallest class has {} of the {} test clips.", name,
                     number(test.classes[least], form=","), clips),
                "Macro F1 counts each class alike, weighted F1 each clip.",
            )  # fmt: skip
            continue
        yield Caution(
            html("{}: {} of the {} test clips are positive.", name,
                 number(test.share, form="%"), clips),
            "F1 and AP depend on this share: compare within one test set.",
        )  # fmt: skip


def _fits(runs: Sequence[ReportRun]) -> Iterator[Caution]:
    """What the spread over fits means; runs of which the same holds share a line."""
    alike: dict[tuple[int, bool], list[str]] = {}
    for run in runs:
        in_turn = PROTOCOLS[run.protocol].in_turn
        alike.setdefault((run.record.fit_count, in_turn), []).append(run.name)
    for (fits, in_turn), names in alike.items():
        if fits == 1:
            text = "One fit."
            follows = "How much chance matters in training is unknown; more seeds would tell."
        elif in_turn:
            text = f"{fits:,} fits test different clips."
            follows = (
                "The standard deviation shows how much films differ; the interval, how far the "
                "mean can be trusted."
            )
        else:
            text = f"{fits:,} fits share one test fold."
            follows = (
                "The standard deviation shows how much chance matters in training, not how another "
                "test fold would score."
            )
        yield Caution(html("{} {}", text, _which(names, len(runs))), follows)


def _join(run: ReportRun) -> Iterator[Caution]:
    for _, reason, ids in run.record.join.missing():
        yield Caution(html("{} {}.", count(len(ids)), reason), "They are in no score.")


def _differences(runs: Sequence[ReportRun]) -> Iterator[Caution]:
    """How the runs differ in what scores depend on, so that nobody compares unlike with unlike."""
    for subject, follows, value_of in _DIFFERENCES:
        names: dict[str, list[str]] = {}
        for run in runs:
            names.setdefault(value_of(run), []).append(run.name)
        if len(names) > 1:
            values = [html("{} {}", value, _which(who, len(runs))) for value, who in names.items()]
            text = html("The runs have different {}: {}.", subject, joined(values, "; "))
            yield Caution(text, follows)


def _which(names: Sequence[str], total: int) -> Html:
    """The runs that a line applies to: by name where they are few; nothing if all."""
    if len(names) == total:
        return Html("")
    shown = ", ".join(names) if len(names) <= 3 else f"{len(names)} of {total} runs"
    return html("<small>({})</small>", shown)
