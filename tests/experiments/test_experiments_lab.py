"""What a lab's own question needs of an experiment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import obygaze_models as om


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
