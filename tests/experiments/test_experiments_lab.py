"""What a lab's own question needs of an experiment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.metrics import f1_score, roc_auc_score

import obygaze_models as om
from tests.experiments.conftest import MakeRun
from tests.kit.run import World


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
    run = make_run("cut", estimators=("logistic", CUT), protocol="leak-free", balance="none",
                   train_negatives=("EN", "HN", "NS"), test_negatives=())  # fmt: skip
    plain, cut = ([f for f in run.predictions() if f.model == name] for name in ("logistic", "cut"))
    saved = [row for row in run.models() if row["model"] == "cut"]
    assert run.record.cuts == {"cut": [row["cut"] for row in saved]}
    for before, after, row, fit in zip(plain, cut, saved, run.record.fits, strict=True):
        p, t = before.probabilities, row["cut"]
        np.testing.assert_allclose(after.probabilities, p * (1 - t) / (p + t - 2 * p * t))
        areas = [roc_auc_score(f.labels, f.probabilities) for f in (before, after)]
        assert areas[0] == areas[1]
        ids = world.clips(*world.levels, folds=[int(fit.name.removeprefix("validation fold "))])
        truth = np.isin(ids, world.clips("S"))
        model, about = om.load_model(row["folder"])
        raw = model.predict_proba(np.stack([world.rows[clip] for clip in ids]))[:, 1]
        best = max(f1_score(truth, raw > other) for other in [0, *raw])
        called = np.array(om.predict(row["folder"], world.store, ids=ids).predicted) == "S"
        assert f1_score(truth, called) == best
        assert {*ids} <= {*about["seen"]}
    assert sum(f.called.sum() for f in cut) > sum(f.called.sum() for f in plain)
