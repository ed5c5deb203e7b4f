"""The first screen of a page: what was found in sentences, its limits, and one picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from obygaze_features.common.figures import inline_svg
from obygaze_features.common.text import join_some
from obygaze_models.experiments.summary import metrics_of
from obygaze_models.figures.dots import Line, Point, dot_plot
from obygaze_models.intervals import too_few
from obygaze_models.metrics import METRICS
from obygaze_models.report.annotators import Annotators
from obygaze_models.report.html import Html, count, html, joined, number
from obygaze_models.report.runs import ModelResults, ReportRun, default_run
from obygaze_models.report.score_tables import ScoreRow, ScoreTable, headline_metric, kind_of

__all__ = ["Headline", "alarms", "findings", "headline", "limits", "score_figure"]

MAX_MODELS = 6
MAX_LIMITS = 2


@dataclass(frozen=True, eq=False)
class Headline:
    """The scores of the first screen: the best models of a test set, best first."""

    run: ReportRun
    metric: str
    rows: tuple[ScoreRow, ...]
    annotators: Annotators | None

    @property
    def best(self) -> ScoreRow:
        """The best model."""
        return self.rows[0]

    @property
    def best_results(self) -> tuple[ReportRun, ModelResults]:
        """The best model's run, and what it predicted."""
        row = self.best
        return row.run, row.run.mean_predictions(row.model, row.entry.test)

    @property
    def few(self) -> str:
        """Why an interval would look surer than it is; empty where it is not."""
        return too_few(self.best.test.classes.values(), self.best.entry.films)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the best model's score, where there are clips and films enough."""
        return None if self.few else self.best.entry.interval.get(self.metric)

    @property
    def human(self) -> float | None:
        """One annotator's F1 against another on the same task."""
        if self.annotators is None or kind_of(self.run) != "levels":
            return None
        return self.annotators.f1(self.best.test)


def headline(
    tables: Sequence[ScoreTable], runs: Sequence[ReportRun], annotators: Annotators | None
) -> Headline:
    """The best models on the largest test set of the explorer's first run, and of runs like it."""
    run = default_run(runs)
    kind, metric = kind_of(run), headline_metric(run)
    test = max(run.record.tests, key=lambda name: run.record.tests[name].clips)
    manifest = run.record.manifest
    rows = [
        row
        for table in tables
        for row in table.rows
        if table.kind == kind
        and row.run.protocol == run.protocol
        and (row.run.record.manifest.digest, row.run.record.manifest.labels)
        == (manifest.digest, manifest.labels)
        and (row.entry.test == test or kind == "concepts")
        and metric in row.entry.mean
    ]
    rows.sort(key=lambda row: -(row.entry.mean[metric] or 0.0))
    return Headline(run, metric, tuple(rows[:MAX_MODELS]), annotators)


def alarms(head: Headline, runs: Sequence[ReportRun]) -> list[Html]:
    """What changes the conclusion: features made up or of unknown origin, leaks, few clips, one
    film tested.
    """
    record = head.run.record
    # Any run's: scores that mean nothing must not pass for real ones anywhere on the page.
    void = (str(w) for run in runs for w in run.record.warnings if w.voids_scores)
    lines = [html("{}", text) for text in dict.fromkeys(void)]
    for name in dict.fromkeys(leak.test for leak in record.leaks):
        leaks = [leak for leak in record.leaks if leak.test == name]
        if not any(leak.train + leak.validation for leak in leaks):
            continue
        lines.append(
            html(
                "LEAKAGE: up to {} of the {} test clips of {} were used to train or to stop the "
                "same fit, so that its scores are too high.",
                count(max(leak.train + leak.validation for leak in leaks)),
                count(leaks[0].clips),
                name,
            )
        )
    tested, films = head.run.tested_films, head.run.films
    if len(tested) == 1 < len(films):
        lines.append(html("This tests 1 of {} films: {}.", count(len(films)), tested[0]))
    if head.few:
        test = head.best.test
        smallest = min(test.classes, key=test.classes.__getitem__)
        lines.append(
            html(
                "Few test clips: {} of {}, {} of them {}, from {} films. Other clips might give "
                "quite another score.",
                number(test.clips, form=","),
                head.best.entry.test,
                number(test.classes[smallest], form=","),
                smallest,
                count(head.best.entry.films),
            )
        )
    return lines


