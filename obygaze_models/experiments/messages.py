"""Descriptions of plans, and warnings about a run's scores, for the terminal, page and tables.

Warnings from `run_warnings` are saved in ``run.json``. The others are derived from the counts in
``run.json``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from obygaze_features.common.printer import align, fill
from obygaze_features.common.text import counted, for_shell, group_by, join_some
from obygaze_features.items.items import group_noun
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.audit import audit
from obygaze_models.data.folds import ByFolds
from obygaze_models.data.protocols import FILM_CLIPS, PROTOCOLS, LeaveFilmOut
from obygaze_models.data.stores import describe_missing
from obygaze_models.data.warnings import RunWarning, leak_warning, origin_warnings, unique_warnings
from obygaze_models.estimators.outputs import Facts
from obygaze_models.estimators.registry import PluginError, find_entry, plugins
from obygaze_models.experiments.division import OFFICIAL, RELEASED, RELEASED_CONCEPTS
from obygaze_models.experiments.experiment import Experiment, as_toml
from obygaze_models.experiments.fit import class_weight_options
from obygaze_models.experiments.predictions import called_of, split_by
from obygaze_models.experiments.record import IN_NO_FOLD, LeakCount, RunRecord, Skipped
from obygaze_models.experiments.summary import (
    BALANCED,
    WIDTH,
    describe_cuts,
    describe_official,
    span,
)

if TYPE_CHECKING:
    from obygaze_models.data.tasks import Task
    from obygaze_models.experiments.outcome import Outcome
    from obygaze_models.experiments.plan import Plan

MAX_ROWS = 20
"""The maximum number of folds or films that an error lists."""
# The maximum number of warnings about skipped fits. run.json has all of them.
SHOWN = 10
RARE = 0.1
"""The minimum number of positive predictions per positive clip. Below it, there is a warning."""
RELEASED_POOLS = ("02_EN_S", "02_HN_S")
"""The split files that the released networks were trained on."""

FOLLOWS = {
    "synthetic": "The pipeline works, but the scores mean nothing.",
    "leak": "Do not compare these scores with others. See Methods for the numbers of clips.",
    "neighbours": "Clips this close are often alike, so expect lower scores on other files.",
    "zeros": "Predictions for these clips come without reasons.",
    "inner-folds": "Tuned settings may suit the training {group}s better than others.",
    "skipped": "Scores are over fewer fits than planned.",
    "films": "The other clips have no scores.",
    "unnamed": "They are left out of means over {group}s, since they could belong to any {group}.",
    "one-film": "So the scores have no interval.",
    "also-trained": "Expect lower scores on a {group} that the model has never seen.",
    "smallest-class": "Macro F1 weights all classes equally, and weighted F1 all clips.",
    "positives": "F1 and AP depend on this share, so compare them only within one test set.",
    "join": "These clips are not part of any score.",
    "one-fit": "More seeds would show how much the scores vary from one training to the next.",
    "fits-in-turn": "The standard deviation shows how much the test sets differ. The interval "
    "shows how precise the mean is.",
    "fits-of-one-fold": "The standard deviation shows how much scores vary from one training to "
    "the next, not from one test fold to another.",
    "fits-repeated": "The standard deviation shows how much scores vary between test sets, and "
    "from one training to the next.",
    "different-items": "Scores on different clips cannot be compared directly.",
    "different-labels": "The same clip may have different levels or concepts in each run.",
    "different-versions": "They may cause small differences between runs.",
}
"""The meaning of each kind of message for the reader. Pages show it after the message.

