"""What a page is about, for who has not read the paper: two sentences, and its terms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from obygaze_models.estimators.registry import describe_estimators
from obygaze_models.experiments.summary import metrics_of
from obygaze_models.metrics import METRICS
from obygaze_models.published import estimator_of
from obygaze_models.report.numbers import Html, html, joined
from obygaze_models.report.shown import Shown

__all__ = ["about", "glossary"]

LEVELS = {
    "EN": "none of the concepts is seen",
    "HN": "some concept is seen, but the annotators found no objectification in it",
    "NS": "the annotators were not sure",
    "S": "the annotators were sure of objectification",
}
"""As the authors of ObyGaze12 gave them; another scheme's levels speak for themselves."""
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


def about(runs: Sequence[Shown]) -> Html:
    """What was annotated, and what the models look for: of each scheme of levels."""
    schemes: dict[tuple[str, ...], list[Shown]] = {}
    for run in runs:
        schemes.setdefault(tuple(run.record.manifest.levels), []).append(run)
    if len(schemes) == 1:
        return _about(runs)
    return joined([_about(of, of[0].record.manifest.labels) for of in schemes.values()], " ")


def _about(runs: Sequence[Shown], labels: str = "") -> Html:
    """Two sentences; or one, that begins with the label set."""
    levels = _levels(runs)
    if levels.keys() == LEVELS.keys():
        saw = html(
            "A film objectifies a person where it shows her or him as a thing to be looked at or "
            "used. Annotators gave each clip a level of that, from {} to {}.",
            levels["EN"],
            levels["S"],
        )
    else:
        saw = html("Annotators gave each clip a level: {}.", ", ".join(levels.values()))
    wanted = list(_positives(runs, levels))
    if not wanted:
        wanted = ["each of them"] if any(_of_levels(run) for run in runs) else ["each concept"]
    if labels:
        return html(
            "Label set {}: annotators gave each clip a level, {}, and a model says how probable it "
            "finds {}.",
            labels,
            ", ".join(levels.values()),
            " or ".join(wanted),
        )
    looks = html(
        "For each clip a model says how probable it finds {}, by what its frames show.",
        " or ".join(wanted),
    )
    return html("{} {}", saw, looks)


def glossary(runs: Sequence[Shown]) -> list[tuple[str, str]]:
    """The terms that occur on the page, and what they mean."""
    return list(dict(_terms(runs)).items())


def _terms(runs: Sequence[Shown]) -> Iterator[tuple[str, str]]:
    levels = _levels(runs)
    ours = levels.keys() == LEVELS.keys()
    for code, name in levels.items():
        yield code, f"{name}: {LEVELS[code]}" if ours else name
    if wanted := list(_positives(runs, levels)):
        told = (
            f"{' or '.join(wanted)}: what a model looks for; the other levels it tells this from "
        )
        yield "positive", f"{told}are negative"
    if named := sorted(
        {name for run in runs for one in run.clips.values() for name in one.concepts}
    ):
        some = ", ".join(named[:3])
        yield "concept", f"what annotators marked in a clip, such as {some}; {CONCEPT}"
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


def _levels(runs: Sequence[Shown]) -> dict[str, str]:
    return {code: name for run in runs for code, name in run.record.manifest.levels.items()}


def _of_levels(run: Shown) -> bool:
    """Whether it tells levels apart without a positive one."""
    return bool(run.record.experiment["levels"])


def _positives(runs: Sequence[Shown], levels: Mapping[str, str]) -> Iterator[str]:
    for code in dict.fromkeys(one for run in runs for one in run.record.experiment["positives"]):
        yield f"{code} ({levels[code]})" if levels.get(code, code) != code else code
