"""Targets: the columns and names of a task's predictions in files."""

import msgspec
import numpy as np
import pandas as pd
import pytest

from obygaze_models.data.targets import TARGETS, Classes
from obygaze_models.data.tasks import Task, concept_task
from obygaze_models.experiments.scores import (
    average_over_fits,
    called_of,
    format_predictions,
    join_tables,
    read_predictions,
    tabulate,
)
from tests.kit.floats import close

NAMES = {"EN": "Easy Negative", "HN": "Hard Negative", "S": "Sure"}


class Odds(Classes):
    """Two classes, with odds instead of probabilities."""

    key = "odds"

    def columns(self, names):
        return ["odds"]

    def columns_in(self, names):
        return [name for name in names if name == "odds"]

    def to_columns(self, outputs):
        return outputs[:, 1:] / outputs[:, :1]

    def allows(self, values):
        return values >= 0

    def called(self, values):
        return (values > 1).astype(int)


def test_a_custom_target_names_its_prediction_columns(make_run, monkeypatch, tmp_path):
    monkeypatch.setitem(TARGETS, Odds.key, Odds())
    run = make_run("good")
    record = msgspec.structs.replace(
        run.record,
        tasks=[msgspec.structs.replace(task, target_key="odds") for task in run.header.tasks],
    )
    parts = [
        tabulate(record.task(test), model, fit, own["id"].tolist(), own["label"].to_numpy(),
                 np.column_stack([1 - own["probability"], own["probability"]]))
        for (model, test, fit), own in run.predictions.groupby(
            ["model", "test", "fit"], sort=False, observed=True)
    ]  # fmt: skip
    table = join_tables(parts)
    assert list(table.columns) == ["id", "model", "fit", "test", "label", "odds"]
    tests = [record.task(name) for name in record.tests]
    path = tmp_path / "predictions.csv"
    path.write_text(format_predictions(tests, table), encoding="utf-8")
    again = read_predictions(path, record)
    pd.testing.assert_frame_equal(again, table, check_like=True, check_exact=True)
    p = run.predictions.merge(again, on=["id", "model", "fit", "test"])
    chances = p["probability"].to_numpy()
    assert p["odds"].to_numpy() == close(chances / (1 - chances))
    assert called_of(again).tolist() == (again["odds"] > 1).astype(int).tolist()
    rows = again[(again["model"] == "logistic") & (again["test"] == tests[0].key)]
    means = average_over_fits(rows).set_index("id")["odds"]
    assert means.to_dict() == close(rows.groupby("id")["odds"].mean().to_dict())
    path.write_text(path.read_text().replace(path.read_text().split(",")[-1].strip(), "-1"))
    with pytest.raises(Exception, match="damaged"):
        read_predictions(path, record)


def test_a_task_of_an_unknown_target_is_refused_by_name():
    content = msgspec.to_builtins(concept_task(NAMES, "Look")) | {"target_key": "clases"}
    with pytest.raises(msgspec.ValidationError, match="did you mean classes"):
        msgspec.convert(content, Task)