``{group}`` stands for the unit that is kept together, such as a film.
"""


def notes(*texts: str) -> list[RunWarning]:
    """Return notes for readers of a table, as warnings of the kind ``note``."""
    return [RunWarning("note", "", text) for text in texts]


def run_warnings(outcome: Outcome) -> list[RunWarning]:
    """Return the warnings about a run, or about its plan if nothing has been fitted yet."""
    plan = outcome.plan
    return [
        *origin_warnings(plan.manifest.items, plan.store.attributes),
        *leak_warnings(outcome.leak_counts),
        *_data_warnings(plan),
        *_skipped_warnings(outcome.skipped),
        *(_without_features(plan) if plan.measure else ()),
        *_concept_warnings(plan, outcome.fits),
        *_balance_warnings(plan.experiment),
        *_rare_verdicts(outcome),
        *unique_warnings(outcome.warnings),
        *_model_warnings(plan, outcome.fits),
    ]


def _data_warnings(plan: Plan) -> Iterator[RunWarning]:
    """Yield the warnings about clips and features that are known before training."""
    if plan.division.near:
        yield RunWarning("neighbours", "", plan.division.near)
    if zeros := _describe_zeros(plan):
        yield RunWarning("zeros", "", f"{zeros}.")
    if lacking := _describe_lacking(plan):
        yield RunWarning("missing", "", f"{lacking}.")


def messages_of(record: RunRecord) -> Iterator[RunWarning]:
    """Yield all limitations of a run's scores: recorded warnings and warnings from its counts."""
    yield from leak_warnings(record.leaks)
    yield from (warning for warning in record.warnings if warning.code != "leak")
    yield from _film_messages(record)
    for name, test in record.tests.items():
        if test.share is None and len(test.classes) == 1:
            continue
        if test.share is None:
            least = min(test.classes.values())
            text = f"{name}: the smallest class has {least:,} of the {test.clips:,} test clips."
            yield RunWarning("smallest-class", name, text)
        else:
            text = f"{name}: {test.share:.0%} of the {test.clips:,} test clips are positive."
            yield RunWarning("positives", name, text)
    for part in record.join.missing:
        yield RunWarning("join", part.key, f"{part.lack}.")
    if record.official:
        yield RunWarning("official", "", describe_official(record))
    for text in describe_cuts(record):
        yield RunWarning("cut", "", text)
    if record.fit_count == 1:
        yield RunWarning("one-fit", "", "There is only one fit.")
    elif record.fits_per_clip == 1:
        yield RunWarning("fits-in-turn", "", f"{record.fit_count:,} fits test different clips.")
    elif record.fits_per_clip == record.fit_count:
        yield RunWarning("fits-of-one-fold", "", f"{record.fit_count:,} fits share one test fold.")
    else:
        text = f"{record.fit_count:,} fits test each clip up to {record.fits_per_clip:,} times."
        yield RunWarning("fits-repeated", "", text)


def _film_messages(record: RunRecord) -> Iterator[RunWarning]:
    """Yield the limitations of scores that are means over films."""
    films, noun = record.films, group_noun(record.films.by)
    if films.note:
        yield RunWarning("films", "", f"This {films.note}.")
    if films.unnamed and films.tested:
        total = counted(films.clips, "test clip")
        yield RunWarning("unnamed", "", f"{films.unnamed:,} of {total} have no {noun}.")
    if reason := record.lacks_interval:
        yield RunWarning("one-film", "", f"{reason[0].upper()}{reason[1:]}.")
    if films.also_trained and films.tested > 1:
        text = f"{films.also_trained:,} of the {films.tested:,} tested {noun}s have other clips"
        yield RunWarning("also-trained", "", f"{text} in training.")


def table_warnings(record: RunRecord, where: str) -> list[RunWarning]:
    """Return the warnings for a table with rows from a run; `where` names these rows."""
    messages = list(messages_of(record))
    warnings = [warning for warning in messages if warning.voids_scores]
    for part in record.join.missing:
        if part.key != "without_features":
            continue
        text = (
            f"{record.store.name} has no features for {part.clips:,} of the "
            f"{record.join.labelled:,} labelled clips, such as {', '.join(part.first[:3])}."
        )
        warnings.append(RunWarning("no-features", where, f"{where}: {text}"))
    named = [message for message in messages if message.code in ("skipped", "concepts", "leak")]
    return warnings + [RunWarning(m.code, where, f"{where}: {m.text}") for m in named]


def leak_warnings(leaks: Sequence[LeakCount]) -> Iterator[RunWarning]:
    """Yield a warning for each test set with clips that the fits tested on it have used."""
    for test, counts in leaks_by_test(leaks).items():
        used = max(leak.train + leak.validation + leak.otherwise for leak in counts)
        clips = f"up to {used:,} of the {counts[0].clips:,} test clips"
        yield leak_warning(test, clips, "the same fit")


def leaks_by_test(leaks: Sequence[LeakCount]) -> dict[str, list[LeakCount]]:
    """Group the fits' leaks by test set."""
    return group_by(leaks, lambda leak: leak.test)


