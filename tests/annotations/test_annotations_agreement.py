"""Agreement: the paper's gamma, kappa and alpha, against definitions and other packages."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, permutations
from statistics import fmean

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, cohen_kappa_score, confusion_matrix

import obygaze_features as of
from obygaze_features.annotations.agreement import find_differences, read_votes
from obygaze_features.annotations.agreement_measures import (
    alpha,
    cohen_kappa,
    confusion,
    distances_of,
    estimate_alpha,
    gamma,
    measures,
    meetings,
)
from obygaze_features.manifests import Item, Items, LabelScheme, LabelSet, Level
from tests.kit.files import csv_rows, write
from tests.kit.floats import close

A = ["EN", "EN", "HN", "S", "EN", "NS", "EN", "S", "HN", "EN"]
B = ["EN", "HN", "HN", "NS", "EN", "S", "EN", "S", "EN", "EN"]
PAPER = distances_of(of.obygaze_scheme())
CODES = ["EN", "HN", "NS", "S"]
#: In tenths, as the paper prints it.
TENTHS = {"ENHN": 3, "ENNS": 7, "ENS": 10, "HNNS": 4, "HNS": 7, "NSS": 3}
OWN = {"origin": "annotator"}
levels = st.lists(st.tuples(st.sampled_from(CODES), st.sampled_from(CODES)), min_size=1)


def table(a, b, codes=CODES):
    ranks = [np.array([codes.index(level) for level in side], int) for side in (a, b)]
    return confusion(*ranks, len(codes))


def apart(a, b):
    tenths = [TENTHS.get("".join(sorted(pair)), 0) for pair in zip(a, b, strict=True)]
    return Fraction(sum(tenths), 10 * len(tenths))


def make_manifest(films, seconds=60.0, spans=None):
    """Return a manifest with equal clips, or with `spans`; a dot is an unlabelled clip."""
    items, labels = [], {}
    for film, annotators in films.items():
        for number in range(max(map(len, annotators.values()))):
            start, end = spans[number] if spans else (number * seconds, (number + 1) * seconds)
            items.append(Item(f"{film}-{number:02}", film=film, media=film, start=start, end=end))
        for name, given_levels in annotators.items():
            for number, level in enumerate(given_levels):
                if level != ".":
                    labels.setdefault(name, {})[f"{film}-{number:02}"] = level
    sets = [
        LabelSet(name, list(level_of), list(level_of.values()), [()] * len(level_of), about=OWN)
        for name, level_of in labels.items()
    ]
    return of.Manifest("made", Items.of(items)).with_parts(*sets)


@given(levels)
def test_gamma_equals_the_exact_definition(pairs):
    """The mean distance over all orders of one annotator's levels is what gamma expects."""
    a, b = zip(*pairs[:5], strict=True)
    values = measures(table(a, b), PAPER)
    assert values["distance"] == close(float(apart(a, b)))
    orders = [apart(a, order) for order in permutations(b)]
    expected = sum(orders) / len(orders)
    ratio = 1 - apart(a, b) / expected if expected else 1
    assert values["gamma"] == close(float(ratio))
    drawn = fmean(float(apart([x], [y])) for x in CODES for y in CODES)
    assert values["gamma_uniform"] == close(1 - float(apart(a, b)) / drawn)
    sure = [pair for pair in pairs[:5] if "NS" not in pair]
    without = gamma(table([x for x, _ in sure], [y for _, y in sure]), PAPER.matrix)
    assert values["gamma_without_not_sure"] == (None if without is None else close(without))


def test_gamma_is_none_where_undefined():
    empty = table([], [])
    assert gamma(empty, PAPER.matrix) is cohen_kappa(empty) is None
    scheme = LabelScheme("tension", (Level("calm", "Calm"), Level("uneasy", "U"), Level("x", "X")))
    distances = distances_of(scheme)
    values = measures(table(["calm", "x"], ["uneasy", "calm"], scheme.codes), distances)
    assert (distances.name, values["distance"]) == ("even", 0.75)
    assert "gamma_without_not_sure" not in values
    backwards = replace(of.obygaze_scheme(), levels=of.obygaze_scheme().levels[::-1])
    assert (distances_of(backwards).matrix == PAPER.matrix[::-1, ::-1]).all()


