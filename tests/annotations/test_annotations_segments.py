"""gamma on free segments, against what pygamma-agreement itself comes to."""

import json
import logging
import sys

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.annotations import Segment
from obygaze_features.annotations.agreement_report import agreement_report
from obygaze_features.annotations.grid import read_grid
from obygaze_features.annotations.measures import random_stream
from obygaze_features.annotations.project import project
from obygaze_features.annotations.segment_gamma import segment_gammas
from obygaze_features.errors import MissingExtra
from obygaze_features.manifests import Item, Items, LabelSet

ANN = [(85, 150, "HN"), (150, 215, "S"), (240, 262, "NS"), (262, 300, "NS")]
BEA = [(0, 15, "S"), (110, 130, "S"), (119, 190, "NS"), (200, 300, "NS"), (390, 420, "HN")]


def made(**annotators):
    segments = [
        Segment("f", name, start, end, level)
        for name, spans in annotators.items()
        for start, end, level in spans
    ]
    return of.Timelines.of("made", segments)


@pytest.mark.gate
def test_the_library_comes_to_the_same(caplog):
    from pyannote.core import Segment as Span
    from pygamma_agreement import (
        CombinedCategoricalDissimilarity,
        Continuum,
        PrecomputedCategoricalDissimilarity,
    )
    from sortedcontainers import SortedSet

    handlers = list(logging.getLogger().handlers)
    np.random.seed(3)  # noqa: NPY002
    drawn = np.random.random()  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    [result], remarks = segment_gammas(made(ann=ANN, bea=BEA), samples=30, seed=7)
    assert np.random.random() == drawn  # noqa: NPY002
    assert logging.getLogger().handlers == handlers
    assert caplog.messages == []
    assert remarks == []
    assert (result.film, result.a, result.segments_a, result.b, result.segments_b) == (
        *("f", "ann", 4),
        *("bea", 5),
    )

    continuum = Continuum()
    for name, spans in (("bea", BEA), ("ann", ANN)):
        for start, end, level in spans:
            continuum.add(name, Span(start, end), level)
    matrix = np.array([[0, 3, 7, 10], [3, 0, 4, 7], [7, 4, 0, 3], [10, 7, 3, 0]]) / 10
    categories = PrecomputedCategoricalDissimilarity(SortedSet(["EN", "HN", "NS", "S"]), matrix)
    seed = np.random.SeedSequence([7, random_stream("f", "ann", "bea")])
    np.random.seed(seed.generate_state(4))  # noqa: NPY002
    expected = continuum.compute_gamma(
        CombinedCategoricalDissimilarity(cat_dissim=categories), n_samples=30
    )
    assert result.disorder == pytest.approx(expected.observed_disorder)
    assert result.expected == pytest.approx(expected.expected_disorder)
    assert result.gamma == pytest.approx(
        float(expected.gamma), rel=1e-4
    )  # its are of single precision


@pytest.mark.gate
def test_identical_single_and_swapped_annotators():
    [same], _ = segment_gammas(made(ann=ANN, bea=ANN), samples=5, seed=0)
    assert (same.disorder, same.gamma, same.p) == (0, 1, 1 / 6)
    first = segment_gammas(made(ann=ANN, bea=BEA), samples=5, seed=0)
    assert first == segment_gammas(made(bea=BEA[::-1], ann=ANN[::-1]), samples=5, seed=0)
    result, [issue] = segment_gammas(made(ann=ANN), samples=5, seed=0)
    assert result == []
    assert (issue.film, issue.annotator, issue.action) == ("f", "ann", "left out")


@pytest.fixture
def command(tmp_path):
    timelines = made(ann=ANN, bea=BEA)
    timelines.save(tmp_path / "timelines")
    items = Items.of([Item("f-1", film="f", start=0, end=100)])
    labels = [LabelSet(name, ["f-1"], ["EN"], [()]) for name in ("ann", "bea")]
    of.Manifest("made", items).with_parts(labels=labels).save(tmp_path / "m")
    return ("annotations", "agreement", tmp_path / "m", "--segments", tmp_path / "timelines")


@pytest.mark.gate
def test_the_command(command, tmp_path, obygaze):
    result = obygaze(*command, "--samples", 5, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "gamma on free segments, another measure" in result.output
    assert "these segments are not those that ann, bea were projected from" in result.output
    assert "CBC" not in result.output
    assert "agreement, concepts, confusion, differences and segments as CSV -> " in result.output
    assert (tmp_path / "out/segments.csv").read_text().startswith("film,a,b,segments_a,")
    [row] = json.loads(obygaze(*command, "--samples", 5, "--json").stdout)["segments"]
    assert (row["segments_a"], row["segments_b"]) == (4, 5)
    # Labels of these very timelines raise no issue.
    timelines = made(ann=ANN, bea=BEA)
    grid, _ = read_grid("10", timelines)
    manifest = grid.with_parts(labels=project(timelines, grid).label_sets)
    issues = agreement_report(manifest, timelines=timelines).issues
    assert not any("these segments" in issue.problem for issue in issues)


def test_missing_library_names_the_extra(command, monkeypatch, obygaze):
    monkeypatch.setitem(sys.modules, "pygamma_agreement", None)
    with pytest.raises(MissingExtra, match=r"pip install 'obygaze\[agreement\]'"):
        segment_gammas(made(ann=ANN, bea=BEA), samples=5, seed=0)
    result = obygaze(*command)
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert obygaze(*command[:3]).exit_code == 0
