"""A protocol, a metric and a table of one's own: each defined once, and shown everywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss

import obygaze_models as om
from obygaze_models.data.protocols import PROTOCOLS, LeakFree, protocol
from obygaze_models.reproduce.context import TARGETS, target
from obygaze_models.reproduce.render import Artifacts, Block, Line, Table, Value
from obygaze_models.scoring.metrics import METRICS, Metric
from tests.conftest import run_obygaze


def brier(labels, probabilities, weights):
    return weights @ np.square(probabilities - labels) / weights.sum(axis=1)


@pytest.fixture
def own(monkeypatch):
    """They are in these tables for the test alone."""
    for table in (PROTOCOLS, METRICS, TARGETS):
        for name, entry in table.items():
            monkeypatch.setitem(table, name, entry)
    known = [dict(table) for table in (PROTOCOLS, METRICS, TARGETS)]

    @protocol("first-fold", "First fold: one fit, for a look", "a look", balance="none")
    class FirstFold(LeakFree):
        def make_folds(self, y, tests, *, groups=None):
            return super().make_folds(y, tests)[:1]

    METRICS["brier"] = Metric(
        "Brier", "Brier score", "the mean square of what is missing to certainty",
        binary=True, lower_is_better=True, compute=brier,
    )  # fmt: skip

    @target("clips", trains=False)
    def clips(context):
        line = Line("clips", "ours", {"all": Value(len(context.manifest))})
        return Artifacts([Table("clips", "Clips", ["all"], [Block("", "", "count", [line])])])

    yield
    for table, before in zip((PROTOCOLS, METRICS, TARGETS), known, strict=True):
        table.clear()
        table.update(before)


def test_what_is_defined_once_is_run_compared_and_shown(own, experiment, tmp_path):
    chosen = replace(experiment, protocol="first-fold", estimators=("logistic", "knn"))
    run = om.run_experiment(chosen, tmp_path / "run")
    record, [fit, *_] = run.record, run.predictions()
    assert (record.protocol, record.balance, record.fit_count) == ("first-fold", "none", 1)
    scores = record.scores[0]
    assert scores.mean["brier"] == pytest.approx(brier_score_loss(fit.labels, fit.probabilities))
    low, high = scores.interval["brier"]
    assert low <= scores.mean["brier"] <= high
    page = om.report(run, tmp_path / "page.html").read_text()
    for text in ("First fold: one fit, for a look", "Brier", "what is missing to certainty"):
        assert text in page, text
    assert om.load_run(tmp_path / "run").predictions()[0].ids == fit.ids
    result = run_obygaze("models", "compare", run.folder, "--metric", "brier")
    assert "; Brier\n" in result.stdout
    assert "brier" in run_obygaze("models", "compare", "--help").stdout


def test_runs_that_are_older_than_a_metric_are_read(experiment, tmp_path, request):
    """As a release that adds a metric must read its users' runs."""
    om.run_experiment(replace(experiment, estimators=("knn",)), tmp_path / "run")
    request.getfixturevalue("own")
    assert "Brier" not in om.report(tmp_path / "run", tmp_path / "page.html").read_text()
    assert om.load_run(tmp_path / "run").record.scores[0].mean["f1"] is not None


def test_a_run_of_an_unknown_protocol_is_one_line(own, experiment, tmp_path):
    chosen = replace(experiment, protocol="first-fold", estimators=("knn",))
    run = om.run_experiment(chosen, tmp_path / "run")
    del PROTOCOLS["first-fold"]  # as in another process
    result = run_obygaze("report", run.folder, "-o", tmp_path / "page.html")
    assert (result.exit_code, "unknown protocol 'first-fold'" in result.stderr) == (1, True)


def test_a_table_is_made_and_named_in_help(own, world, tmp_path):
    made = run_obygaze("reproduce", "clips", "--manifest", world.manifest, "-o", tmp_path / "out")
    assert made.exit_code == 0, made.output
    assert str(len(world.ids)) in (tmp_path / "out/clips.txt").read_text()
    assert "clips" in run_obygaze("reproduce", "--help").stdout
