"""How many processes of a Ray cluster do what."""

from __future__ import annotations

import pytest

from obygaze_features.extraction.engines.ray_plan import Plan, planned

NOTHING = {"forwards": None, "workers": None, "cpus": 1.0, "gpus": None, "device": None}


@pytest.mark.parametrize(
    ("cpus", "gpus", "asked", "plan"),
    [
        (8, 0, {}, Plan(1, 7, 1.0, 0.0, "cpu")),
        (64, 4, {}, Plan(4, 60, 1.0, 1.0, "cuda")),
        (64, 4, {"device": "cpu"}, Plan(1, 63, 1.0, 0.0, "cpu")),
        (64, 4, {"gpus": 0.5, "cpus": 0.5}, Plan(8, 60, 0.5, 0.5, "cuda")),
        (64, 2, {"gpus": 0.6}, Plan(2, 62, 1.0, 0.6, "cuda")),  # no process takes parts of two
        (64, 1, {"gpus": 0.1}, Plan(10, 54, 1.0, 0.1, "cuda")),
        (64, 5, {"gpus": 2}, Plan(2, 62, 1.0, 2, "cuda")),
        (64, 4, {"gpus": 0}, Plan(1, 63, 1.0, 0, "cpu")),
        (64, 4, {"forwards": 3, "workers": 5}, Plan(3, 5, 1.0, 1.0, "cuda")),
        (1, 0, {}, Plan(1, 1, 1.0, 0.0, "cpu")),
    ],
)
def test_what_is_left_open_the_cluster_decides(cpus, gpus, asked, plan):
    assert planned({"CPU": cpus, "GPU": gpus}, **{**NOTHING, **asked}) == plan
