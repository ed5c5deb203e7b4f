"""What was found in sentences, its limits, what to keep in mind, and one picture."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from obygaze_features.common.figures import inline_svg
from obygaze_features.common.text import join_some
from obygaze_features.page.html import Html, html, joined, number
from obygaze_models.data.tasks import class_words
from obygaze_models.experiments.annotators import annotators_f1
from obygaze_models.experiments.compare import compare
from obygaze_models.experiments.messages import messages_of
from obygaze_models.experiments.summary import metrics_of
from obygaze_models.figures.dots import (
    Line,
    Panel,
    Point,
    dot_plot,
    numbered_series,
    panel_plot,
    round_up,
)
from obygaze_models.figures.sheet import Dot
from obygaze_models.report.annotation import Annotation, Source
from obygaze_models.report.annotators import Annotators
from obygaze_models.report.runs import ReportRun, ScoreRow, ScoreTable
from obygaze_models.scoring.annotators import ALL_POSITIVE, Comparison
from obygaze_models.scoring.metrics import METRICS

MAX_MODELS = 12
"""Models in the first chart."""
MAX_LIMITS = 3


@dataclass(frozen=True, eq=False)
class Headline:
    """The scores of the first screen: the best models of a test set, best first."""

    source: Source
    metric: str
    rows: tuple[ScoreRow, ...]
    annotators: Annotators | None

    @property
    def run(self) -> ReportRun:
        """The source, of a page that has models."""
        assert isinstance(self.source, ReportRun)
        return self.source

    @property
    def best(self) -> ScoreRow:
        """The best model, of a page that has one."""
        return self.rows[0]

    @property
    def opens(self) -> ScoreRow:
        """What the explorer opens on: the best model that gives reasons, if one does."""
        return next((row for row in self.rows if row.results.gives_reasons), self.best)

    @property
    def compared(self) -> Comparison | None:
        """The models of the best one's run beside each annotator, on its test set."""
        return self.best.run.record.annotators.get(self.best.entry.test)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the best model's score, where there are clips and films enough."""
        return self.best.interval(self.metric)

    @property
    def human(self) -> float | None:
        """One annotator's F1 against another on the same task, where no model is beside them."""
        if self.annotators is None or self.run.kind != "levels":
            return None
        record, test = self.best.run.record, self.best.entry.test
        beside_models, of_all = annotators_f1(record, test, self.annotators.pairs)
        return of_all if beside_models is None else None


def headline(
    tables: Sequence[ScoreTable], source: Source, annotators: Annotators | None
) -> Headline:
    """The best models on the largest test set of the explorer's first run, and of runs like it.

    Without a model only what was annotated.
    """
    if isinstance(source, Annotation):
        return Headline(source, "", (), annotators)
    run = source
    metric = run.headline_metric
    test = max(run.record.tests, key=lambda name: run.record.tests[name].clips)
    manifest = run.record.manifest
    rows = [
        row
        for table in tables
        for row in table.rows
        if table.kind == run.kind
        and row.run.protocol == run.protocol
        and (row.run.record.manifest.digest, row.run.record.manifest.labels)
        == (manifest.digest, manifest.labels)
        and (row.entry.test == test or run.kind == "concepts")
        and metric in row.entry.mean
    ]
    rows.sort(key=lambda row: -(row.entry.mean[metric] or 0.0))
    return Headline(run, metric, tuple(rows), annotators)


def alarms(head: Headline, runs: Sequence[ReportRun]) -> list[str]:
    """What changes the conclusion: features made up or of unknown origin, leaks, few clips, one
    film tested.
    """
    record, row = head.run.record, head.best
    # Any run's: scores that mean nothing must not pass for real ones anywhere on the page.
    messages = [m for run in runs for m in messages_of(run.record) if m.voids_scores]
    codes = ("leak", "films") if record.films.tested == 1 else ("leak",)
    messages += [message for message in messages_of(record) if message.code in codes]
    lines = list(dict.fromkeys(map(str, messages)))
    if head.best.few:
        smallest = min(row.test.classes, key=row.test.classes.__getitem__)
        lines.append(
            f"Few test clips: {row.test.clips:,} of {row.entry.test}, "
            f"{row.test.classes[smallest]:,} of them {smallest}, from {row.entry.films:,} "
            f"{row.run.group_noun}s. "
            "Other clips might give quite another score."
        )
    return lines