def findings(head: Headline) -> list[Html]:
    """Three sentences: what annotators marked, what the best model does, and beside whom."""
    return [_annotated(head), _model(head), _beside(head)]


def _annotated(head: Headline) -> Html:
    run, experiment = head.run, head.run.record.experiment
    clips, films = run.clips, len(run.films)
    of = html(
        "{} clips{}{}",
        number(len(clips), form=","),
        "" if run.counts_all else " used here",
        html(" of {} films", count(films)) if films > 1 else "",
    )
    if experiment["concepts"]:
        parts = [
            html("{} in {}", name, number(_marked(run, name), form=","))
            for name in dict.fromkeys(row.entry.test.split(" vs ")[0] for row in head.rows)
        ]
        return html("Annotators marked {} of {}.", joined(parts), of)
    levels = experiment["positives"] or experiment["levels"]
    names = run.record.manifest.levels
    totals = {
        code: number(sum(clip.level == code for clip in clips.values()), form=",")
        for code in levels
    }
    if levels != ["S"] or names.get("S") != "Sure":
        parts = [html("{} to {}", names.get(code, code), total) for code, total in totals.items()]
        return html("Annotators gave {} of {}.", joined(parts), of)
    both = ""
    if head.annotators is not None:
        annotators = len(head.annotators.levels)
        both = html(
            "; {} of them in {}",
            "both" if annotators == 2 else f"all {annotators}",
            number(head.annotators.in_all(levels, clips), form=","),
        )
    return html("Annotators were sure of objectification in {} of {}{}.", totals["S"], of, both)


def _marked(run: ReportRun, concept: str) -> int:
    return sum(concept in clip.concepts for clip in run.clips.values())


def _model(head: Headline) -> Html:
    row, mean = head.best, head.best.entry.mean
    official = [metric for metric in metrics_of(row.run.record) if METRICS[metric].official]
    scores = [
        html("{} {}", METRICS[metric].title, number(mean[metric]))
        for metric in (*official, head.metric)
    ]
    score = html("{}, {}{}", row.model, joined(scores), _interval(head))
    if "recall" not in mean:
        share = number(mean["balanced_accuracy"], form="%")
        return html(
            "{} gives {} of the clips of a level their level ({}).", _who(row), share, score
        )
    if mean["precision"] is None:
        return html("{} names no clip at all ({}).", _who(row), score)
    target: Html | str = f"of “{row.entry.test}”"
    if kind_of(head.run) == "levels":
        positives = row.run.record.experiment["positives"]
        marked = sum(clip.level in positives for clip in row.run.clips.values())
        target = "of those clips"
        if (row.test.positives or 0) < marked:
            tested = number(row.test.positives, form=",")
            target = html("of the {} of them that it was tested on", tested)
    return html(
        "{} finds {} {}; of the clips that it names, {} are right ({}).",
        _who(row),
        number(mean["recall"], form="%"),
        target,
        number(mean["precision"], form="%"),
        score,
    )


def _who(row: ScoreRow) -> str:
    record = row.run.record
    if record.leaked:
        return "A model that was trained on some of the very clips that test it"
    if record.films.also_trained:
        return "A model that was trained on other clips of the same films"
    return "A model that never saw the film"


def _interval(head: Headline) -> Html | str:
    if head.interval is None:
        return f"; {head.few}" if head.few else ""
    low, high = map(number, head.interval)
    return html("; the average over other such films would probably be {} to {}", low, high)


