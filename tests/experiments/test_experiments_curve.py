"""A learning curve over films equals a run on these films alone."""

import json

import numpy as np
import pytest
from msgspec import structs
from scipy import stats

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_models.experiments.curve import _restrict
from obygaze_models.experiments.plan import make_plan
from tests.kit.files import refused
from tests.kit.floats import close
from tests.kit.intervals import cross_validated_interval
from tests.kit.run import write_experiment


@pytest.fixture(scope="module")
def by_film(experiment):
    keys = {"protocol": "leave-film-out", "split": None, "min_clips": 1}
    return structs.replace(experiment, estimators=("logistic",), balance="none", **keys)


def test_the_curve_at_all_films_equals_the_run(by_film, tmp_path):
    run = om.run_experiment(by_film, tmp_path / "run")
    curve = om.learning_curve(by_film, [2, 4], draws=2)
    half, full = [point for point in curve.points if point.test == run.record.scores[0].test]
    assert (half.films, full.films) == (2, 4)
    assert full.score.value == close(run.record.scores[0].mean["auroc"])
    assert full.score.interval == close(run.record.scores[0].interval["auroc"])
    assert full.change.value == close(full.score.value - half.score.value)


def test_a_point_averages_draws_by_film_and_then_films(by_film):
    single, double = (om.learning_curve(by_film, [2], draws=draws).points[0] for draws in (1, 2))
    assert single.score.value != double.score.value
    plan = make_plan(by_film)
    test = plan.tests[0].key
    areas = []
    for planned in plan.fits():
        labels, rows = plan.labels_of(plan.tests[0]), planned.fold.tests[test]
        own = []
        for draw in range(2):
            part = _restrict(plan, planned, 2, draw, "none")
            assert len({*plan.data.groups[part.fold.train]}) == 2
            shares = part.fit(plan.data).probabilities(plan.data, rows)[:, 1]
            positive = labels[rows] == 1
            u = stats.mannwhitneyu(shares[positive], shares[~positive]).statistic
            own.append(u / (positive.sum() * (~positive).sum()))
        areas.append(np.mean(own))
    assert double.score.value == close(np.mean(areas))
    expected = cross_validated_interval(areas)
    assert double.score.interval == close(np.clip(expected, 0, 1))


def test_larger_training_sets_contain_smaller_ones(by_film):
    changed = structs.replace(by_film, estimators=("mlp", "film-prior"), balance="undersample")
    plan = make_plan(structs.replace(changed, balance="none"))
    for planned in list(plan.fits())[:3]:
        small, large = (_restrict(plan, planned, size, 0, "undersample") for size in (2, 3))
        groups = plan.data.groups
        films = [{*groups[np.r_[p.fold.train, p.fold.validation]]} for p in (small, large)]
        assert [len(own) for own in films] == [2, 3]
        assert films[0] < films[1]
        labels = plan.labels_of(planned.task)[small.fold.train]
        assert (labels == 0).sum() == (labels == 1).sum()
        assert {*groups[small.fit(plan.data).seen]} <= films[0]


def test_the_command_prints_a_table_and_draws_a_figure(by_film, world, obygaze, tmp_path):
    keys = {"protocol": "leave-film-out", "split": None, "min_clips": 1}
    toml = write_experiment(tmp_path / "e.toml", world, estimators=["logistic"], **keys)
    words = ("models", "curve", toml, "--films", 2, "--films", 4)
    printed = obygaze(*words, "-o", tmp_path / "c.svg", code=0)
    assert "4 films" in (tmp_path / "c.svg").read_text(encoding="utf-8")
    points = json.loads(obygaze(*words, "--json", code=0).stdout)["points"]
    assert all(f"{point['score']['value']:.3f}" in printed.stdout for point in points)
    refused(obygaze("models", "curve", toml, "--films", 15), "15 films", code=1)
    with pytest.raises(ExperimentError, match="cannot learn from 9 films"):
        om.learning_curve(toml, [9])


@pytest.mark.parametrize("estimator", ["logistic", "mlp"])
def test_default_sizes_end_with_the_largest_possible(estimator, by_film):
    changed = structs.replace(by_film, estimators=(estimator,))
    points = om.learning_curve(changed, draws=1).points
    assert {point.films for point in points} == {2, 4}
    with pytest.raises(ExperimentError, match=r"from 5 films .* Choose from 2 to 4"):
        om.learning_curve(changed, [2, 5], draws=1)
