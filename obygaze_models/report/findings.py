"""The findings of a page, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from obygaze_features.common.text import counted, join_some
from obygaze_features.page.html import Html, html, joined, number
from obygaze_models.experiments.compare import SIGNIFICANT
from obygaze_models.experiments.summary import metrics_of
from obygaze_models.report.annotators import MIN_MARKED
from obygaze_models.report.headline import Headline
from obygaze_models.report.runs import ScoreRow
from obygaze_models.scoring.intervals import MIN_GROUPS, Estimate, holm
from obygaze_models.scoring.metrics import METRICS

KAPPA_ENDS = "; 1 is full agreement, 0 is chance"
NEAR = 0.015
"""The largest difference between a share and the fraction that describes it."""
_FRACTIONS = {
    "one in ten": 0.1,
    "one in five": 0.2,
    "one in four": 0.25,
    "one in three": 1 / 3,
    "two in five": 0.4,
    "half": 0.5,
    "three in five": 0.6,
    "two in three": 2 / 3,
    "three in four": 0.75,
    "four in five": 0.8,
    "nine in ten": 0.9,
}


def findings(head: Headline) -> list[Html]:
    """Return the page's findings: sentences on the result, the annotations and the agreement."""
    if not head.rows:
        shared = _shared_marks(head)
        # One paragraph on counts and agreement keeps the films near the top of the page.
        first, *others = [_annotated(head, by_all=not shared), *_agreement(head)]
        paragraphs = [html("{} {}", first, others[0]), *others[1:]] if others else [first]
        return [*shared, *paragraphs]
    if head.run.kind == "concepts":
        return [_concepts_found(head), _annotated(head), *_named(head)]
    if not (verdict := _verdict(head)):
        return [_model(head, _who(head.row)), *_named(head), _annotated(head)]
    return [verdict, _annotated(head), _model(head, "The model"), *_named(head)]


def _named(head: Headline) -> list[Html]:
    """Name the model of the result, and say why it was chosen, if there are several models."""
    models = dict.fromkeys(row.model for row in head.rows if row.run is head.run)
    if len(models) < 2:
        return []
    reason = "which the experiment lists first"
    text = "This is the result of {}, {}. Picking the best of {} models would inflate the score."
    return [html(text, head.row.title, reason, number(len(models), form=","))]


def _concepts_found(head: Headline) -> Html:
    """Name the concepts whose scores are above guessing, adjusted for multiple tests."""
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
    who, claim = _subject(head), _BESIDE_GUESS[METRICS[head.metric].ranks].better
    if head.metric == "auroc":
        claim = "ranks clips with a concept above those without it, better than chance,"
    if not tested:
        return html("There are too few clips or {}s to say how good {} is.", noun, head.row.who)
    text = "{} {} for {} of {} ({} averaged over {}s; p below .05, Holm-adjusted; tests: {}){}{}{}."
    parts = [
        html(start, joined(names)) if names else Html("")
        for start, names in (
            (": {}", better),
            ("; not shown for {}", others),
            ("; too few clips to test {}", untested),
        )
    ]
    counts = number(len(better), form=","), counted(len(rows), "concept")
    title = METRICS[head.metric].title
    return html(text, who, claim, *counts, title, noun, tested, *parts)


def _annotated(head: Headline, *, by_all: bool = True) -> Html:
    """Count the marked clips and, if `by_all`, the clips that all annotators marked."""
    source, clips = head.source, head.source.clips
    films = len({clip.film for clip in clips.values() if clip.film})
    noun = source.noun if len(clips) != 1 else source.noun.removesuffix("s")
    used = "" if source.counts_all else " used here"
    of_films = f" of {films:,} films" if films > 1 else ""
    subject = html("{} {}{}{}", number(len(clips), form=","), noun, used, of_films)
    if source.kind == "concepts":
        counts = {
            name: sum(name in clip.concepts for clip in clips.values())
            for name in dict.fromkeys(row.concept for row in head.rows)
        }
        parts = [html("{} in {}", name, number(count, form=",")) for name, count in counts.items()]
        return html("The labels have {} of {}.", joined(parts), subject)
    names = source.about.levels
    if source.kind == "classes":
        parts = [
            html("{} to {}", names.get(code, code), number(total, form=","))
            for kind in head.row.task.classes
            for code in kind.levels
            for total in [sum(clip.level == code for clip in clips.values())]
        ]
        return html("The labels give {} of {}.", joined(parts), subject)
    levels = source.positives
    marked = sum(clip.level in levels for clip in clips.values())
    anyone, everyone = "", Html("")
    if head.annotators is not None:
        anyone = " according to at least one annotator" if head.annotators.merged else ""
        if by_all:
            in_all = number(head.annotators.in_all(levels, clips), form=",")
            everyone = html(", {} according to {}", in_all, head.annotators.all_of_them)
    level_names = " or ".join(names.get(code, code) for code in levels)
    total, verb = number(marked, form=","), "is" if marked == 1 else "are"
    return html("{} of {} {} {}{}{}.", total, subject, verb, level_names, anyone, everyone)


