from dataclasses import replace
from pathlib import Path

import pytest

from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import obygaze_scheme
from obygaze_models.decoding import read_lines
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


def names(experiment):
    """What is trained, and on what it is tested."""
    problems = experiment.problems(obygaze_scheme())
    return [(one.train.name, [test.name for test in one.tests]) for one in problems]


def test_an_experiment_from_a_file(written):
    path = written(FILE + 'test_negatives = [["EN"], ["EN", "HN"]]\nseed = 3')
    experiment = load_experiment(path)
    assert experiment.manifest == path.parent / "../manifests/obygaze12"
    assert experiment.store.as_posix() == "/data/xclip.zarr"
    assert names(experiment) == [("HN vs S", ["EN vs S", "EN+HN vs S"])]
    assert (experiment.labels, experiment.array, experiment.estimators) == (
        None,
        "native",
        ("mlp",),
    )
    assert experiment.seed == 3


def test_one_test_set_needs_no_list_of_lists(written):
    experiment = load_experiment(written(FILE + 'test_negatives = ["EN", "HN"]'))
    assert names(experiment) == [("HN vs S", ["EN+HN vs S"])]


def test_without_test_negatives_tests_what_it_trains(written):
    experiment = load_experiment(written(FILE))
    assert names(experiment) == [("HN vs S", ["HN vs S"])]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sead = 1", r"experiment\.toml: unknown key 'sead'; did you mean seed\?"),
        ("colour = 1", "unknown key 'colour'; known are name, manifest"),
        ('estimators = ["mpl"]', r"unknown estimator 'mpl'; did you mean mlp\?"),
        ("seed = -1", r"experiment\.toml: seed must be a whole number from 0 up \(got -1\)"),
        ("seed = true", r"seed must be a whole number .*got True"),
        ('labels = ["a"]', r"labels must be the name of a label set \(got"),
        ("test_negatives = []", r"test_negatives must be a list of lists .*got \[\]"),
        ('test_negatives = [["S"]]', "level S is both positive and negative"),
        ('test_negatives = [["EN"], ["EN"]]', "the same test set twice"),
        ("seed = ?", r"is not valid TOML: .* line 8"),
        (f"levels = {'[' * 5000}{']' * 5000}", "is not valid TOML: .*recursion|nested"),
        (f'estimators = [{{name = "mlp", as = "{"é" * 150}"}}]', "take at most 200 bytes"),
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


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="there are no devices as files")
def test_a_device_is_not_read(tmp_path):
    (tmp_path / "device.toml").symlink_to("/dev/null")  # of another, such as zero, no end comes
    with pytest.raises(ExperimentError, match="is a device or a pipe, not a file"):
        load_experiment(tmp_path / "device.toml")
    with pytest.raises(ExperimentError, match="is a device or a pipe, not a file"):
        read_lines(tmp_path / "device.toml", dict, "make it again")


def test_an_experiment_made_in_python_is_checked_alike(written):
    experiment = load_experiment(written(FILE))
    assert isinstance(experiment, Experiment)
    with pytest.raises(ExperimentError, match="unknown estimator"):
        replace(experiment, estimators=("forest",))


KINDLESS = """
name = "Concepts"
manifest = "m"
store = "s.zarr"
"""


def test_concepts_by_name_by_alias_or_all(written):
    one = load_experiment(written(KINDLESS + 'concepts = ["Look", "Clothes"]\nnegatives = "c"'))
    assert [train for train, _ in names(one)] == [
        "Look vs HN+S without",
        "Clothing vs HN+S without",
    ]
    everything = load_experiment(written(KINDLESS + 'concepts = "all"'))
    assert [train for train, _ in names(everything)] == [
        f"{name} vs EN" for name in obygaze_scheme().visual_concepts
    ]
    with pytest.raises(ExperimentError, match=r"unknown concept 'Loook'; did you mean Look\?"):
        names(load_experiment(written(KINDLESS + 'concepts = ["Loook"]')))


def test_levels_are_a_class_each(written):
    experiment = load_experiment(written(KINDLESS + 'levels = ["EN", "HN", "S"]'))
    assert names(experiment) == [("EN / HN / S", ["EN / HN / S"])]


def test_estimators_with_options_under_names_of_their_own(written):
    line = 'estimators = ["mlp", {name = "mlp", as = "narrow", hidden_layer_sizes = [8]}]'
    learners = load_experiment(written(FILE + line)).learners
    assert list(learners) == ["mlp", "narrow"]
    assert learners["narrow"].name == "mlp"
    assert learners["narrow"].options["hidden_layer_sizes"] == [8]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('protocol = "leek-free"', r"unknown protocol 'leek-free'; did you mean leak-free\?"),
        ('pooling = "median"', "unknown pooling 'median'; did you mean m"),
        ('negatives = "d"', "unknown set of negatives 'd'; known are a, b, c"),
        ('concepts = ["Look"]', "has positives and concepts; one task at a time"),
        ('estimators = ["mlp", "mlp"]', "two estimators are called 'mlp'"),
        (
            'estimators = [{name = "mlp", batchsize = 8}]',
            r"unknown option 'batchsize'; did you mean batch_size",
        ),
        ("estimators = [{hidden = 8}]", "estimators must be a list of names, or of tables"),
        ('pooling = ["max"]', "pooling must be the name of a pooling"),
    ],
)
def test_mistakes_in_newer_keys_are_one_line(written, line, message):
    with pytest.raises(ExperimentError, match=message) as caught:
        load_experiment(written(FILE + line))
    assert "\n" not in str(caught.value)
    assert "experiment.toml" in str(caught.value)


def test_two_levels_are_a_pair(written):
    with pytest.raises(ExperimentError, match="where three or more different ones are meant"):
        load_experiment(written(KINDLESS + 'levels = ["EN", "S"]'))
    with pytest.raises(ExperimentError, match="the paper's protocol is for two classes"):
        load_experiment(written(KINDLESS + 'levels = ["EN", "HN", "S"]\nprotocol = "paper"'))