def test_the_papers_gamma_stands_only_beside_its_own_clips():
    manifest = make_manifest({"tt1": {"ann": A, "ben": B}})
    assert of.agreement(manifest).published is None
    papers = of.agreement(replace(manifest, name="obygaze12")).published
    assert papers == {"gamma": 0.42, "pairs": 23, "gamma_without_not_sure": 0.69}


@given(st.lists(st.lists(st.integers(-1, 3), min_size=5, max_size=5), min_size=2, max_size=9))
def test_alpha_of_any_number_equals_the_krippendorff_package(labels):
    codes = np.array(labels)
    ranks = np.where(codes < 0, np.nan, codes)
    paired = codes[:, (codes >= 0).sum(axis=0) > 1]
    for level in ("nominal", "ordinal"):
        result = alpha(meetings(codes, 4), is_ordinal=level == "ordinal")
        if len({*paired[paired >= 0]}) < 2:
            assert result is None
            continue
        expected = krippendorff.alpha(
            reliability_data=ranks,
            level_of_measurement=level,
            value_domain=[0.0, 1.0, 2.0, 3.0],
        )
        assert result == pytest.approx(expected, abs=1e-9)


def test_alpha_has_an_interval_from_five_films():
    """The report's tests recompute it."""
    films = np.full((5, 2, 2), 2.0)
    assert estimate_alpha(films).interval is not None
    assert estimate_alpha(films[:4]).interval is None


def differences(pairs, spans=None):
    ann, bea = zip(*pairs, strict=True)
    manifest = make_manifest({"c": {"ann": ann, "bea": bea}}, spans=spans)
    return find_differences(read_votes(manifest))


def test_differing_stretches_have_levels_times_and_distance():
    labels = [("EN", "EN"), ("EN", "S"), ("HN", "S"), ("S", "S"), ("EN", "HN"), ("NS", "HN")]
    spans = [(0, 10), (10, 20), (20, 25), (25, 40), (40, 41), (41, 50)]
    first, second = differences(labels, spans)
    assert first == {
        "film": "c", "title": "c", "first": "c-01", "last": "c-02", "clips": 2, "seconds": 15,
        "start": 10, "end": 25, "distance": close(0.85),
        "levels_of_ann": ["EN", "HN"], "levels_of_bea": ["S"],
    }  # fmt: skip
    assert (second["first"], second["last"], second["seconds"]) == ("c-04", "c-05", 10)
    assert second["distance"] == close(0.35)
    # Clips are ordered by time; the longest stretch is first.
    labels = [("EN", "HN"), ("EN", "HN"), ("S", "S"), ("EN", "HN"), ("S", "S"), ("EN", "S")]
    spans = [(1, 2), (0, 1), (2, 3), (3, 50), (50, 51), (51, 53)]
    assert [run["first"] for run in differences(labels, spans)] == ["c-03", "c-01", "c-05"]
    # A shot inside a longer clip does not end a stretch; only an uncovered gap does.
    spans = [(0, 100), (10, 20), (30, 40), (100, 110), (111, 120)]
    runs = differences([("EN", "S")] * 5, spans)
    assert sorted((run["first"], run["clips"], run["end"]) for run in runs) == [
        ("c-00", 4, 110), ("c-04", 1, 120),
    ]  # fmt: skip


LEVEL = st.sampled_from([*CODES, "."])


@given(st.lists(st.tuples(LEVEL, LEVEL), min_size=1, max_size=12))
def test_differences_equal_a_search_over_all_stretches(labels):
    if not any("." not in pair for pair in labels):
        return

    def differs(row):
        return 0 <= row < len(labels) and "." not in labels[row] and len(set(labels[row])) == 2

    runs = {
        (start, end - 1)
        for start, end in combinations(range(len(labels) + 1), 2)
        if all(map(differs, range(start, end))) and not differs(start - 1) and not differs(end)
    }
    result = differences(labels, [(None, None)] * len(labels))
    assert {(int(entry["first"][2:]), int(entry["last"][2:])) for entry in result} == runs


