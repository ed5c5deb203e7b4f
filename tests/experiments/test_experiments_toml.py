from dataclasses import replace

import pytest

from obygaze_features.errors import ExperimentError
from obygaze_models.experiments.experiment import Experiment, load_experiment

FILE = """
name = "Sure against Hard Negatives"
manifest = "../manifests/obygaze12"
store = "/data/xclip.zarr"
split = "leak-free"
positives = ["S"]
train_negatives = ["HN"]
"""


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "experiment.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_an_experiment_from_a_file(written):
    path = written(FILE + 'test_negatives = [["EN"], ["EN", "HN"]]\nseed = 3')
    experiment = load_experiment(path)
    assert experiment.manifest == path.parent / "../manifests/obygaze12"
    assert experiment.store.as_posix() == "/data/xclip.zarr"
    assert experiment.train_task.name == "HN vs S"
    assert [task.name for task in experiment.test_tasks] == ["EN vs S", "EN+HN vs S"]
    assert (experiment.labels, experiment.array, experiment.estimators) == (
        None,
        "native",
        ("mlp",),
    )
    assert experiment.seed == 3


def test_one_test_set_needs_no_list_of_lists(written):
    experiment = load_experiment(written(FILE + 'test_negatives = ["EN", "HN"]'))
    assert [task.name for task in experiment.test_tasks] == ["EN+HN vs S"]


def test_without_test_negatives_tests_what_it_trains(written):
    experiment = load_experiment(written(FILE))
    assert experiment.test_tasks == [experiment.train_task]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sead = 1", r"experiment\.toml: unknown key 'sead'; did you mean seed\?"),
        ("colour = 1", "unknown key 'colour'; known are name, manifest"),
        ('estimators = ["mpl"]', r"unknown estimator 'mpl'; did you mean mlp\?"),
        ("seed = -1", "seed is -1, where a whole number from 0 up is meant"),
        ("seed = true", "seed is True"),
        ('labels = ["a"]', "labels is .*, where the name of a label set is meant"),
        ("test_negatives = []", r"test_negatives is \[\], where a list of lists"),
        ('test_negatives = [["S"]]', "level S is both positive and negative"),
        ('test_negatives = [["EN"], ["EN"]]', "the same test set twice"),
        ("seed = ?", r"is not valid TOML: .* line 8"),
    ],
)
def test_mistakes_are_one_line(written, line, message):
    with pytest.raises(ExperimentError, match=message) as caught:
        load_experiment(written(FILE + line))
    assert "\n" not in str(caught.value)


def test_says_what_is_missing(written):
    with pytest.raises(ExperimentError, match=r'positives is missing; add positives = .*"S"'):
        load_experiment(written(FILE.replace('positives = ["S"]', "")))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ExperimentError, match=r"no\.toml cannot be read: No such file"):
        load_experiment(tmp_path / "no.toml")


def test_an_experiment_made_in_python_is_checked_alike(written):
    experiment = load_experiment(written(FILE))
    assert isinstance(experiment, Experiment)
    with pytest.raises(ExperimentError, match="unknown estimator"):
        replace(experiment, estimators=("forest",))