def findings(head: Headline) -> list[Html]:
    """The finding; then what annotators marked, and how they agree or what the best model does."""
    if not head.rows:
        return [_annotated(head), *_agreement(head)]
    if not (verdict := _verdict(head)):
        return [_model(head, _who(head.best)), _annotated(head)]
    text, human = "One annotator scored against the other reaches {}.", head.human
    others = [] if human is None else [html(text, number(human))]
    return [verdict, _annotated(head), _model(head, "The model"), *others]


def _annotated(head: Headline) -> Html:
    source, clips = head.source, head.source.clips
    films = len({clip.film for clip in clips.values() if clip.film})
    noun = source.noun if len(clips) != 1 else source.noun.removesuffix("s")
    used = " used here" * (not source.counts_all) + f" of {films:,} films" * (films > 1)
    of = html("{} {}{}", number(len(clips), form=","), noun, used)
    if source.kind == "concepts":
        counts = {
            name: sum(name in clip.concepts for clip in clips.values())
            for name in dict.fromkeys(row.task.classes[-1] for row in head.rows)
        }
        parts = [html("{} in {}", name, number(count, form=",")) for name, count in counts.items()]
        return html("Annotators marked {} of {}.", joined(parts), of)
    names = source.about.levels
    if source.kind == "classes":
        parts = [
            html("{} to {}", names.get(code, code), number(total, form=","))
            for code in head.run.record.experiment["levels"]
            for total in [sum(clip.level == code for clip in clips.values())]
        ]
        return html("Annotators gave {} of {}.", joined(parts), of)
    levels = source.positives
    marked = sum(clip.level in levels for clip in clips.values())
    anyone, everyone = "", Html("")
    if head.annotators is not None:
        anyone = " to at least one annotator" if head.annotators.merged else ""
        in_all = number(head.annotators.in_all(levels, clips), form=",")
        everyone = html(", {} to {}", in_all, head.annotators.all_of_them)
    which = " or ".join(names.get(code, code) for code in levels)
    total, verb = number(marked, form=","), "is" if marked == 1 else "are"
    return html("{} of {} {} {}{}{}.", total, of, verb, which, anyone, everyone)


def _agreement(head: Headline) -> list[Html]:
    """Where the annotators agree and where not: by film, and by concept."""
    annotators, noun = head.annotators, head.source.noun
    if annotators is None:
        return []
    equal, two = annotators.equal_levels(head.source.clips), len(annotators.levels) == 2
    text = "{} of the {} that two or more annotated have one level from all who did.{}"
    text = "Both gave the same level to {} of the {} that they share.{}" if two else text
    titles = {clip.film: clip.title for clip in head.source.clips.values()}
    of_films = {titles[film]: value for film, value in annotators.gammas.items() if film in titles}
    start = " By gamma (1 is always the same level, 0 as in a random order) they"
    sentence = html(text, number(equal, form="%"), noun, _extremes(start, of_films))
    start = "Of the concepts, by kappa (1 is always, 0 as by chance), they"
    return [sentence, *filter(None, [_extremes(start, annotators.kappas)])]


def _extremes(start: str, values: Mapping[str, float]) -> Html:
    """A sentence on the highest and the lowest; empty of fewer than two."""
    if len(values) < 2:
        return Html("")
    best, *_, worst = sorted(values, key=lambda name: -values[name])
    text = "{} agree most on {} ({}), least on {} ({})."
    return html(text, start, best, number(values[best]), worst, number(values[worst]))


def _seen(source: Source) -> tuple[str, str]:
    """What parts of a film do, and what a model is to see: in words of the source's levels."""
    names = source.about.levels
    if source.about.is_obygaze:
        return "objectifies", "objectification"
    top = " or ".join(f"“{names.get(code, code)}”" for code in source.positives)
    return f"is {top}", top


