"""What was found in sentences, its limits, what to keep in mind, and one picture."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from obygaze_features.common.figures import inline_svg
from obygaze_features.common.text import counted, join_some
from obygaze_features.page.html import Html, html, joined, number
from obygaze_models.experiments.annotators import annotators_f1
from obygaze_models.experiments.compare import compare
from obygaze_models.experiments.comparisons import SIGNIFICANT
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
from obygaze_models.report.annotators import MIN_MARKED, Annotators
from obygaze_models.report.runs import ReportRun, ScoreRow, ScoreTable
from obygaze_models.scoring.annotators import ALL_POSITIVE, AnnotatorComparison
from obygaze_models.scoring.intervals import MIN_GROUPS, Estimate, holm
from obygaze_models.scoring.metrics import METRICS

MAX_MODELS = 12
"""Models in the first chart."""
MAX_LIMITS = 3


@dataclass(frozen=True, eq=False)
class Headline:
    """The scores of the first screen: the models of a test set, the best first.

    `row` is what the result is about: the model that the experiment named before the test.
    """

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
    def row(self) -> ScoreRow:
        """The model that the result is about, of a page that has one."""
        name = self.run.record.headline_model
        own = [row for row in self.rows if row.run is self.run]
        return next((row for row in own if row.model == name), own[0])

    @property
    def opens(self) -> ScoreRow:
        """What the explorer opens on: the first model that gives reasons, if one does."""
        return next((row for row in self.rows if row.results.gives_reasons), self.row)

    @property
    def compared(self) -> AnnotatorComparison | None:
        """The models of the run beside each annotator, on the test set."""
        return self.row.run.record.annotators.get(self.row.entry.test)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the score, where there are clips and films enough."""
        return self.row.interval(self.metric)

    @property
    def human(self) -> float | None:
        """One annotator's F1 against another on the same task, where no model is beside them."""
        if self.annotators is None or self.run.kind != "levels" or self.metric != "f1":
            return None
        record, test = self.row.run.record, self.row.entry.test
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
    metric = run.record.ranking_metric
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
        and (run.kind == "concepts" or row.task.classes == run.record.task(test).classes)
        and metric in row.entry.mean
    ]
    rows.sort(key=lambda row: -(row.entry.mean[metric] or 0.0))
    return Headline(run, metric, tuple(rows), annotators)


def alarms(head: Headline, runs: Sequence[ReportRun]) -> list[str]:
    """What changes the conclusion: features made up or of unknown origin, leaks, few clips, one
    film tested.
    """
    record, row = head.run.record, head.row
    # Any run's: scores that mean nothing must not pass for real ones anywhere on the page.
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
            "Other clips might give quite another score."
        )
    return lines


def findings(head: Headline) -> list[Html]:
    """The finding; then what annotators marked, and how they agree or what the model does."""
    if not head.rows:
        return [_annotated(head), *_agreement(head)]
    if head.run.kind == "concepts":
        return [_concepts_found(head), _annotated(head), *_named(head)]
    if not (verdict := _verdict(head)):
        return [_model(head, _who(head.row)), *_named(head), _annotated(head)]
    text, human = "{} reaches {}, on all clips together.", head.human
    others = [] if human is None else [html(text, _human_against_human(head), number(human))]
    return [verdict, _annotated(head), _model(head, "The model"), *_named(head), *others]


def _named(head: Headline) -> list[Html]:
    """Which of several models the result is about, and that it was named before the test."""
    models = dict.fromkeys(row.model for row in head.rows if row.run is head.run)
    if len(models) < 2:
        return []
    named = head.run.record.experiment.headline == head.row.model
    how = "which the experiment names" if named else "which the experiment lists first"
    text = "This is about {}, {}. The best of {} on the test clips would look better than it is."
    return [html(text, head.row.model, how, number(len(models), form=","))]


