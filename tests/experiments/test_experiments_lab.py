"""What a lab's own question needs of an experiment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest, Split
from tests.conftest import run_obygaze
from tests.experiments.conftest import MakeRun
from tests.kit.run import World, write_experiment


def test_a_model_that_hardly_says_positive_is_told_of(
    experiment: om.Experiment, tmp_path: Path
) -> None:
    prior = {"name": "sklearn.dummy:DummyClassifier", "as": "prior"}
    given = replace(experiment, estimators=[prior, "logistic", "majority"], balance="none",
                    train_negatives=["EN", "HN"], test_negatives=())  # fmt: skip
    run = om.run_experiment(given, tmp_path / "run")
    told = {w.subject: w for w in run.warnings if w.code == "rare-verdicts"}
    calls = {name: sum(int(fit.called.sum()) for fit in run.predictions() if fit.model == name)
             for name in ("prior", "logistic")}  # fmt: skip
    fits = [fit for fit in run.predictions() if fit.model == "prior"]
    clips, positives = sum(len(fit.ids) for fit in fits), sum(fit.labels.sum() for fit in fits)
    assert set(told) == {name for name, called in calls.items() if called < 0.1 * positives}
    text = told["prior"].text
    assert f"called 0 of {clips:,} test clips S, which {positives:,} are" in text
    assert all(f"{key} = " in text for key in ("balance", "threshold"))


LOGISTIC = "obygaze_models.estimators.logistic:LogisticProbe"
#: A search: its best estimator, which is the plain one, is saved.
CUT = {"name": "sklearn.model_selection:GridSearchCV", "as": "cut", "threshold": "validation",
       "estimator": LOGISTIC, "param_grid": {"C": [1.0]}, "cv": 2}  # fmt: skip


def test_validation_clips_choose_the_cut(world: World, make_run: MakeRun) -> None:
    """No cut has a better F1 on them; one half is the cut everywhere, and the order stays."""
    few = {"train_negatives": ("EN", "HN", "NS"), "balance": "none", "test_negatives": ()}
    run = make_run("cut", estimators=("logistic", CUT), protocol="leak-free", **few)
    plain, cut = ([f for f in run.predictions() if f.model == name] for name in ("logistic", "cut"))
    saved = {model["fit"]: model for model in run.models() if model["model"] == "cut"}
    label_of = dict(zip(world.ids, (level == "S" for level in world.levels), strict=True))
    for before, after, fit in zip(plain, cut, run.record.fits, strict=True):
        t = saved[after.fit]["cut"]
        assert (0 < t < 1, t == run.record.cuts["cut"][after.fit]) == (True, True)
        p, q = before.probabilities, after.probabilities
        np.testing.assert_allclose(q, p * (1 - t) / (p * (1 - t) + (1 - p) * t))
        assert ((q > 0.5) == (p > t)).all()
        assert roc_auc_score(after.labels, q) == roc_auc_score(before.labels, p)
        model, about = om.load_model(saved[after.fit]["folder"])
        [held] = [fold for fold in range(9) if fit.name == f"validation fold {fold}"]
        ids = world.clips(*world.levels, folds=[held])
        assert {*ids} <= {*about["seen"]}
        scores = om.predict(saved[after.fit]["folder"], world.store, ids=ids)
        truth = np.array([label_of[clip] for clip in scores.ids])
        raw = model.predict_proba(world.features[[world.ids.index(clip) for clip in scores.ids]])
        best = max(f1_score(truth, raw[:, 1] > s) for s in [0, *raw[:, 1]])
        assert f1_score(truth, np.array(scores.predicted) == "S") == best
        np.testing.assert_allclose(scores.probabilities[:, 1] > 0.5, raw[:, 1] > t)
    assert np.mean([f.called.sum() for f in cut]) > np.mean([f.called.sum() for f in plain])


def test_what_has_no_cut_is_refused(world: World, tmp_path: Path) -> None:
    three = {"positives": None, "train_negatives": None, "levels": ["EN", "HN", "S"]}
    for keys, name, value, fact in (
        (three, "logistic", "validation", "for two classes, and logistic tells 3"),
        ({}, "logistic", 0.3, "must be 'validation' (got 0.3)"),
        ({}, "pcbm-tree", "validation", "learns from validation clips, too"),
    ):
        estimators = [{"name": name, "threshold": value}]
        toml = write_experiment(tmp_path / "e.toml", world, estimators=estimators, **keys)
        with pytest.raises(ExperimentError) as caught:
            om.load_experiment(toml)
        assert fact in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_skipped_fold_is_named_once_and_ends_with_3(world: World, tmp_path: Path) -> None:
    """Though the folds that are left have numbers."""
    ids = world.clips("HN", "S")
    folds = [row // 2 % (3 if world.levels[world.ids.index(clip)] == "S" else 4)
             for row, clip in enumerate(ids)]  # fmt: skip
    Manifest.load(world.manifest).with_parts(splits=[Split("few", ids, folds)]).save(tmp_path / "m")
    toml = write_experiment(tmp_path / "e.toml", world, manifest=tmp_path / "m", split="few",
                            protocol="split", estimators=["majority"])  # fmt: skip
    result = run_obygaze("models", "run", toml, "-o", tmp_path / "run")
    assert (result.exit_code, len(om.load_run(tmp_path / "run").predictions())) == (3, 3)
    assert result.stderr.count("test fold 3") == 1
    assert "1 fit or test was skipped" in result.stderr
