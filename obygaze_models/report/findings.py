"""What was found in sentences, its limits, what to keep in mind, and one picture."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from obygaze_features.common.figures import inline_svg
from obygaze_features.common.text import counted, join_some
from obygaze_features.page.html import Html, html, joined, number
from obygaze_models.data.tasks import class_words
from obygaze_models.experiments.annotators import annotators_f1
from obygaze_models.experiments.compare import compare
from obygaze_models.experiments.comparisons import SIGNIFICANT
from obygaze_models.experiments.messages import messages_of
from obygaze_models.experiments.summary import headline_model, metrics_of
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
from obygaze_models.scoring.annotators import ALL_POSITIVE, Comparison
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
        name = headline_model(self.run.record)
        own = [row for row in self.rows if row.run is self.run]
        return next((row for row in own if row.model == name), own[0])

    @property
    def opens(self) -> ScoreRow:
        """What the explorer opens on: the first model that gives reasons, if one does."""
        return next((row for row in self.rows if row.results.gives_reasons), self.row)

    @property
    def compared(self) -> Comparison | None:
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
    record, row = head.run.record, head.row
    # Any run's: scores that mean nothing must not pass for real ones anywhere on the page.
    messages = [m for run in runs for m in messages_of(run.record) if m.voids_scores]
    codes = ("leak", "films") if record.films.tested == 1 else ("leak",)
    messages += [message for message in messages_of(record) if message.code in codes]
    lines = list(dict.fromkeys(map(str, messages)))
    if head.row.few:
        smallest = min(row.test.classes, key=row.test.classes.__getitem__)
        lines.append(
            f"Few test clips: {row.test.clips:,} of {row.entry.test}, "
            f"{row.test.classes[smallest]:,} of them {smallest}, from {row.entry.films:,} "
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
    text, human = "One annotator scored against the other reaches {}.", head.human
    others = [] if human is None else [html(text, number(human))]
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
    """For which concepts the model ranks clips better than chance, adjusted for their number."""
    rows = [row for row in head.rows if row.run is head.run and row.model == head.row.model]
    estimates = [row.above_chance() for row in rows]
    p_values = holm([estimate.p_value for estimate in estimates])
    better: list[Html] = []
    others: list[Html] = []
    untested: list[Html] = []
    for row, estimate, p_value in zip(rows, estimates, p_values, strict=True):
        concept = html("{} ({})", row.concept, number(row.entry.mean["auroc"]))
        is_better = p_value is not None and p_value < SIGNIFICANT and (estimate.value or 0) > 0
        if p_value is None:
            untested.append(concept)
        else:
            (better if is_better else others).append(concept)
    noun = head.run.group_noun
    tested = len(better) + len(others)
    if not tested:
        return html(
            "There are too few clips or {}s to say how well {} ranks clips.", noun, head.row.model
        )
    text = (
        "{} ranks clips with a concept above those without it, better than chance, for {} of {} "
        "(AUROC as a mean over {}s; p below .05, adjusted for {} by Holm){}{}{}."
    )
    parts = [
        html(start, joined(names)) if names else Html("")
        for start, names in (
            (": {}", better),
            ("; not shown for {}", others),
            ("; too few clips to say for {}", untested),
        )
    ]
    counts = number(len(better), form=","), counted(len(rows), "concept")
    return html(text, _who(head.row), *counts, noun, tested, *parts)


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
        return html("{} gives {} of the clips of a level their level ({}).", who, share, score)
    ranks = _pairs(head)
    model = joined([html("{}", row.model), *_official_scores(row)])
    if mean["precision"] is None:
        return html("{} ({}) names no clip at all.{}", who, model, ranks)
    start, target = Html(""), html("of “{}”", row.entry.test)
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
    return html("; {}", head.row.few) if head.row.few else Html("")


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
    """Whether its probabilities put clips in order, and its verdicts are better than guessing;
    empty where neither can be said.
    """
    row, ends = head.row, head.row.interval("auroc")
    verdict = _verdicts_beside_guess(row) if head.run.kind == "levels" else Html("")
    if ends is None or head.run.kind == "classes":
        return verdict and html("The verdicts of a{} {}.", _who(row)[1:], verdict)
    who = _who(row)
    area = html("AUROC {}, {} to {}", *map(number, (row.entry.mean["auroc"], *ends)))
    if ends[0] > 0.5:
        ranking = html("{} ranks clips better than chance ({})", who, area)
    else:
        who = who[0].lower() + who[1:]
        ranking = html("We cannot say that {} ranks clips better than chance ({})", who, area)
    joint = "but" if ends[0] > 0.5 and not row.beats_guess else "and"
    return html("{}, {} its verdicts {}.", ranking, joint, verdict) if verdict else ranking


def _verdicts_beside_guess(row: ScoreRow) -> Html:
    """Whether a model's verdicts have a higher F1 than the best guess, film by film."""
    guess, score = row.best_guess("f1"), row.entry.mean["f1"]
    if guess is None or score is None:
        return Html("")
    numbers = METRICS["f1"].title, number(score), number(guess[1])
    if row.few and score > guess[1]:
        text = "score above guessing ({} {}; guessing {}), on {} more"
        return html(text, *numbers, row.few)
    if row.beats_guess:
        better = "are better"
    elif score > guess[1]:
        better = "may be no better"
    else:
        better = "are not better"
    return html("{} than guessing ({} {}; guessing {})", better, *numbers)


def beside_annotators(head: Headline) -> list[Html]:
    """Whether it agrees with each annotator as much as they agree with each other."""
    compared, own = head.compared, head.annotators
    sentence = compared.sentence(head.row.model, head.run.group_noun) if compared else ""
    if not compared or not sentence:
        return []
    where = f"{head.row.entry.test}: " if head.run.kind == "concepts" else ""
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
    record, guess = head.row.run.record, head.row.best_guess("f1")
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
            "that the model’s verdicts are better than guessing",
            guess is not None and not head.row.few and not head.row.beats_guess,
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
        title += f", {head.row.task.in_words(head.run.about.levels)}"
    if head.metric == "auroc":
        lines.append(Line(0.5, "chance", merged if beside else None))
    elif head.run.kind != "concepts" and (guess := head.row.best_guess(head.metric)):
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