@pytest.fixture
def agreement(obygaze, tmp_path):
    """Run the command on labels of films, and return its output, or its JSON content."""

    def agreement(films, *options, code=0):
        manifest = make_manifest(films)
        about = {"of": {"ann": {}, "bea": {}}}
        merged = replace(manifest.labels("ann"), name="merged", about=about)
        manifest.with_parts(merged).save(tmp_path / "m", overwrite=True)
        result = obygaze("annotations", "agreement", tmp_path / "m", *options, code=code)
        return json.loads(result.stdout) if "--json" in options else result.output

    return agreement


def test_agreement_writes_its_tables(agreement, tmp_path):
    films, out = {"tt0467406": {"ann": A, "bea": B}, "two": {"ann": B, "bea": B}}, tmp_path / "out"
    agreement(films, "-o", out)
    result = agreement(films, "--json")
    assert result["means"]["kappa"] == close((cohen_kappa_score(A, B) + 1) / 2)
    assert result["pairs"][0]["kappa"] == close(cohen_kappa_score(A + B, B + B))
    _, row, identical = csv_rows(out / "pairs.csv")
    assert (row["film"], row["title"], row["a"]) == ("tt0467406", "Juno (2007)", "ann")
    assert (row["distance"], row["gamma"]) == ("0.12", "0.710145")
    assert (identical["distance"], identical["gamma"], identical["kappa"]) == ("0", "1", "1")
    longest, *_ = csv_rows(out / "differences.csv")
    assert (longest["first"], longest["start"], longest["end"]) == ("tt0467406-01", "60", "120")


def test_results_do_not_depend_on_the_order_of_annotators(agreement):
    films = {"one": {"ann": A, "bea": B}}
    result = agreement(films, "--json")
    assert agreement(films, "--json", "--labels", "bea", "--labels", "ann") == result
    for apart in (films | {"two": {"ann": A}}, {"one": {"ann": A}, "two": {"bea": B}}):
        assert "no clip has two annotators' labels" in agreement(apart, code=3)


def test_labels_that_depend_on_each_other_are_not_compared(agreement):
    films = {"one": {"ann": A, "bea": B}}
    for names in (["ann"], ["ann", "ann"], ["ann", "merged"]):
        options = [word for name in names for word in ("--labels", name)]
        output = " ".join(agreement(films, *options, code=2).split())
        assert "ann (annotator), bea (annotator), merged (merge)" in output


CONCEPTS = ["Look", "Body", "Speech"]
LABEL = st.tuples(st.sampled_from(CODES), st.sets(st.sampled_from(CONCEPTS)))


@given(st.lists(st.tuples(LABEL, LABEL), min_size=1, max_size=30))
def test_label_sets_are_compared_as_by_scikit_learn(pairs):
    """Each annotator has one more clip, and their clips are in different orders."""
    ids, (ann, bea) = [f"c{n}" for n in range(len(pairs))], zip(*pairs, strict=True)
    sets = [
        LabelSet(
            name, order, [level for level, _ in marks], [tuple(c) for _, c in marks], about=OWN
        )
        for name, order, marks in (
            ("ann", ["z", *ids], [("S", {"Voice"}), *ann]),
            ("bea", ["y", *ids[::-1]], [("S", {"Voice"}), *bea[::-1]]),
        )
    ]
    items = Items.of([Item(name, film=f"f{name[-1] in '02468'}") for name in ["z", *ids, "y"]])
    result = of.agreement(of.Manifest("m", items).with_parts(*sets))
    a, b = ([level for level, _ in side] for side in (ann, bea))
    [pair] = result.pairs
    assert (pair["clips"], pair["equal"]) == (len(ids), close(accuracy_score(a, b)))
    counts = [[row[code] for code in CODES] for row in result.pair_levels]
    assert counts == confusion_matrix(a, b, labels=CODES).tolist()
    rows = {row["marked"]: row for row in result.concepts}
    assert rows.keys() == {name for marks in pairs for _, names in marks for name in names} | {
        "Voice"
    }
    for name in rows.keys() - {"Voice"}:
        marks = [[name in own for _, own in side] for side in (ann, bea)]
        shares = [sum(mark) / (len(ids) + 1) for mark in marks]
        row = rows[name]
        assert [row["share_of_ann"], row["share_of_bea"]] == close(shares)
        expected = None
        data = np.array(marks, int)
        if np.ptp(data):
            expected = close(krippendorff.alpha(data, level_of_measurement="nominal"))
        assert row["alpha"] == expected


