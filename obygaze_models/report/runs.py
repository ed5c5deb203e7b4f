"""The runs of a page, with each model's mean prediction for each clip, and tables of scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from obygaze_features.common.text import counted
from obygaze_features.errors import ObygazeError
from obygaze_features.manifests import Manifest
from obygaze_models.data.protocols import PROTOCOLS, find_protocol
from obygaze_models.data.tasks import Class, Task
from obygaze_models.experiments.published import Published, published_scores
from obygaze_models.experiments.scores import (
    ModelScores,
    TestSet,
    average_over_fits,
    split_by,
    values_of,
)
from obygaze_models.experiments.summary import describe_left_out, metrics_of, span
from obygaze_models.experiments.tables import ManifestRecord, Run, annotated_clips, is_remote
from obygaze_models.explain.clips import Clip, clips_by_id
from obygaze_models.report.film_timelines import clip_noun, with_distinct_titles
from obygaze_models.scoring.intervals import MIN_SHARE, Estimate, estimate_mean, restrict, shortage
from obygaze_models.scoring.metrics import METRICS, baselines


@dataclass(frozen=True, eq=False)
class ModelResults:
    """A model's predictions and reasons for the clips that it was tested on.

    Parameters
    ----------
    model, task
        The model, and the test set if each test set has its own model; else "".
    classes
        The classes of the task. If there are two, the second is the positive class.
    predictions
        The mean prediction of each clip over the fits that tested it.
    reasons
        The model's rows of `Run.reasons`; may be empty.
    by_fit
        Each fit's probability for each clip.
    """

    model: str
    task: str
    classes: tuple[Class, ...]
    predictions: pd.DataFrame
    reasons: pd.DataFrame
    by_fit: Mapping[int, Mapping[str, Any]]

    @property
    def gives_reasons(self) -> bool:
        """True if reasons determine the predictions (a network's sensitivities do not)."""
        return bool((self.reasons["kind"] != "sensitivity").any())


def annotators_of(manifest: Manifest, labels: str) -> list[str]:
    """Return the annotators that `labels` was merged from, or else all annotators."""
    everyone = manifest.annotators
    merged = manifest.labels(labels).merged_annotators if labels in manifest.label_names else []
    return [name for name in merged if name in everyone] or everyone


@dataclass(frozen=True, eq=False)
class ReportRun:
    """A run on the page.

    Parameters
    ----------
    number, name
        The run's position on the page, and its unique name.
    feature
        The backbone and array of the run's features.
    reads
        The input in plain English, such as "words", with `feature` if it would not be unique.
    """

    number: int
    name: str
    feature: str
    reads: str
    run: Run
    models: tuple[ModelResults, ...]

    @property
    def record(self) -> Run:
        """The run."""
        return self.run

    @property
    def about(self) -> ManifestRecord:
        """The labelled items."""
        return self.record.header.manifest

    @property
    def positives(self) -> list[str]:
        """The positive levels, or the highest level if the task is classes or concepts."""
        [*_, highest] = self.record.task(self.record.header.learned[0]).classes
        return [*highest.levels] or [list(self.about.levels)[-1]]

    @property
    def annotators(self) -> list[str]:
        """The annotators that the run's labels were merged from, or else all annotators.

        The list is empty if the manifest cannot be used.
        """
        return [] if self.manifest is None else annotators_of(self.manifest, self.about.labels)

    @property
    def group_noun(self) -> str:
        """The noun for the groups that splits keep together, such as "film"."""
        return self.record.noun

    def who(self, model: str) -> str:
        """Return a model's name for use in sentences; a run's only model is "the model"."""
        return "the model" if len(self.record.models) == 1 else model

    def in_groups(self, text: str) -> str:
        """Replace ``{group}`` in a text with the noun for groups."""
        return text.replace("{group}", self.group_noun)

    @cached_property
    def clips(self) -> Mapping[str, Clip]:
        """The label set's clips by id, or only the run's clips if the manifest cannot be used."""
        return with_distinct_titles(self._label_set or self.own_clips)

    @cached_property
    def fits(self) -> list[dict[str, Any]]:
        """The rows of ``fits.csv`` for the first model of each task and fit."""
        rows: list[Any] = self.run.fits.drop_duplicates(["task", "fit"]).to_dict("records")
        return rows

    @cached_property
    def noun(self) -> str:
        """The noun for the clips: "minutes" or "clips"."""
        return clip_noun(self.clips.values())

    @property
    def clip_noun(self) -> str:
        """The noun for a single clip: "minute" or "clip"."""
        return self.noun.removesuffix("s")

    def describe_blank(self, clips: int) -> str:
        """Describe a number of clips whose features are all zero."""
        adjectives = {"words": "wordless", "sound": "silent"}
        senses = senses_of(self.record)
        if len(senses) == 1 and senses[0] in adjectives:
            adjective = adjectives[senses[0]]
            return counted(clips, f"{adjective} {self.clip_noun}", f"{adjective} {self.noun}")
        return f"{counted(clips, self.clip_noun, self.noun)} whose features are all zero"

    @property
    def counts_all(self) -> bool:
        """True if `clips` has the whole label set, not only the run's clips."""
        return self._label_set is not None

    @cached_property
    def own_clips(self) -> dict[str, Clip]:
        """The run's own clips, by id."""
        return clips_by_id(self.run.clips)

    @cached_property
    def _label_set(self) -> dict[str, Clip] | None:
        """All clips of the default label set, or else of the run's label set, by id.

        The label set must contain the run's labels unchanged. None if neither does, or if the
        manifest cannot be used.
        """
        own, name = self.own_clips, self.record.header.manifest.labels
        if self.manifest is None or name not in self.manifest.label_names:
            return None
        for labels in (self.manifest.labels(), self.manifest.labels(name)):
            clips = clips_by_id(annotated_clips(self.manifest, labels))
            same = (
                key in clips
                and (clip.level, clip.concepts) == (clips[key].level, clips[key].concepts)
                for key, clip in own.items()
            )
            if all(same):
                absent: str = "not-in-labels"
                return {key: own.get(key) or replace(clips[key], used=absent) for key in clips}
        return None

    @property
    def protocol(self) -> str:
        """The protocol that split the clips."""
        return self.record.header.protocol

    @cached_property
    def manifest(self) -> Manifest | None:
        """The run's manifest, or None if it is missing, changed or remote.

        Remote manifests are not loaded, because a run's file must not decide what is downloaded.
        """
        path = self.record.experiment.manifest
        try:
            manifest = None if is_remote(path) else Manifest.load(path)
        except (ObygazeError, OSError):
            return None
        return manifest if manifest and manifest.digest == self.about.digest else None

    @property
    def kind(self) -> str:
        """The kind of task: "levels" (two sets of levels), "classes" or "concepts"."""
        experiment = self.record.experiment
        if experiment.concepts:
            return "concepts"
        return "classes" if experiment.levels else "levels"


def prepare_runs(runs: Sequence[Run]) -> list[ReportRun]:
    """Average the runs' predictions, and give runs and features unique names."""
    names = [run.experiment.name for run in runs]
    # If two names are equal, add the folder in brackets, or else a number.
    for suffixes in ([run.folder.name for run in runs], range(1, len(runs) + 1)):
        counts = Counter(names)
        names = [
            f"{name} ({suffix})" if counts[name] > 1 else name
            for name, suffix in zip(names, suffixes, strict=True)
        ]
    features, fingerprints = [], dict[str, set[str]]()
    for record in runs:
        reads_frames = (record.fits["reads"] == "frames").any()
        frames = f" and {record.experiment.frames}" if reads_frames else ""
        backbone = record.header.features.backbone["name"]
        features.append(f"{backbone} {record.experiment.array}{frames}")
        fingerprints.setdefault(features[-1], set()).add(record.header.store.fingerprint)
    features = [
        f"{feature} ({run.header.store.name})" if len(fingerprints[feature]) > 1 else feature
        for run, feature in zip(runs, features, strict=True)
    ]
    return [
        ReportRun(number, names[number], feature, title, run, tuple(_models(run)))
        for number, (run, feature, title) in enumerate(
            zip(runs, features, _titles_of(runs, features), strict=True)
        )
    ]


def senses_of(record: Run) -> list[str]:
    """List the senses that a run's features describe: words, sound or frames."""
    preprocessing = record.header.features.preprocessing
    senses = []
    for part in preprocessing.get("parts", [preprocessing]):
        if "texts" in part:
            senses.append("words")
        else:
            senses.append("sound" if "extractor" in part else "frames")
    return list(dict.fromkeys(senses))


def _titles_of(runs: Sequence[Run], features: Sequence[str]) -> list[str]:
    """Return each run's input in plain English, with the feature if it would not be unique."""
    titles = []
    for run in runs:
        senses = senses_of(run)
        if senses == ["words"] and run.header.features.array == "count":
            senses = ["number of words"]
        titles.append(" and ".join(senses))
    features_of = dict[str, set[str]]()
    for title, feature in zip(titles, features, strict=True):
        features_of.setdefault(title, set()).add(feature)
    return [
        f"{title} ({feature})" if len(features_of[title]) > 1 else title
        for title, feature in zip(titles, features, strict=True)
    ]


def default_run(runs: Sequence[ReportRun]) -> ReportRun:
    """Return the run to show first; prefer levels or classes, no leaks, and many tested clips."""
    return max(
        runs,
        key=lambda run: (
            run.kind != "concepts",
            not run.record.leaked,
            run.run.predictions["id"].nunique(),
        ),
    )


def default_model(run: ReportRun) -> ModelResults:
    """Return the model with the best main score; prefer models that give reasons."""
    metric = run.record.main_metric
    scores = {entry.model: entry.mean[metric] or 0.0 for entry in reversed(run.record.model_scores)}
    return max(run.models, key=lambda results: (results.gives_reasons, scores[results.model]))


def _models(run: Run) -> Iterator[ModelResults]:
    several, tests = len(run.header.learned) > 1, run.tests
    # Unless each test set has its own model, a fit predicts a clip in several test sets.
    table, reasons = run.predictions, run.reasons
    for (model, task), own in split_by(
        table.assign(task=table["test"] if several else ""), "model", "task"
    ).items():
        largest = max(own["test"].unique(), key=lambda test: tests[test].clips)
        by_fit = {
            fit: dict(zip(part["id"], values_of(part), strict=True))
            for fit, part in split_by(own, "fit").items()
        }
        is_of_task = (reasons["task"] == task) | (task == "")
        own_reasons = reasons[(reasons["model"] == model) & is_of_task]
        classes = run.task(largest).classes
        yield ModelResults(model, task, classes, average_over_fits(own), own_reasons, by_fit)


@dataclass(frozen=True, eq=False)
class ScoreRow:
    """A model's scores on a test set of a run, and the paper's scores by metric."""

    run: ReportRun
    entry: ModelScores
    published: Mapping[str, Published]

    @property
    def model(self) -> str:
        """The model's name in its run."""
        return self.entry.model

    @property
    def title(self) -> str:
        """The model's title."""
        return self.model

    @property
    def who(self) -> str:
        """The model's name for use in sentences."""
        return self.run.who(self.model)

    @property
    def subject(self) -> str:
        """The model's name for the start of a sentence."""
        return "The model" if self.who == "the model" else self.who

    @property
    def concept(self) -> str:
        """The concept that the test set is about."""
        return self.task.concept

    @property
    def test(self) -> TestSet:
        """The test set."""
        return self.run.record.tests[self.entry.test]

    @property
    def results(self) -> ModelResults:
        """The model's predictions on the test set, or on all test sets with the same fits."""
        test = self.entry.test
        of_model = (results for results in self.run.models if results.model == self.model)
        return next(results for results in of_model if results.task in ("", test))

    @property
    def few(self) -> str:
        """The reason why the scores have no intervals, or ""."""
        return self.too_few("")

    def too_few(self, metric: str) -> str:
        """Return the reason why a metric has no interval, such as too few positives, or ""."""
        lacks = self.shortage(metric)
        return f"{lacks} for an interval" if lacks else ""

    def shortage(self, metric: str) -> str:
        """Return what there is too little of for an interval of a metric, or ""."""
        counts = self.test.classes.values()
        return shortage(counts, self.entry.films, metric, noun=self.run.group_noun)

    def interval(self, metric: str) -> tuple[float, float] | None:
        """Return the interval of a score, or None if there are too few clips or films."""
        return None if self.few else self.entry.interval.get(metric)

    @property
    def average(self) -> str:
        """A heading for the kind of average, such as "Mean over films"."""
        if self.entry.pooled:
            return "All test clips together"
        return f"Mean over {self.run.group_noun}s"

    @property
    def averaged(self) -> str:
        """A phrase for the kind of average, or "" if all clips are scored together."""
        return "" if self.entry.pooled else f", on average over {self.run.group_noun}s"

    def above_guess(self, metric: str) -> Estimate:
        """Estimate the mean difference between a score and the best guess's score over films.

        The guess that is best overall is also scored in each film, at the film's share of
        positives. The estimate is undefined if the metric has no guesses, or if all clips are
        scored together.
        """
        guess = self.best_guess(metric)
        if guess is None or self.entry.pooled:
            return Estimate(None)
        clips = self.run.own_clips
        table = self.run.run.predictions
        tested = table[(table["model"] == self.model) & (table["test"] == self.entry.test)]
        tested = tested.drop_duplicates("id")
        shares = tested["label"].groupby([clips[clip].group for clip in tested["id"]]).mean()
        differences = []
        for group in shares.index.intersection([*self.entry.groups]):
            guessed = baselines(float(shares[group]))[guess[0]][metric]
            score = self.entry.groups[group][metric]
            differences.append(np.nan if score is None or guessed is None else score - guessed)
        crossed = self.entry.cross_validated
        estimate = estimate_mean(np.array(differences), cross_validated=crossed)
        return restrict(estimate, metric, [*self.test.classes.values()], least=-1.0)

    def beats_guess(self, metric: str) -> bool:
        """Return True if the interval of the difference from the best guess is above 0."""
        interval = self.above_guess(metric).interval
        return interval is not None and interval[0] > 0

    @property
    def task(self) -> Task:
        """The task that the model was tested on."""
        return self.run.record.task(self.entry.test)

    @property
    def trained(self) -> str:
        """The task that the model was trained on."""
        return self.run.record.trained_on(self.entry.test)

    @property
    def told_apart(self) -> str:
        """The training task, and the test task if it differs."""
        train, test = self.run.record.trained_on(self.entry.test), self.entry.test
        return test if train == test else f"{train} → {test}"

    def best_guess(self, metric: str) -> tuple[str, float] | None:
        """Return the best kind of guess on the same clips, and its score; None if undefined."""
        guesses = self.test.guesses.items()
        scores = {name: own[metric] or 0.0 for name, own in guesses if metric in own}
        if not scores:
            return None
        best = max(scores, key=scores.__getitem__)
        return best, scores[best]


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """A table of the scores for one kind of task (see `ReportRun.kind`)."""

    kind: str
    rows: Sequence[ScoreRow]

    @property
    def metrics(self) -> dict[str, str]:
        """The metrics in the table's columns, with their titles."""
        return metrics_of(self.rows[0].run.record)

    @property
    def caption(self) -> str:
        """A caption that explains the numbers in the table."""
        means = [row for row in self.rows if not row.entry.pooled]
        groups = " or ".join(dict.fromkeys(f"{row.run.group_noun}s" for row in means))
        text = "For all test clips together"
        if means:
            text = f"Means over {span([row.entry.films for row in means])} {groups}"
        if means and len(means) < len(self.rows):
            text += ", or scores of all test clips together if fewer than two of these have scores"
        official = [METRICS[key].title for key in self.metrics if METRICS[key].official]
        if means and official:
            text += f", but {' and '.join(official)} for all test clips together"
        intervals = any(any(row.entry.interval.values()) for row in self.rows)
        brackets = "; 95% intervals in brackets" if intervals else ""
        if intervals and not any(row.entry.cross_validated for row in means):
            brackets += f", of these trained models on other {groups}"
        titles = {key: t for row in means for key, t in row.run.record.titles.items()}
        left_out = describe_left_out([row.entry for row in means], titles)
        rare = [
            METRICS[key].title
            for key in self.metrics
            if any(row.too_few(key) != row.few for row in self.rows)
        ]
        skewed = ""
        if rare:
            skewed = (
                f" No interval for {' and '.join(rare)} if less than {MIN_SHARE:.0%} of the "
                f"clips are positive, because a few {groups} then have far higher values."
            )
        compared = "Levels compared: in training → in testing."
        return f"{text}{brackets}.{left_out}{skewed} {compared}"

    def varies(self, attribute: str) -> bool:
        """Return True if the rows' runs differ in an attribute, which then needs a column."""
        return len({str(getattr(row.run, attribute)) for row in self.rows}) > 1


def score_tables(runs: Sequence[ReportRun]) -> list[ScoreTable]:
    """Return a table for each kind of task, with rows in the order of `PROTOCOLS`."""
    by_kind: dict[str, list[ScoreRow]] = {"levels": [], "classes": [], "concepts": []}
    order = list(PROTOCOLS.values())
    for run in sorted(runs, key=lambda run: order.index(find_protocol(run.protocol))):
        for entry in run.record.model_scores:
            train = run.record.trained_on(entry.test)
            published = published_scores(run.run, entry.model, train, entry.test)
            by_kind[run.kind].append(ScoreRow(run, entry, published))
    return [ScoreTable(kind, rows) for kind, rows in by_kind.items() if rows]