def _untested(head: Headline) -> str:
    """The levels that the best model's test leaves out, in words; empty of other tasks."""
    if head.run.kind != "levels":
        return ""
    tested = head.best.task.levels
    return " or ".join(name for code, name in head.run.about.levels.items() if code not in tested)


def _limits_of_labels(head: Headline) -> list[str]:
    """What labels alone do not say."""
    noun, group = head.source.noun, head.source.group_noun
    if head.annotators is None:
        return [f"how sure these labels are: no two annotators of these {noun} can be compared"]
    few = len(head.annotators.levels)
    limits = [f"how others would see these {group}s: {few} annotators are few"]
    if head.annotators.merged:
        limits.append(
            f"how much of a {group} {_seen(head.source)[0]}: what one annotator marked in a part "
            f"of a {noun.removesuffix('s')} makes all of it count"
        )
    return limits


def _model(head: Headline, who: str) -> Html:
    """What the best model finds."""
    row, mean = head.best, head.best.entry.mean
    official = [metric for metric in metrics_of(row.run.record) if METRICS[metric].official]
    scores = [
        html("{} {}", METRICS[metric].title, number(mean[metric]))
        for metric in (*official, head.metric)
    ]
    certainty: Html | str = f"; {head.best.few}" if head.best.few else ""
    if head.interval is not None:
        ends = map(number, head.interval)
        noun = row.run.group_noun
        text = "; the average over other such {}s would probably be {} to {}"
        certainty = html(text, noun, *ends)
    score = html("{}, {}{}", row.model, joined(scores), certainty)
    if "recall" not in mean:
        share = number(mean["balanced_accuracy"], form="%")
        return html("{} gives {} of the clips of a level their level ({}).", who, share, score)
    if mean["precision"] is None:
        return html("{} names no clip at all ({}).", who, score)
    start, target, noun = Html(""), html("of “{}”", row.entry.test), head.run.noun
    text = " Of two clips of which one is positive, it gives that the higher probability in {}."
    pairs = html(text, number(mean["auroc"], form="%")) if row.interval("auroc") else ""
    if head.run.kind == "levels":
        names, others = head.source.about.levels, len(row.run.clips) - row.test.clips
        which = " or ".join(class_words(row.task, names))
        rest = html(" ({} others are left out)", number(others, form=",")) if others else ""
        text = "Tested on {} {} that are {}{}, "
        start = html(text, number(row.test.clips, form=","), noun, which, rest)
        top = " or ".join(names.get(code, code) for code in row.run.positives)
        target = html("of the {} that are {}", number(row.test.positives, form=","), top)
        who = who[0].lower() + who[1:]
    found, right = number(mean["recall"], form="%"), number(mean["precision"], form="%")
    text = "{}{} finds {} {}{}; of the {} that it names, {} are right ({}).{}"
    return html(text, start, who, found, target, row.averaged, noun, right, score, pairs)


def _who(row: ScoreRow) -> str:
    record, noun = row.run.record, row.run.group_noun
    if record.leaked:
        return "A model that was trained on some of the very clips that test it"
    if record.films.also_trained:
        return f"A model that was trained on other clips of the same {noun}s"
    return f"A model that never saw the {noun}"


