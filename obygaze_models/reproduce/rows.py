"""The runs that the rows of Tables 2 and 5 are of: networks and bottlenecks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from obygaze_features.common.package import reference_json
from obygaze_features.errors import ManifestError
from obygaze_models.experiments.plan import RELEASED_CONCEPTS
from obygaze_models.experiments.run_folder import Results
from obygaze_models.reproduce.bench import Bench, Feature, Setting

__all__ = [
    "COLUMNS",
    "READINGS",
    "TESTED",
    "Row",
    "Trained",
    "bottleneck_rows",
    "bottlenecks",
    "network_row",
]

Levels = tuple[str, ...]
EASY: Levels = ("EN",)
HARD: Levels = ("HN",)
#: Column -> the negatives of training, and of the test; Sure clips are positive in both.
COLUMNS: dict[str, tuple[Levels, Levels]] = {
    "EN-S/EN-S": (EASY, EASY),
    "HN-S/EN-S": (HARD, EASY),
    "EN-S/ENHN-S": (EASY, (*EASY, *HARD)),
    "HN-S/ENHN-S": (HARD, (*EASY, *HARD)),
}
TESTED: tuple[Levels, ...] = (EASY, (*EASY, *HARD))
READINGS = ("text", "code")
HEADS = {"tree": ("pcbm-tree", "PCBM-DT"), "logistic": ("pcbm-logistic", "PCBM-LR")}


class Trained(NamedTuple):
    """A run, and what the model of a row is called in it."""

    run: Results
    model: str


class Row(NamedTuple):
    """A row's title, the paper's row if it may stand beneath, and its runs by their negatives."""

    title: str
    published: str | None
    trained: Mapping[Levels, Trained]


def network_row(
    bench: Bench, setting: Setting, feature: Feature, title: str, published: str
) -> Row:
    """The network on one feature: the released code's by its protocol, else the text's.

    The text's is always trained, so that protocols can be held against each other.
    """
    models = ("mlp-author", "mlp") if setting.protocol == "released" else ("mlp",)
    trained = {
        negatives: Trained(
            bench.run(
                setting,
                feature,
                negatives[0],
                name=f"{title}: {negatives[0]} against S, {setting.key}",
                positives=("S",),
                train_negatives=negatives,
                test_negatives=TESTED,
                estimators=models,
            ),
            models[0],
        )
        for negatives in (EASY, HARD)
    }
    return Row(title, published if bench.published(feature.store) else None, trained)


def bottleneck_rows(bench: Bench, setting: Setting, feature: Feature) -> list[Row] | str:
    """Both heads in both readings; a text says why they are not to be had."""
    runs = bottlenecks(bench, setting, feature)
    if isinstance(runs, str):
        return runs
    said = reference_json("readings.json")
    return [
        Row(
            f"{short}, {said[reading]['title']}",
            short if bench.published(feature.store) else None,
            {key: Trained(run, f"{short}, {reading}") for key, run in runs.items()},
        )
        for _, short in HEADS.values()
        for reading in READINGS
    ]


def bottlenecks(bench: Bench, setting: Setting, feature: Feature) -> dict[Levels, Results] | str:
    """By training negatives the run, with all heads and readings; or why there is none."""
    try:
        estimators = {
            negatives: tuple(
                {**_options(bench, reading, head, negatives[0]), "as": f"{short}, {reading}"}
                for reading in READINGS
                for head, (_, short) in HEADS.items()
            )
            for negatives in (EASY, HARD)
        }
    except ManifestError as problem:
        return f"the bottlenecks are of the paper's eight concepts, and there is an {problem}"
    return {
        negatives: bench.run(
            setting,
            feature,
            f"pcbm-{negatives[0]}",
            name=f"Bottlenecks on X-CLIP: {negatives[0]} against S, {setting.key}",
            positives=("S",),
            train_negatives=negatives,
            test_negatives=TESTED,
            split=RELEASED_CONCEPTS if setting.protocol == "released" else None,
            estimators=of,
        )
        for negatives, of in estimators.items()
    }


def _options(bench: Bench, reading: str, head: str, negatives: str) -> dict[str, Any]:
    """An estimator as one reading of the paper has it; see manifests/readings.json."""
    said = reference_json("readings.json")[reading]
    options = {"name": HEADS[head][0], **said["concepts"], **said[head][negatives]}
    if "concept_C" in said:
        options["concept_C"] = {
            bench.read.scheme.concept(name): C for name, C in said["concept_C"].items()
        }
    return options
