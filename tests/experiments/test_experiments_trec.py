"""Average precision as trec_eval has it, and its run files; trec_eval itself is the oracle."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from obygaze_features.errors import ExperimentError
from obygaze_models.intervals import ScoredClips, film_intervals
from obygaze_models.metrics import trec_average_precision, trec_ranks
from obygaze_models.trec import format_run, read_run_file, run_tag


def oracle(ids, scores, positives, judged=()):
    relevant = dict.fromkeys([*judged], 0) | dict.fromkeys(positives, 1)
    evaluator = pytrec_eval.RelevanceEvaluator({"q": relevant}, {"map"})
    run = dict(zip(ids, map(float, scores), strict=True))
    return evaluator.evaluate({"q": run})["q"]["map"]


def named(count):
    return [f"v{number}" for number in range(1, count + 1)]


WORKED = {
    "ties go to the later id": ([0.9, 0.5, 0.5, 0.5, 0.1], ["v1", "v3"], 0.8333),
    "and so may be kind": ([0.9, 0.5, 0.5, 0.5, 0.1], ["v1", "v4"], 1.0),
    "all tied, the last id positive": ([0.5] * 4, ["v4"], 1.0),
    "no more than 32 bits": ([0.5 + 1e-9, 0.5], ["v1"], 0.5),
    "a positive one that is not returned": ([0.7], ["v1", "v2"], 0.5),
}


@pytest.mark.parametrize("case", WORKED)
def test_worked_numbers(case):
    scores, positives, expected = WORKED[case]
    value = trec_average_precision(named(len(scores)), np.array(scores), positives)
    assert value == pytest.approx(expected, abs=5e-5)
    assert value == pytest.approx(oracle(named(len(scores)), scores, positives), abs=1e-12)


def test_scikit_learn_shares_ranks_where_trec_eval_does_not():
    assert average_precision_score([1, 0, 1, 0, 0], [0.9, 0.5, 0.5, 0.5, 0.1]) == 0.75


@given(st.integers(0, 2**32))
def test_random_rankings_with_ties(seed):
    chance = np.random.default_rng(seed)
    count = int(chance.integers(1, 80))
    kinds = ["ACCEDE{:05d}", "v{}", "clip-{}.mp4", "Ä{}", "{}"]
    ids = [kinds[seed % 5].format(number) for number in chance.permutation(1000)[:count]]
    levels = chance.integers(1, 12)
    scores = chance.integers(0, levels, count) / levels - 0.5 * (seed % 2)
    scores += chance.choice([0, 1e-9], count)  # ties once they are rounded
    positives = [clip for clip in ids if chance.random() < 0.3] or ids[:1]
    missing = [f"never-{number}" for number in range(seed % 4)]
    value = trec_average_precision(ids, scores, [*positives, *missing])
    assert value == pytest.approx(oracle(ids, scores, [*positives, *missing], ids), abs=1e-12)


def test_without_positives_it_is_undefined_and_without_hits_zero():
    assert trec_average_precision(["a"], np.array([0.5]), []) is None
    assert trec_average_precision(["a"], np.array([0.5]), ["b"]) == 0
    assert trec_average_precision([], np.array([]), ["b"]) == 0


def test_scores_beyond_32_bits_are_ties():
    ids, scores = ["a", "b"], np.array([1e40, 1e39])
    assert trec_average_precision(ids, scores, ["a"]) == oracle(ids, scores, ["a"]) == 0.5


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_a_run_file_says_what_was_written(values):
    ids, scores = named(len(values)), np.array(values)
    text = format_run("violence", ids, scores, run_tag("mlp", external_data=True))
    ranks = [int(line.split()[3]) for line in text.splitlines()]
    assert ranks == list(range(1, len(ids) + 1))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "run").write_text(text)
        read = read_run_file(Path(folder, "run"))
    assert dict(zip(read.names, read.scores, strict=True)) == dict(zip(ids, values, strict=True))
    assert (read.topic, read.tag, read.external_data) == ("violence", "mlp-external-data", True)


@pytest.mark.parametrize(
    ("tag", "external"),
    [
        (run_tag("mlp", external_data=True), True),
        (run_tag("mlp", external_data=False), False),
        ("run1", None),
    ],
)
def test_a_tag_says_whether_external_data_was_used(tag, external, tmp_path):
    (tmp_path / "run").write_text(f"1 Q0 a 1 0.5 {tag}\n\n1\tQ0\tb\t2\t0.25\t{tag}\n")
    read = read_run_file(tmp_path / "run")
    assert (read.external_data, read.names) == (external, ["a", "b"])


BROKEN = {
    "an id twice": ("1 Q0 a 1 0.5 t\n1 Q0 a 2 0.4 t\n", "line 2: duplicate id 'a'"),
    "a word too few": ("1 Q0 a 1 0.5\n", "line 1: 5 words, where a run file has six"),
    "a score that is none": ("1 Q0 a 1 high t\n", "line 1: score 'high' is not a number"),
    "a score that is no number": ("1 Q0 a 1 nan t\n", "line 1: score 'nan' is not a number"),
    "a score that C reads otherwise": ("1 Q0 a 1 1_0 t\n", "line 1: score '1_0' is not a number"),
    "a score beyond all": ("1 Q0 a 1 1e999 t\n", "line 1: score '1e999' is not a number"),
    "two topics": ("1 Q0 a 1 0.5 t\n2 Q0 b 1 0.5 t\n", "line 2: topic '2' after '1'"),
    "two tags": ("1 Q0 a 1 0.5 t\n1 Q0 b 1 0.5 u\n", "line 2: tag 'u' after 't'"),
    "nothing": ("\n", "is empty; a run file has a line a clip"),
    "no text": (b"\xff\xfe", "is not UTF-8"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_bad_run_files(case, tmp_path):
    text, message = BROKEN[case]
    (tmp_path / "run").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ExperimentError) as error:
        read_run_file(tmp_path / "run")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_run_file_that_is_not_there(tmp_path):
    with pytest.raises(ExperimentError, match="cannot be read: No such file"):
        read_run_file(tmp_path / "run")


def test_its_interval_is_over_draws_of_films_as_the_others_are():
    """A film that is drawn twice counts as if its clips were there twice, at the same ranks."""
    chance = np.random.default_rng(4)
    labels, scores = chance.integers(0, 2, 60), chance.integers(0, 9, 60) / 8
    ids, films = named(60), [f"film {row % 6}" for row in range(60)]
    scored = ScoredClips(labels, scores, films, trec_ranks(ids, scores))
    low, high = film_intervals([scored], seed=1)["trec_average_precision"]
    positives = [clip for clip, label in zip(ids, labels, strict=True) if label]
    assert low < trec_average_precision(ids, scores, positives) < high
    distinct = replace(scored, probabilities=scored.trec / 60, trec=None)
    assert film_intervals([distinct], seed=1)["average_precision"] == (low, high)
    assert "trec_average_precision" not in film_intervals([distinct], seed=1)