def _verdict(head: Headline) -> Html:
    """Whether its probabilities put clips in order, and its verdicts are better than guessing;
    empty where neither can be said.
    """
    row, guess, ends = head.best, head.best.best_guess(head.metric), head.best.interval("auroc")
    score, verdict, is_clear = row.entry.mean[head.metric], Html(""), False
    if guess is not None and score is not None:
        low, _ = head.interval or (0.0, 1.0)
        is_clear = min(score, low) > guess[1]
        unclear = "may be no better" if score > guess[1] else "are not better"
        better, title = "are better" if is_clear else unclear, METRICS[head.metric].title
        numbers = title, number(score), number(guess[1])
        verdict = html("{} than guessing ({} {}; guessing {})", better, *numbers)
        if row.few and score > guess[1]:
            text = "score above guessing ({} {}; guessing {}), on {} more"
            verdict = html(text, *numbers, row.few)
    if ends is None or head.run.kind == "classes":
        return verdict and html("The verdicts of a{} {}.", _who(row)[1:], verdict)
    ranks = ends[0] > 0.5
    better = "ranks clips better" if ranks else "may rank clips no better"
    text = "{} {} than chance (AUROC {}, {} to {})"
    ranking = html(text, _who(row), better, *map(number, (row.entry.mean["auroc"], *ends)))
    joint = "but" if ranks and not is_clear else "and"
    return html("{}, {} its verdicts {}.", ranking, joint, verdict) if verdict else ranking


def beside_annotators(head: Headline) -> list[Html]:
    """Whether it agrees with each annotator as much as they agree with each other."""
    compared, own = head.compared, head.annotators
    sentence = compared.sentence(head.best.model, head.run.group_noun) if compared else ""
    if not compared or not sentence:
        return []
    where = f"{head.best.entry.test}: " if head.run.kind == "concepts" else ""
    lines = [html("{}{}", where, re.sub(r"-(?=\d)", "\u2212", sentence))]
    if own and any(pair.clips > compared.clips for pair in own.pairs):
        text = "That leaves out clips of other levels, which flatters all of them: {} is {}."
        lines.append(html(text, "the annotators’ own kappa over all levels", number(own.kappa)))
    return [Html(" ".join(lines))]


def store_tables(
    head: Headline, runs: Sequence[ReportRun]
) -> dict[tuple[str, str, str], list[list[str]]]:
    """What each of several stores adds to each model, of all runs that tell."""
    tables = {}
    for run in runs:
        if run.record.experiment.get("each_store"):
            found = compare(run.run, stores=True)
            scored = {key for comparison in found.comparisons for key in comparison.scores}
            own = found.stores_by_model(head.metric if head.metric in scored else None)
            for (test, model, score), rows in own.items():
                tables[test, f"{run.name}: {model}" if len(runs) > 1 else model, score] = rows
    return tables