def _concepts_found(head: Headline) -> Html:
    """Say for which concepts the score is above guessing, adjusted for their number."""
    rows = [row for row in head.rows if row.run is head.run and row.model == head.row.model]
    estimates = [row.above_guess(head.metric) for row in rows]
    p_values = holm([estimate.p_value for estimate in estimates])
    better: list[Html] = []
    others: list[Html] = []
    untested: list[Html] = []
    for row, estimate, p_value in zip(rows, estimates, p_values, strict=True):
        concept = html("{} ({})", row.concept, number(row.entry.mean[head.metric]))
        is_better = p_value is not None and p_value < SIGNIFICANT and (estimate.value or 0) > 0
        if p_value is None:
            untested.append(concept)
        else:
            (better if is_better else others).append(concept)
    noun = head.run.group_noun
    tested = len(better) + len(others)
    who, what = _subject(head), _BESIDE_GUESS[METRICS[head.metric].ranks].better
    if head.metric == "auroc":
        what = "ranks clips with a concept above those without it, better than chance,"
    if not tested:
        return html("There are too few clips or {}s to say how good {} is.", noun, head.row.model)
    text = "{} {} for {} of {} ({} as a mean over {}s; p below .05, adjusted for {} by Holm){}{}{}."
    parts = [
        html(start, joined(names)) if names else Html("")
        for start, names in (
            (": {}", better),
            ("; not shown for {}", others),
            ("; too few clips to say for {}", untested),
        )
    ]
    counts = number(len(better), form=","), counted(len(rows), "concept")
    title = METRICS[head.metric].title
    return html(text, who, what, *counts, title, noun, tested, *parts)