def released_leaks(manifest: Manifest) -> Iterator[RunWarning]:
    """Yield warnings about test clips of the released splits that are used in training."""
    leaks = audit(manifest, train=[*RELEASED_POOLS], test=sorted(RELEASED.values()))
    for (test, train), (pool, *runs) in group_by(leaks, lambda x: (x.test, x.train)).items():
        if not pool.ids:
            continue
        positive = next(name for name in pool.by_class if name in ("S", "Sure"))
        clips = [len(leak.ids) for leak in runs]
        sure = [leak.by_class[positive][0] for leak in runs]
        text = (
            f"in the released files, of the {len(pool.tested)} test clips of {test} "
            f"({pool.by_class[positive][1]} of them Sure), {len(pool.ids)} "
            f"({pool.by_class[positive][0]} Sure) are also in the training pool of {train}. Each "
            f"of its runs trains on {min(clips)} to {max(clips)} ({min(sure)} to {max(sure)} Sure) "
            "of them. (These counts include clips without a video, which are not scored.)"
        )
        yield RunWarning("leak", test, text)


def _skipped_warnings(skipped: Sequence[Skipped]) -> list[RunWarning]:
    by_reason = group_by(skipped, lambda skip: (skip.task, skip.why))
    warnings = [
        RunWarning("skipped", task, f"{task}, {join_some([s.what for s in own], 3)}: {reason}.")
        for (task, reason), own in list(by_reason.items())[:SHOWN]
    ]
    if (more := len(by_reason) - SHOWN) > 0:
        warnings.append(RunWarning("skipped", "", f"{more} more reasons, listed in run.json."))
    return warnings


def _without_features(plan: Plan) -> Iterator[RunWarning]:
    """Yield a warning about test clips without features, which the official measure penalises."""
    division = plan.division
    absent = plan.join.without_features if division.protocol == "official" else []
    if lost := [clip for clip in absent if division.fold_of.get(clip) == division.last]:
        text = (
            f"{counted(len(lost), 'test clip has', 'test clips have')} no features "
            f"({join_some(lost, 3)}). Such clips are left out here, but they lower the official "
            "score of a run file (see obygaze mediaeval write-run and score-run)."
        )
        yield RunWarning("no-features", "", text)


def _concept_warnings(plan: Plan, fits: Sequence[Mapping[str, Any]]) -> Iterator[RunWarning]:
    """Yield warnings about concepts that bottlenecks skipped, or learned unreliably."""
    for name in plan.experiment.learners:
        facts_of_fits = [
            msgspec.convert(fit["facts"], Facts) for fit in fits if fit["model"] == name
        ]
        unreliable = {name for facts in facts_of_fits for name in facts.unreliable}
        skipped = {name for facts in facts_of_fits for name in facts.skipped}
        parts = []
        if unreliable:
            parts.append(f"{counted(len(unreliable), 'concept is', 'concepts are')} unreliable")
        if skipped:
            parts.append(f"{counted(len(skipped), 'concept is', 'concepts are')} left out")
        among = f" in some of {len(facts_of_fits)} fits" if len(facts_of_fits) > 1 else ""
        if parts:
            text = f"{name}: {' and '.join(parts)}{among}. See the report for the reasons."
            yield RunWarning("concepts", name, text)
    split = plan.division.split
    bottlenecks = any("concepts" in fit["facts"] for fit in fits)
    if plan.division.protocol == "released" and bottlenecks and split != RELEASED_CONCEPTS:
        text = (
            f"The bottlenecks learned their concepts from {split}, but the "
            f"authors' learned from {RELEASED_CONCEPTS}. Use a separate experiment with that split."
        )
        yield RunWarning("released-concepts", "", text)


def _model_warnings(plan: Plan, fits: Sequence[Mapping[str, Any]]) -> Iterator[RunWarning]:
    """Yield warnings about unsaved models, external models, and ignored plug-ins."""
    reasons = {fit["model"]: fit["not_saved"] for fit in fits if fit["not_saved"]}
    for name, reason in reasons.items():
        text = f"{plan.experiment.title_of(name)} was not saved: {reason}."
        yield RunWarning("not-saved", name, text)
    names = {spec.name for spec in plan.experiment.learners.values()}
    for plugin in plugins()[1]:
        if plugin.name in names:
            text = (
                f"the estimator {plugin.name} from {plugin.package} is ignored, because the name "
                f"is already taken. Refer to it as {plugin.path}."
            )
            yield RunWarning("plug-in", plugin.name, text)
    for model in plan.outside:
        text = (
            f"{plan.experiment.title_of(model.name)} is from {model.path.name}. The clips it was "
            "trained on are not recorded."
        )
        yield RunWarning("outside", model.name, text)


