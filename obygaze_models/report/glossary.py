"""For readers who do not know the paper: two sentences, a list of terms, and what to cite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from obygaze_features.common.package import reference_json
from obygaze_models.estimators.registry import describe_estimators
from obygaze_models.experiments.published import estimator_of
from obygaze_models.experiments.summary import metrics_of
from obygaze_models.report.runs import ReportRun
from obygaze_models.scoring.metrics import METRICS

LEVELS = {
    "EN": "none of the concepts is seen",
    "HN": "some concept is seen, but the annotators found no objectification in it",
    "NS": "the annotators were not sure",
    "S": "the annotators were sure of objectification",
}
"""ObyGaze12's levels in its authors' words; the levels of other schemes have only a name."""
FEATURES = {
    "native": "the clip’s one vector, as the backbone itself makes it of its frames",
    "max": "the largest value over a clip’s tokens, number by number",
    "mean": "the mean over a clip’s tokens, number by number",
    "first": "a clip’s first token alone",
}
CONCEPT = "models with concepts measure them, and say by which they decided"
FIT = "one training of a model. A run has several, with other clips held out or drawn"
BOTTLENECK = (
    "post-hoc concept bottleneck model: it decides by the concepts that it measures, so that each "
    "decision can be read"
)


def eyebrow(runs: Sequence[ReportRun]) -> str:
    """What stands above the title: how many runs, or what the only one tells apart."""
    if len(runs) > 1:
        return f"Report of {len(runs)} runs"
    goal = runs[0].record.goal
    train, _, tests = goal.partition(", test on ")
    return train if tests == train else goal


def concept_meanings(levels: Iterable[str]) -> dict[str, str]:
    """A line for each concept of ObyGaze's scheme; none where levels are of another scheme."""
    if set(levels) != LEVELS.keys():
        return {}
    concepts = reference_json("scheme-obygaze.json")["concepts"]
    return {
        entry["name"]: ": ".join(filter(None, [entry["about"], "; ".join(entry["instances"])]))
        for entry in concepts
    }


def about(runs: Sequence[ReportRun]) -> str:
    """What was annotated, and what the models predict; a sentence for each scheme of several."""
    schemes: dict[tuple[str, ...], list[ReportRun]] = {}
    for run in runs:
        schemes.setdefault(tuple(run.record.manifest.levels), []).append(run)
    lines = []
    for same in schemes.values():
        levels = _levels(same)
        names = ", ".join(levels.values())
        several = any(run.kind == "classes" for run in same)
        otherwise = "each of them" if several else "each concept"
        targets = " or ".join(_positives(same, levels)) or otherwise
        if len(schemes) > 1:
            lines.append(f"Label set {same[0].record.manifest.labels}:")
        annotated = f"Annotators gave each clip a level: {names}."
        if levels.keys() == LEVELS.keys():
            annotated = (
                "A film objectifies a person where it shows her or him as a thing to be looked at "
                f"or used. Annotators gave each clip a level of that, from {levels['EN']} to "
                f"{levels['S']}."
            )
        unknown = any(w.code == "unknown-origin" for run in same for w in run.record.warnings)
        source = "features of unknown origin" if unknown else _perceived(same[0])
        lines += [
            annotated,
            f"For each clip a model says how probable it finds {targets}, by {source}.",
        ]
    return " ".join(lines)


def _perceived(run: ReportRun) -> str:
    """What the features of a run are about."""
    features = run.record.features
    if features.backbone.get("family") != "words":
        return "what its frames show"
    return "how much is said in it" if features.array == "count" else "what is said in it"


def glossary(runs: Sequence[ReportRun]) -> list[tuple[str, str]]:
    """The terms that occur on the page, and what they mean."""
    return list(dict(_terms(runs)).items())  # each once


def _terms(runs: Sequence[ReportRun]) -> Iterator[tuple[str, str]]:
    levels = _levels(runs)
    is_obygaze = levels.keys() == LEVELS.keys()
    for code, name in levels.items():
        yield code, f"{name}: {LEVELS[code]}" if is_obygaze else name
    if targets := " or ".join(_positives(runs, levels)):
        others = "the other levels it tells this from are negative"
        yield "positive", f"{targets}: what a model looks for; {others}"
    clips = [clip for run in runs for clip in run.clips.values()]
    senses = {name: s for run in runs for name, s in run.record.manifest.senses.items()}
    if concepts := sorted({name for clip in clips for name in clip.concepts}):
        examples = ", ".join(concepts[:3])
        yield "concept", f"what annotators marked in a clip, such as {examples}; {CONCEPT}"
        meanings = concept_meanings(levels)
        for name in concepts:
            if text := ". ".join(filter(None, [senses.get(name), meanings.get(name)])):
                yield name, text
    yield "fit", FIT
    for run in runs:
        for metric in map(METRICS.__getitem__, metrics_of(run.record)):
            yield metric.title, metric.sentence
    for run in runs:
        for name in (run.record.experiment["array"], run.record.experiment["pooling"]):
            if name in FEATURES:
                yield name, FEATURES[name]
    titles = describe_estimators()
    used = {model: estimator_of(run.record, model) for run in runs for model in run.record.models}
    if any(estimator.startswith("pcbm") for estimator in used.values()):
        yield "PCBM", BOTTLENECK
    for model, estimator in used.items():
        if estimator in titles:
            title = titles[estimator]["title"].rstrip(".")
            yield model, title[:1].lower() + title[1:]


def citation(runs: Sequence[ReportRun]) -> str:
    """Each source once; the paper of ObyGaze's task only where its levels are what is learned."""
    records = [run.record for run in runs]
    sources = [
        record.manifest.citation or f"{record.manifest.name}, whose manifest has no citation"
        for record in records
    ]
    if any(record.manifest.levels.keys() == LEVELS.keys() for record in records):
        sources.append(reference_json("sources.json")["obygaze12"]["citation"])
    sources += [f"obygaze {record.versions['obygaze']}" for record in records]
    return "; ".join(dict.fromkeys(source.rstrip(". ") for source in sources))


def _levels(runs: Sequence[ReportRun]) -> dict[str, str]:
    return {code: name for run in runs for code, name in run.record.manifest.levels.items()}


def _positives(runs: Sequence[ReportRun], levels: Mapping[str, str]) -> Iterator[str]:
    positives = [code for run in runs for code in run.record.experiment["positives"]]
    for code in dict.fromkeys(positives):
        yield f"{code} ({levels[code]})" if levels.get(code, code) != code else code
