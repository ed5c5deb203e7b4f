"""What to know before any score, what the data do not allow, and how the runs of a page differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from obygaze_features.common.text import join_some
from obygaze_models.experiments.record import LeakCount, TestSet
from obygaze_models.experiments.run_folder import saved_models
from obygaze_models.experiments.summary import describe_official
from obygaze_models.report.arrange import BY_PROTOCOL, Group
from obygaze_models.report.numbers import Html, html, joined, number
from obygaze_models.report.shown import Shown
from obygaze_models.warnings import RunWarning

__all__ = ["Leaks", "cautions", "caveats", "concept_notes", "differences", "leak_rows"]

HEADINGS = {"leak": "LEAKAGE:", "concepts": "CONCEPTS:"}
"""How the summary begins of warnings that a run may have many of."""


_TAG = re.compile("<[^>]+>")


@dataclass(frozen=True)
class Leaks:
    """Of one run's test set: how many test clips its fits were trained on or stopped by."""

    run: Shown
    test: str
    clips: int
    train: tuple[int, int]
    validation: tuple[int, int]
    otherwise: tuple[int, int]


def cautions(runs: Sequence[Shown]) -> list[Html]:
    """What must be read first; what several runs say is said once, with the runs.

    Where there are many, leaks and what concepts lack are summed up here; the section of caveats
    has them all.
    """
    found = _by_warning(runs)
    lines = []
    for code, most, summary in (
        ("", len(found), ""),
        ("leak", 3, "test clips were used for training or for stopping, so that their "
         "scores are too high; below they are counted"),
        ("concepts", 3, "some concepts were learnt badly or not at all; below each is named"),
    ):  # fmt: skip
        own = {
            warning: of
            for warning, of in found.items()
            if (warning.code if warning.code in ("leak", "concepts") else "") == code
        }
        if len(own) <= most:
            lines += [_warning(warning, of, len(runs)) for warning, of in own.items()]
            continue
        who = {run.number: run.name for of in own.values() for run in of}
        lines.append(
            html("{} {}. {}", HEADINGS[code], summary, _who(list(who.values()), len(runs)))
        )
    return lines


def concept_notes(runs: Sequence[Shown]) -> list[Html]:
    """What the concepts of a page's models lack: a line for each model and reason."""
    found: dict[tuple[str, str], dict[str, dict[int, int]]] = {}
    fits: Counter[tuple[str, int]] = Counter()
    for run in runs:
        for one in saved_models(run.results.run):
            fits[one["model"], run.number] += 1
            said = [
                f"{name}: left out, {why}" for name, why in one["facts"].get("skipped", {}).items()
            ]
            for line in [*said, *one["facts"].get("warnings", [])]:
                concept, _, why = line.partition(": ")
                by_run = found.setdefault((one["model"], why), {}).setdefault(concept, {})
                by_run[run.number] = by_run.get(run.number, 0) + 1
    lines = []
    for (model, why), concepts in found.items():
        numbers = {number for by_run in concepts.values() for number in by_run}
        most = sum(fits[model, number] for number in numbers)
        told = [
            html("{} ({})", name, number(sum(of.values()), "noted", model, why, name, form=","))
            for name, of in concepts.items()
        ]
        who = _who([run.name for run in runs if run.number in numbers], len(runs))
        lines.append(
            html(
                "{}: {}; in so many of {} fits: {}. {}",
                model,
                why,
                number(most, "noted", model, why, form=","),
                joined(told),
                who,
            )
        )
    return lines


def _by_warning(runs: Sequence[Shown]) -> dict[RunWarning, list[Shown]]:
    found: dict[RunWarning, list[Shown]] = {}
    for run in runs:
        for warning in run.record.warnings:
            found.setdefault(warning, []).append(run)
    return found


def _warning(warning: RunWarning, of: Sequence[Shown], total: int) -> Html:
    return html("{} {}", str(warning), _who([run.name for run in of], total))


def leak_rows(runs: Sequence[Shown]) -> list[Leaks]:
    """A row for each run and test set that leaks: the least and most over the fits."""
    rows = []
    for run in runs:
        found: dict[str, list[LeakCount]] = {}
        for leak in run.record.leaks:
            found.setdefault(leak.test, []).append(leak)
        fits = len({draw.fit for draw in run.record.fits})
        for test, of in found.items():
            spans = {
                part: (
                    min(getattr(leak, part) for leak in of) if len(of) >= fits else 0,
                    max(getattr(leak, part) for leak in of),
                )
                for part in ("train", "validation", "otherwise")
            }
            rows.append(Leaks(run, test, of[0].clips, **spans))
    return rows


