"""Drawn experiments: each ends in an error of one line, or in a run that has a page.

Films, people, levels, concepts and columns have the names of our own columns.
"""

import shutil
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import obygaze_models as om
from obygaze_features.errors import ExperimentError, ObygazeError
from obygaze_features.manifests import Manifest
from tests.conftest import run_obygaze
from tests.kit.files import write
from tests.kit.run import write_experiment, write_store
from tests.kit.world2 import make_world2

#: `make night` draws 2,000 experiments in parts, which workers share; `make test` draws 20.
PARTS = range(1 if settings.default.max_examples == 10 else 8)
DRAWS = 20 if len(PARTS) == 1 else 250
FILMS = ("model", "labels", "film", "fit", "2001")
LEVELS = {"labels": "Calm", "model": "Some", "A+": "test"}
PEOPLE = ("model", "labels")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A world with every sort of column, label set, split, store and table of predictions."""
    folder = tmp_path_factory.mktemp("lab")
    world = make_world2(folder, films=FILMS, levels=LEVELS, people=PEOPLE)
    manifest = Manifest.load(world.manifest)
    rows = range(len(world.ids))
    extra = {"label of model": [""] * len(rows)}
    extra["model"] = [f"label of {row % 4}" if row % 9 else "" for row in rows]
    extra["number"] = [str(row % 7) if row % 5 else "" for row in rows]
    manifest = replace(manifest, items=replace(manifest.items, extra=extra))
    merged = manifest.labels()
    official = [
        replace(merged, name=measure, about={"measure": measure})
        for measure in ("accuracy", "trec_average_precision")
    ]
    three = manifest.split("three")
    two = replace(three, name="official", folds=[fold % 2 for fold in three.folds])
    people = map(manifest.labels, PEOPLE)
    manifest.with_parts(merged, *people, *official, three, two).save(folder / "all")
    zeros = np.zeros(8, np.float32)
    silent = world.rows | dict.fromkeys(world.ids[::6], zeros)
    write_store(folder / "silent.zarr", manifest, silent)
    shares = [f"{clip},0.{row % 10},model" for row, clip in enumerate(world.ids)]
    write(folder / "theirs.csv", "id,probability,model", *shares)
    return folder


CODES = [["A+"], ["labels"], ["model", "labels"], ["Calm", "Some"], ["gone"], []]
CONCEPTS = [["A"], ["smoke, fire", "red vs blue"], "all", ["gone"]]
TASKS = [
    {"positives": ["A+"], "train_negatives": ["labels", "model"]},
    {"positives": ["A+"], "train_negatives": ["labels"], "test_negatives": [["model"]]},
    {"levels": [*LEVELS]},
    {"column": "number"},
    {"concepts": "all"},
]
OTHER_TASKS = {"positives": CODES, "train_negatives": CODES, "levels": CODES, "concepts": CONCEPTS}
PROTOCOLS = ["leave-film-out", "split", "leak-free", "official", "paper", "released"]
VALID = {
    "store": ["silent.zarr", ["toy.zarr", "silent.zarr"]],
    "estimators": [
        [],
        ["majority", "film-prior"],
        ["frame-mil"],
        ["ridge", "knn"],
        ["logistic", {"name": "pcbm-logistic", "bank__C": 0.1}],
        [{"name": "logistic", "as": "labels", "threshold": "validation"}],
    ],
    "predictions": [["theirs.csv"]],
    "labels": [*PEOPLE, "accuracy", "trec_average_precision"],
    "groups": ["media", "model", "label of model", "id"],
    "split": ["three", "official", "clips", ""],
    "protocol": [
        *PROTOCOLS,
        {"name": "leave-film-out", "min_clips": 1},
        {"name": "leave-film-out", "validation_films": 0},
    ],
    "gap": [0, 5.0, 1e9],
    "balance": ["weights", "none"],
    "score": ["auroc", "f1", "spearman"],
    "array": ["frames"],
    "seeds": [[0], [3, 1]],
}
WRONG = (-1, 0, 2.5, 10**9, "x", [], {}, True, [["x"]], {"name": "x"})
OPTIONS = ("min_clips", "validation_films", "gap", "cv", "random_state")


def changes(table, most):
    """Draw some keys with one of their values."""
    entries = [(key, value) for key, values in table.items() for value in values]
    return st.lists(st.sampled_from(entries), max_size=most).map(dict)


INVALID = dict.fromkeys([*VALID, "name", "negatives", "seed"], WRONG) | OTHER_TASKS
INVALID["protocol"] = [
    {"name": name, option: value} for name in PROTOCOLS for option in OPTIONS for value in WRONG
]


@pytest.mark.parametrize("part", PARTS)
@settings(max_examples=DRAWS)
@example(TASKS[0], {"predictions": ["theirs.csv"], "estimators": []}, {})
@example(TASKS[0], {"split": "official", "protocol": "split"}, {})
@example({"concepts": ["A"]}, {}, {})
@given(st.sampled_from(TASKS), changes(VALID, 4), st.one_of(st.just({}), changes(INVALID, 1)))
def test_an_experiment_is_a_line_or_a_run_with_a_page(lab, part, task, valid, invalid):
    keys = {"name": "labels", "store": "toy.zarr", "estimators": ["logistic"], "split": "three"}
    keys |= task | valid | invalid
    output = lab / "run"
    for path in lab.glob("run*"):
        shutil.rmtree(path)
    toml = write_experiment(lab / "e.toml", manifest="all", **keys)
    result = run_obygaze("models", "run", toml, "-o", output)
    if result.exit_code in (1, 2):  # 2 if a name is unknown
        assert isinstance(result.exception, SystemExit), result.exc_info
        *_, error = result.stderr.splitlines()
        assert error.startswith("Error: ")
        assert not output.exists()
        return
    assert result.exit_code in (0, 3), result.exc_info
    run = om.load_run(output)
    assert {*run.models} == {*run.scores()["model"]}
    om.report(run, lab / "page.html", overwrite=True)
    is_alone = pytest.raises(ExperimentError, match="no model to compare")
    with is_alone if len(run.models) == 1 else nullcontext():
        om.compare(run)


ARGUMENTS = {
    **dict.fromkeys(("positives", "levels"), CODES),
    "negatives": [*CODES, "a", "b"],
    "concept": ["A", "smoke, fire", "gone"],
    "split": ["three", "gone"],
    "groups": ["model", "label of model", "gone"],
    "frames": [True, "frame_time"],
}


@settings(max_examples=DRAWS * len(PARTS))
@given(changes(ARGUMENTS, 3))
def test_arguments_of_a_dataset_are_a_line_or_its_classes(lab, arguments):
    try:
        data = om.load_dataset(lab / "all", lab / "toy.zarr", **arguments)
    except ObygazeError as problem:
        [_] = str(problem).splitlines()
        return
    if data.y is None:
        assert not any(map(arguments.get, ("positives", "negatives", "levels", "concept")))
    else:
        assert {*data.y.tolist()} == {*range(len(data.classes))}