def _shared_marks(head: Headline) -> list[Html]:
    """Describe the agreement on clips to which any annotator gave the highest level."""
    annotators, source = head.annotators, head.source
    if annotators is None:
        return []
    own = [*annotators.levels.values()]
    shared = set.intersection(*({*levels} for levels in own))
    either = [clip for clip in shared if any(levels[clip] in source.positives for levels in own)]
    if not either:
        return []
    by_all = annotators.in_all(source.positives, either)
    who, anyone = "Two annotators agree", "either"
    if len(own) > 2:
        who, anyone = f"All {len(own)} annotators agree", "any of them"
    names = " or ".join(source.about.levels.get(code, code) for code in source.positives)
    marked = "finds objectifying" if source.about.is_obygaze else f"calls {names}"
    share, counts = share_in_words(by_all, len(either)), Html("")
    if len(either) >= MIN_MARKED:
        counts = html(" ({} of {})", number(by_all, form=","), number(len(either), form=","))
    return [
        html("{} on {} of the {} that {} {}{}.", who, share, source.noun, anyone, marked, counts)
    ]


def share_in_words(part: int, total: int) -> str:
    """Return a share in words: a nearby fraction, or else a percentage; counts if `total` is small.

    Examples
    --------
    >>> share_in_words(277, 862), share_in_words(3, 4), share_in_words(440, 1000)
    ('one in three', '3 of 4', '44%')
    """
    if total < MIN_MARKED:
        return f"{part} of {total}"
    share = part / total
    for words, fraction in _FRACTIONS.items():
        if abs(share - fraction) < NEAR:
            return words
    return f"{share:.0%}"


def _agreement(head: Headline) -> list[Html]:
    """Describe the annotators' agreement over all films, and its extremes by film and concept."""
    annotators, noun = head.annotators, head.source.noun
    if annotators is None:
        return []
    titles = {clip.film: clip.title for clip in head.source.clips.values()}
    of_films = {
        titles[film]: value
        for film, value in annotators.gammas.items()
        if film in titles and annotators.shared[film] >= MIN_MARKED
    }
    start = " They"
    text = "{} to {} of the {}; chance would be {}. That is a kappa of {} over all films ({}).{}"
    who = "Both gave the same level"
    shared = f"{noun} that both annotated"
    if len(annotators.levels) > 2:
        who, shared = "Everyone gave the same level", f"{noun} that two or more annotated"
        text = "{} to {} of the {}. By chance, two annotators would agree on {}. "
        text += "Their kappa is {} over all films ({}).{}"
    sentence = html(
        text,
        who,
        number(annotators.equal_levels(head.source.clips), form="%"),
        shared,
        number(annotators.by_chance, form="%"),
        number(annotators.agreement.value),
        _interval_of(annotators.agreement),
        _extremes(start, "gamma", of_films),
    )
    marked = {name for clip in head.source.clips.values() for name in clip.concepts}
    rare = sorted(filter(annotators.few_clips, marked))
    kappas = {name: kappa for name, kappa in annotators.kappas.items() if name not in rare}
    concepts = [_extremes("Among concepts, they", "kappa", kappas, KAPPA_ENDS)]
    if rare:
        text = "{} marked in fewer than {} films or {} clips, too few to judge agreement: {}."
        names = join_some(rare)
        verb = "A concept was" if len(rare) == 1 else f"{len(rare)} concepts were"
        concepts.append(html(text, verb, MIN_GROUPS, MIN_MARKED, names))
    return [sentence, *filter(None, concepts)]


