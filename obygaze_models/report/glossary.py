"""A page's short introduction, its glossary, and its sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from obygaze_features.common.package import obygaze_version, reference_json
from obygaze_features.common.text import counted, group_by
from obygaze_models.estimators.registry import describe_estimators
from obygaze_models.experiments.summary import metrics_of
from obygaze_models.experiments.tables import ManifestRecord
from obygaze_models.report.annotation import Source, labelled_by
from obygaze_models.report.runs import ReportRun, senses_of
from obygaze_models.scoring.metrics import METRICS

LEVELS = {
    "EN": "none of the concepts is seen",
    "HN": "some concept is seen, but the annotators found no objectification in it",
    "NS": "the annotators were not sure",
    "S": "the annotators were sure of objectification",
}
"""The definitions of ObyGaze12's levels by its authors. Levels of other schemes have only names."""
FEATURES = {
    "native": "the clip’s single vector, as the backbone computes it",
    "max": "for each dimension, the largest value over a clip’s tokens",
    "mean": "for each dimension, the mean over a clip’s tokens",
    "first": "a clip’s first token only",
}
CONCEPT = "; concept models measure concepts and show which concepts decided"
FIT = "one training of a model. A run has several fits, with different clips held out or sampled"
KAPPA = (
    "Cohen’s kappa: how much more often two annotators agree than by chance, given how often each "
    "uses a label. 1: always; 0: as often as by chance; below 0: less often"
)
GAMMA = (
    "how far two annotators agree on the levels of a film; levels further apart count as "
    "greater disagreement. 1: always the same level; 0: no better than a random order"
)
LOG_ODDS = (
    "the logarithm of the odds of a level. At 0, both answers are equally likely. Each increase "
    "of 1 multiplies the odds by 2.7. The log-odds are a sum with a part for each concept or store"
)
BOTTLENECK = (
    "post-hoc concept bottleneck model: it measures concepts and decides only by these "
    "measurements, so that each decision can be inspected"
)


def eyebrow(sources: Sequence[Source]) -> str:
    """Return the line above the title: the number of runs, the only run's task, or the manifest."""
    if len(sources) > 1:
        return f"Report of {len(sources)} runs on {sources[0].about.name}"
    if not isinstance(sources[0], ReportRun):
        return f"Annotations: {sources[0].name}"
    record = sources[0].record
    if sources[0].kind == "concepts":
        return ", ".join(record.header.learned)
    train = record.task(record.header.learned[0]).title
    tests = ", ".join(record.task(test).title for test in record.tests)
    return train if tests == train else f"{train}, test on {tests}"


def page_title(runs: Sequence[ReportRun], source: Source) -> str:
    """Return the title: the only run's name, or a phrase with the number of films or clips."""
    if len(runs) == 1:
        return runs[0].name
    films = len({clip.film for clip in source.clips.values() if clip.film})
    subject = counted(films, "film") if films else counted(len(source.clips), "clip")
    if runs:
        return f"What models find in {subject}"
    if labelled_by(source) == "annotators":
        return f"What annotators marked in {subject}"
    return f"Labels of {subject}"


def concept_meanings(about: ManifestRecord) -> dict[str, str]:
    """Return the meaning of each concept in ObyGaze's scheme; {} if the scheme is not ObyGaze's."""
    if not about.is_obygaze:
        return {}
    concepts = reference_json("scheme-obygaze.json")["concepts"]
    return {
        entry["name"]: ": ".join(filter(None, [entry["about"], "; ".join(entry["instances"])]))
        for entry in concepts
    }


def about(runs: Sequence[Source]) -> str:
    """Describe the annotation and the models' predictions, for each scheme of levels."""
    schemes = group_by(runs, lambda run: tuple(run.about.levels.items()))
    lines = []
    for same in schemes.values():
        levels = _levels(same)
        names, noun = ", ".join(levels.values()), same[0].noun.removesuffix("s")
        several = any(run.kind == "classes" for run in same)
        otherwise = "with each level" if several else "with each concept"
        targets = " or ".join(_positives(same, levels)) or otherwise
        if len(schemes) > 1:
            lines.append(f"Label set {same[0].about.labels}:")
        annotated = f"Each {noun} has a level: {names}."
        if same[0].about.is_obygaze:
            annotated = (
                "A film objectifies people where it shows them as things to be looked at "
                f"or used. Each {noun} is rated from {levels['EN']} to {levels['S']}."
            )
        lines.append(annotated)
        if learned := [run for run in same if isinstance(run, ReportRun)]:
            codes = {warning.code for run in learned for warning in run.record.warnings}
            source = f"From the {perceived(learned[0])} alone"
            if "unknown-origin" in codes:
                source = "From features of unknown origin"
            clip = same[0].noun.removesuffix("s")
            lines.append(
                f"{source}, a model estimates how likely each {clip} is to be marked {targets}."
            )
    return " ".join(lines)