def _rare_verdicts(outcome: Outcome) -> Iterator[RunWarning]:
    """Yield a warning for each model that rarely predicts the positive class of a test set."""
    experiment = outcome.plan.experiment
    learners = experiment.learners
    guesses = {name for name, spec in learners.items() if find_entry(spec.name).before_balancing}
    table = outcome.predictions
    for task in outcome.plan.tests:
        if not task.is_binary:
            continue
        for model, own in split_by(table[table["test"] == task.key], "model").items():
            if model in guesses:
                continue
            labels, called = own["label"], int(called_of(own).sum())
            if called < RARE * labels.sum():
                text = (
                    f"{experiment.title_of(model)} predicts {task.classes[1].title} for "
                    f"{called:,} of {len(labels):,} test clips, but {labels.sum():,} have this "
                    "label. Look at AUROC rather than F1. "
                    'balance = "weights", or threshold = "validation" for this estimator, may help.'
                )
                yield RunWarning("rare-verdicts", model, text)


def _balance_warnings(experiment: Experiment) -> Iterator[RunWarning]:
    """Yield warnings about estimators that ignore the class weights that the experiment sets."""
    for name, spec in experiment.learners.items() if experiment.balance == "weights" else ():
        with suppress(PluginError):  # each fit reports it
            if class_weight_options(spec) is None:
                text = f'{name} has no class weights, so balance = "weights" has no effect on it.'
                yield RunWarning("balance", name, text)


def describe_plan(plan: Plan) -> str:
    """Describe what would be trained and tested, on which clips, and what would be left out."""
    experiment, films = plan.experiment, plan.films
    counts = plan.fold_counts()
    by_count = group_by(counts, counts.__getitem__).items()
    in_folds = [f"{', '.join(names)} in {counted(count, 'fold')}" for count, names in by_count]
    sizes = span([len(fold.train) for fold in plan.all_folds])
    tested = f"tested: {counted(len(plan.tested_rows), 'clip')}"
    if films.titles:
        names = ", ".join(films.titles.values())
        tested += f" of {counted(films.tested, group_noun(films.by))} ({names})"
    lines = [
        f"{experiment.name}: {experiment.goal}",
        f"{counted(counts.total(), 'fit')}: {'; '.join(in_folds)}, each trained on {sizes} clips",
        *plan_notes(plan),
        tested,
        _describe_zeros(plan),
        *plan.join.brief.lines(),
        *(f"skipped: {skip.task}, {skip.what}: {skip.why}" for skip in plan.skipped),
    ]
    return "\n".join(fill(line, WIDTH, subsequent_indent="  ") for line in lines if line)


def plan_notes(plan: Plan) -> list[str]:
    """Return lines on the plan's choices, such as its folds and protocol."""
    notes = (
        plan.films.note,
        _describe_shared_films(plan),
        plan.division.note,
        _describe_protocol(plan),
        _describe_gap(plan),
        _describe_lacking(plan),
    )
    return [note for note in notes if note]


def _describe_protocol(plan: Plan) -> str:
    experiment, protocol = plan.experiment, PROTOCOLS[plan.division.protocol]
    settings = f"protocol = {as_toml(experiment.protocol)}"
    if experiment.groups:
        settings += f', groups = "{experiment.groups}"'
    text = f"{protocol.title.replace('{group}', plan.films.noun)} ({settings})"
    balance = experiment.balance or protocol.default_balance
    return f'{text}; {BALANCED[balance]} (balance = "{balance}")' if balance else text


def _describe_gap(plan: Plan) -> str:
    """Describe what the gap separates, or why it has no effect; return "" if it is zero."""
    gap, films = plan.experiment.gap, plan.films
    if not gap:
        return ""
    if films.by in ("film", "media") and films.tested and not films.also_trained:
        return f"gap = {gap:g} has no effect: whole {films.noun}s are kept together"
    return f"clips within {gap:g} s of a test clip in the same file are not used in training"


def _describe_shared_films(plan: Plan) -> str:
    """Describe films that have clips in training and in test; return "" if no films do."""
    films = plan.films
    if not films.also_trained:
        return ""
    trained = f"{films.also_trained:,} of {films.tested:,}"
    text = f"{group_noun(films.by)}s with clips in training and in test: {trained}"
    if plan.division.protocol in ("split", "leak-free") and films.tested > 2:
        suffix = ' with split = ""' if plan.experiment.split else ""
        text += f'; to avoid this, set groups = "{films.by}"{suffix}'
    return text


def _describe_lacking(plan: Plan) -> str:
    """Describe the clips that each store lacks; return "" if no clips are missing."""
    return describe_missing(plan.store, [*plan.data.ids, *plan.join.without_features])


