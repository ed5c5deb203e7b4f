"""Predictions from outside take part in scores, reports and comparisons."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_models.experiments.run import run_experiment


@pytest.fixture(scope="module")
def table(finished_run, tmp_path_factory):
    """The predictions of the MLP, as somebody else's."""
    with (finished_run.folder / "predictions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    path = tmp_path_factory.mktemp("outside") / "theirs.csv"
    unique = {(row["id"], row["fit"]): row["probability"] for row in rows}
    lines = [f"{clip},{fit},{value}" for (clip, fit), value in unique.items()]
    path.write_text("\n".join(["id,fit,probability", *lines]) + "\n")
    return path


def test_predictions_are_scored_like_those_of_an_estimator(
    experiment, finished_run, table, tmp_path
):
    changed = replace(experiment, predictions=[table])
    run = run_experiment(changed, tmp_path / "run")
    assert run.record.models == ["mlp", "theirs"]
    scores = {(row.model, row.test): row for row in run.record.scores}
    for of in finished_run.record.scores:
        ours, theirs = scores["mlp", of.test], scores["theirs", of.test]
        assert ours.by_fit == theirs.by_fit == of.by_fit
        assert ours.interval == theirs.interval
    [warning] = run.warnings
    assert (warning.code, warning.subject) == ("outside", "theirs")
    assert [model["model"] for model in run.models()] == ["mlp"] * 9
    [comparison, *_] = om.compare(run).comparisons
    assert comparison.scores["f1"].difference == 0
    page = om.report(run, tmp_path / "page.html")
    assert "theirs" in page.read_text(encoding="utf-8")


def test_predictions_alone_are_enough(experiment, table, tmp_path, obygaze):
    (tmp_path / "alone.toml").write_text(
        f"""
name = "Alone"
manifest = "{experiment.manifest}"
store = "{experiment.store}"
split = "ten"
positives = ["S"]
train_negatives = ["HN"]
test_negatives = [["EN"], ["EN", "HN"]]
estimators = []
"""
    )
    result = obygaze(
        "models", "run", tmp_path / "alone.toml", "-o", tmp_path / "run", "--predictions", table
    )
    assert result.exit_code == 0, result.output
    assert om.load_run(tmp_path / "run").record.models == ["theirs"]
    with pytest.raises(ExperimentError, match="estimators is empty; name one, or give --pred"):
        om.run_experiment(tmp_path / "alone.toml", tmp_path / "none")


def test_one_prediction_for_all_fits(experiment, finished_run, tmp_path):
    clips = {row for fit in finished_run.predictions() for row in fit.ids}
    path = tmp_path / "constant.csv"
    lines = "".join(f"{clip},half,0.5\n" for clip in sorted(clips))
    path.write_text(f"id,model,probability\n{lines}")
    run = run_experiment(replace(experiment, estimators=[], predictions=[path]), tmp_path / "run")
    assert run.record.models == ["half"]
    assert {len(scores.fits) for scores in run.record.scores} == {9}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,fit\na,0\n", "has no column probability; it has id, fit"),
        ("id,probability\na,1.5\n", r"line 2: a probability is 1\.5, not from 0 to 1"),
        ("id,probability\na,nan\n", "line 2: a probability is nan"),
        ("id,fit,probability\na,0,.5\na,0,.5\n", "line 3: a is twice in fit 0"),
        ("id,fit,probability\na,0,.5\n", "theirs has no prediction of tt.* in fit 0"),
        ("id,probability_EN\na,.5\n", "the columns are probability_EN, and HN vs S needs prob"),
        ("id,fit,probability,model\na,0,.5,mlp\n", "two models are called 'mlp'"),
    ],
)
def test_mistakes_are_one_line(experiment, tmp_path, text, message):
    path = tmp_path / "theirs.csv"
    path.write_text(text)
    changed = replace(experiment, estimators=("mlp",), predictions=(path,))
    if "two models" not in message:
        changed = replace(changed, estimators=("majority",))
    with pytest.raises(ExperimentError, match=message) as caught:
        run_experiment(changed, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_fits_without_predictions_are_named(experiment, table, tmp_path):
    rows = [line for line in table.read_text().splitlines() if ",3," not in line]
    path = tmp_path / "part.csv"
    path.write_text("\n".join(rows) + "\n")
    changed = replace(experiment, estimators=("majority",), predictions=(path,))
    run = run_experiment(changed, tmp_path / "run")
    assert [(one.fit, one.why) for one in run.record.skipped] == [
        (3, "part.csv has no predictions of fit 3")
    ]