def perceived(run: ReportRun) -> str:
    """Return a noun for the content that the features of a run describe, such as "dialogue"."""
    if run.reads.startswith("number of words"):
        return "amount of dialogue"
    names = {"words": "dialogue", "sound": "sound", "frames": "frames"}
    return " and ".join(names[sense] for sense in senses_of(run.record))


def glossary(
    runs: Sequence[Source], *, kappa: bool = False, gamma: bool = False
) -> list[tuple[str, str]]:
    """Return the terms that occur on the page, with their meanings."""
    agreement = {"kappa": KAPPA} if kappa else {}
    agreement |= {"gamma": GAMMA} if gamma else {}
    # Duplicates have the same term and meaning. A level and a concept may share a name.
    return list(dict.fromkeys([*_terms(runs), *agreement.items()]))


def _terms(sources: Sequence[Source]) -> Iterator[tuple[str, str]]:
    levels = _levels(sources)
    yield from _level_terms(levels, sources)
    runs = [source for source in sources if isinstance(source, ReportRun)]
    if targets := " or ".join(_positives(runs, levels)):
        rest = "the other levels in the comparison are negative"
        yield "positive", f"{targets}: what a model looks for; {rest}"
    yield from _concept_terms(sources, by_models=CONCEPT if runs else "")
    if runs:
        yield "fit", FIT
    if any(results.gives_reasons for run in runs for results in run.models):
        yield "log-odds", LOG_ODDS
    for run in runs:
        for metric in map(METRICS.__getitem__, metrics_of(run.run)):
            yield metric.title, metric.sentence
    for run in runs:
        array = run.record.experiment.array
        if array in FEATURES:
            yield array, FEATURES[array]
    yield from _model_terms(runs)


def _level_terms(levels: Mapping[str, str], sources: Sequence[Source]) -> Iterator[tuple[str, str]]:
    is_obygaze = all(source.about.is_obygaze for source in sources)
    for code, name in levels.items():
        if code != name:
            yield code, f"{name}: {LEVELS[code]}" if is_obygaze else name


def _concept_terms(sources: Sequence[Source], *, by_models: str) -> Iterator[tuple[str, str]]:
    clips = [clip for source in sources for clip in source.clips.values()]
    concepts = sorted({name for clip in clips for name in clip.concepts})
    if not concepts:
        return
    examples = ", ".join(concepts[:3])
    yield "concept", f"what is marked in a clip, such as {examples}{by_models}"
    senses = {name: sense for source in sources for name, sense in source.about.senses.items()}
    is_obygaze = all(source.about.is_obygaze for source in sources)
    meanings = concept_meanings(sources[0].about) if is_obygaze else {}
    for name in concepts:
        if text := ". ".join(filter(None, [senses.get(name), meanings.get(name)])):
            yield name, text


def _model_terms(runs: Sequence[ReportRun]) -> Iterator[tuple[str, str]]:
    titles = describe_estimators()
    used = {
        name: learner.name
        for run in runs
        for name, learner in run.record.experiment.learners.items()
    }
    if any(estimator.startswith("pcbm") for estimator in used.values()):
        yield "PCBM", BOTTLENECK
    for model, estimator in used.items():
        if estimator in titles:
            title = titles[estimator]["title"].rstrip(".")
            yield model, title[:1].lower() + title[1:]


def citation(sources: Sequence[Source]) -> str:
    """Return the sources to cite. ObyGaze's paper is included only if its levels are used."""
    manifests = [source.about for source in sources]
    cited = [m.citation or f"{m.name}, whose manifest has no citation" for m in manifests]
    if any(manifest.is_obygaze for manifest in manifests):
        cited.append(reference_json("sources.json")["obygaze12"]["citation"])
    runs = [source for source in sources if isinstance(source, ReportRun)]
    versions = [run.record.header.versions["obygaze"] for run in runs] or [obygaze_version()]
    cited += [f"obygaze {version}" for version in versions]
    return "; ".join(dict.fromkeys(source.rstrip(". ") for source in cited))


def _levels(runs: Sequence[Source]) -> dict[str, str]:
    return {code: name for run in runs for code, name in run.about.levels.items()}


def _positives(runs: Sequence[Source], levels: Mapping[str, str]) -> Iterator[str]:
    learned = [run for run in runs if isinstance(run, ReportRun) and run.kind == "levels"]
    positives = [code for run in learned for code in run.positives]
    for code in dict.fromkeys(positives):
        yield levels.get(code, code)