def _interval_of(estimate: Estimate) -> Html:
    if estimate.interval is None:
        return html("too few films for an interval")
    return html("95% interval {} to {}", *map(number, estimate.interval))


def _extremes(start: str, score: str, values: Mapping[str, float], ends: str = "") -> Html:
    """Name the highest and lowest scores, or return "" if there are fewer than two."""
    if len(values) < 2:
        return Html("")
    best, *_, worst = sorted(values, key=lambda name: -values[name])
    text = "{} agree most on {} ({} {}{}), and least on {} ({})."
    highest, lowest = number(values[best]), number(values[worst])
    return html(text, start, best, score, highest, ends, worst, lowest)


def _model(head: Headline, who: str) -> Html:
    """Describe how many clips the model finds or classifies correctly, and how it ranks them."""
    row, mean, noun = head.row, head.row.entry.mean, head.run.noun
    if "recall" not in mean:
        share = number(mean["balanced_accuracy"], form="%")
        scores = [*_official_scores(row), _score(row, head.metric)]
        score = html("{}{}", joined([*_title(row), *scores]), _certainty(head))
        text = "{} classifies {} of the clips correctly if all levels count equally{} ({})."
        return html(text, who, share, row.averaged, score)
    is_told = head.metric == "auroc" and head.interval is not None  # by the verdict
    ranks = Html("") if is_told else _pairs(head)
    details = [*_title(row), *_official_scores(row)]
    model = html(" ({})", joined(details)) if details else Html("")
    if mean["precision"] is None:
        return html("{}{} marks no clip at all.{}", who, model, ranks)
    start, target = Html(""), html("of “{}”", row.task.title)
    if head.run.kind == "levels":
        names, others = head.source.about.levels, len(row.run.clips) - row.test.clips
        classes = " or ".join(kind.words for kind in row.task.classes)
        left_out = " ({} other is left out)" if others == 1 else " ({} others are left out)"
        rest = html(left_out, number(others, form=",")) if others else ""
        text = "Tested on {} {} that are {}{}, "
        start = html(text, number(row.test.clips, form=","), noun, classes, rest)
        top = " or ".join(names.get(code, code) for code in row.run.positives)
        target = html("of the {} that are {}", number(row.test.positives, form=","), top)
        who = who[0].lower() + who[1:]
    recall, precision = number(mean["recall"], form="%"), number(mean["precision"], form="%")
    text = "{}{}{} finds {} {}{}; of the {} that it marks, {} are marked correctly.{}"
    return html(text, start, who, model, recall, target, row.averaged, noun, precision, ranks)


def _title(row: ScoreRow) -> list[Html]:
    """Return the model's title, or [] if the run has a single model without a title."""
    return [] if row.who == "the model" else [html("{}", row.title)]


def _official_scores(row: ScoreRow) -> list[Html]:
    """Return the scores by the benchmark's official measures, or [] if it has none."""
    metrics = metrics_of(row.run.run)
    return [_score(row, metric) for metric in metrics if METRICS[metric].official]


def _score(row: ScoreRow, metric: str) -> Html:
    return html("{} {}", METRICS[metric].title, number(row.entry.mean[metric]))


def _certainty(head: Headline) -> Html:
    """Describe the interval of the score, or the reason why it has no interval."""
    if head.interval is not None:
        ends = map(number, head.interval)
        text = "; the average over other such {}s would probably be between {} and {}"
        return html(text, head.row.run.group_noun, *ends)
    too_few = head.row.too_few(head.metric)
    return html("; {}", too_few) if too_few else Html("")


def _pairs(head: Headline) -> Html:
    """Describe how often the model rates a positive clip above a negative clip."""
    area = head.row.entry.mean["auroc"]
    if area is None or head.run.kind != "levels":
        return Html("")
    return html(" {} ({}).", _given_a_pair(head, area), _area_and_interval(head.row, area))


def _given_a_pair(head: Headline, area: float) -> Html:
    """Explain an AUROC of two levels in a sentence."""
    row, clip = head.row, head.run.clip_noun
    negative, positive = (kind.words for kind in row.task.classes)
    same = "" if row.entry.pooled else f" of the same {row.run.group_noun}"
    text = "Given one {} and one {} {}{}, it rates the {} one higher {} of the time"
    return html(text, positive, negative, clip, same, positive, number(area, form="%"))


