"""What arrays, Python objects and odd options do; each fails until there is a core on arrays."""

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from sklearn.model_selection import GroupKFold, cross_val_score

import obygaze_models as om
from obygaze_features.errors import ExperimentError, ManifestError
from obygaze_features.manifests import LabelScheme, Manifest
from tests.conftest import run_obygaze
from tests.kit.files import csv_rows, refused, write
from tests.kit.run import write_experiment

pytestmark = pytest.mark.xfail(strict=True, reason="A core on arrays")


@pytest.mark.parametrize("negatives", [["EN"], "EN"])
def test_negatives_of_a_concept_are_used_or_refused(marked, negatives):
    with pytest.raises(ExperimentError, match=r"negatives.*EN"):
        om.load_dataset(marked.manifest, marked.store, concept="Look", negatives=negatives)


def test_an_experiment_takes_estimator_objects(experiment, tmp_path):
    models = (om.LinearSVMProbe(C=0.1), {"name": "svm", "as": "named", "C": 0.1})
    run = om.run_experiment(structs.replace(experiment, estimators=models), tmp_path / "run")
    by_model = run.predictions.groupby("model", observed=True)["probability"]
    first, second = (by_model.get_group(name).to_numpy() for name in run.models)
    np.testing.assert_array_equal(first, second)


def test_a_manifest_without_the_concept_is_refused(marked, tmp_path):
    toml = write_experiment(
        tmp_path / "look.toml",
        marked,
        positives=None,
        train_negatives=None,
        concepts=["Look"],
        estimators=["logistic"],
    )
    run_obygaze("models", "train", toml, "-o", tmp_path / "model", code=0)
    manifest = Manifest.load(marked.manifest)
    labels = manifest.labels()
    none = replace(labels, concepts=[()] * len(labels.ids))
    scheme = LabelScheme("levels", manifest.scheme.levels)
    replace(manifest, scheme=scheme).with_parts(none).save(tmp_path / "plain")
    evaluated = run_obygaze(
        "models", "evaluate", tmp_path / "model", marked.store, tmp_path / "plain"
    )
    refused(evaluated, "Look")


@pytest.fixture
def outside(make_run, tmp_path):
    rows = csv_rows(make_run("good").folder / "predictions.csv")
    unique = {(row["id"], row["fit"]): row["probability"] for row in rows}
    lines = [f"{clip},{fit},{value}" for (clip, fit), value in unique.items()]
    return write(tmp_path / "theirs.csv", "id,fit,probability", *lines)


def test_a_run_may_have_only_outside_predictions(world, outside, tmp_path):
    toml = write_experiment(tmp_path / "e.toml", world, estimators=[], predictions=[outside])
    assert "theirs" in run_obygaze("models", "run", toml, "--dry-run", code=0).output
    run_obygaze("models", "run", toml, "-o", tmp_path / "run", code=0)


@pytest.mark.parametrize("option", [{"validation_films": -1}, {"min_clips": 2.5}])
def test_options_of_a_protocol_have_ranges(experiment, option, tmp_path):
    protocol = {"name": "leave-film-out"} | option
    chosen = structs.replace(experiment, split=None, protocol=protocol, estimators=("svm",))
    with pytest.raises(ExperimentError, match=next(iter(option))):
        om.run_experiment(chosen, tmp_path / "run")


def test_a_learning_curve_needs_one_film_or_more(experiment):
    chosen = structs.replace(experiment, estimators=("logistic",))
    with pytest.raises((ExperimentError, ManifestError), match="films"):
        om.learning_curve(chosen, [-1])


def test_a_film_prior_is_cross_validated_by_its_groups(clips):
    films = np.array(clips.data.groups)
    scores = cross_val_score(om.FilmPrior(), clips.X, clips.y, groups=films, cv=GroupKFold(2))
    assert np.isfinite(scores).all()
