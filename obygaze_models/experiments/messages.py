"""What limits a run's scores: each said in one place, for the terminal, the page and the tables.

Each message is a `RunWarning`: its kind, what it is about, and a sentence. Those of `run_warnings`
are written into ``run.json``; the others follow from what ``run.json`` counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from obygaze_features.common.text import counted, group_by, join_some
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.audit import audit
from obygaze_features.manifests.items import group_noun
from obygaze_models.data.protocols import find_protocol
from obygaze_models.data.warnings import RunWarning, leak_warning, origin_warnings, unique_warnings
from obygaze_models.estimators.registry import PluginError, find_entry, plugins
from obygaze_models.experiments.division import RELEASED, RELEASED_CONCEPTS
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.fit import class_weight_options
from obygaze_models.experiments.outcome import Outcome
from obygaze_models.experiments.plan import Plan
from obygaze_models.experiments.record import LeakCount, RunRecord, Skipped
from obygaze_models.experiments.summary import describe_cuts, describe_official
from obygaze_models.saved.about import unreliable_concepts

#: So many reasons for skipped fits are named among the warnings; run.json has them all.
SHOWN = 10
RARE = 0.1
"""A model that gives the positive class to fewer than so many of its clips hardly ever does."""
RELEASED_POOLS = ("02_EN_S", "02_HN_S")
"""The split files whose last folds the released networks train on."""

FOLLOWS = {
    "synthetic": "The pipeline works; the scores mean nothing.",
    "leak": "Do not compare these scores with others; Methods counts the clips.",
    "neighbours": "Clips so near are often alike: expect lower scores on other files.",
    "zeros": "They have no reasons.",
    "missing": "Of these clips a model knows the other stores alone.",
    "inner-folds": "What was tuned so may suit the training films more than others.",
    "skipped": "Scores are over fewer fits than planned.",
    "films": "The others have no scores.",
    "unnamed": "They do not count in means over films: they may be of any.",
    "one-film": "No interval can be given: it takes five or more.",
    "also-trained": "Expect lower scores on a film that the model has never seen.",
    "smallest-class": "Macro F1 counts each class alike, weighted F1 each clip.",
    "positives": "F1 and AP depend on this share: compare within one test set.",
    "join": "They are in no score.",
    "one-fit": "How much chance matters in training is unknown; more seeds would tell.",
    "fits-in-turn": "The standard deviation shows how much test sets differ; an interval, how far "
    "the mean can be trusted.",
    "fits-of-one-fold": "The standard deviation shows how much chance matters in training, not how "
    "another test fold would score.",
    "different-items": "Scores of different items are scores of different clips.",
    "different-labels": "The same clip may have another level or other concepts in each.",
    "different-versions": "Small differences between runs may come from these.",
}
"""What follows from a message, by its kind; a page says it beside the message."""


def notes(*texts: str) -> list[RunWarning]:
    """Sentences about how to read a table."""
    return [RunWarning("note", "", text) for text in texts]


def run_warnings(outcome: Outcome) -> list[RunWarning]:
    """What is known once a run is done; or, where nothing was fitted yet, what its plan says."""
    plan = outcome.plan
    return [
        *origin_warnings(plan.manifest.items, plan.store.attributes),
        *leak_warnings(outcome.leak_counts),
        *[RunWarning("neighbours", "", plan.division.near)] * bool(plan.division.near),
        *[RunWarning("zeros", "", f"{plan.zeros}.")] * bool(plan.zeros),
        *[RunWarning("missing", "", f"{plan.missing}.")] * bool(plan.missing),
        *_skipped_warnings(outcome.skipped),
        *(_without_features(plan) if plan.measure else ()),
        *_concept_warnings(plan, outcome.fits),
        *_balance_warnings(plan.experiment),
        *_rare_verdicts(outcome),
        *unique_warnings(outcome.warnings),
        *_model_warnings(plan, outcome.fits),
    ]


def messages_of(record: RunRecord) -> Iterator[RunWarning]:
    """All that limits the scores of a run: its warnings, then what its counts say."""
    yield from leak_warnings(record.leaks)
    yield from (warning for warning in record.warnings if warning.code != "leak")
    if record.films.note:
        yield RunWarning("films", "", f"This {record.films.note}.")
    noun = group_noun(record.films.by)
    if (unnamed := record.films.unnamed) and record.films.tested:
        total = counted(record.films.clips, "test clip")
        yield RunWarning("unnamed", "", f"{unnamed:,} of {total} have no {noun}.")
    if why := record.lacks_interval:
        yield RunWarning("one-film", "", f"{why[0].upper()}{why[1:]}.")
    if (trained := record.films.also_trained) and record.films.tested > 1:
        text = f"Of the {record.films.tested:,} {noun}s in the test sets, {trained:,} have other "
        yield RunWarning("also-trained", "", f"{text}clips in training.")
    for name, test in record.tests.items():
        if test.share is None:
            least = min(test.classes.values())
            text = f"{name}: the smallest class has {least:,} of the {test.clips:,} test clips."
            yield RunWarning("smallest-class", name, text)
        else:
            text = f"{name}: {test.share:.0%} of the {test.clips:,} test clips are positive."
            yield RunWarning("positives", name, text)
    for name, lack, ids in record.join.missing():
        yield RunWarning("join", name, f"{len(ids):,} {lack}.")
    if record.official:
        yield RunWarning("official", "", describe_official(record))
    for text in describe_cuts(record):
        yield RunWarning("cut", "", text)
    if record.fit_count == 1:
        yield RunWarning("one-fit", "", "One fit.")
    elif find_protocol(record.protocol).in_turn:
        yield RunWarning("fits-in-turn", "", f"{record.fit_count:,} fits test different clips.")
    else:
        yield RunWarning("fits-of-one-fold", "", f"{record.fit_count:,} fits share one test fold.")


def table_warnings(record: RunRecord, where: str) -> list[RunWarning]:
    """What a run does not allow a table to conclude; `where` names the rows that are of it."""
    messages = list(messages_of(record))
    warnings = [warning for warning in messages if warning.voids_scores]
    if lost := record.join.without_features:
        text = (
            f"{counted(len(lost), 'labelled clip')} of {record.join.labelled:,} have no features "
            f"in {record.store.name}, such as {', '.join(lost[:3])}."
        )
        warnings.append(RunWarning("no-features", where, f"{where}: {text}"))
    named = [message for message in messages if message.code in ("skipped", "concepts", "leak")]
    return warnings + [RunWarning(m.code, where, f"{where}: {m.text}") for m in named]


def leak_warnings(leaks: Sequence[LeakCount]) -> Iterator[RunWarning]:
    """A warning for each test set of which a fit has used clips."""
    for test, counts in leaks_by_test(leaks).items():
        most = max(leak.train + leak.validation + leak.otherwise for leak in counts)
        clips = f"up to {most:,} of the {counts[0].clips:,} test clips"
        yield leak_warning(test, clips, "the same fit")


def leaks_by_test(leaks: Sequence[LeakCount]) -> dict[str, list[LeakCount]]:
    """Test set -> the leaks of its fits."""
    return group_by(leaks, lambda leak: leak.test)


def released_leaks(manifest: Manifest) -> Iterator[RunWarning]:
    """How many test clips of the released splits are in the others' training pools and runs."""
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
            f"({pool.by_class[positive][0]}) are in the training pool of {train}, and "
            f"{min(clips)} to {max(clips)} ({min(sure)} to {max(sure)}) in the training set of "
            "each of its runs. (Clips without a video count here; they are not scored.)"
        )
        yield RunWarning("leak", test, text)