def _beside(head: Headline) -> Html:
    """Better than guessing or not, and how annotators score against each other."""
    row, mean = head.best, head.best.entry.mean[head.metric]
    human = ""
    if head.human is not None:
        human = html(
            " One annotator scored against the other reaches {}.",
            number(head.human),
        )
    guess = row.best_guess(head.metric)
    if guess is None or mean is None:
        return html("There is no guess to compare it with.{}", human)
    name, value = guess
    if mean <= value:
        verdict = "The model is not better than guessing"
    elif head.interval is not None and head.interval[0] > value:
        verdict = "The model is better than guessing"
    else:
        verdict = "The model may be no better than guessing"
    return html("{}, which reaches {} ({}).{}", verdict, number(value), name, human)


def limits(head: Headline) -> list[str]:
    """What may not be concluded, the gravest first."""
    record, guess = head.best.run.record, head.best.best_guess(head.metric)
    low = head.interval[0] if head.interval else None
    trained = record.films.also_trained
    candidates = [
        ("anything about films: the data are made up", _has(head, "synthetic")),
        (
            "anything about a backbone, or about the paper: nobody recorded what made the features",
            _has(head, "unknown-origin"),
        ),
        ("how the model does on clips that it was not trained on", bool(record.leaked)),
        (
            f"how the model does on other films than {join_some(head.run.tested_films)}",
            len(head.run.tested_films) == 1 < len(head.run.films),
        ),
        ("how large the score is: the test clips are too few", bool(head.few)),
        (
            "that the model does better than guessing",
            guess is not None and low is not None and low <= guess[1],
        ),
        ("that the model would do as well on a film that it has never seen", trained > 0),
        (
            "that the model reads films as well as an annotator: it is scored against the merged "
            "labels, the annotators against each other",
            head.human is not None,
        ),
        (
            "that the model sees objectification itself: it repeats these annotators’ labels by "
            "whatever goes with them in these films",
            True,
        ),
        ("that another model, backbone or set of films would score alike", True),
    ]
    return [text for text, holds in candidates if holds][:MAX_LIMITS]


def _has(head: Headline, code: str) -> bool:
    return any(warning.code == code for warning in head.run.record.warnings)


def score_figure(head: Headline) -> Html:
    """The best models, annotators against each other and the best guess on one axis."""
    features = {row.run.feature for row in head.rows}
    tasks = {row.told_apart for row in head.rows}
    models = {row.model for row in head.rows}
    points = []
    for row in head.rows:
        parts = [row.model] if len(models) > 1 or len(tasks) == 1 else []
        # They are tested on the same clips: only what was trained on differs.
        parts += [row.told_apart.split(" → ")[0]] if len(tasks) > 1 else []
        parts += [row.run.feature] if len(features) > 1 else []
        low, high = row.entry.interval.get(head.metric) or (None, None)
        if too_few(row.test.classes.values(), row.entry.films):
            low = high = None
        paper = row.published.get(head.metric)
        points.append(
            Point(
                ", ".join(parts),
                row.entry.mean[head.metric],
                low,
                high,
                paper.mean if paper else None,
            )
        )
    if head.human is not None:
        points.append(Point("annotator against annotator", head.human, kind="annotators"))
    guess = head.best.best_guess(head.metric) if kind_of(head.run) != "concepts" else None
    if guess is not None:
        points.append(Point(f"guess: {guess[0]}", guess[1], kind="guess"))
    title = METRICS[head.metric].title
    figure = dot_plot(
        points,
        title=f"{title}, {head.best.entry.test}" if kind_of(head.run) != "concepts" else title,
        axis="",
        description="; ".join(
            f"{point.label}: {point.value:.2f}" for point in points if point.value is not None
        ),
        lines=[Line(guess[1], "best guess")] if guess is not None else [],
        limits=(0.0, 1.0),
        interval="95% interval",
        value="model",
        reference="the paper",
    )
    return Html(inline_svg(figure))