def limits(head: Headline) -> list[str]:
    """What may not be concluded, the gravest first."""
    if not head.rows:
        return _limits_of_labels(head)
    record, guess = head.best.run.record, head.best.best_guess(head.metric)
    low = head.interval[0] if head.interval else None
    codes = {warning.code for warning in head.run.record.warnings}
    films, noun = head.run.record.films, head.run.group_noun
    candidates = [
        (f"anything about {noun}s: the features are made up", "synthetic" in codes),
        (
            "anything about a backbone, or about the paper: nobody recorded what made the features",
            "unknown-origin" in codes,
        ),
        ("how the model does on clips that it was not trained on", bool(record.leaked)),
        (
            f"how the model does on other {noun}s than {join_some([*films.titles.values()])}",
            films.tested == 1 and bool(films.untested),
        ),
        ("how large the score is: the test clips are too few", bool(head.best.few)),
        (
            "that the model’s verdicts are better than guessing",
            guess is not None and low is not None and low <= guess[1],
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
        (f"how the model does on {head.run.noun} that are {_untested(head)}", _untested(head)),
        (
            f"that the model sees {_seen(head.run)[1]} itself: it repeats these annotators’ labels "
            f"by whatever goes with them in these {noun}s",
            True,
        ),
        (f"that another model, backbone or set of {noun}s would score alike", True),
    ]
    return [text for text, holds in candidates if holds][:MAX_LIMITS]


def _level_figure(head: Headline) -> Html:
    """How often each annotator gave each level."""
    names = head.source.about.levels
    sets = {"annotators": {clip.id: clip.level for clip in head.source.clips.values()}}
    given = dict(head.annotators.levels) if head.annotators else sets
    counts = {name: Counter(levels.values()) for name, levels in given.items()}
    rows = [[Dot(of[code] / of.total()) for of in counts.values()] for code in names]
    most = max(dot.value or 0.0 for dots in rows for dot in dots)
    series, axis = numbered_series([*counts]), f"share of the {head.source.noun}"
    panel = Panel(rows, series, axis, limits=(0.0, round_up(most)), percent=True)
    figure = panel_plot(
        [[*names.values()]], panel, title="How often each level was given",
        description="share of clips, a row a level",
    )  # fmt: skip
    return Html(inline_svg(figure))


def _beside_annotators(head: Headline) -> list[Point]:
    """F1 of the best model with each annotator, and of the annotators with each other."""
    compared = head.compared
    if compared is None or compared.f1 is None or head.metric != "f1":
        return []
    group = f"On {compared.clips:,} {head.run.noun}, with each annotator"
    raters = {(rater.name, rater.kind): rater for rater in compared.raters}
    model = raters[head.best.model, "model"]
    both = " with ".join(compared.annotators)
    rows = {
        f"{model.name} with {name}": (model.f1[name], model.f1_interval.get(name), "model")
        for name in compared.annotators
    }
    name = both if len(compared.annotators) == 2 else "annotators with each other"
    rows[name] = compared.f1, compared.f1_interval, "annotators"
    points = []
    if guess := [r for r in compared.raters if (r.name, r.kind) == (ALL_POSITIVE, "guess")]:
        f1 = guess[0].f1
        rows |= {f"guess with {who}": (f1[who], None, "guess") for who in compared.annotators}
    for label, (value, interval, kind) in rows.items():
        low, high = (None if compared.too_few else interval) or (None, None)
        points.append(Point(label, value, low, high, group=group, kind=kind))
    return points


def score_figure(head: Headline) -> Html:
    """The best models, annotators against each other and the best guess on one axis."""
    if not head.rows:
        return _level_figure(head)
    models = len({row.model for row in head.rows}) > 1
    tasks = len({row.told_apart for row in head.rows}) > 1
    features = len({row.run.feature for row in head.rows}) > 1
    # Runs that differ in nothing else that is shown, such as in balance.
    alike = Counter((row.model, row.told_apart, row.run.feature) for row in head.rows)
    points, beside = [], _beside_annotators(head)
    merged = "Scored against the merged labels" if beside else ""
    for row in head.rows[:MAX_MODELS]:
        parts = [row.model] * (models or not tasks)
        # They are tested on the same clips: only what was trained on differs.
        parts += [row.trained] * tasks
        parts += [row.run.feature] * features
        parts += [row.run.name] * (alike[row.model, row.told_apart, row.run.feature] > 1)
        low, high = row.interval(head.metric) or (None, None)
        paper = row.published.get(head.metric)
        mean = row.entry.mean[head.metric]
        label, reference = ", ".join(parts), paper.mean if paper else None
        points.append(Point(label, mean, low, high, reference, group=merged))
    if head.human is not None:
        points.append(Point("annotator against annotator", head.human, kind="annotators"))
    lines, title = [], METRICS[head.metric].title
    if head.run.kind != "concepts":
        title += f", {head.best.task.in_words(head.run.about.levels)}"
        if guess := head.best.best_guess(head.metric):
            points.append(Point(f"guess: {guess[0]}", guess[1], group=merged, kind="guess"))
            lines.append(Line(guess[1], "best guess", merged if beside else None))
    figure = dot_plot(
        points + beside,
        title=title,
        axis="",
        description="; ".join(
            f"{p.label}: {p.value:.2f}" for p in points + beside if p.value is not None
        ),
        lines=lines,
        limits=(0.0, 1.0),
        interval="95% interval",
        value="model",
        reference="the paper",
    )
    if len(head.rows) <= MAX_MODELS:
        return Html(inline_svg(figure))
    text = 'The {} best of {} scores. <a href="#methods">Methods</a> has all.'
    note = html(text, MAX_MODELS, number(len(head.rows), form=","))
    return html("{}<figcaption>{}</figcaption>", Html(inline_svg(figure)), note)