def _skipped_warnings(skipped: Sequence[Skipped]) -> list[RunWarning]:
    by_reason = group_by(skipped, lambda skip: (skip.task, skip.why))
    warnings = [
        RunWarning("skipped", task, f"{task}, {join_some([s.what for s in own], 3)}: {why}.")
        for (task, why), own in list(by_reason.items())[:SHOWN]
    ]
    if (more := len(by_reason) - SHOWN) > 0:
        warnings.append(RunWarning("skipped", "", f"{more} more, which run.json names."))
    return warnings


def _without_features(plan: Plan) -> Iterator[RunWarning]:
    """Test clips that the official measure would hold against the run."""
    division = plan.division
    absent = plan.join.without_features if division.protocol == "official" else []
    if lost := [clip for clip in absent if division.fold_of.get(clip) == division.last]:
        text = (
            f"{counted(len(lost), 'test clip has', 'test clips have')} no features "
            f"({join_some(lost, 3)}): left out here, and counted against a run file by the "
            "official measure (obygaze models write-run and score-run)."
        )
        yield RunWarning("no-features", "", text)


def _concept_warnings(plan: Plan, fits: Sequence[Mapping[str, Any]]) -> Iterator[RunWarning]:
    """How many concepts bottlenecks could not learn, or learnt badly; and from which file."""
    for name in plan.experiment.learners:
        facts_of_fits = [fit["facts"] for fit in fits if fit["model"] == name]
        unreliable = {name for facts in facts_of_fits for name in unreliable_concepts(facts)}
        skipped = {name for facts in facts_of_fits for name in facts.get("skipped", {})}
        parts = [f"{counted(len(unreliable), 'concept is', 'concepts are')} unreliable"]
        parts = parts * bool(unreliable)
        parts += [f"{counted(len(skipped), 'is', 'are')} left out"] * bool(skipped)
        among = f" in some of {len(facts_of_fits)} fits" if len(facts_of_fits) > 1 else ""
        if parts:
            text = f"{name}: {' and '.join(parts)}{among}; the report names them, and why."
            yield RunWarning("concepts", name, text)
    split = plan.division.split
    bottlenecks = any("concepts" in fit["facts"] for fit in fits)
    if plan.division.protocol == "released" and bottlenecks and split != RELEASED_CONCEPTS:
        text = (
            f"The bottlenecks learnt their concepts from {split}; the authors learnt them from "
            f"{RELEASED_CONCEPTS}: give these an experiment of their own, with that split."
        )
        yield RunWarning("released-concepts", "", text)