def _area_and_interval(row: ScoreRow, area: float) -> Html:
    """Format an AUROC with its interval, or with the reason why it has no interval."""
    score = html("{} {}", METRICS["auroc"].title, number(area))
    if row.few:
        return html("{}; {}", score, row.few)
    if ends := row.interval("auroc"):
        return html("{}, {} to {}", score, *map(number, ends))
    return score


def _who(row: ScoreRow) -> str:
    record, noun = row.run.record, row.run.group_noun
    if record.leaked:
        return "A model that was trained on some of its test clips"
    if record.header.also_trained:
        return f"A model that was trained on other clips of the same {noun}s"
    return f"A model that never saw the {noun}"


def _verdict(head: Headline) -> Html:
    """Compare the score with guessing; return "" if this is not possible.

    If the score is AUROC, also compare the verdicts with guessing.
    """
    row, metric = head.row, head.metric
    if head.run.kind == "classes" or row.entry.mean[metric] is None:
        return Html("")
    ends = row.interval(metric)
    if metric != "auroc" or ends is None:
        return html("{} {}.", _subject(head), _beside_guess(row, metric, ends))
    ranking = html("{}{}", _ranks(head, ends), _pairs(head))
    if row.best_guess("f1") is None or row.entry.mean["f1"] is None:
        return ranking
    return html("{} Its verdicts {}.", ranking, _beside_guess(row, "f1"))


def _ranks(head: Headline, ends: tuple[float, float]) -> str:
    """State whether the model ranks clips better than chance, by the interval of its AUROC."""
    who, noun = _who(head.row), head.run.noun
    if ends[0] > 0.5:
        return f"{who} ranks {noun} better than chance."
    return f"We cannot say that {who[0].lower()}{who[1:]} ranks {noun} better than chance."


def _subject(head: Headline) -> str:
    """Return the subject of a sentence about the score: the model, or its verdicts."""
    who = _who(head.row)
    return who if METRICS[head.metric].ranks else f"The verdicts of a{who[1:]}"


class _Verbs(NamedTuple):
    """Verb phrases that compare a ranking or verdicts with guessing."""

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
"""The verb phrases for scores of verdicts (False) and of rankings (True)."""


def _beside_guess(row: ScoreRow, metric: str, ends: tuple[float, float] | None = None) -> Html:
    """Return a verb phrase, with numbers, that compares a score with the best guess."""
    guess, score, lacks = row.best_guess(metric), row.entry.mean[metric], row.shortage(metric)
    verbs = _BESIDE_GUESS[METRICS[metric].ranks]
    numbers = html("{} {}", METRICS[metric].title, number(score))
    if ends:
        numbers = html("{}, {} to {}", numbers, *map(number, ends))
    if guess is None or score is None:
        return html("{} {}", verbs.scores, numbers)
    name = f"calling every {row.run.clip_noun} {row.concept or row.task.classes[-1].words}"
    guessing = name if guess[0] == "all positive" else "guessing"
    numbers = html("{}; {} {}", numbers, guessing, number(guess[1]))
    if lacks:
        side = "above" if score > guess[1] else "no higher than"
        return html("{} {} guessing ({}), on {} to say more", verbs.scores, side, numbers, lacks)
    if row.beats_guess(metric):
        verb = verbs.better
    elif score > guess[1]:
        verb = verbs.unclear
    else:
        verb = verbs.worse
    return html("{} ({})", verb, numbers)


def beside_annotators(head: Headline) -> list[Html]:
    """Compare the model's agreement with annotators to the agreement among annotators."""
    compared, own = head.compared, head.annotators
    if not compared:
        return []
    who = head.row.subject
    sentence = compared.sentence(head.row.model, name=who, minus="\u2212")
    if not sentence:
        return []
    where = f"{head.row.task.title}: " if head.run.kind == "concepts" else ""
    lines = [html("{}{}", where, sentence)]
    if own and any(pair.clips > compared.clips for pair in own.pairs):
        text = "These numbers leave out clips of other levels, so they are too high: {} is {}."
        lines.append(
            html(text, "the annotators’ own kappa over all levels", number(own.agreement.value))
        )
    return [Html(" ".join(lines))]
