"""Several concepts in one fit, against MultiOutputClassifier and against separate fits."""

import json
import re

import numpy as np
import pytest
from msgspec import structs
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from statsmodels.stats.multitest import multipletests

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_models.estimators.each_concept import EachConcept
from obygaze_models.experiments.summary import describe_run
from tests.kit.files import csv_rows, refused
from tests.kit.floats import close
from tests.kit.intervals import cross_validated_p
from tests.kit.run import CONCEPTS


@pytest.fixture(scope="module")
def together(experiment, marked, tmp_path_factory):
    """A run of three concepts in one fit."""
    changed = structs.replace(
        experiment, manifest=str(marked.manifest), store=str(marked.store), target="concepts",
        positives=(), train_negatives=(), test_negatives=(), concepts=CONCEPTS, negatives="b",
        protocol="leave-film-out", split=None, min_clips=1, balance=None, estimators=("logistic",),
    )  # fmt: skip
    return om.run_experiment(changed, tmp_path_factory.mktemp("together") / "run")


def test_complete_labels_equal_scikit_learns_multi_output():
    chance = np.random.default_rng(0)
    X = chance.normal(size=(80, 4))
    Y = (X[:, :3] + chance.normal(size=(80, 3)) > 0).astype(int)
    ours = EachConcept(LogisticRegression()).fit(X, Y)
    reference = MultiOutputClassifier(LogisticRegression()).fit(X, Y)
    expected = np.column_stack([shares[:, 1] for shares in reference.predict_proba(X)])
    assert ours.predict_proba(X) == close(expected)
    assert (ours.predict(X) == reference.predict(X)).all()


def test_each_concept_learns_from_its_own_labels():
    chance = np.random.default_rng(0)
    X = chance.normal(size=(60, 4))
    Y = np.column_stack([(X[:, 0] > 0), np.full(60, -1), np.ones(60)]).astype(int)
    Y[:20, 0] = -1
    model = EachConcept(LogisticRegression()).fit(X, Y)
    alone = LogisticRegression().fit(X[20:], Y[20:, 0]).predict_proba(X)[:, 1]
    assert model.predict_proba(X)[:, 0] == close(alone)
    assert (model.predict_proba(X)[:, 1:] == [0, 1]).all()


def test_one_joint_fit_equals_separate_fits(together, experiment, marked, tmp_path):
    assert len(together.fits()) == 5
    own = structs.replace(together.record.experiment, target="classes", balance="none")
    one_by_one = om.run_experiment(own, tmp_path / "run")
    assert len(one_by_one.fits()) == 15
    keys = ["test", "id"]
    first, second = (run.predictions().set_index(keys)["probability"].sort_index()
                     for run in (together, one_by_one))  # fmt: skip
    assert first.to_dict() == close(second.to_dict())
    assert together.check() == []
    assert om.load_run(together.folder).record == together.record


def test_each_concept_has_a_row_with_holm_adjusted_p_values(together):
    text = describe_run(together).partition("\n\n")[0]
    p_values = [
        cross_validated_p([film["auroc"] - 0.5 for film in scores.groups.values()])
        for scores in together.record.scores
    ]
    expected = multipletests(p_values, method="holm")[1]
    for scores, name, p_value in zip(together.record.scores, CONCEPTS, expected, strict=True):
        [line] = re.findall(rf"^{name} .*", text, re.M)
        assert f"{scores.mean['auroc']:.2f}" in line
        assert line.endswith("< .001" if p_value < 0.0005 else f"{p_value:.3f}")


def test_a_saved_model_names_the_concepts_of_a_clip(together, marked, obygaze, tmp_path):
    folder = together.folder / together.fits()["folder"][0]
    printed = obygaze("models", "predict", folder, marked.store, "-o", tmp_path / "p.csv", code=0)
    count = sum("Look" in row["prediction"] for row in csv_rows(tmp_path / "p.csv"))
    assert f"{count} Look" in printed.stdout
    for row in csv_rows(tmp_path / "p.csv"):
        likely = [name for name in CONCEPTS if float(row[f"probability_{name}"]) > 0.5]
        assert row["prediction"] == "|".join(likely)
    words = ("models", "predict", folder, marked.store, "--json")
    assert {*json.loads(obygaze(*words, code=0).stdout)[0]["probabilities"]} == {*CONCEPTS}
    refused(obygaze("models", "evaluate", folder, marked.store, marked.manifest), "concepts needs")
    page = tmp_path / "page.html"
    obygaze("report", together.folder, "-o", page, code=0)
    assert all(name in page.read_text(encoding="utf-8") for name in CONCEPTS)


def test_estimators_that_learn_concepts_or_read_frames_are_refused(together):
    for name in ("pcbm-tree", "frame-mil", "film-prior"):
        with pytest.raises(ExperimentError, match=f"{name} cannot learn several concepts"):
            structs.replace(together.record.experiment, estimators=(name,)).check()
    with pytest.raises(ExperimentError, match='balance = "undersample" works only for classes'):
        structs.replace(together.record.experiment, balance="undersample").check()