def test_the_agreement_of_nine_people_fits_a_screen(tmp_path, obygaze):
    example = tmp_path / "nine"
    obygaze("annotations", "example", example, code=0)
    timelines = of.Timelines.from_csv(
        example / "segments.csv",
        {"level": "arousal", "concepts": "emotion"},
        example / "films.csv",
        levels=["none", "low", "high"],
    )
    of.project(timelines, 10).save(tmp_path / "m")
    printed = obygaze("annotations", "agreement", tmp_path / "m", code=0)
    assert len(printed.output.splitlines()) <= 40


#: The JSON of label sets, their origin, and whether that is an annotator.
MADE = {
    "said": ({"origin": "annotator"}, "annotator", True),
    "ruled": ({"origin": "rule", "annotator": "by mistake"}, "rule", False),
    # As earlier versions wrote them.
    "projected": ({"annotator": "Ann", "rule": "a segment counts"}, "annotator", True),
    "copied": ({"rule": "as in clips.csv"}, "", False),
    "vouched": ({"rule": "as in theirs.csv"}, "", True),
    "derived": ({"rule": "visual concepts only"}, "rule", False),
    "both": ({"rule": "the highest", "of": {"projected": {}, "derived": {"rule": "v"}}},
             "merge", False),
    "more": ({"of": {"both": {"of": {"vouched": {}}}, "ruled": {"origin": "rule"}}},
             "merge", False),
}  # fmt: skip


def test_the_annotator_of_a_label_set_is_read_from_its_json(tmp_path):
    folder = tmp_path / "m"
    of.Manifest("m", Items.of([Item("a", film="f")])).save(folder)
    for name, (about, _, _) in MADE.items():
        write(folder / f"labels/{name}.csv", "id,level", "a,S")
        write(folder / f"labels/{name}.json", json.dumps(about))
    manifest = of.Manifest.load(folder)
    origins = {name: manifest.labels(name).origin for name in MADE}
    assert origins == {name: origin for name, (_, origin, _) in MADE.items()}
    assert manifest.annotators == sorted(name for name, (*_, is_one) in MADE.items() if is_one)
    assert manifest.labels("more").merged_annotators == ["vouched"]


def test_a_table_with_a_named_annotator_is_compared_with_any_other(tmp_path, obygaze):
    folder, rows = tmp_path / "m", ["a,f,S", "b,f,EN", "c,f,S", "d,f,EN"]
    first = write(tmp_path / "first.csv", "id,film,level", *rows)
    second = write(tmp_path / "second.csv", "id,level", "a,EN", "b,EN", "c,S", "d,EN")
    obygaze("manifests", "import", "csv", first, "-o", folder, "--annotator", "Ann B.", code=0)
    obygaze("manifests", "label", folder, second, code=0)
    assert of.Manifest.load(folder).annotators == ["Ann_B"]
    # The second label set has no origin; naming it makes it an annotator's.
    agree = ("annotations", "agreement", folder, "--labels", "Ann_B", "--labels", "second")
    [pair] = json.loads(obygaze(*agree, "--json", code=0).stdout)["pairs"]
    assert (pair["a"], pair["b"], pair["equal"]) == ("Ann B.", "second", 0.75)