def _annotated(head: Headline) -> Html:
    source, clips = head.source, head.source.clips
    films = len({clip.film for clip in clips.values() if clip.film})
    noun = source.noun if len(clips) != 1 else source.noun.removesuffix("s")
    used = "" if source.counts_all else " used here"
    of_films = f" of {films:,} films" if films > 1 else ""
    of = html("{} {}{}{}", number(len(clips), form=","), noun, used, of_films)
    if source.kind == "concepts":
        counts = {
            name: sum(name in clip.concepts for clip in clips.values())
            for name in dict.fromkeys(row.concept for row in head.rows)
        }
        parts = [html("{} in {}", name, number(count, form=",")) for name, count in counts.items()]
        return html("Annotators marked {} of {}.", joined(parts), of)
    names = source.about.levels
    if source.kind == "classes":
        parts = [
            html("{} to {}", names.get(code, code), number(total, form=","))
            for code in head.run.record.experiment.levels
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
    titles = {clip.film: clip.title for clip in head.source.clips.values()}
    of_films = {
        titles[film]: value
        for film, value in annotators.gammas.items()
        if film in titles and annotators.shared[film] >= MIN_MARKED
    }
    start = " By gamma they"
    text = "{} to {} of the {}; chance would give {}. That is a kappa of {} over all films ({}).{}"
    who = "Both gave the same level"
    shared = f"{noun} that they share"
    if len(annotators.levels) > 2:
        who, shared = "Everyone gave the same level", f"{noun} that two or more annotated"
    sentence = html(
        text,
        who,
        number(annotators.equal_levels(head.source.clips), form="%"),
        shared,
        number(annotators.by_chance, form="%"),
        number(annotators.agreement.value),
        _interval_of(annotators.agreement),
        _extremes(start, of_films),
    )
    few = [name for name in annotators.kappas if annotators.few_clips(name)]
    kappas = {name: kappa for name, kappa in annotators.kappas.items() if name not in few}
    start = "Among concepts, by kappa, they"
    concepts = [_extremes(start, kappas)]
    if few:
        text = "{} marked in fewer than {} films or {} clips, too few to judge agreement: {}."
        names = join_some(few)
        verb = "A concept was" if len(few) == 1 else f"{len(few)} concepts were"
        concepts.append(html(text, verb, MIN_GROUPS, MIN_MARKED, names))
    return [sentence, *filter(None, concepts)]


def _interval_of(estimate: Estimate) -> Html:
    if estimate.interval is None:
        return html("too few films to say how sure that is")
    return html("95% interval {} to {}", *map(number, estimate.interval))


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
    tested = head.row.task.levels
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
    """What the model finds, and how it ranks clips."""
    row, mean, noun = head.row, head.row.entry.mean, head.run.noun
    if "recall" not in mean:
        share = number(mean["balanced_accuracy"], form="%")
        scores = [*_official_scores(row), _score(row, head.metric)]
        score = html("{}, {}{}", row.model, joined(scores), _certainty(head))
        text = "{} gives {} of the clips of a level their level{} ({})."
        return html(text, who, share, row.averaged, score)
    ranks = _pairs(head)
    model = joined([html("{}", row.model), *_official_scores(row)])
    if mean["precision"] is None:
        return html("{} ({}) names no clip at all.{}", who, model, ranks)
    start, target = Html(""), html("of “{}”", row.task.title)
    if head.run.kind == "levels":
        names, others = head.source.about.levels, len(row.run.clips) - row.test.clips
        which = " or ".join(each.words for each in row.task.classes)
        rest = html(" ({} others are left out)", number(others, form=",")) if others else ""
        text = "Tested on {} {} that are {}{}, "
        start = html(text, number(row.test.clips, form=","), noun, which, rest)
        top = " or ".join(names.get(code, code) for code in row.run.positives)
        target = html("of the {} that are {}", number(row.test.positives, form=","), top)
        who = who[0].lower() + who[1:]
    found, right = number(mean["recall"], form="%"), number(mean["precision"], form="%")
    text = "{}{} ({}) finds {} {}{}; of the {} that it names, {} are right.{}"
    return html(text, start, who, model, found, target, row.averaged, noun, right, ranks)


def _official_scores(row: ScoreRow) -> list[Html]:
    """The official measure of a benchmark, if there is one."""
    metrics = metrics_of(row.run.record)
    return [_score(row, metric) for metric in metrics if METRICS[metric].official]


def _score(row: ScoreRow, metric: str) -> Html:
    return html("{} {}", METRICS[metric].title, number(row.entry.mean[metric]))


def _certainty(head: Headline) -> Html:
    """The interval of the score; or why there is none."""
    if head.interval is not None:
        ends = map(number, head.interval)
        text = "; the average over other such {}s would probably be {} to {}"
        return html(text, head.row.run.group_noun, *ends)
    few = head.row.too_few(head.metric)
    return html("; {}", few) if few else Html("")


def _pairs(head: Headline) -> Html:
    """How often the model rates a positive clip above a negative one of the same film."""
    row = head.row
    area = row.entry.mean["auroc"]
    if area is None or head.run.kind != "levels":
        return Html("")
    names = head.source.about.levels
    top = " or ".join(names.get(code, code) for code in row.run.positives)
    same = "" if row.entry.pooled else f" of the same {row.run.group_noun}"
    clip = head.run.noun.removesuffix("s")
    text = " Given one {} and one other {}{}, it rates the {} one higher {} of the time ({}{})."
    score = html("{} {}", METRICS["auroc"].title, number(area))
    ends = row.interval("auroc")
    certainty = html("; {}", row.few) if row.few else Html("")
    if ends:
        certainty = html(", {} to {}", *map(number, ends))
    return html(text, top, clip, same, top, number(area, form="%"), score, certainty)


def _who(row: ScoreRow) -> str:
    record, noun = row.run.record, row.run.group_noun
    if record.leaked:
        return "A model that was trained on some of the very clips that test it"
    if record.films.also_trained:
        return f"A model that was trained on other clips of the same {noun}s"
    return f"A model that never saw the {noun}"


def _verdict(head: Headline) -> Html:
    """Say whether the score is above that of guessing; empty where that cannot be said.

    By AUROC, also whether the verdicts are better than guessing.
    """
    row, metric = head.row, head.metric
    if head.run.kind == "classes" or row.entry.mean[metric] is None:
        return Html("")
    who, ends = _who(row), row.interval(metric)
    if metric != "auroc" or ends is None:
        return html("{} {}.", _subject(head), _beside_guess(row, metric, ends))
    area = html("AUROC {}, {} to {}", *map(number, (row.entry.mean["auroc"], *ends)))
    if ends[0] > 0.5:
        ranking = html("{} ranks clips better than chance ({})", who, area)
    else:
        who = who[0].lower() + who[1:]
        ranking = html("We cannot say that {} ranks clips better than chance ({})", who, area)
    if row.best_guess("f1") is None or row.entry.mean["f1"] is None:
        return html("{}.", ranking)
    joint = "but" if ends[0] > 0.5 and not row.beats_guess("f1") else "and"
    return html("{}, {} its verdicts {}.", ranking, joint, _beside_guess(row, "f1"))


def _subject(head: Headline) -> str:
    """Return who ranks clips, or whose verdicts the score is about."""
    who = _who(head.row)
    return who if METRICS[head.metric].ranks else f"The verdicts of a{who[1:]}"


class _Verbs(NamedTuple):
    """The verbs for a ranking or for verdicts beside guessing."""

    scores: str
    better: str
    unclear: str
    worse: str


_BESIDE_GUESS = {
    False: _Verbs(
        "score",
        "are better than guessing",
        "may be no better than guessing",
        "are not better than guessing",
    ),
    True: _Verbs(
        "scores",
        "ranks clips better than guessing",
        "may rank clips no better than guessing",
        "does not rank clips better than guessing",
    ),
}
"""By whether a metric is of the ranking."""


def _beside_guess(row: ScoreRow, metric: str, ends: tuple[float, float] | None = None) -> Html:
    """Say whether a score is above the best guess's, film by film: a verb and the numbers."""
    guess, score = row.best_guess(metric), row.entry.mean[metric]
    verbs, few = _BESIDE_GUESS[METRICS[metric].ranks], row.too_few(metric)
    numbers = html("{} {}", METRICS[metric].title, number(score))
    if ends:
        numbers = html("{}, {} to {}", numbers, *map(number, ends))
    if guess is None or score is None:
        return html("{} {}", verbs.scores, numbers)
    numbers = html("{}; guessing {}", numbers, number(guess[1]))
    if few and score > guess[1]:
        return html("{} above guessing ({}), on {} more", verbs.scores, numbers, few)
    if row.beats_guess(metric):
        verb = verbs.better
    elif score > guess[1]:
        verb = verbs.unclear
    else:
        verb = verbs.worse
    return html("{} ({})", verb, numbers)


def beside_annotators(head: Headline) -> list[Html]:
    """Whether it agrees with each annotator as much as they agree with each other."""
    compared, own = head.compared, head.annotators
    sentence = compared.sentence(head.row.model, head.run.group_noun) if compared else ""
    if not compared or not sentence:
        return []
    where = f"{head.row.task.title}: " if head.run.kind == "concepts" else ""
    lines = [html("{}{}", where, re.sub(r"-(?=\d)", "\u2212", sentence))]
    if own and any(pair.clips > compared.clips for pair in own.pairs):
        text = "That leaves out clips of other levels, which flatters all of them: {} is {}."
        lines.append(
            html(text, "the annotators’ own kappa over all levels", number(own.agreement.value))
        )
    return [Html(" ".join(lines))]


def store_tables(
    head: Headline, runs: Sequence[ReportRun]
) -> dict[tuple[str, str, str], list[list[str]]]:
    """What each of several stores adds to each model, of all runs that tell."""
    tables = {}
    for run in runs:
        if run.record.experiment.each_store:
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
    record = head.row.run.record
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
        (f"how the model does on {head.run.noun} that are {_untested(head)}", _untested(head)),
        (
            f"that the model sees {_seen(head.run)[1]} itself: it repeats these annotators’ labels "
            f"by whatever goes with them in these {noun}s",
            True,
        ),
        (f"that another model, backbone or set of {noun}s would score alike", True),
    ]
    return [text for text, holds in candidates if holds][:MAX_LIMITS]


