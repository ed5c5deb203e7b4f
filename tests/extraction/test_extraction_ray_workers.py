"""How many processes of a Ray cluster do what."""

from __future__ import annotations

import pytest

from obygaze_features.errors import UsageError
from obygaze_features.extraction.ray_actors import WorkerPlan, plan_workers
from obygaze_features.extraction.run import Options


@pytest.mark.parametrize(
    ("cpus", "gpus", "asked", "plan"),
    [
        (8, 0, {}, WorkerPlan(1, 7, 1.0, 0.0, "cpu")),
        (64, 4, {}, WorkerPlan(4, 60, 1.0, 1.0, "cuda")),
        (64, 4, {"device": "cpu"}, WorkerPlan(1, 63, 1.0, 0.0, "cpu")),
        (64, 4, {"ray_gpus": 0.5, "ray_cpus": 0.5}, WorkerPlan(8, 60, 0.5, 0.5, "cuda")),
        (
            64,
            2,
            {"ray_gpus": 0.6},
            WorkerPlan(2, 62, 1.0, 0.6, "cuda"),
        ),
        (64, 1, {"ray_gpus": 0.1}, WorkerPlan(10, 54, 1.0, 0.1, "cuda")),
        (64, 2, {"device": "cuda:0"}, WorkerPlan(2, 62, 1.0, 1.0, "cuda:0")),
        (64, 4, {"ray_gpus": 0}, WorkerPlan(1, 63, 1.0, 0, "cpu")),
        (64, 4, {"ray_forwards": 3, "workers": 5}, WorkerPlan(3, 5, 1.0, 1.0, "cuda")),
        (1, 0, {}, WorkerPlan(1, 1, 1.0, 0.0, "cpu")),
    ],
)
def test_the_cluster_decides_what_the_options_leave_open(cpus, gpus, asked, plan):
    assert plan_workers({"CPU": cpus, "GPU": gpus}, Options(**asked)) == plan


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"device": "cuda", "ray_gpus": 0}, "--device cuda and --ray-gpus 0 contradict"),
        ({"ray_gpus": 2}, "one GPU"),
        ({"ray_gpus": 0.0001}, "a share such as 0.5"),
        ({"device": "cuda:1"}, "Give --device cuda"),
    ],
)
def test_gpus_that_would_not_be_used_are_refused(asked, reason):
    with pytest.raises(UsageError, match=reason):
        plan_workers({"CPU": 64, "GPU": 4}, Options(**asked))