def _describe_zeros(plan: Plan) -> str:
    """Describe tested clips whose features are all zero; return "" if there are no such clips."""
    blank = len(plan.blank)
    if not blank:
        return ""
    return (
        f"{blank:,} of {counted(len(plan.tested_rows), 'tested clip')} have features that are all "
        "zero: they have no speech or picture, or could not be read. No model can tell them apart"
    )


def why_untested(plan: Plan, film: str) -> str:
    """Return the reason why a film with clips of the task is not tested."""
    rows, folds = plan.data.groups == film, plan.data.folds
    is_alone = not np.isin(folds[rows], folds[~rows]).any()  # no other film is in its folds
    needed = plan.experiment.min_clips or FILM_CLIPS
    for task in plan.tasks:
        labels = plan.labels_of(task)[rows]
        counts = task.target.count(task, labels).classes.values()
        sizes = dict(zip(task.class_titles, counts, strict=True))
        rarest = min(sizes, key=sizes.__getitem__)
        if plan.division.protocol == "leave-film-out" and sizes[rarest] < needed:
            return f"{counted(sizes[rarest], 'clip')} of {rarest}, below min_clips = {needed}"
        if is_alone and len(sizes) == 2 and not sizes[rarest]:
            return f"no clip of {rarest}"
    return IN_NO_FOLD


def nothing_learnt(plan: Plan, reason: Skipped) -> str:
    """Describe why no fold can be fitted, with a remedy and the number of clips of each class."""
    return (
        f"no model can be trained: {reason.task}, {reason.what}: {reason.why}; {_remedy(plan)}\n"
        f"{class_table(plan, plan.problems[0].train)}"
    )


def _remedy(plan: Plan) -> str:
    experiment, division = plan.experiment, plan.division
    if division.protocol == "leave-film-out":
        keys = "groups and min_clips" if experiment.min_clips is not None else "groups"
        return (
            f"leave-film-out needs three {group_noun(plan.data.grouped_by)}s with clips of each "
            f"class, for training, validation and test. Label more clips{leave_files_out(plan)}; "
            "use an estimator without validation, such as logistic; or draw folds: protocol = "
            f'"split", split = "" and gap = 5 (seconds), without {keys}'
        )
    by_folds = issubclass(PROTOCOLS[division.protocol], ByFolds) and division.protocol != OFFICIAL
    if experiment.gap:
        return f"gap = {experiment.gap:g} removes clips: use a smaller gap, or label more clips"
    if not by_folds or division.last < 3:
        return "label more clips"
    by = f" --by {for_shell(experiment.groups)}" if experiment.groups else ""
    labels = f" --labels {for_shell(plan.labels.name)}" if experiment.labels else ""
    return (
        f"label more clips, or make fewer folds: obygaze manifests split "
        f"{for_shell(experiment.manifest)} --folds 3{by}{labels} --name few --overwrite, and "
        'split = "few" in the experiment'
    )


def leave_files_out(plan: Plan) -> str:
    """Return advice to leave out files instead of films, if enough files have every class."""
    experiment, cells = plan.experiment, plan.manifest.items.column("media")
    if plan.division.protocol != "leave-film-out" or experiment.groups:
        return ""
    files = [cells[plan.manifest.items.row(clip)] for clip in plan.data.ids]
    splitter = LeaveFilmOut(min_clips=experiment.min_clips or FILM_CLIPS)
    able = splitter.eligible(plan.problems[0].train.strata(plan.data), files)
    return ', or leave out files: groups = "media"' if len(able) > 2 else ""


def class_table(plan: Plan, task: Task) -> str:
    """Tabulate the number of clips per class and fold (in leave-film-out: per class and group)."""
    labels, data = task.target.strata(plan.labels_of(task)), plan.data
    head, units = "fold", data.folds
    if plan.division.protocol == "leave-film-out":
        head, units = group_noun(data.grouped_by), data.groups
    names: dict[Any, Any] = plan.file_names if data.grouped_by == "media" else {-1: "none"}
    taking_part = labels >= 0
    units, labels = units[taking_part], labels[taking_part]
    rows = [
        [names.get(unit, unit), *np.bincount(labels[units == unit], minlength=len(task.classes))]
        for unit in np.unique(units).tolist()
    ]
    if len(rows) > MAX_ROWS:
        rows[MAX_ROWS:] = [["...", *("" for _ in task.classes)]]
    return align([head, *task.class_titles], rows)