def _model_warnings(plan: Plan, fits: Sequence[Mapping[str, Any]]) -> Iterator[RunWarning]:
    """Models that could not be saved, are not what their name says, or are of another's making."""
    reasons = {fit["model"]: fit["not_saved"] for fit in fits if fit["not_saved"]}
    for name, reason in reasons.items():
        text = f"{name} is not among the saved models: {reason}."
        yield RunWarning("not-saved", name, text)
    names = {spec.name for spec in plan.experiment.learners.values()}
    for plugin in plugins()[1]:
        if plugin.name in names:
            text = (
                f"the {plugin.name} of {plugin.package} is ignored: its entry point has the name "
                f"of another; name it {plugin.path}."
            )
            yield RunWarning("plug-in", plugin.name, text)
    for model in plan.outside:
        text = f"{model.name} is from {model.path.name}: which clips it was trained on is not data."
        yield RunWarning("outside", model.name, text)


def _rare_verdicts(outcome: Outcome) -> Iterator[RunWarning]:
    """The models that hardly ever give a test's positive class, though their order may be good."""
    learners = outcome.plan.experiment.learners
    guesses = {name for name, spec in learners.items() if find_entry(spec.name).before_balancing}
    for task in outcome.plan.tests:
        if not task.is_binary:
            continue
        own = [f for f in outcome.predictions if f.test == task.key and f.model not in guesses]
        for model, fits in group_by(own, lambda fit: fit.model).items():
            labels = np.concatenate([fit.labels for fit in fits])
            called = int(np.concatenate([fit.called for fit in fits]).sum())
            if called < RARE * labels.sum():
                text = (
                    f"{model} called {called:,} of {len(labels):,} test clips "
                    f"{task.classes[1].title}, "
                    f"which {labels.sum():,} are: look at its AUROC rather than at F1. "
                    'balance = "weights", or threshold = "validation" in its table, may help.'
                )
                yield RunWarning("rare-verdicts", model, text)


def _balance_warnings(experiment: Experiment) -> Iterator[RunWarning]:
    """The estimators that cannot weigh classes, where the experiment asks for it."""
    for name, spec in experiment.learners.items() if experiment.balance == "weights" else ():
        with suppress(PluginError):  # of which each fit tells
            if class_weight_options(spec) is None:
                text = f'{name} has no class weights: balance = "weights" trains it as "none" does.'
                yield RunWarning("balance", name, text)
