"""Runs of every kind, on a small world whose clips show concepts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import convert, to_builtins

from obygaze_features.manifests import LabelSet, Manifest
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.record import RunRecord
from obygaze_models.experiments.run import run_experiment
from obygaze_models.experiments.run_folder import Results, read_results
from tests.report.chromium import find_chromium, open_tab
from tests.world import LEVELS, RECIPE, World, make_world

BOTTLENECKS = (
    {"name": "pcbm-tree", "negatives": "b"},
    {"name": "pcbm-logistic", "negatives": "b"},
)
HYBRID = {"name": "pcbm-hybrid", "negatives": "b"}
SURE = {"positives": ("S",), "split": "ten"}
BOTH = {"test_negatives": (("EN",), ("EN", "HN"))}
EXPERIMENTS = {
    "first": SURE | BOTH | {"train_negatives": ("HN",), "estimators": ("mlp", *BOTTLENECKS)},
    "second": SURE | BOTH | {"train_negatives": ("EN",), "estimators": ("mlp", HYBRID)},
    "films": {
        "positives": ("S",),
        "train_negatives": ("HN",),
        "test_negatives": (("EN", "HN"),),
        "protocol": "leave-film-out",
        "estimators": ("mlp", BOTTLENECKS[1]),
    },
    "concepts": {"concepts": ("Look", "Body"), "split": "ten", "estimators": ("logistic",)},
    "classes": {"levels": ("EN", "HN", "S"), "split": "ten", "estimators": BOTTLENECKS[1:]},
}


@pytest.fixture(scope="session")
def marked(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world whose store says it is of a backbone that the paper has."""
    recipe = replace(RECIPE, backbone=RECIPE.backbone | {"name": "xclip"})
    return make_world(tmp_path_factory.mktemp("marked"), recipe=recipe, marked=True)


@pytest.fixture(scope="session")
def results(marked: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    """A run of each kind, read back."""
    folder = tmp_path_factory.mktemp("report-runs")
    for name, given in EXPERIMENTS.items():
        experiment = Experiment(name, manifest=marked.manifest, store=marked.store, **given)
        run_experiment(experiment, folder / name)
    return {name: read_results(folder / name) for name in EXPERIMENTS}


@pytest.fixture(scope="session")
def tab():
    """A tab of a real browser."""
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("there is no Chromium here; install Debian's package chromium")
    with open_tab(chromium) as opened:
        yield opened


@pytest.fixture(scope="session")
def page_of(tmp_path_factory: pytest.TempPathFactory):
    """Write some HTML where a browser can open it."""
    folder = tmp_path_factory.mktemp("pages")

    def write(html: str, name: str = "page.html") -> Path:
        path = folder / name
        path.write_text(html, encoding="utf-8")
        return path

    return write


def with_record(results: Results, **changes: object) -> Results:
    """The same run with some of its run.json changed."""
    record = convert(to_builtins(results.run.record) | to_builtins(changes), RunRecord)
    run = replace(results.run, record=record)
    return replace(results, run=run)


def as_obygaze12(results: Results) -> Results:
    """The same run, as if it were of the paper's clips: its figures then stand beside."""
    manifest = to_builtins(results.run.record.manifest) | {"name": "obygaze12"}
    return with_record(results, manifest=manifest)


def with_annotators(results: Results, folder: Path) -> Results:
    """The same run, its manifest copied with two annotators, who differ on some clips."""
    chance = np.random.default_rng(7)
    manifest = Manifest.load(results.run.record.experiment["manifest"])
    own = manifest.labels(results.run.record.manifest.labels)
    parts = []
    for number in (1, 2):
        differs = chance.random(len(own)) < 0.2
        levels = [
            str(chance.choice(list(LEVELS))) if other else level
            for level, other in zip(own.levels, differs, strict=True)
        ]
        marks = [() if chance.random() < 0.2 else names for names in own.concepts]
        name = f"annotator{number}"
        parts.append(LabelSet(name, own.ids, levels, marks, about={"annotator": name}))
    manifest.with_parts(labels=parts).save(folder)
    experiment = results.run.record.experiment | {"manifest": str(folder)}
    return with_record(results, experiment=experiment)