def differences(runs: Sequence[Shown]) -> list[Html]:
    """How the runs differ in what scores depend on, so that nobody compares unlike with unlike."""
    lines = []
    for what, note, tell in (
        (
            "items",
            "Scores of different items are scores of different clips.",
            lambda run: (
                f"{run.record.manifest.name} {run.record.manifest.version}, "
                f"{run.record.manifest.digest[:8]}"
            ),
        ),
        (
            "label sets",
            "The same clip may have another level or other concepts in each.",
            lambda run: run.record.manifest.labels,
        ),
        (
            "versions of scikit-learn and torch",
            "Small differences between runs may come from these.",
            lambda run: (
                f"scikit-learn {run.record.versions['scikit-learn']}, "
                f"torch {run.record.versions['torch']}"
            ),
        ),
        ("seeds", "", lambda run: f"seed {run.record.experiment['seed']}"),
    ):
        found: dict[str, list[str]] = {}
        for run in runs:
            found.setdefault(tell(run), []).append(run.name)
        if len(found) > 1:
            told = [html("{} {}", value, _who(who, len(runs))) for value, who in found.items()]
            lines.append(html("The runs have different {}: {}. {}", what, joined(told, "; "), note))
    return lines


def caveats(groups: Sequence[Group], runs: Sequence[Shown]) -> list[Html]:
    """What these data do not allow one to conclude; what several runs share is said once."""
    # The same words are the same line, whichever run's numbers they are.
    found: dict[str, tuple[Html, list[str]]] = {}
    for group in groups:
        for run in group.runs:
            for line in _of_run(run):
                found.setdefault(_TAG.sub("", line), (line, []))[1].append(run.name)
    lines = [_about_averages(group) for group in groups[:1] if group.kind == "levels"]
    if any(group.kind != "classes" for group in groups):
        lines.append(
            html(
                "F1 and AP depend on the share of clips that are positive: compare within one test "
                "set, with what guessing scores at the same share."
            )
        )
    for line, who in found.values():
        lines.append(html("{} {}", line, _who(who, len(runs))))
    return lines


def _who(names: Sequence[str], total: int) -> Html:
    """Which runs something is said of, folded away where they are not one; nothing if all."""
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


def _about_averages(group: Group) -> Html:
    line = (
        "Weighted F1 is the mean of both classes’ F1 by their sizes, positive F1 that of the "
        "positive class alone. On the same predictions they may lie far apart: compare within one "
        "of them."
    )
    if group.published:
        line += (
            " The paper’s rows of neural networks are weighted, its concept bottlenecks positive; "
            "its guesses are positive in version 1 and weighted in version 2, at the share of "
            "positives of the whole dataset. Each published figure stands under its own average."
        )
    return html("{}", line)


def _of_run(run: Shown) -> list[Html]:
    return [
        *(_about_test(run.number, name, test) for name, test in run.record.tests.items()),
        *_about_official(run),
        _about_fits(run),
        *_about_leaks(run.record.leaked),
        *_about_films(run),
        *_about_join(run),
    ]


def _about_test(run: int, name: str, test: TestSet) -> Html:
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


def _about_official(run: Shown) -> list[Html]:
    return [html("{}", describe_official(run.record))] if run.record.official else []


def _about_fits(run: Shown) -> Html:
    if len({draw.fit for draw in run.record.fits}) == 1:
        return html(
            "{}: one fit. How much chance matters is not said; seeds in the experiment would say.",
            BY_PROTOCOL[run.protocol],
        )
    fits = number(len({draw.fit for draw in run.record.fits}), "fits", run.number, form=",")
    if run.protocol in ("leave-film-out", "split"):
        return html(
            "{}: the {} fits test different clips. Their standard deviation says how much scores "
            "differ between those, not how sure the mean is; for that see the interval.",
            BY_PROTOCOL[run.protocol],
            fits,
        )
    return html(
        "{}: the {} fits share one test fold. Their standard deviation says how much the choice of "
        "training clips and chance matter, not how another test set would score; the interval "
        "over draws of films says more of that.",
        BY_PROTOCOL[run.protocol],
        fits,
    )


def _about_leaks(leaked: Sequence[str]) -> list[Html]:
    if leaked:
        return []  # they have a table
    return [html("No test clip was used for training or for stopping; checked id by id.")]


def _about_films(run: Shown) -> list[Html]:
    films = run.record.films
    if any(of.films < 2 for of in run.record.scores):
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
            number(films.tested, "tested films", run.number, form=","),
            number(films.also_trained, "trained films", run.number, form=","),
        )
    ]


def _about_join(run: Shown) -> list[Html]:
    joined = run.record.join
    used = html(
        "{} of the {} clips with a label that is used here have a fold and features.",
        number(joined.used, "join", run.number, "used", form=","),
        number(joined.labelled, "join", run.number, "labelled", form=","),
    )
    return [
        used,
        *(
            html(
                "{} {}.",
                number(len(ids), "join", run.number, which, form=","),
                f"{what}: {join_some(ids)}",
            )
            for which, what, ids in joined.missing()
        ),
    ]