def _guessed(head: Headline) -> str:
    """Return the score that is held against guessing: by AUROC that of the verdicts."""
    return "f1" if head.metric == "auroc" else head.metric


def _is_no_better(head: Headline) -> bool:
    """Return whether the model does no better than guessing, although it could be seen."""
    metric, row = _guessed(head), head.row
    is_seen = row.best_guess(metric) is not None and not row.too_few(metric)
    return is_seen and not row.beats_guess(metric)


def _human_against_human(head: Headline) -> str:
    """Return which annotators are scored against each other, in words."""
    count = len(head.annotators.levels) if head.annotators else 2
    return f"One annotator scored against {'the other' if count == 2 else 'another'}"


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
    group = f"On {compared.clips:,} {head.run.noun} together, with each annotator"
    if head.run.kind == "concepts":
        group = f"{head.row.concept}: {group[0].lower()}{group[1:]}"
    raters = {(rater.name, rater.kind): rater for rater in compared.raters}
    model = raters[head.row.model, "model"]
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
    """The best models, annotators against each other and the best guess on one axis.

    Each average has a heading of its own.
    """
    if not head.rows:
        return _level_figure(head)
    beside = _beside_annotators(head)
    models, lines = _model_points(head, beside)
    points = [*models, *beside]
    if head.human is not None:
        group = f"{_human_against_human(head)}, on all clips together"
        points.append(
            Point("annotator against annotator", head.human, group=group, kind="annotators")
        )
    title = METRICS[head.metric].title
    if head.run.kind != "concepts":
        title += f", {head.row.task.title}"
    figure = dot_plot(
        points,
        title=title,
        axis="",
        description="; ".join(f"{p.label}: {p.value:.2f}" for p in points if p.value is not None),
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


def _model_points(head: Headline, beside: Sequence[Point]) -> tuple[list[Point], list[Line]]:
    """Return the best models and guess, by what their scores are averaged over, and lines."""
    differ = {
        name: len({getattr(row, name) for row in head.rows}) > 1 for name in ("model", "told_apart")
    }
    features = len({row.run.feature for row in head.rows}) > 1
    # Runs that differ in nothing else that is shown, such as in balance.
    alike = Counter((row.model, row.told_apart, row.run.feature) for row in head.rows)
    against = ""
    if beside or (head.human is not None and head.annotators and head.annotators.merged):
        against = ", against the merged labels"
    by_group: dict[str, list[Point]] = {}
    for row in head.rows[:MAX_MODELS]:
        parts = [row.model] if differ["model"] or not differ["told_apart"] else []
        if differ["told_apart"]:  # they are tested on the same clips: only training differs
            parts.append(row.trained)
        if features:
            parts.append(row.run.feature)
        if alike[row.model, row.told_apart, row.run.feature] > 1:
            parts.append(row.run.name)
        low, high = row.interval(head.metric) or (None, None)
        paper = row.published.get(head.metric)
        mean, reference = row.entry.mean[head.metric], paper.mean if paper else None
        group = row.average + against
        point = Point(", ".join(parts), mean, low, high, reference, group=group)
        by_group.setdefault(group, []).append(point)
    lines = []
    group = head.row.average + against
    if head.metric == "auroc":
        lines.append(Line(0.5, "chance"))
    elif head.run.kind != "concepts" and (guess := head.row.best_guess(head.metric)):
        guessed = Point(f"guess: {guess[0]}", guess[1], group=group, kind="guess")
        by_group.setdefault(group, []).append(guessed)
        lines.append(Line(guess[1], "best guess", group))
    return [point for same in by_group.values() for point in same], lines
