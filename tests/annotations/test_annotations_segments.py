"""gamma on free segments, against what pygamma-agreement itself comes to."""

import json
import logging
import sys

import numpy as np
import pytest

from obygaze_features.annotations import Segment, Timelines
from obygaze_features.annotations.agreement_report import agreement_report
from obygaze_features.annotations.grid import read_grid
from obygaze_features.annotations.measures import random_stream
from obygaze_features.annotations.project import project
from obygaze_features.annotations.segment_gamma import segment_gammas
from obygaze_features.errors import MissingExtra
from obygaze_features.manifests import Item, Items, LabelSet, Manifest

ANN = [(85, 150, "HN"), (150, 215, "S"), (240, 262, "NS"), (262, 300, "NS")]
BEA = [(0, 15, "S"), (110, 130, "S"), (119, 190, "NS"), (200, 300, "NS"), (390, 420, "HN")]


def made(**annotators):
    segments = [
        Segment("f", name, start, end, level)
        for name, spans in annotators.items()
        for start, end, level in spans
    ]
    return Timelines.of("made", segments)


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
def test_identical_annotators_have_gamma_1_and_order_does_not_matter():
    [same], _ = segment_gammas(made(ann=ANN, bea=ANN), samples=5, seed=0)
    assert (same.disorder, same.gamma, same.p) == (0, 1, 1 / 6)
    one = segment_gammas(made(ann=ANN, bea=BEA), samples=5, seed=0)
    second = segment_gammas(made(bea=BEA[::-1], ann=ANN[::-1]), samples=5, seed=0)
    assert one == second


@pytest.mark.gate
def test_a_film_of_one_annotator_is_named():
    result, [remark] = segment_gammas(made(ann=ANN), samples=5, seed=0)
    assert result == []
    assert (remark.film, remark.annotator, remark.action) == ("f", "ann", "left out")


def save(folder):
    made(ann=ANN, bea=BEA).save(folder / "timelines")
    items = Items.of([Item("f-1", film="f", start=0, end=100)])
    labels = [LabelSet(name, ["f-1"], ["EN"], [()]) for name in ("ann", "bea")]
    Manifest("made", items).with_parts(labels=labels).save(folder / "manifest")
    return folder / "manifest", folder / "timelines"


@pytest.mark.gate
def test_the_command(tmp_path, obygaze):
    manifest, timelines = save(tmp_path)
    result = obygaze(
        *("annotations", "agreement", manifest, "--segments", timelines),
        *("--samples", 5, "-o", tmp_path / "out"),
    )
    assert result.exit_code == 0, result.output
    assert "gamma on free segments, another measure" in result.output
    assert "these segments are not those that ann, bea were projected from" in result.output
    assert "CBC" not in result.output
    assert "agreement, concepts, confusion, differences and segments as CSV -> " in result.output
    assert (tmp_path / "out/segments.csv").read_text().startswith("film,a,b,segments_a,")
    arguments = ("annotations", "agreement", manifest, "--segments", timelines, "--samples", 5)
    [outcome] = json.loads(obygaze(*arguments, "--json").stdout)["segments"]
    assert (outcome["segments_a"], outcome["segments_b"]) == (4, 5)


@pytest.mark.gate
def test_labels_own_timelines_raise_no_issue(tmp_path):
    timelines = made(ann=ANN, bea=BEA)
    grid, _ = read_grid("10", timelines)
    labels = project(timelines, grid).label_sets
    result = agreement_report(grid.with_parts(labels=labels), timelines=timelines)
    assert not any("these segments" in issue.problem for issue in result.issues)


def test_missing_library_names_the_extra(tmp_path, monkeypatch, obygaze):
    monkeypatch.setitem(sys.modules, "pygamma_agreement", None)
    with pytest.raises(MissingExtra, match=r"pip install 'obygaze\[agreement\]'"):
        segment_gammas(made(ann=ANN, bea=BEA), samples=5, seed=0)
    manifest, timelines = save(tmp_path)
    result = obygaze("annotations", "agreement", manifest, "--segments", timelines)
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert obygaze("annotations", "agreement", manifest).exit_code == 0
